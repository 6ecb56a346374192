"""The demands of Kafka's ZkMigrationIntegrationTest, on one cluster of three real brokers (docs/interop.md)."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.drill.kafka.image_comparison import topic_id_of
from migrator.image.model import MetadataImage, QuotaKey
from migrator.migration.machine.states import State
from migrator.parts.kafka import StockKafka
from migrator.records.metadata import QuotaEntity
from migrator.records.uuid import Uuid
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from migrator.zookeeper.znodes.configs import decode_config
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.interop.support.stages import alter_quotas, ask_brokers, placed, problems, reassign, stage

INIT_PRODUCER_ID = (22, 4)
TOPICS = {"test-topic-1": 2, "test-topic-2": 1, "test-topic-3": 10}
STAYS = "stays"
USER, CLIENT = "user/1@prod", "client/1@domain"
QUOTAS: tuple[tuple[dict[str, str | None], dict[str, float]], ...] = (
    ({"user": None}, {"consumer_byte_rate": 900.0}),
    ({"client-id": None}, {"consumer_byte_rate": 900.0}),
    ({"ip": None}, {"connection_creation_rate": 9.0}),
    ({"user": USER}, {"consumer_byte_rate": 1000.0}),
    ({"user": USER, "client-id": CLIENT}, {"consumer_byte_rate": 800.0, "producer_byte_rate": 100.0}),
    ({"ip": "8.8.8.8"}, {"connection_creation_rate": 10.0}),
)
ACLS = (
    ("foo-1", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ),
    ("foo-1", ResourcePatternType.LITERAL, "User:alice", "192.168.0.1", AclOperation.WRITE),
    ("bar-1", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.DESCRIBE),
    ("bar-", ResourcePatternType.PREFIXED, "User:*", "*", AclOperation.READ),
)
USER_PATH = f"{paths.USER_CONFIGS}/{paths.sanitize(USER)}"


class Scene:
    """The cluster, a client of its ZooKeeper and an administrator."""

    def __init__(self, cluster: KafkaCluster, client: KazooClient) -> None:
        self.cluster = cluster
        self.client = client
        self.admin = Admin(cluster.bootstrap, 3)
        self.producer_id = -1
        """The highest that a producer was given so far."""

    @property
    def image(self) -> MetadataImage:
        return self.cluster.controllers[0].image()

    def config(self, path: str) -> dict[str, str]:
        """The content of a config znode; empty when there is none."""
        return decode_config(path, self.client.get(path)[0]) if self.client.exists(path) else {}

    def until_config(self, path: str, key: str, text: str) -> None:
        """Wait until ZooKeeper has this value."""
        until(f"{path} has {key}={text}", lambda: self.config(path).get(key) == text)

    def until_znode(self, path: str, part: bytes) -> None:
        """Wait until a znode is there and holds this."""
        until(f"{path} has {part!r}", lambda: self.client.exists(path) and part in (self.client.get(path)[0] or b""))

    def brokers_know(self, topic: str, partitions: int) -> bool:
        return len(self.admin.topics().get(topic, [])) == partitions

    def new_producer_id(self) -> int:
        """The producer id that an idempotent producer gets from the first broker."""
        answer: Any = ask_brokers(
            self.cluster,
            *INIT_PRODUCER_ID,
            transactional_id=None,
            transaction_timeout=dt.timedelta(seconds=60),
            producer_id=-1,
            producer_epoch=-1,
        )
        return int(answer.producer_id)


@pytest.fixture
def scene(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> Iterator[Scene]:
    """Brokers in migration mode before there is any quorum: a ZooKeeper controller leads them."""
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=3, zookeeper=zookeeper.hosts) as cluster:
        cluster.start_brokers(KafkaBrokerMode.MIGRATING)
        yield Scene(cluster, zookeeper_client)


def test_every_scenario(scene: Scene) -> None:
    with stage("configs are altered before the migration"):
        incremental_alter_configs_pre_migration(scene)
    with stage("metadata of every kind, in ZooKeeper"):
        fill(scene)
    with stage("migration, while topics wait for their deletion"):
        migrate_with_pending_deletions(scene)
    with stage("what was migrated"):
        migrated_topics_and_quotas(scene)
        migrated_acls(scene)
    with stage("deletions end, and the names are used again"):
        deletions_end_and_names_are_used_again(scene)
    with stage("changes reach ZooKeeper"):
        dual_write(scene)
        dual_write_scram_beside_quotas(scene)
        new_and_changed_topics(scene)
    with stage("a partition moves from one broker to another"):
        reassignment_in_hybrid_mode(scene)
    with stage("a second roll"):
        second_roll_keeps_topics_and_producer_ids_apart(scene)
    with stage("a topic deleted behind our back"):
        reconcile_restores_what_was_deleted_in_zookeeper(scene)


def incremental_alter_configs_pre_migration(scene: Scene) -> None:
    """testIncrementalAlterConfigsPreMigration: migration mode, and nobody to migrate to yet."""
    for broker in ("1", "2"):
        scene.admin.alter_config(ResourceType.BROKER, broker, "log.retention.ms", "3600000")
        scene.until_config(f"{paths.BROKER_CONFIGS}/{broker}", "log.retention.ms", "3600000")


def fill(scene: Scene) -> None:
    admin = scene.admin
    for name, partitions in TOPICS.items():
        admin.create(name, partitions, 3, segment_bytes="102400", segment_ms="300000")
    admin.create(STAYS, 2, 3, segment_bytes="102400")
    admin.wait(admin.client.create_topics([NewTopic("moved", 1, replica_assignment=[[1, 2]])]))
    for entity, values in QUOTAS:
        alter_quotas(scene.cluster, entity, **values)
    wanted = [
        AclBinding(ResourceType.TOPIC, name, kind, principal, host, operation, AclPermissionType.ALLOW)
        for name, kind, principal, host, operation in ACLS
    ]
    admin.wait(admin.client.create_acls(wanted))
    until("all is in sync", admin.in_sync)
    until("a producer has an id", lambda: scene.new_producer_id() >= 0)
    scene.producer_id = scene.new_producer_id()


def migrate_with_pending_deletions(scene: Scene) -> None:
    """testMigrateTopicDeletions, its hard case made certain: a replica's broker is away, so the ZooKeeper controller
    cannot finish. A znode that does not decode holds the migration until then."""
    cluster, client = scene.cluster, scene.client
    held = f"{paths.CLIENT_CONFIGS}/torn"
    client.create(held, b'{"version":1,')
    cluster.start_controllers()
    until("it is held", lambda: held in problems(cluster))
    assert cluster.public_states() == {"MigrationIneligible"}
    cluster.brokers[3].stop()
    until("the broker is gone", lambda: client.exists(paths.broker(3)) is None)
    admin = Admin(cluster.bootstrap, 2)  # the one of the scene may take the broker that is gone for the controller
    for name in TOPICS:
        admin.delete(name)
    assert set(client.get_children(paths.DELETE_TOPICS)) == set(TOPICS)
    client.delete(held)
    until("dual-write", lambda: cluster.migration_state() == State.DUAL_WRITING.value)


def migrated_topics_and_quotas(scene: Scene) -> None:
    """testMigrate."""
    image = scene.image
    assert {name: len(image.topics.by_id[id_].partitions) for name, id_ in image.topics.ids.items()} == {
        STAYS: 2,
        "moved": 1,
    }
    assert {key: dict(values) for key, values in image.quotas.items()} == {
        quota_key(entity): values for entity, values in QUOTAS
    }
    block = json.loads(scene.client.get(paths.PRODUCER_IDS)[0])
    assert scene.producer_id < image.producer_ids_next <= int(block["block_end"]) + 1


def quota_key(entity: dict[str, str | None]) -> QuotaKey:
    return frozenset(QuotaEntity(kind, name) for kind, name in entity.items())


def migrated_acls(scene: Scene) -> None:
    """testMigrateAcls, and testStartZkBrokerWithAuthorizer: these brokers have one."""
    found = {
        (acl.resource_name, acl.pattern_type, acl.principal, acl.host, acl.operation)
        for acl in scene.image.acls.values()
    }
    assert found == {
        (name, kind.value, principal, host, operation.value) for name, kind, principal, host, operation in ACLS
    }


def deletions_end_and_names_are_used_again(scene: Scene) -> None:
    """The rest of testMigrateTopicDeletions. The broker that was away still has logs of the deleted topics."""
    cluster, client, admin = scene.cluster, scene.client, scene.admin
    until("no marker is left", lambda: not client.get_children(paths.DELETE_TOPICS))
    assert not set(TOPICS) & set(client.get_children(paths.TOPICS))
    until("the brokers forget them", lambda: not TOPICS.keys() & admin.topics().keys())
    data = cluster.brokers[3].directory / "data"
    assert (data / "test-topic-2-0").is_dir()
    cluster.brokers[3].start()
    until("all brokers are unfenced", lambda: len(cluster.running_brokers()) == 3)
    for name, partitions in TOPICS.items():
        admin.create(name, partitions, 3)
    until(
        "they are there", lambda: TOPICS.items() <= {name: len(rows) for name, rows in admin.topics().items()}.items()
    )
    until("all is in sync", admin.in_sync)
    for name in TOPICS:
        topic_id = scene.image.topics.ids[name]
        until(f"broker 3 has a log of the new {name}", partial(log_is_of, data / f"{name}-0", topic_id))


def log_is_of(directory: Path, topic_id: Uuid) -> bool:
    """Whether a broker's log belongs to that topic, and not to a namesake that was deleted."""
    return topic_id_of(directory) == topic_id


