"""Unmodified Kafka brokers migrate from ZooKeeper to our controllers, and on to Kafka's own, with traffic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.clients import ANSWER_SECONDS, Traffic, committed, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.parts.kafka import StockKafka
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import Admin, KafkaCluster

TOPIC = "orders"
PARTITIONS = 3
DOOMED = "doomed"
GROUP = "readers"
READ = 100
PAUSE_SECONDS = 8.0
"""Less than a session of a broker that nobody unfences, more than a busy machine makes of a tenth of a second."""
QUOTA = ("--entity-type", "users", "--entity-name", "al ice", "--entity-type", "clients", "--entity-default")
ANYTHING: Any = None
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, ANYTHING, ResourcePatternType.ANY, ANYTHING, ANYTHING, AclOperation.ANY, AclPermissionType.ANY
)


@pytest.fixture
def cluster(
    kafka_391: StockKafka,
    zookeeper: ZooKeeperSpace,
    zookeeper_client: KazooClient,
    tmp_path: Path,
) -> Iterator[KafkaCluster]:
    """Two brokers in ZooKeeper mode, with metadata of every kind, and three controllers."""
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(kafka_391, tmp_path, controllers=3, brokers=2, zookeeper=zookeeper.hosts) as cluster:
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        admin = Admin(cluster.bootstrap, 2)
        admin.create(TOPIC, PARTITIONS, 2, retention_ms="7200000")
        admin.create(DOOMED, 2, 1)
        admin.alter_config(ResourceType.BROKER, "1", "num.io.threads", "5")
        admin.wait(admin.client.create_acls([acl("bob", TOPIC)]))
        change = UserScramCredentialUpsertion("carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"pw")
        admin.wait(admin.client.alter_user_scram_credentials([change]))
        cluster.quotas("--alter", "--add-config", "producer_byte_rate=10000000", *QUOTA)
        yield cluster


def acl(user: str, topic: str) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip


def migrate(cluster: KafkaCluster, admin: Admin) -> None:
    """Start our quorum, restart the brokers in migration mode, and wait for dual-write."""
    cluster.start_controllers()
    until("only brokers are missing", lambda: cluster.migration_state() == "waiting for brokers")
    cluster.roll_brokers(KafkaBrokerMode.MIGRATING, admin.in_sync)
    until("dual-write", lambda: cluster.migration_state() == "dual-writing")
    until("both brokers are unfenced", lambda: cluster.running_brokers() == {1: True, 2: True})


def change_everything(cluster: KafkaCluster, admin: Admin, zookeeper: KazooClient) -> None:
    """Create, alter and delete; all of it must reach ZooKeeper and the brokers."""
    admin.create("fresh", 2, 2, cleanup_policy="compact")
    until("its states are in ZooKeeper", lambda: zookeeper.exists(paths.partition_state("fresh", 1)))
    until("it has leaders", lambda: len([leader for leader in admin.topics().get("fresh", []) if leader > 0]) == 2)
    admin.alter_config(ResourceType.TOPIC, TOPIC, "retention.ms", "3600000")
    until("ZooKeeper has it", lambda: b"3600000" in zookeeper.get(paths.topic_config(TOPIC))[0])
    until("the brokers have it", lambda: admin.topic_config(TOPIC, "retention.ms") == "3600000")
    admin.wait(admin.client.create_partitions([NewPartitions("fresh", 3)]))
    until("it has grown in ZooKeeper", lambda: zookeeper.exists(paths.partition_state("fresh", 2)))
    admin.wait(admin.client.create_acls([acl("dave", "fresh")]))
    until("the brokers know both", lambda: users_with_acls(admin) == {"User:bob", "User:dave"})
    admin.delete(DOOMED)
    until("ZooKeeper forgets it", lambda: not zookeeper.exists(paths.topic(DOOMED)))
    until("the brokers forget it", lambda: DOOMED not in admin.topics())
    assert "producer_byte_rate=1.0E7" in cluster.quotas("--describe", *QUOTA)


def users_with_acls(admin: Admin) -> set[str]:
    return {found.principal for found in admin.client.describe_acls(EVERY_ACL).result(ANSWER_SECONDS)}


def assert_nothing_is_lost(cluster: KafkaCluster, traffic: Traffic) -> None:
    traffic.stop()
    assert traffic.errors == []
    assert committed(cluster.bootstrap, TOPIC, GROUP, PARTITIONS) == READ
    values = consume(cluster.bootstrap, TOPIC, "auditors", traffic.sent)
    assert sorted(map(int, values)) == list(range(traffic.sent))


def test_to_kraft_and_on_to_stock_controllers(cluster: KafkaCluster, zookeeper_client: KazooClient) -> None:
    admin = Admin(cluster.bootstrap, 2)
    with Traffic(cluster.bootstrap, TOPIC) as traffic:
        assert len(consume(cluster.bootstrap, TOPIC, GROUP, READ)) == READ
        begin = time.monotonic()
        migrate(cluster, admin)
        assert traffic.longest_pause(begin) < PAUSE_SECONDS
        change_everything(cluster, admin, zookeeper_client)
        begin = time.monotonic()
        cluster.kill_leader()
        until("the next leader dual-writes", lambda: cluster.migration_state() == "dual-writing")
        cluster.roll_brokers(KafkaBrokerMode.KRAFT, admin.in_sync)
        until("no broker is left in ZooKeeper mode", lambda: cluster.running_brokers() == {1: False, 2: False})
        admin.create("late", 1, 2)
        until("dual-write goes on", lambda: zookeeper_client.exists(paths.partition_state("late", 0)))
        assert traffic.longest_pause(begin) < PAUSE_SECONDS
        begin = time.monotonic()
        cluster.finish_migration()
        until("the migration is finished", lambda: cluster.public_states() == {"Finished"})
        admin.create("later", 1, 2)
        assert not zookeeper_client.exists(paths.topic("later"))
        assert traffic.longest_pause(begin) < PAUSE_SECONDS
        begin = time.monotonic()
        cluster.replace_controllers_by_stock()
        admin.create("last", 1, 2)
        until("it is everywhere", lambda: {TOPIC, "fresh", "late", "later", "last"} <= admin.topics().keys())
        assert admin.topic_config(TOPIC, "retention.ms") == "3600000"
        assert users_with_acls(admin) == {"User:bob", "User:dave"}
        assert "producer_byte_rate=1.0E7" in cluster.quotas("--describe", *QUOTA)
        until("messages are acknowledged", traffic.goes_on)
        assert traffic.longest_pause(begin) < PAUSE_SECONDS
        assert_nothing_is_lost(cluster, traffic)
