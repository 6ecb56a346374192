"""The reading before a migration, from a real ZooKeeper."""

from __future__ import annotations

from kazoo.client import KazooClient

from migrator.image.model import EMPTY_IMAGE
from migrator.migration.examination import read_brokers, read_registered, read_running
from migrator.node.migration.runtime import NodeZooKeeper
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import BrokerRegistrationZnode, encode_broker
from tests.conftest import ZooKeeperSpace


def test_names_that_only_look_like_broker_ids_are_none(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient
) -> None:
    """A superscript is a digit, and no number."""
    for name in ("7", "²", "<default>"):
        zookeeper_client.create(f"{paths.BROKER_CONFIGS}/{name}", makepath=True)
    zookeeper_client.create(f"{paths.BROKER_IDS}/²", makepath=True)
    with ZooKeeperSession(SessionOptions(zookeeper.hosts)) as session:
        found = read_registered(NodeZooKeeper(session).reader)
        polled, holder = read_brokers(NodeZooKeeper(session), EMPTY_IMAGE)
    assert found.configured == frozenset({7})
    assert polled.configured == frozenset({7}), "it is no broker that holds replicas"
    assert (found.listeners, found.faults, holder) == ({}, (), None)


def test_assignments_are_read_while_nobody_runs_and_not_while_somebody_has_not_registered(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient
) -> None:
    zookeeper_client.create(paths.topic("t"), b'{"version":2,"partitions":{"0":[3,7]}}', makepath=True)
    zookeeper_client.create(f"{paths.BROKER_CONFIGS}/8", makepath=True)
    zookeeper_client.ensure_path(paths.BROKER_IDS)
    with ZooKeeperSession(SessionOptions(zookeeper.hosts)) as session:
        nobody, _ = read_brokers(NodeZooKeeper(session), EMPTY_IMAGE)
        known, _ = read_brokers(NodeZooKeeper(session), EMPTY_IMAGE, replicas=frozenset({9}))
        zookeeper_client.create(paths.broker(3), encode_broker(BrokerRegistrationZnode(5, (), None, -1, -1, 0)))
        somebody, _ = read_brokers(NodeZooKeeper(session), EMPTY_IMAGE)
    assert (nobody.replicas, nobody.configured) == (frozenset({3, 7}), frozenset({8}))
    assert known.replicas == frozenset({9}), "what is known is not read again"
    assert (somebody.replicas, somebody.configured) == (frozenset(), frozenset())


def test_each_run_of_a_broker_is_another_one(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> None:
    zookeeper_client.create(f"{paths.BROKER_IDS}/²", makepath=True)
    with ZooKeeperSession(SessionOptions(zookeeper.hosts)) as session:
        reader = NodeZooKeeper(session).reader
        assert read_running(reader).znodes == {}
        runs = []
        for _ in range(2):
            zookeeper_client.create(paths.broker(7), b"{}")
            runs.append(read_running(reader).znodes)
            zookeeper_client.delete(paths.broker(7))
    assert [set(run) for run in runs] == [{7}, {7}]
    assert runs[0] != runs[1]
