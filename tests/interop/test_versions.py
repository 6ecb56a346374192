"""Brokers of every release that can migrate, and of several at once, from ZooKeeper to our finished quorum."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.image.model import MetadataImage
from migrator.parts.kafka import KafkaRelease
from migrator.preflight.check import Concerns, run_checks
from migrator.preflight.gather import PreflightRequest, gather
from migrator.preflight.table import CHECKS
from migrator.records import metadata as m
from migrator.records.control import LeaderChange
from migrator.records.versions import FEATURE_NAME, parse_version, record_version
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.broker_answers import Answers, agree
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.interop.support.controller_logs import control_records_of, records_of

TOPIC, DOOMED, FRESH = "orders", "doomed", "fresh"
READ = 50
RELEASES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "3.6": ("3.6", ("3.6.2", "3.6.2")),
    "3.7": ("3.7", ("3.7.2", "3.7.2")),
    "3.8": ("3.8", ("3.8.1", "3.8.1")),
    "3.9": ("3.9", ("3.9.1", "3.9.1")),
    "mixed": ("3.6", ("3.6.2", "3.8.1", "3.9.1")),
}
"""Of each case: ``inter.broker.protocol.version``, which is that of the metadata, too, and each broker's release."""
LONG = pytest.mark.lane("test-long")


@pytest.fixture(params=[pytest.param(case, marks=() if case in ("3.6", "mixed") else LONG) for case in RELEASES])
def cluster(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> Iterator[KafkaCluster]:
    """Brokers in ZooKeeper mode."""
    release, versions = RELEASES[request.param]
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    releases = {broker: KafkaRelease(version).fetch() for broker, version in enumerate(versions, 1)}
    with KafkaCluster(
        releases[1],
        tmp_path,
        controllers=1,
        brokers=len(versions),
        zookeeper=zookeeper.hosts,
        release_version=release,
        other_releases=releases,
    ) as cluster:
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        yield cluster


def test_from_zookeeper_to_the_finished_quorum(cluster: KafkaCluster, zookeeper_client: KazooClient) -> None:
    brokers = len(cluster.brokers)
    admin = Admin(cluster.bootstrap, brokers)
    admin.create(TOPIC, 3, 2, retention_ms="7200000")
    admin.create(DOOMED, 2, 1)
    with Traffic(cluster.bootstrap, TOPIC) as traffic:
        assert len(consume(cluster.bootstrap, TOPIC, "readers", READ)) == READ
        cluster.format_controllers()
        expected = {"M132", "M306", "M322"} | ({"M508"} if os.geteuid() == 0 else set())
        why = "a topic has one replica, AclAuthorizer will have to go, and the doors are open"
        assert found_beforehand(cluster) == expected, why
        cluster.resume_controllers()
        cluster.roll_brokers(KafkaBrokerMode.MIGRATING, admin.in_sync)
        until("dual-write", lambda: cluster.migration_state() == "dual-writing")
        until("all brokers are unfenced", lambda: cluster.running_brokers() == dict.fromkeys(cluster.brokers, True))
        change(cluster, admin, zookeeper_client)
        cluster.roll_brokers(KafkaBrokerMode.KRAFT, admin.in_sync)
        until(
            "no broker is in ZooKeeper mode", lambda: cluster.running_brokers() == dict.fromkeys(cluster.brokers, False)
        )
        cluster.finish_migration()
        until("the migration is finished", lambda: cluster.public_states() == {"Finished"})
        assert len(consume(cluster.bootstrap, TOPIC, "readers", READ)) == READ
    assert traffic.errors == []
    values = consume(cluster.bootstrap, TOPIC, "auditors", traffic.sent)
    assert sorted(map(int, values)) == list(range(traffic.sent))
    cluster.stop_controllers()
    release = cluster.properties_of(1, KafkaBrokerMode.MIGRATING)["inter.broker.protocol.version"]
    for controller in cluster.controllers:
        assert_versions(controller.metadata_directory, controller.image(), release)


def found_beforehand(cluster: KafkaCluster) -> set[str]:
    """Codes of what preflight finds, by the files with which the brokers are about to be rolled."""
    files = []
    for broker in cluster.brokers:
        files.append(cluster.directory / f"prepared-{broker}.properties")
        properties = cluster.properties_of(broker, KafkaBrokerMode.MIGRATING)
        files[-1].write_text("".join(f"{key}={text}\n" for key, text in properties.items()))
    controllers = tuple(controller.property_file for controller in cluster.controllers)
    report = run_checks(CHECKS, gather(PreflightRequest(controllers, tuple(files)), lambda _: None), Concerns.OURS)
    assert report.unknown == ()
    return {finding.check.code for finding in report.findings}


def change(cluster: KafkaCluster, admin: Admin, zookeeper: KazooClient) -> None:
    """Create, alter and delete a topic; ZooKeeper sees it, and so does each broker when asked directly."""
    admin.create(FRESH, 2, 2, cleanup_policy="compact")
    admin.alter_config(ResourceType.TOPIC, TOPIC, "retention.ms", "3600000")
    admin.delete(DOOMED)

    def in_zookeeper() -> bool:
        return (
            zookeeper.exists(paths.partition_state(FRESH, 1)) is not None
            and b"3600000" in zookeeper.get(paths.topic_config(TOPIC))[0]
            and zookeeper.exists(paths.topic(DOOMED)) is None
        )

    until("all of it is in ZooKeeper", in_zookeeper)

    def on_a_broker(answers: Answers) -> bool:
        return (
            len(answers.about("partition", FRESH)) == 2
            and not answers.about("topic", DOOMED)
            and "3600000" in repr(answers.about(f"config of {TOPIC} retention.ms"))
        )

    releases = {node.kafka.version for node in cluster.brokers.values()}
    agree(cluster, "all of it", on_a_broker, of_one_release=len(releases) == 1)


def assert_versions(directory: Path, image: MetadataImage, release: str) -> None:
    """Of metadata and of each record; and no trace of a dynamic quorum, at which brokers before 3.9 would choke."""
    level = parse_version(release).level
    assert dict(image.features.levels) == {FEATURE_NAME: level}
    records = records_of(directory)
    for record, version in records:
        highest = record_version(type(record), level)
        assert version == highest or (isinstance(record, m.BrokerRegistrationChangeRecord) and version < highest), (
            record
        )
    assert {m.RegisterBrokerRecord, m.PartitionRecord, m.PartitionChangeRecord} <= {type(each) for each, _ in records}
    assert {type(record) for record in control_records_of(directory)} == {LeaderChange}
