"""Kafka 3.9's manual, "ZooKeeper to KRaft Migration", performed as printed with our controllers instead of Kafka's.

The first controller is formatted with ``--standalone``, the two others join by Kafka's own command, and brokers find
them by ``controller.quorum.bootstrap.servers``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kio.schema.errors import ErrorCode

from migrator.controller.quorum_target import target_of
from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.observe.voters import VoterOrder
from migrator.parts.kafka import StockKafka
from migrator.records.metadata import ZkMigrationState
from migrator.verify.kraft.files import EmptyLogError
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import Admin
from tests.interop.support.manual import ManualCluster
from tests.interop.support.stages import broker_is_controller, stage

TOPIC = "orders"
PARTITIONS = 3
NOT_COPIED = (ErrorCode.not_controller, "before the metadata has been copied")
"""To any AlterPartitionReassignments: clients try again, and hear the other reason after the copy."""
REFUSAL = "The voters cannot be changed during a migration"


@pytest.fixture
def cluster(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> Iterator[ManualCluster]:
    """Two brokers in ZooKeeper mode, and three controllers that are not formatted yet."""
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with ManualCluster(kafka_391, tmp_path, zookeeper.hosts) as cluster:
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        Admin(cluster.bootstrap, 2).create(TOPIC, PARTITIONS, 2)
        yield cluster


@pytest.mark.lane("test-long")
def test_the_manual_as_printed(cluster: ManualCluster, zookeeper_client: KazooClient) -> None:
    admin = Admin(cluster.bootstrap, 2)
    first, second, third = cluster.controllers
    with Traffic(cluster.bootstrap, TOPIC) as traffic:
        begin = time.monotonic()
        with stage("the controllers are provisioned"):
            provision(cluster)
            targets_are_refused(cluster)
        with stage("brokers enter migration mode"):
            enter_migration_mode(cluster, admin)
            targets_are_refused(cluster)
            assert f"controller {first.node_id} still runs" in cluster.rolled_back()
        with stage("a voter leaves and comes back while both sides are written"):
            follower = next(each for each in (second, third) if each is not cluster.leading())
            assert "Removed" in cluster.remove(follower)
            assert follower.node_id not in cluster.voters()
            assert f"Added controller {follower.node_id}" in cluster.add(follower)
            admin.create("hybrid", 2, 2)
            until("it is in ZooKeeper", lambda: zookeeper_client.exists(paths.partition_state("hybrid", 1)))
        with stage("the leader is killed"):
            cluster.kill_leader()
            until("the next leader dual-writes", lambda: cluster.migration_state() == "dual-writing")
        with stage("brokers migrate to KRaft"):
            cluster.roll_brokers(KafkaBrokerMode.KRAFT, admin.in_sync)
            until("no broker is left in ZooKeeper mode", lambda: cluster.running_brokers() == {1: False, 2: False})
            admin.create("dual", 1, 2)
            until("dual-write goes on", lambda: zookeeper_client.exists(paths.partition_state("dual", 0)))
            targets_are_refused(cluster)
        with stage("the migration is finalized"):
            cluster.finish_migration()
            until("the migration is finished", lambda: cluster.public_states() == {"Finished"})
            admin.create("later", 1, 2)
            assert not zookeeper_client.exists(paths.topic("later"))
        with stage("the voters can be changed by a target"):
            survivors = f"{first.node_id},{second.node_id}"
            said = cluster.ordered("reassign", "--to", survivors, "--wait")
            until("two voters are left", lambda: set(cluster.voters()) == {first.node_id, second.node_id})
            assert survivors in said
            assert cluster.asked_by_admin_client(first.node_id, second.node_id, third.node_id)[0] is ErrorCode.none
            until("three voters are back", lambda: len(cluster.voters()) == 3)
        until("messages are acknowledged", traffic.goes_on)
        pause = traffic.longest_pause(begin)
        traffic.stop()
    assert traffic.errors == []
    values = consume(cluster.bootstrap, TOPIC, "auditors", traffic.sent)
    assert sorted(map(int, values)) == list(range(traffic.sent))
    print(f"{traffic.sent} records produced and read back, 0 lost, longest pause {pause:.1f} s")  # noqa: T201 - with -rP


@pytest.mark.lane("test-long")
def test_the_way_back(cluster: ManualCluster, zookeeper_client: KazooClient) -> None:
    """The voters are in the log alone: the command finds there whose logs are enough, and who must not run."""
    admin = Admin(cluster.bootstrap, 2)
    with Traffic(cluster.bootstrap, TOPIC) as traffic:
        with stage("to dual-write"):
            provision(cluster)
            enter_migration_mode(cluster, admin)
            admin.create("hybrid", 2, 2)
            until("it is in ZooKeeper", lambda: zookeeper_client.exists(paths.partition_state("hybrid", 1)))
        with stage("back"):
            cluster.stop_controllers()
            said = cluster.rolled_back()
            assert "is the controller" in said, said
            assert "warning" not in said, said
            assert broker_is_controller(zookeeper_client)
            cluster.roll_brokers(KafkaBrokerMode.ZOOKEEPER, admin.in_sync)
            admin.create("after", 2, 2)
            until("all is in sync", admin.in_sync)
        traffic.stop()
    assert traffic.errors == []
    values = consume(cluster.bootstrap, TOPIC, "auditors", traffic.sent)
    assert sorted(map(int, values)) == list(range(traffic.sent))
    print(f"{traffic.sent} records produced and read back, 0 lost")  # noqa: T201 - shown with -rP


def provision(cluster: ManualCluster) -> None:
    """One controller by itself, and two that Kafka's own command adds, when the migration is in the log already."""
    first, second, third = cluster.controllers
    cluster.start_controller(first, "--standalone")
    until("the log says that a migration is to come", lambda: state(cluster) is ZkMigrationState.PRE_MIGRATION)
    for controller in (second, third):
        cluster.start_controller(controller, "--no-initial-controllers")
        assert f"Added controller {controller.node_id}" in cluster.add(controller)
    assert set(cluster.voters()) == {first.node_id, second.node_id, third.node_id}


def enter_migration_mode(cluster: ManualCluster, admin: Admin) -> None:
    """Roll the brokers, and wait for dual-write."""
    cluster.roll_brokers(KafkaBrokerMode.MIGRATING, admin.in_sync)
    until("dual-write", lambda: cluster.migration_state() == "dual-writing")
    until("both brokers are unfenced", lambda: cluster.running_brokers() == {1: True, 2: True})


def state(cluster: ManualCluster) -> ZkMigrationState | None:
    """The migration state in the log of the first controller; None without a record of it."""
    try:
        return cluster.controllers[0].image().features.zk_migration_state
    except EmptyLogError:
        return None


def targets_are_refused(cluster: ManualCluster) -> None:
    """Each way of asking gets the reason, and no target is set."""
    ids = ",".join(str(controller.node_id) for controller in cluster.controllers)
    last = cluster.controllers[-1].node_id
    assert REFUSAL in cluster.ordered("reassign", "--to", ids)
    for order, voters in ((VoterOrder.TO, ids), (VoterOrder.ADD, "3999"), (VoterOrder.REMOVE, str(last))):
        assert REFUSAL in cluster.asked_by_grpc(order, voters)
    code, message = cluster.asked_by_admin_client(*(controller.node_id for controller in cluster.controllers))
    expected = NOT_COPIED if state(cluster) is ZkMigrationState.PRE_MIGRATION else (ErrorCode.invalid_request, REFUSAL)
    assert (code, expected[1] in message) == (expected[0], True), (code, message)
    assert target_of(cluster.leading().image()) is None
