"""While one broker is still in ZooKeeper mode and another one in KRaft mode, clients cannot tell them apart."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
)
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.parts.kafka import StockKafka
from migrator.records.metadata import ConfigResourceType
from migrator.wire.schemas import build, request_type
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.broker_answers import CONFIG, Answers, Seen, agree, ask
from tests.interop.support.cluster import Admin, KafkaCluster

IN_ZOOKEEPER_MODE, IN_KRAFT_MODE = 1, 2
ELECT_LEADERS, ALTER_PARTITION_REASSIGNMENTS, ALTER_CLIENT_QUOTAS = 43, 45, 49
INCREMENTAL_ALTER_CONFIGS = 44
PREFERRED = 0
TOPIC, AGAIN, MOVED = "orders", "again", "moved"
ANSWER_SECONDS = 20.0


@pytest.fixture
def cluster(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> Iterator[KafkaCluster]:
    """In dual-write, the second broker in KRaft mode already."""
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(
        kafka_391,
        tmp_path,
        controllers=1,
        brokers=2,
        zookeeper=zookeeper.hosts,
        broker_properties={"zookeeper.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "1000"},
        controller_properties={"broker.session.timeout.ms": "5000"},
    ) as cluster:
        cluster.start_brokers(KafkaBrokerMode.MIGRATING)
        admin = Admin(cluster.bootstrap, 2)
        admin.create(TOPIC, 2, 2, retention_ms="7200000")
        cluster.start_controllers()
        until("dual-write", lambda: cluster.migration_state() == "dual-writing")
        until("both are unfenced", lambda: cluster.running_brokers() == {1: True, 2: True})
        node = cluster.brokers[IN_KRAFT_MODE]
        node.stop()
        node.properties = cluster.properties_of(IN_KRAFT_MODE, KafkaBrokerMode.KRAFT)
        node.start()
        until("replicas are in sync", admin.in_sync)
        until("one of each mode", lambda: cluster.running_brokers() == {IN_ZOOKEEPER_MODE: True, IN_KRAFT_MODE: False})
        yield cluster


def test_after_every_kind_of_change(cluster: KafkaCluster) -> None:
    admin = Admin(cluster.bootstrap, 2)
    with Traffic(cluster.bootstrap, TOPIC) as traffic:
        topics_come_and_go(cluster, admin)
        configs_change(cluster, admin)
        quotas_and_acls_change(cluster, admin)
        replicas_move(cluster, admin)
        for broker in (IN_KRAFT_MODE, IN_ZOOKEEPER_MODE):
            a_broker_dies_and_comes_back(cluster, broker)
    assert traffic.errors == []
    values = consume(cluster.bootstrap, TOPIC, "auditors", traffic.sent)
    assert sorted(map(int, values)) == list(range(traffic.sent))


def topics_come_and_go(cluster: KafkaCluster, admin: Admin) -> None:
    admin.create(AGAIN, 3, 2, cleanup_policy="compact")
    agree(cluster, "created", led(AGAIN, 3))
    (first,) = {each.told[f"topic {AGAIN}"] for each in ask(cluster).values()}
    admin.delete(AGAIN)
    agree(cluster, "deleted", lambda each: not each.about(AGAIN))
    admin.create(AGAIN, 1, 2)
    agree(cluster, "created again", lambda each: led(AGAIN, 1)(each) and each.told[f"topic {AGAIN}"] != first)
    admin.delete(AGAIN)
    admin.create(AGAIN, 2, 2)
    agree(cluster, "deleted and created at once", led(AGAIN, 2))
    admin.wait(admin.client.create_partitions([NewPartitions(AGAIN, 4)]))
    agree(cluster, "grown", led(AGAIN, 4))


def configs_change(cluster: KafkaCluster, admin: Admin) -> None:
    for kind, name, key in (
        (ConfigResourceType.TOPIC, TOPIC, "max.message.bytes"),
        (ConfigResourceType.BROKER, "", "log.cleaner.backoff.ms"),
    ):
        for operation in (AlterConfigOpType.SET, AlterConfigOpType.DELETE):
            change = {"name": key, "config_operation": operation.value, "value": "654321"}
            resource = {"resource_type": kind, "resource_name": name, "configs": [change]}
            order(cluster, INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
            agree(
                cluster, f"{operation.name} {key}", configured(key, "654321", is_set=operation is AlterConfigOpType.SET)
            )
    for broker in cluster.brokers:
        admin.alter_config(ResourceType.BROKER, str(broker), "background.threads", str(10 + broker))
        until(f"broker {broker} has it", lambda broker=broker: own_config(admin, broker) == str(10 + broker))  # type: ignore[misc]


def configured(key: str, text: str, *, is_set: bool) -> Seen:
    """Whether the value is told of any resource."""
    return lambda answers: (text in repr(answers.about(CONFIG, key))) == is_set


def own_config(admin: Admin, broker: int) -> str:
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    (answer,) = admin.wait(admin.client.describe_configs([resource])).values()
    return str(answer["background.threads"].value)


def quotas_and_acls_change(cluster: KafkaCluster, admin: Admin) -> None:
    entity = [{"entity_type": "user", "entity_name": "al ice"}, {"entity_type": "client-id", "entity_name": None}]
    for removed in (False, True):
        change = {"key": "producer_byte_rate", "value": 1e7, "remove": removed}
        order(cluster, ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": [change]}])
        agree(cluster, f"quota, removed: {removed}", lambda each, gone=removed: bool(each.told["quotas"]) != gone)  # type: ignore[misc]
    acl = AclBinding(
        ResourceType.TOPIC,
        "pre",
        ResourcePatternType.PREFIXED,
        "User:bob",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.wait(admin.client.create_acls([acl]))
    agree(cluster, "ACL", lambda each: "User:bob" in repr(each.told["acls"]))
    anything: Any = None
    every = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin.wait(admin.client.delete_acls([every]))
    agree(cluster, "no ACL", lambda each: each.told["acls"] == [])


def replicas_move(cluster: KafkaCluster, admin: Admin) -> None:
    """Into either mode, and out of it: no replica stays where it was (KAFKA-16120)."""
    admin.create(MOVED, 1, 1)
    agree(cluster, "created", led(MOVED, 1))
    (first,) = {each.leaders[MOVED, 0] for each in ask(cluster).values()}
    for target in (3 - first, first):
        partition = {"partition_index": 0, "replicas": (target,)}
        order(cluster, ALTER_PARTITION_REASSIGNMENTS, 0, topics=[{"name": MOVED, "partitions": [partition]}])
        agree(cluster, f"moved to {target}", lambda each, target=target: each.leaders[MOVED, 0] == target)  # type: ignore[misc]
        left = cluster.brokers[3 - target].directory / "data" / f"{MOVED}-0"
        until("its replica is deleted", lambda left=left: not left.exists())  # type: ignore[misc]


def a_broker_dies_and_comes_back(cluster: KafkaCluster, broker: int) -> None:
    """The other one leads everything that both host, and tells so; later the preferred leaders lead again."""
    other = 3 - broker
    shared = [(TOPIC, number) for number in range(2)] + [(AGAIN, number) for number in range(4)]
    cluster.brokers[broker].kill()

    def taken_over() -> bool:
        answers = ask(cluster)
        return answers.keys() == {other} and all(answers[other].leaders[each] == other for each in shared)

    until(f"broker {other} leads", taken_over)
    cluster.restart_killed_broker(broker)
    in_sync = Admin(cluster.bootstrap, 2).in_sync
    agree(cluster, f"broker {broker} is back", lambda each: len(each.told["brokers"]) == 2 and in_sync())  # type: ignore[arg-type]
    topics = [
        {"topic": name, "partitions": tuple(index for each, index in shared if each == name)} for name in (TOPIC, AGAIN)
    ]
    order(cluster, ELECT_LEADERS, 2, election_type=PREFERRED, topic_partitions=topics)
    agree(cluster, "the preferred leaders lead", lambda each: all(preferred(each, key) for key in shared))


def preferred(answers: Answers, key: tuple[str, int]) -> bool:
    told: Any = answers.told[f"partition {key[0]}-{key[1]}"]
    return bool(answers.leaders[key] == told[3][0])


def led(topic: str, partitions: int) -> Seen:
    """That topic has so many partitions, each with a leader."""

    def seen(answers: Answers) -> bool:
        leaders = [leader for (name, _), leader in answers.leaders.items() if name == topic]
        return len(leaders) == partitions and min(leaders) > 0

    return seen


def order(cluster: KafkaCluster, api_key: int, version: int, **fields: Any) -> None:
    """One request to the active controller, which must do it."""

    async def asked() -> Any:
        ports = [int(controller.properties["listeners"].rsplit(":", 1)[1]) for controller in cluster.controllers]
        channel = ControllerChannel([("127.0.0.1", port) for port in ports], "administrator")
        try:
            return await channel.request(
                build(request_type(api_key, version), **fields), timeout_seconds=ANSWER_SECONDS
            )
        finally:
            await channel.close()

    response = asyncio.run(asked())
    errors = set(re.findall(r"error_code=<ErrorCode\.(\w+)", repr(response)))
    assert errors <= {"none", "election_not_needed"}, response
