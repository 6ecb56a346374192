"""Stock Kafka's tools read what we write, and print it as we do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.controller.quorum_target import KEY, RESOURCE
from migrator.controller.rollout_lock import KEY as LOCK_KEY
from migrator.log.dump import to_lines
from migrator.log.metadata_log import MetadataLog
from migrator.log.snapshots import SnapshotWriter
from migrator.parts.kafka import StockKafka
from migrator.raft.messages import EpochOffset
from migrator.records import metadata as m
from migrator.records.batch import build_batch
from migrator.records.codec import encode, encode_all
from migrator.records.control import LeaderChange, Voter, build_control_batch
from tests.log.support.golden import BATCH_FILES
from tests.parts.support.kafka_tools import dump_log, metadata_shell
from tests.records.support.samples import UUID, samples


def log_of_every_record(folder: Path) -> Path:
    """A log with a leader change and, in a batch each and all in one, every record that 3.9 knows."""
    values = [encode(*sample) for sample in samples() if not isinstance(sample[0], m.ClearElrRecord)]
    log = MetadataLog.open(folder)
    change = LeaderChange(1, (Voter(1), Voter(2)), (Voter(1),), led_by_migrator=True)
    log.append(build_control_batch([change], timestamp_ms=1000, leader_epoch=2))
    for group in [[content] for content in values] + [values]:
        log.append(build_batch(group, timestamp_ms=2000, base_offset=log.end_offset(), leader_epoch=3))
    log.close()
    return next(log.directory.glob("*.log"))


CLUSTER: list[m.MetadataRecord] = [
    m.FeatureLevelRecord("metadata.version", 21),
    m.ZkMigrationStateRecord(3),
    m.TopicRecord("orders", UUID),
    m.PartitionRecord(0, UUID, (1, 2), (1,), (), (), 1, 0, 4, 5),
    m.ConfigRecord(2, "orders", "cleanup.policy", "compact"),
    m.ConfigRecord(RESOURCE.resource_type, RESOURCE.name, KEY, "4,5,6"),
    m.ConfigRecord(RESOURCE.resource_type, RESOURCE.name, LOCK_KEY, '{"rollout":"ab12cd34","host":"ops-1"}'),
]
"""Records that an image can be made of."""


def snapshot_of_a_cluster(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    with SnapshotWriter(folder, EpochOffset(4, 900), last_contained_log_timestamp_ms=3000, now_ms=4000) as writer:
        writer.append(encode_all(CLUSTER, 21), now_ms=4000)
        return writer.freeze(now_ms=5000)


def log_of_a_cluster(folder: Path) -> Path:
    log = MetadataLog.open(folder)
    log.append(build_batch(encode_all(CLUSTER, 21), timestamp_ms=2000, leader_epoch=3))
    log.close()
    return next(log.directory.glob("*.log"))


def test_dump_log_prints_every_record_of_ours_and_of_stock_as_we_do(kafka_391: StockKafka, tmp_path: Path) -> None:
    written = [
        log_of_every_record(tmp_path / "log"),
        snapshot_of_a_cluster(tmp_path),
        log_of_a_cluster(tmp_path / "cluster"),
    ]
    for number, stock in enumerate(path for path in BATCH_FILES if path.parent.name == "stock-3.9.1"):
        name = f"{number:020d}.log" if stock.suffix == ".log" else f"{number:020d}-{1:010d}.checkpoint"
        written.append(Path(shutil.copy(stock, tmp_path / name)))
    stock_text = dump_log(kafka_391, *written, directory=tmp_path)
    ours = [line for path in written for line in to_lines(path, secrets=True)]
    assert [line for line in stock_text.splitlines() if not line.startswith("log4j:")] == ours
    assert (
        stock_text.count('"resourceType":0,"resourceName":"migrator.quorum","name":"target.voters","value":"4,5,6"')
        == 2
    )


@pytest.mark.parametrize("write", [snapshot_of_a_cluster, log_of_a_cluster])
def test_the_metadata_shell_reads_ours(kafka_391: StockKafka, tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path / "data")
    partition = metadata_shell(kafka_391, path, "cat", "/image/topics/byName/orders/0", directory=tmp_path)
    assert "leaderEpoch=4, partitionEpoch=5)" in partition
    configs = metadata_shell(kafka_391, path, "find", "/image/configs", directory=tmp_path, shows="cleanup.policy")
    assert "cleanup.policy" in configs
    target = metadata_shell(
        kafka_391, path, "cat", "/image/configs/UNKNOWN:migrator.quorum/target.voters", directory=tmp_path
    )
    assert "4,5,6" in target
    lock = metadata_shell(
        kafka_391, path, "cat", f"/image/configs/UNKNOWN:migrator.quorum/{LOCK_KEY}", directory=tmp_path
    )
    assert '{"rollout":"ab12cd34","host":"ops-1"}' in lock
