"""Brokers as they are in the field: upgraded halfway, upgraded after the end, and back after days, far behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType

from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.errors import OperatorError
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.parts.kafka import KafkaRelease
from migrator.verify.kraft.files import end_of_log
from migrator.zookeeper.znodes import paths
from tests.interop.procedures.support.apache import APACHE_36, APACHE_39, FORWARD, TO_DUAL_WRITE
from tests.interop.procedures.support.audit import TOPIC, RecordProperty, audited
from tests.interop.procedures.support.procedure import Step
from tests.interop.procedures.support.runner import Performance
from tests.interop.procedures.support.vendors import OLD_KEYS
from tests.interop.support.cluster import Admin
from tests.interop.support.stages import problems

pytestmark = pytest.mark.lane("test-long")
AWAY = 2
"""The broker that is away."""
CHANGES = 400
"""Of one setting: more bytes than between two snapshots, and more than a segment."""
SOON_GONE = """
metadata.log.max.record.bytes.between.snapshots=2000
metadata.log.segment.bytes=8192
metadata.max.retention.bytes=1
"""
SHORT_MEMORY = replace(
    APACHE_39, name="days", prepared=APACHE_39.prepared + SOON_GONE, finalized=APACHE_39.finalized + SOON_GONE
)
OF_36 = (("-r", "3.6", *APACHE_36.format[0]),)
PRINTED_35 = replace(APACHE_36, protocol="3.5", format=OF_36)
NEW_IN_OLD = replace(APACHE_36, format=OF_36, steps=TO_DUAL_WRITE)


def upgrade(performance: Performance, version: str, mode: KafkaBrokerMode) -> None:
    """One broker after the other, by its other jars and with the file of its mode."""
    newer = KafkaRelease(version).fetch()
    for broker, node in performance.brokers.items():
        node.kafka = newer
        performance.restart_broker(broker, mode)
        until(f"replicas of broker {broker} are in sync", performance.admin.in_sync)


@pytest.mark.parametrize("performance", [PRINTED_35], indirect=True, ids=["3.6.2"])
def test_a_broker_with_inter_broker_protocol_version_3_5_is_refused(performance: Performance) -> None:
    """Kafka 3.6's manual prints 3.5 in its sample file; Kafka 3.9's controllers refuse it, too.

    The command ``format`` says it first, if the version is not typed.
    """
    for controller in performance.controllers:
        with pytest.raises(
            OperatorError, match=r"metadata\.version is 3\.5-IV2, and a migration needs 3\.6-IV1 or later"
        ):
            performance.format_one(controller, APACHE_36.format[0])
    performance.do(Step.FORMAT, Step.PROVISION)
    performance.restart_broker(AWAY, KafkaBrokerMode.MIGRATING)
    until("status names the broker's refusal", lambda: "UNSUPPORTED_VERSION" in problems(performance))
    said = problems(performance)
    assert f"broker {AWAY} supports 11 to 11" in said
    assert "set its inter.broker.protocol.version to the release that the quorum was formatted with" in said


@pytest.mark.parametrize("performance", [NEW_IN_OLD], indirect=True, ids=["3.6.2 to 3.9.1"])
def test_brokers_are_upgraded_while_both_sides_are_written(
    performance: Performance, record_property: RecordProperty
) -> None:
    """``inter.broker.protocol.version`` stays that of the old release: brokers are not rolled a second time."""
    with audited(performance, record_property):
        performance.perform()
        upgrade(performance, "3.9.1", KafkaBrokerMode.MIGRATING)
        performance.do(Step.DUAL_WRITE, Step.KRAFT, Step.FINALIZE, Step.FINISHED)


@pytest.mark.parametrize(
    "performance",
    [replace(APACHE_39, steps=FORWARD), replace(OLD_KEYS, steps=FORWARD)],
    indirect=True,
    ids=["as printed", "with the keys of ZooKeeper's time"],
)
def test_brokers_are_upgraded_to_4_1_after_the_end(performance: Performance, record_property: RecordProperty) -> None:
    with audited(performance, record_property):
        performance.perform()
        upgrade(performance, "4.1.1", KafkaBrokerMode.KRAFT)
        performance.admin.alter_config(ResourceType.TOPIC, TOPIC, "retention.ms", "7200000")
        until("brokers know it", lambda: performance.admin.topic_config(TOPIC, "retention.ms") == "7200000")


@pytest.mark.parametrize("performance", [replace(SHORT_MEMORY, steps=TO_DUAL_WRITE)], indirect=True, ids=["3.9.1"])
def test_a_broker_comes_back_after_days(performance: Performance, record_property: RecordProperty) -> None:
    """While it was away the migration was finished, the log moved on and lost its beginning, and topics changed."""
    node = performance.brokers[AWAY]
    with audited(performance, record_property):
        performance.perform()
        performance.admin.create("doomed", 2, 2)
        performance.admin.create("again", 2, 2)
        until("both are in ZooKeeper", lambda: performance.client.exists(paths.partition_state("again", 1)))
        performance.do(Step.KRAFT)
        node.stop()
        theirs = end_of_log(node.directory / "data")
        # librdkafka would wait for the broker that it took for the controller.
        admin = performance.admin = Admin(performance.bootstrap, len(performance.brokers) - 1)
        admin.delete("doomed")
        admin.delete("again")
        until("it is deleted", lambda: "again" not in admin.topics())
        admin.create_on("again", [[1]])
        for number in range(CHANGES):
            admin.alter_config(ResourceType.TOPIC, TOPIC, "retention.ms", str(7_200_000 + number))
        performance.do(Step.FINALIZE, Step.FINISHED)
        until("the log's beginning is gone", lambda: begin_of_log(ours(performance)) > theirs)
        record_property("behind_records", end_of_log(performance.controllers[0].metadata_directory) - theirs)
        node.start()
        until("all is in sync", admin.in_sync)
        until("both brokers are unfenced", lambda: performance.running_brokers() == {1: False, 2: False})
        admin.create_on("reborn", [[AWAY]])
        until("it leads", lambda: admin.topics().get("reborn") == [AWAY])
        assert begin_of_log(node.directory / "data" / DIRECTORY_NAME) > theirs, "it went on from a snapshot"
        until("stale replicas are gone", lambda: not [*(node.directory / "data").glob("doomed-?")])


def ours(performance: Performance) -> Path:
    return performance.controllers[0].metadata_directory / DIRECTORY_NAME


def begin_of_log(directory: Path) -> int:
    """The first offset that is left."""
    return min(int(path.stem) for path in directory.glob("*.log"))
