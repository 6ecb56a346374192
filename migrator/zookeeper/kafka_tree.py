"""All that Kafka has in ZooKeeper: listed, kept as lines of JSON, and removed in the end. Znodes of others stay."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterator, Sequence

import orjson
from kazoo.exceptions import NoAuthError, NoNodeError, NotEmptyError
from kazoo.interfaces import IAsyncResult

from migrator.errors import OperatorError
from migrator.zookeeper.ops import ZkSource
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths

IN_FLIGHT = 500
OTHERS = ("/controller", "/controller_epoch", "/migration", "/cluster", "/feature", "/admin", paths.ROLLOUT)


def roots() -> tuple[str, ...]:
    """The topmost znodes of Kafka, and that of a rollout."""
    tops = (f"/{path.split('/')[1]}" for path in (*paths.STANDARD_PATHS, *paths.SECURITY_PATHS, *OTHERS))
    return tuple(dict.fromkeys(tops))


def every_path(source: ZkSource) -> Iterator[str]:
    """Each znode that is there, parents before their children. Errors as `BulkReader.children`."""
    level: list[str] = list(roots())
    while level:
        below: list[str] = []
        for path, names in zip(level, source.children(level), strict=True):
            if names is not None:
                yield path
                below += [f"{path}/{name}" for name in names]
        level = below


def lines_of(source: ZkSource) -> Iterator[bytes]:
    """Each znode as a line of JSON, with its data in base64: what ZooKeeper holds, secrets too."""
    for znode in source.read(every_path(source)):
        if znode is not None:
            content = {
                "path": znode.path,
                "data": None if znode.data is None else base64.b64encode(znode.data).decode(),
                "version": znode.stat.version,
                "mzxid": znode.stat.mzxid,
            }
            yield orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)


def remove(session: ZooKeeperSession, found: Sequence[str]) -> int:
    """Delete znodes, children first; gives how many there were. Safe to repeat.

    :param found: parents before their children.
    :raises OperatorError: somebody creates znodes meanwhile.
    """
    pending: deque[tuple[str, IAsyncResult]] = deque()
    removed = 0

    def settle() -> int:
        path, result = pending.popleft()
        try:
            session.wait_for(result)
        except NoNodeError:
            return 0
        except NoAuthError as error:
            raise session.refusal(error, "the znode is not removed", path) from error
        except NotEmptyError:
            raise OperatorError(
                "somebody creates znodes while they are removed",
                where=path,
                remedy="Find out who still uses ZooKeeper; then repeat the command",
            ) from None
        return 1

    for path in reversed(found):
        if len(pending) >= IN_FLIGHT:
            removed += settle()
        pending.append((path, session.client.delete_async(path)))
    while pending:
        removed += settle()
    return removed
