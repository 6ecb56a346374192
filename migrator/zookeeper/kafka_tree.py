"""Lists the znodes of Kafka, without those of other software, and writes them as lines of JSON for their removal.

The last step of a rollout and the drill use it. A line holds everything that is needed to create the znode again. A
deletion applies only to the version that was listed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import orjson

from migrator.zookeeper.ops import Delete, ZkSource
from migrator.zookeeper.znodes import paths

OTHERS = ("/controller", "/controller_epoch", "/migration", "/cluster", "/feature", "/admin", paths.ROLLOUT)


def roots() -> tuple[str, ...]:
    """The top znodes of Kafka, and that of a rollout."""
    tops = (f"/{path.split('/')[1]}" for path in (*paths.STANDARD_PATHS, *paths.SECURITY_PATHS, *OTHERS))
    return tuple(dict.fromkeys(tops))


def every_path(source: ZkSource) -> Iterator[str]:
    """The path of each znode, parents before their children. Errors as `BulkReader.children`."""
    level: list[str] = list(roots())
    while level:
        below: list[str] = []
        for path, names in zip(level, source.children(level), strict=True):
            if names is not None:
                yield path
                below += [f"{path}/{name}" for name in names]
        level = below


def lines_of(source: ZkSource) -> Iterator[bytes]:
    """Each znode as a line of JSON, with its data in base 64. The data may be secret."""
    for znode in source.read(every_path(source)):
        if znode is not None:
            content = {
                "path": znode.path,
                "data": None if znode.data is None else base64.b64encode(znode.data).decode(),
                "version": znode.stat.version,
                "mzxid": znode.stat.mzxid,
            }
            yield orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)


def delete_of(line: bytes) -> Delete:
    """The deletion of the znode in a line of `lines_of`, on condition that it has not changed.

    :raises ValueError: the line is malformed.
    """
    try:
        znode = orjson.loads(line)
        return Delete(str(znode["path"]), int(znode["version"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("not a line of a copy") from error