def dual_write(scene: Scene) -> None:
    """testDualWrite."""
    scene.admin.alter_config(ResourceType.TOPIC, STAYS, "segment.bytes", "204800")
    scene.until_config(paths.topic_config(STAYS), "segment.bytes", "204800")
    scene.admin.alter_config(ResourceType.BROKER, "3", "log.retention.ms", "7200000")
    scene.until_config(f"{paths.BROKER_CONFIGS}/3", "log.retention.ms", "7200000")
    alter_quotas(scene.cluster, {"user": USER}, consumer_byte_rate=1001.0)
    alter_quotas(scene.cluster, {"user": USER, "client-id": CLIENT}, consumer_byte_rate=801.0)
    alter_quotas(scene.cluster, {"ip": "8.8.8.8"}, connection_creation_rate=11.0)
    scene.until_config(USER_PATH, "consumer_byte_rate", "1001")
    scene.until_config(f"{USER_PATH}/clients/{paths.sanitize(CLIENT)}", "consumer_byte_rate", "801")
    scene.until_config(f"{paths.IP_CONFIGS}/8.8.8.8", "connection_creation_rate", "11")


def dual_write_scram_beside_quotas(scene: Scene) -> None:
    """testDualWriteScram and testDualWriteQuotaAndScram: both are in one znode, and neither clobbers the other."""
    admin = scene.admin
    changes: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(USER, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8191), b"password"),
        UserScramCredentialUpsertion("quotaless", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"password"),
    ]
    admin.wait(admin.client.alter_user_scram_credentials(changes))
    for user, iterations in ((USER, 8191), ("quotaless", 8192)):
        scene.until_znode(f"{paths.USER_CONFIGS}/{paths.sanitize(user)}", f"iterations={iterations}".encode())
    alter_quotas(scene.cluster, {"user": USER}, consumer_byte_rate=1002.0)
    scene.until_config(USER_PATH, "consumer_byte_rate", "1002")
    assert "iterations=8191" in scene.config(USER_PATH)["SCRAM-SHA-256"]


