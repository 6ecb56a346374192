"""Unmodified Kafka brokers take our controllers for Kafka's own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions, ResourceType

from migrator.drill.kafka_clients import Admin, Traffic, consume
from migrator.drill.kafka_cluster import KafkaCluster, Mode, until
from migrator.parts.kafka import StockKafka

TOPIC = "orders"
PAUSE_SECONDS = 8.0


@pytest.mark.timeout(120)
def test_brokers_run_on_our_quorum(kafka_391: StockKafka, tmp_path: Path) -> None:
    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=2) as cluster:
        cluster.start_controllers()
        cluster.start_brokers(Mode.KRAFT)
        until("both brokers are unfenced", lambda: cluster.running_brokers() == {1: False, 2: False})
        admin = Admin(cluster.bootstrap, 2)
        bootstrap = ("--bootstrap-server", cluster.bootstrap)
        cluster.kafka.topics(
            *bootstrap,
            "--create",
            "--topic",
            TOPIC,
            "--partitions",
            "3",
            "--replication-factor",
            "2",
            directory=tmp_path,
        )
        with Traffic(cluster.bootstrap, TOPIC) as traffic:
            admin.alter_config(ResourceType.TOPIC, TOPIC, "retention.ms", "123456")
            until("the brokers know it", lambda: admin.topic_config(TOPIC, "retention.ms") == "123456")
            begin = time.monotonic()
            cluster.roll_brokers(Mode.KRAFT, admin.in_sync)
            assert traffic.longest_pause(begin) < PAUSE_SECONDS
            admin.wait(admin.client.create_partitions([NewPartitions(TOPIC, 4)]))
            until("the new partition has a leader", lambda: len(admin.topics()[TOPIC]) == 4)
        assert traffic.errors == []
        values = consume(cluster.bootstrap, TOPIC, "readers", traffic.sent)
        assert sorted(map(int, values)) == list(range(traffic.sent))
        admin.delete(TOPIC)
        until("nobody knows the topic any more", lambda: TOPIC not in admin.topics())
        data = [node.directory / "data" for node in cluster.brokers.values()]
        until("its logs are gone", lambda: not any(list(path.glob(f"{TOPIC}-?")) for path in data))
