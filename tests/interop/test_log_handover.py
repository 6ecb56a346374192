"""A stock controller takes over directories that we formatted and wrote."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from migrator.log.formatting import FormatPlan, format_directories
from migrator.log.metadata_log import MetadataLog
from migrator.log.quorum_state import QuorumStateFile
from migrator.log.snapshots import SnapshotWriter, iter_snapshot
from migrator.log.synced_end import FILE_NAME, SyncedEnd
from migrator.parts.java import Jvm
from migrator.parts.kafka import KafkaRelease, StockKafka, StockNode
from migrator.raft.messages import EpochOffset
from migrator.raft.states import ElectionState
from migrator.records import metadata as m
from migrator.records.batch import build_batch, iter_batches
from migrator.records.codec import encode_all
from migrator.records.control import LeaderChange, Voter, build_control_batch, control_records
from migrator.records.uuid import DIRECTORY_UNASSIGNED
from migrator.records.versions import parse_version
from tests.patience import PATIENCE_SECONDS
from tests.records.support.samples import UUID

CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMQ"
NODE_ID = 7
VERSION = parse_version("3.9")
SNAPSHOT = EpochOffset(2, 50)


def stock_node(kafka: StockKafka, folder: Path, port: int) -> StockNode:
    """The stock controller whose data directory we made."""
    properties = {
        "process.roles": "controller",
        "node.id": str(NODE_ID),
        "listeners": f"CONTROLLER://localhost:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{NODE_ID}@localhost:{port}",
        "metadata.log.max.record.bytes.between.snapshots": "300",
    }
    return StockNode(kafka, "stock", folder, properties, Jvm(heap="256m"))


def formatted(folder: Path, release: str) -> Path:
    data = folder / "data"
    plan = FormatPlan((data,), data, CLUSTER_ID, NODE_ID, parse_version(release))
    format_directories(plan, random=Random(1), now_ms=1000)
    return data


HOLD = m.MigrationHold(NODE_ID, 1_700_000_000_000, "a field that Kafka does not know")
"""In a snapshot and in the log: Kafka's controllers and brokers read records with one decoder."""


def decoded(data: bytes) -> list[object]:
    found: list[object] = []
    for batch in iter_batches(data):
        found += [one for one, _ in (control_records(batch) if batch.header.is_control else batch.records())]
    return found


def cluster_records() -> list[m.MetadataRecord]:
    return [
        m.FeatureLevelRecord("metadata.version", VERSION.level),
        m.ZkMigrationStateRecord(m.ZkMigrationState.NONE, HOLD),
        m.TopicRecord("orders", UUID),
        m.PartitionRecord(0, UUID, (1, 2), (1, 2), (), (), 1, 0, 4, 5, (DIRECTORY_UNASSIGNED,) * 2),
        m.ConfigRecord(m.ConfigResourceType.TOPIC, "orders", "cleanup.policy", "compact"),
    ]


@pytest.mark.lane("test")
def test_a_directory_that_we_formatted(kafka_391: StockKafka, tmp_path: Path, free_port: int) -> None:
    data = formatted(tmp_path, "3.7-IV4")
    with stock_node(kafka_391, tmp_path, free_port):
        pass
    log = MetadataLog.open(data)
    records = decoded(log.read(0, 10_000))
    log.close()
    assert isinstance(records[0], LeaderChange)
    assert records[1:3] == [m.BeginTransactionRecord("Bootstrap records"), m.FeatureLevelRecord("metadata.version", 19)]


@pytest.mark.parametrize("release", [pytest.param("3.9.1", marks=pytest.mark.lane("test")), "4.1.0"])
def test_a_snapshot_and_a_log_that_we_wrote(tmp_path: Path, free_port: int, release: str) -> None:
    data = formatted(tmp_path, VERSION.name)
    folder = data / "__cluster_metadata-0"
    folder.mkdir()
    records = cluster_records()
    with SnapshotWriter(folder, SNAPSHOT, last_contained_log_timestamp_ms=1000, now_ms=1000) as writer:
        writer.append(encode_all(records, VERSION.level), now_ms=1000)
        writer.freeze(now_ms=1000)
    log = MetadataLog.open(data)
    leader = LeaderChange(NODE_ID, (Voter(NODE_ID),), (Voter(NODE_ID),))
    log.append(build_control_batch([leader], timestamp_ms=2000, base_offset=50, leader_epoch=3))
    change = m.PartitionChangeRecord(0, UUID, isr=(2,), leader=2)
    held = m.ZkMigrationStateRecord(m.ZkMigrationState.NONE, HOLD)
    values = encode_all([m.BeginTransactionRecord("a copy"), change, held, m.EndTransactionRecord()], VERSION.level)
    log.append(build_batch(values, timestamp_ms=3000, base_offset=51, leader_epoch=3))
    log.close()
    ours = log_bytes(folder)
    QuorumStateFile(folder, [NODE_ID]).write(ElectionState(3, leader_id=NODE_ID))

    with stock_node(KafkaRelease(release).fetch(), tmp_path, free_port) as node:
        node.process.wait_until(
            lambda: len(list(folder.glob("*.checkpoint"))) > 1, "a snapshot", timeout_seconds=PATIENCE_SECONDS
        )

    assert log_bytes(folder).startswith(ours)
    assert (folder / FILE_NAME).exists(), "stock Kafka lets our note of a clean stop be"
    assert SyncedEnd(folder).read() is None, "and leaves traces that make it worthless"
    log = MetadataLog.open(data)
    assert (log.start_offset(), log.last_epoch() > 3) == (50, True)
    latest = log.store.latest()
    assert latest is not None
    taken_over = [record for batch in iter_snapshot(log.store.path(latest)) for record in decoded(bytes(batch.data))]
    log.close()
    changed = m.PartitionRecord(0, UUID, (1, 2), (2,), (), (), 2, 0, 5, 6, (DIRECTORY_UNASSIGNED,) * 2)
    kinds = (m.TopicRecord, m.PartitionRecord, m.ConfigRecord)
    assert [record for record in taken_over if isinstance(record, kinds)] == [records[2], changed, records[4]]


def log_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
