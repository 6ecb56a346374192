"""Looks at ZooKeeper: which brokers are registered, which node is the controller, how far the quorum has written.

The observer calls `ZooKeeperEyes.look` on a thread. A look takes a bounded time, raises nothing and writes nothing; a
fact that could not be read is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from migrator.errors import MigratorError
from migrator.records.metadata import Endpoint
from migrator.rollout.seeing.brokers import MIN_ISR, own_min_isr
from migrator.values import value
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.ops import Znode
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import decode_broker
from migrator.zookeeper.znodes.cluster_id import decode_cluster_id
from migrator.zookeeper.znodes.configs import decode_config
from migrator.zookeeper.znodes.controller import decode_controller
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.migration import decode_migration

ASK_SECONDS = 3.0
READ = (paths.TOPICS, paths.DELETE_TOPICS, paths.CLUSTER_ID, paths.CONTROLLER, paths.MIGRATION, paths.ROLLOUT)


@value
class RegisteredBroker:
    """``czxid``: of its znode; it changes with each start. ``age_ms``: for how long the znode exists at least, by the
    times that ZooKeeper's own clock has given to later writes."""

    czxid: int
    endpoints: tuple[Endpoint, ...]
    rack: str = ""
    age_ms: int = 0


@value
class ZooKeeperLook:
    """``brokers``: None while ZooKeeper does not answer. ``written_offset`` and ``written_epoch``: of ``/migration``;
    -1 without one. ``topics``: how many there are, without those that are being deleted. ``controller_broker``: the
    broker that is the controller; None when none is, or the quorum. ``quorum_rules``: whether the quorum is the
    controller, or may be."""

    brokers: Mapping[int, RegisteredBroker] | None = None
    cluster_id: str = ""
    controller_broker: int | None = None
    quorum_rules: bool = False
    written_offset: int = -1
    written_epoch: int = -1
    topics: int = 0
    unknown: tuple[str, ...] = ()


class ZooKeeperEyes:
    """Looks through one session.

    :param session: started, but not necessarily connected.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._reader = BulkReader(session, retry_seconds=ASK_SECONDS)

    def look(self) -> ZooKeeperLook:
        """Look once. Blocks for a bounded time; raises nothing."""
        try:
            if not self._session.wait_connected(ASK_SECONDS):
                raise self._session.away("ZooKeeper does not answer")
            self._reader.catch_up()
            (names,) = self._reader.children([paths.BROKER_IDS])
            ids = [int(name) for name in names or () if name.isdecimal()]
            znodes = tuple(self._reader.read([*READ, *map(paths.broker, ids)]))
        except MigratorError as error:
            return ZooKeeperLook(unknown=(f"ZooKeeper: {error}",))
        topics, deleted, cluster, controller, migration, _, *brokers = znodes
        now_ms = max((znode.stat.mtime_ms for znode in znodes if znode is not None), default=0)
        unknown: list[str] = []
        found = {
            broker_id: _registered(znode, now_ms, unknown)
            for broker_id, znode in zip(ids, brokers, strict=True)
            if znode is not None
        }
        try:
            look = _look(found, cluster, controller, migration, tuple(unknown))
            return replace(look, topics=max(0, _children(topics) - _children(deleted)))
        except ZnodeError as error:  # then the controller is unknown: it may be the quorum
            return ZooKeeperLook(found, quorum_rules=True, unknown=(*unknown, str(error)))

    def min_isr_of(self, topics: Sequence[str]) -> dict[str, int] | str:
        """``min.insync.replicas`` of those of these topics that have one of their own; or why it is unknown. Blocks for
        a bounded time.

        ZooKeeper gives 25,000 of them in a second. A broker in ZooKeeper mode would read them there one by one.
        """
        found: dict[str, int] = {}
        try:
            for topic, znode in zip(topics, self._reader.read(map(paths.topic_config, topics)), strict=True):
                least = 0 if znode is None else own_min_isr(_config(znode))
                if least:
                    found[topic] = least
        except MigratorError as error:
            return f"ZooKeeper does not tell {MIN_ISR} of topics: {error}"
        return found


def _config(znode: Znode) -> Mapping[str, str]:
    try:
        return decode_config(znode.path, znode.data)
    except ZnodeError:
        return {}  # brokers ignore such a znode, too


def _look(
    brokers: Mapping[int, RegisteredBroker],
    cluster: Znode | None,
    controller: Znode | None,
    migration: Znode | None,
    unknown: tuple[str, ...],
) -> ZooKeeperLook:
    claim = None if controller is None else decode_controller(controller.path, controller.data)
    # Kafka's tools may leave a /migration with null data, which counts as none.
    written = decode_migration(migration.path, migration.data) if migration is not None and migration.data else None
    return ZooKeeperLook(
        brokers,
        cluster_id="" if cluster is None else decode_cluster_id(cluster.path, cluster.data),
        controller_broker=None if claim is None or claim.is_kraft else claim.broker_id,
        quorum_rules=claim is not None and claim.is_kraft,
        written_offset=-1 if written is None else written.kraft_metadata_offset,
        written_epoch=-1 if written is None else written.kraft_metadata_epoch,
        unknown=unknown,
    )


def _children(znode: Znode | None) -> int:
    return 0 if znode is None else znode.stat.children_count


def _registered(znode: Znode, now_ms: int, unknown: list[str]) -> RegisteredBroker:
    """
    :param now_ms: a time by ZooKeeper's clock, not later than now: each command that touches anything writes the
        lock.
    """
    age_ms = max(0, now_ms - znode.stat.mtime_ms)
    try:
        broker = decode_broker(znode.path, znode.data)
    except ZnodeError as error:
        unknown.append(str(error))
        return RegisteredBroker(znode.stat.czxid, (), age_ms=age_ms)
    return RegisteredBroker(znode.stat.czxid, broker.endpoints, broker.rack or "", age_ms)
