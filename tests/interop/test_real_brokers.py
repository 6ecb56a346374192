"""Unmodified Kafka brokers take our controllers for Kafka's own."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from confluent_kafka.admin import NewPartitions, ResourceType

from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.drill.kafka.traffic import LIVELY_SECONDS, GroupReader
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.parts.kafka import StockKafka
from tests.interop.support.broker_answers import ask, disagreements
from tests.interop.support.cluster import Admin, KafkaCluster

TOPIC = "orders"
FOLLOWED = "payments"
PAUSE_SECONDS = 8.0
SOON_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2000", "metadata.max.retention.bytes": "1"}
"""A new one every few seconds; the one before it goes, with the log behind it, when a controller starts."""


def test_brokers_run_on_our_quorum(kafka_391: StockKafka, tmp_path: Path) -> None:
    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=2, controller_properties=SOON_SNAPSHOTS) as cluster:
        cluster.start_controllers()
        cluster.start_brokers(KafkaBrokerMode.KRAFT)
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
            cluster.roll_brokers(KafkaBrokerMode.KRAFT, admin.in_sync)
            assert traffic.longest_pause(begin) < PAUSE_SECONDS
            admin.wait(admin.client.create_partitions([NewPartitions(TOPIC, 4)]))
            until("the new partition has a leader", lambda: len(admin.topics()[TOPIC]) == 4)
        assert traffic.errors == []
        values = consume(cluster.bootstrap, TOPIC, "readers", traffic.sent)
        assert sorted(map(int, values)) == list(range(traffic.sent))
        admin.delete(TOPIC)
        until("nobody knows the topic any more", lambda: TOPIC not in admin.topics())
        a_group_goes_on_when_its_topic_was_unknown(cluster, admin)
        data = [node.directory / "data" for node in cluster.brokers.values()]
        until("its logs are gone", lambda: not any(list(path.glob(f"{TOPIC}-?")) for path in data))
        lose_the_metadata_log(cluster, 2)
        until("both brokers are unfenced", lambda: cluster.running_brokers() == {1: False, 2: False})
        until("both know the same", lambda: len(answers := ask(cluster)) == 2 and disagreements(answers) == [])


def a_group_goes_on_when_its_topic_was_unknown(cluster: KafkaCluster, admin: Admin) -> None:
    """As a broker answers in ZooKeeper mode that has just started. librdkafka asks again after five minutes only,
    unless it is told otherwise."""
    reader = GroupReader(cluster.bootstrap, FOLLOWED, "followers")
    try:
        admin.create(FOLLOWED, 1, 2)
        with Traffic(cluster.bootstrap, FOLLOWED):
            reader.start()
        admin.delete(FOLLOWED)
        until("the group notices", lambda: not reader.assigned)
        admin.create(FOLLOWED, 1, 2)
        with Traffic(cluster.bootstrap, FOLLOWED):
            until("the group reads on", lambda: reader.activity.goes_on(LIVELY_SECONDS))
        reader.stop()
    finally:
        reader.abandon()


def lose_the_metadata_log(cluster: KafkaCluster, broker: int) -> None:
    """Restart a broker in good order, but without its copy; ours has lost its beginning: it needs our snapshot."""
    (controller,) = cluster.controllers
    ours = controller.metadata_directory / DIRECTORY_NAME
    node = cluster.brokers[broker]
    theirs = node.directory / "data" / DIRECTORY_NAME
    until("there are two snapshots", lambda: len(snapshots(ours)) > 1)
    assert controller.stop() == 0
    controller.start()
    until("the log's beginning is gone", lambda: len(snapshots(ours)) == 1 and cluster.leader() is not None)
    node.stop()
    assert "asked us to exit controlled shutdown" in node.process.output_text()
    shutil.rmtree(theirs)
    node.start()
    begin = min(theirs.glob("*.log"))
    assert int(begin.stem) > 0, "the log is not replayed from its beginning"
    (fetched,) = (path for path in snapshots(theirs) if path.name.startswith(begin.stem))
    same = ours / fetched.name
    assert not same.exists() or same.read_bytes() == fetched.read_bytes()


def snapshots(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("0*.checkpoint"))
