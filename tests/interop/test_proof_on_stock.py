"""preflight, rehearse and verify, as an operator types them, around a migration by Kafka's own controllers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR
from migrator.drill.kafka.clients import Traffic
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.drill.probes import DUAL_WRITING
from migrator.parts.kafka import StockKafka
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from migrator.zookeeper.znodes.configs import encode_config
from tests.conftest import ZooKeeperSpace
from tests.drill.support.stock_controllers import StockController
from tests.interop.support.cluster import Admin, KafkaCluster

BROKERS = 2
TOPIC = "orders"
COPY_SECONDS = 120.0


@pytest.fixture
def cluster(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> Iterator[KafkaCluster]:
    """Two brokers in ZooKeeper mode, and a stock controller that is not started yet."""
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=BROKERS, zookeeper=zookeeper.hosts) as cluster:
        cluster.controllers = [*(StockController(kafka_391, each) for each in cluster.controllers)]
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        yield cluster


def test_a_stock_migration_is_foreseen_rehearsed_and_proven(
    cluster: KafkaCluster, zookeeper_client: KazooClient
) -> None:
    (controller,) = cluster.controllers
    admin = Admin(cluster.bootstrap, BROKERS)
    admin.create(TOPIC, 6, BROKERS, retention_ms="7200000")
    admin.alter_config(ResourceType.BROKER, "1", "num.io.threads", "5")
    controller.write_properties()
    file = str(controller.property_file)
    brokers = map(str, cluster.write_properties(KafkaBrokerMode.MIGRATING))

    found = command("preflight", "-c", file, "--brokers", *brokers, "--controllers", "stock")
    assert [finding for finding in found["findings"] if finding["severity"] == "blocker"] == []

    rehearsed = command("rehearse", "-c", file, "--release-version", "3.9", "--broker-seconds", "5")
    assert (rehearsed["kafka"]["outcome"], rehearsed["verified"]["outcome"]) == ("fine", "fine")
    assert rehearsed["counts"]["topics"] == len(zookeeper_client.get_children(paths.TOPICS))

    with Traffic(cluster.bootstrap, TOPIC) as traffic:
        cluster.start_controllers()
        cluster.roll_brokers(KafkaBrokerMode.MIGRATING, admin.in_sync)
        until("stock dual-writes", lambda: cluster.migration_state() == DUAL_WRITING, seconds=COPY_SECONDS)
        admin.alter_config(ResourceType.TOPIC, TOPIC, "retention.ms", "3600000")
        top = [MIGRATOR, "top", "-c", file, "--controllers", "stock"]
        seen = subprocess.run(top, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
        for text in ("● DualWrite", f"controller {controller.node_id} leads", f"brokers: {BROKERS}", "ZooKeeper"):
            assert text in seen.stdout, seen.stdout + seen.stderr
        (_, port), *_ = cluster.controller_addresses
        running = ("verify", "-c", file, "--metadata", f"127.0.0.1:{port}")
        assert command(*running)["equal"]
        zookeeper_client.set(paths.topic_config(TOPIC), encode_config({"retention.ms": "1"}))
        (difference,) = command(*running, code=1)["examples"]
        assert (difference["entity"], difference["field"]) == (f"topic:{TOPIC}", "retention.ms")
        assert (difference["zookeeper"], difference["kraft"]) == ("1", "3600000")
        assert traffic.errors == []


def command(*arguments: str, code: int = 0) -> Any:
    """Its output as JSON; it has to end with that exit code."""
    argv = [MIGRATOR, *arguments, "--json"]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    assert ended.returncode == code, ended.stderr + ended.stdout
    return json.loads(ended.stdout)
