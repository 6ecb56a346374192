"""A voter that was away for a day: ours behind a stock leader, and a stock one behind ours, on a log over 100 MiB.

The logs are written as segments, since nobody has a day. The voter that was away has the first half; it lacks 172,800
NoOps, one for each half second of a day, and 45 MiB of topics. A stock leader sends 8 MiB that end within a batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from migrator.drill.cluster import ControllerProcess, controller_properties
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.log.segment import segment_name
from migrator.observe.status import NodeRole
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import free_port
from migrator.records import metadata as m
from migrator.records.batch import Batch, build_batch, iter_batches
from migrator.records.codec import encode, encode_all
from migrator.records.control import LeaderChange, Voter, build_control_batch
from migrator.records.uuid import DIRECTORY_UNASSIGNED, random_uuid
from migrator.records.versions import parse_version
from tests.drill.support.stock_controllers import StockController

MIB = 1024 * 1024
OURS, STOCK = VOTERS = (1, 2)
EPOCH = 1
LEVEL = parse_version("3.9").level
NO_OPS = 2 * 24 * 3600
NO_OP = encode(m.NoOpRecord(), 0)
SHARED_BYTES = 50 * MIB
TOPIC_BYTES = 45 * MIB
TOPICS_A_BATCH = 300
REGISTRATIONS_MAX = 3
"""Of one process of ours: its own, and another one if a leader lost the first."""
WAIT_SECONDS = 300.0
KEEP_ALL = {
    "metadata.log.max.record.bytes.between.snapshots": str(1 << 40),
    "metadata.log.max.snapshot.interval.ms": "0",
    "metadata.max.retention.bytes": "-1",
}
"""Else the leader would send a snapshot, which is another way to catch up."""


class Writer:
    """Batches one behind the other."""

    def __init__(self) -> None:
        self.offset = 0
        self.size = 0
        self._parts: list[bytes] = []

    def add(self, data: bytes, count: int) -> None:
        self._parts.append(data)
        self.offset += count
        self.size += len(data)

    def records(self, records: list[m.MetadataRecord]) -> None:
        values = encode_all(records, LEVEL)
        self.add(
            build_batch(values, timestamp_ms=self.offset, base_offset=self.offset, leader_epoch=EPOCH), len(values)
        )

    def take(self) -> bytes:
        data, self._parts = b"".join(self._parts), []
        return data


def history() -> tuple[bytes, bytes]:
    """The records of both voters, and those that one of them missed."""
    log = Writer()
    voters = tuple(map(Voter, VOTERS))
    opened = build_control_batch(
        [LeaderChange(OURS, voters, voters)], timestamp_ms=0, base_offset=0, leader_epoch=EPOCH
    )
    log.add(opened, 1)
    log.records(
        [m.FeatureLevelRecord("metadata.version", LEVEL), m.ZkMigrationStateRecord(int(m.ZkMigrationState.NONE))]
    )
    while log.size < SHARED_BYTES:
        log.records([m.ConfigRecord(m.ConfigResourceType.BROKER, "1", "shared", "x" * 20_000) for _ in range(10)])
    shared = log.take()
    for _ in range(NO_OPS):
        log.add(build_batch([NO_OP], timestamp_ms=log.offset, base_offset=log.offset, leader_epoch=EPOCH), 1)
    stop = log.size + TOPIC_BYTES
    topics = some_topics(Random(1))
    while log.size < stop:
        log.records([record for _ in range(TOPICS_A_BATCH) for record in next(topics)])
    return shared, log.take()


def some_topics(random: Random) -> Iterator[tuple[m.MetadataRecord, ...]]:
    """Topics of one partition, with a kilobyte of configuration each."""
    number = 0
    while True:
        name, topic_id = f"topic-{number}", random_uuid(random)
        directories = (DIRECTORY_UNASSIGNED,) * 3
        yield (
            m.TopicRecord(name, topic_id),
            m.PartitionRecord(0, topic_id, (1, 2, 3), (1, 2, 3), (), (), 1, 0, 0, 0, directories),
            m.ConfigRecord(m.ConfigResourceType.TOPIC, name, "follower.replication.throttled.replicas", "0:1," * 250),
        )
        number += 1


def write_log(controller: ControllerProcess, data: bytes) -> int:
    """As its log's only segment; gives the end offset."""
    log = MetadataLog.open(controller.metadata_directory)
    try:
        return log.append(data)
    finally:
        log.close()


def segment(controller: ControllerProcess) -> Path:
    return controller.metadata_directory / DIRECTORY_NAME / segment_name(0)


def registrations(batches: Iterator[Batch], node_id: int) -> int:
    records = (record for batch in batches if not batch.header.is_control for record, _ in batch.records())
    return sum(isinstance(record, m.RegisterControllerRecord) and record.controller_id == node_id for record in records)


@pytest.mark.lane("test-long")
@pytest.mark.parametrize("leader_id", VOTERS, ids=["ours leads", "stock leads"])
async def test_a_voter_that_was_away_for_a_day_catches_up(
    kafka_391: StockKafka, tmp_path: Path, leader_id: int
) -> None:
    ports = {voter: free_port() for voter in VOTERS}
    plain = [
        ControllerProcess(voter, tmp_path / str(voter), controller_properties(voter, ports) | KEEP_ALL)
        for voter in VOTERS
    ]
    ours, stock = plain[0], StockController(kafka_391, plain[1])
    leader, away = (ours, stock) if leader_id == OURS else (stock, ours)
    shared, missed = history()
    assert len(shared) + len(missed) > 100 * MIB
    for controller in (ours, stock):
        await asyncio.to_thread(controller.format)
    end = await asyncio.to_thread(write_log, leader, shared + missed)
    await asyncio.to_thread(write_log, away, shared)
    try:
        for controller in (ours, stock):
            await asyncio.to_thread(controller.start)
        async with asyncio.timeout(WAIT_SECONDS):
            while segment(away).stat().st_size < len(shared) + len(missed):
                assert ours.runs, "our controller has ended"
                assert stock.runs, "the stock controller has ended"
                await asyncio.sleep(0.5)
            while (status := await ours.status()) is None or status.quorum.high_watermark < end:
                await asyncio.sleep(0.5)
        assert not [problem for problem in status.problems if "refuses new records" in problem.what]
        assert (status.quorum.role is NodeRole.LEADER) == (leader is ours)
    finally:
        for controller in (away, leader):
            await asyncio.to_thread(controller.stop)
    contents = [segment(controller).read_bytes() for controller in (ours, stock)]
    assert all(content.startswith(shared + missed) for content in contents)
    new = memoryview(contents[0])[len(shared) + len(missed) :]
    assert registrations(iter_batches(new, partial_tail=True), OURS) <= REGISTRATIONS_MAX
    assert len(ours.image().topics.ids) == len(stock.image().topics.ids) > 0
