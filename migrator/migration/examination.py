"""Reads from ZooKeeper the facts that `guards` and `readiness` judge: who controls the cluster, and which brokers run.

The executors call it for the driver, on a thread, because it blocks; preflight and rehearse call it for their reports.
It only reads, and decides nothing. `read_standing`, `read_brokers` and `read_present` ask ZooKeeper to catch up first,
so who controls the cluster is not older than the call. A znode that does not decode is a fault in the answer, not an
exception.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from migrator.image.model import MetadataImage
from migrator.migration.machine.guards import UNREADABLE, Standing
from migrator.migration.machine.progress import Meter, MeteredSource, Working
from migrator.migration.machine.readiness import Gap, ZooKeeperBrokers
from migrator.migration.machine.strays import Running
from migrator.migration.ports import ReadPort
from migrator.migration.translate.source import names_below
from migrator.records.metadata import Endpoint
from migrator.zookeeper.ops import ZkSource
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import decode_broker
from migrator.zookeeper.znodes.cluster_id import decode_cluster_id
from migrator.zookeeper.znodes.controller import ControllerClaim
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.topics import decode_topic


def read_standing(zookeeper: ReadPort) -> Standing:
    """Read who controls the cluster, as ZooKeeper shows it. The caller adds what the log knows.

    :raises MigratorError: ZooKeeper cannot be read. A znode that does not decode, or a missing cluster
        (`NoClusterError`), is reported as `Standing.fault` instead.
    """
    try:
        (node,) = zookeeper.reader.read([paths.CLUSTER_ID])
        if node is None:
            return Standing(None, UNREADABLE, fault=zookeeper.no_cluster())
        cluster_id = decode_cluster_id(node.path, node.data)
        view = zookeeper.view()
    except ZnodeError as fault:
        return Standing(None, UNREADABLE, fault=fault)
    return Standing(cluster_id, view)


def read_brokers(
    zookeeper: ReadPort,
    image: MetadataImage,
    alive: Callable[[Working], None] = lambda _: None,
    replicas: frozenset[int] | None = None,
) -> tuple[ZooKeeperBrokers, ControllerClaim | None]:
    """Read the brokers that ZooKeeper knows, and who holds /controller; both not older than the call.

    Assignments are read only once every broker in /brokers/ids has registered, or while no broker runs: this function
    is polled, and reading many topics takes a second. Until then it is unknown whether a stopped broker holds replicas,
    so no broker is named only because it has a dynamic configuration.

    :param alive: called as the reading goes on.
    :param replicas: the broker ids in assignments, if they are known; they are not read then.
    :raises MigratorError: when ZooKeeper cannot be read.
    """
    holder = zookeeper.view().controller
    brokers = read_registered(zookeeper.reader)
    if brokers.listeners.keys() <= set(image.cluster.brokers):
        if replicas is None:
            replicas = read_replicas(MeteredSource(zookeeper.reader, Meter(alive, time.monotonic)))
        return replace(brokers, replicas=replicas), holder
    return replace(brokers, configured=frozenset()), holder


def read_present(zookeeper: ReadPort) -> ZooKeeperBrokers:
    """Read the brokers that run now: the answer is not older than the call, whichever server gives it.

    :raises MigratorError: when ZooKeeper cannot be read.
    """
    zookeeper.view()
    return read_registered(zookeeper.reader)


def read_registered(reader: ZkSource) -> ZooKeeperBrokers:
    """Read the brokers in /brokers/ids and those with a dynamic configuration, but no assignments.

    :raises MigratorError: when ZooKeeper cannot be read.
    """
    faults: list[Gap] = []
    endpoints: dict[int, tuple[Endpoint, ...]] = {}
    born: dict[int, int] = {}
    ids = [name for name in names_below(reader, paths.BROKER_IDS) if name.isdecimal()]
    for name, node in zip(ids, reader.read(f"{paths.BROKER_IDS}/{name}" for name in ids), strict=True):
        if node is None:
            continue
        born[int(name)] = node.stat.czxid
        try:
            endpoints[int(name)] = decode_broker(node.path, node.data).endpoints
        except ZnodeError as fault:
            faults.append(Gap(fault.where, fault.what, fault.remedy))
    configured = frozenset(int(name) for name in names_below(reader, paths.BROKER_CONFIGS) if name.isdecimal())
    listeners = {broker_id: frozenset(end.name for end in ends) for broker_id, ends in endpoints.items()}
    return ZooKeeperBrokers(listeners, frozenset(), configured, tuple(faults), born, endpoints)


def read_running(reader: ZkSource) -> Running:
    """Read which brokers run in ZooKeeper mode.

    :raises MigratorError: when ZooKeeper cannot be read.
    """
    ids = [int(name) for name in names_below(reader, paths.BROKER_IDS) if name.isdecimal()]
    znodes = zip(ids, reader.read(map(paths.broker, ids)), strict=True)
    return Running({broker_id: znode.stat.czxid for broker_id, znode in znodes if znode is not None})


def read_replicas(reader: ZkSource) -> frozenset[int]:
    """Read every broker id in any assignment. A znode that does not decode is skipped: the first reading reports it.

    :raises MigratorError: when ZooKeeper cannot be read.
    """
    found: set[int] = set()
    topics = names_below(reader, paths.TOPICS)
    for node in reader.read(map(paths.topic, topics)):
        if node is None:
            continue
        try:
            for replicas in decode_topic(node.path, node.data).partitions.values():
                found.update(replicas)
        except ZnodeError:
            continue
    return frozenset(found)
