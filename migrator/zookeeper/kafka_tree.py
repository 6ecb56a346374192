"""The znodes of Kafka, without those of other software: lists them, and makes an empty ZooKeeper that of a cluster.

The last step of a rollout writes each znode as a line of JSON, which holds its path, data and version, and deletes it
only at that version. `migrator reopen` and the rehearsal of the way back call `make_cluster`, which writes
``/cluster/id`` and ``/controller_epoch``: otherwise only brokers in ZooKeeper mode create them (``KafkaServer``,
``KafkaZkClient``), and such a broker would become the controller of an empty cluster.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import orjson
from kazoo.exceptions import KazooException

from migrator.errors import OperatorError
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.ops import Applied, Create, Delete, ZkSource
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import decode_cluster_id, encode_cluster_id
from migrator.zookeeper.znodes.controller import encode_controller_epoch

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


FIRST_EPOCH = 0
"""Kafka's ``KafkaController.InitialControllerEpoch``; a claim takes the next one."""


def make_cluster(session: ZooKeeperSession, cluster_id: str) -> bool:
    """Write both znodes, and the chroot if it is missing. Returns False when they are there already.

    :raises OperatorError: other znodes of Kafka are there, or another client writes at the same time.
    """
    session.sync()
    found = list(BulkReader(session).read([*roots(), paths.CLUSTER_ID]))
    known = [znode for znode in found if znode is not None]
    last = found[-1]
    has_epoch = any(znode.path == paths.CONTROLLER_EPOCH for znode in known)
    if last is not None and has_epoch and decode_cluster_id(last.path, last.data) == cluster_id:
        return False
    if known:
        raise OperatorError(
            f"this ZooKeeper is not empty: it has {', '.join(znode.path for znode in known[:5])}",
            where=session.options.hosts,
            remedy="Nothing was written. If it is the ZooKeeper of this cluster, leave the option out. Otherwise give "
            "an empty one, or another chroot, in zookeeper.connect of every controller and broker",
        )
    try:
        session.wait_for(session.client.ensure_path_async("/", acl=session.acl_of("/")))
    except KazooException as error:
        raise session.refusal(error, "the chroot cannot be created") from error
    outcome = ConditionalWriter(session).write(
        [
            Create(paths.parent_of(paths.CLUSTER_ID), None),
            Create(paths.CLUSTER_ID, encode_cluster_id(cluster_id)),
            Create(paths.CONTROLLER_EPOCH, encode_controller_epoch(FIRST_EPOCH)),
        ]
    )
    if not isinstance(outcome, Applied):
        raise OperatorError(
            f"the znodes of the cluster were not written: {outcome}",
            where=session.options.hosts,
            remedy="Find out who else writes to this ZooKeeper; then repeat the command",
        )
    return True