def new_and_changed_topics(scene: Scene) -> None:
    """testNewAndChangedTopicsInDualWrite: with a config and without one; partitions are added."""
    admin, client = scene.admin, scene.client
    admin.create("with-config", 2, 3, cleanup_policy="compact")
    admin.create("without-config", 2, 3)
    admin.wait(admin.client.create_partitions([NewPartitions("with-config", 3)]))
    for name, partitions in (("with-config", 3), ("without-config", 2)):
        scene.until_znode(paths.partition_state(name, partitions - 1), b"leader")
        assert len(json.loads(client.get(paths.topic(name))[0])["partitions"]) == partitions
        until(f"brokers know {name}", partial(scene.brokers_know, name, partitions))
    assert scene.config(paths.topic_config("with-config")) == {"cleanup.policy": "compact"}
    assert client.get(paths.topic_config("without-config"))
    assert scene.config(paths.topic_config("without-config")) == {}
    until("all is in sync", admin.in_sync)


def reassignment_in_hybrid_mode(scene: Scene) -> None:
    """testPartitionReassignmentInHybridMode."""
    reassign(scene.cluster, "moved", [2, 3])
    until("it has moved", lambda: placed(scene.admin, "moved", [2, 3], 2))
    old = scene.cluster.brokers[1].directory / "data" / "moved-0"
    until("the broker that it left has no log of it", lambda: not old.exists())
    scene.until_znode(paths.topic("moved"), b"[2,3]")


def second_roll_keeps_topics_and_producer_ids_apart(scene: Scene) -> None:
    """testDeleteLogOnStartup; and the rest of testDualWrite: no producer id is given twice, also by a broker that has
    asked for a new block."""
    scene.cluster.roll_brokers(KafkaBrokerMode.MIGRATING, scene.admin.in_sync)
    until("the brokers know the topics", lambda: {STAYS, *TOPICS} <= scene.admin.topics().keys())
    until("a producer has a new id", lambda: scene.new_producer_id() > scene.producer_id)


def reconcile_restores_what_was_deleted_in_zookeeper(scene: Scene) -> None:
    """The ducktape suite's test_reconcile_kraft_to_zk."""
    scene.client.delete(paths.topic(STAYS), recursive=True)
    scene.cluster.stop_controllers()
    scene.cluster.resume_controllers()
    until("it is there again", lambda: scene.client.exists(paths.partition_state(STAYS, 1)))
    until("dual-write", lambda: scene.cluster.migration_state() == State.DUAL_WRITING.value)
    until("the brokers know it", lambda: STAYS in scene.admin.topics())
