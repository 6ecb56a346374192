"""A voter that is far behind: bytes that end anywhere, damage, and how much one turn of the event loop does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from migrator.config.settings import Settings
from migrator.log.metadata_log import MetadataLog
from migrator.node.core import NodeCore
from migrator.node.quorum import reads
from migrator.node.quorum.intake import check_records
from migrator.node.status_source import NodeStatusSource
from migrator.observe.loop_health import LoopWork, TurnGauge
from migrator.raft.messages import FetchResponse, RaftResponse
from migrator.records import batch
from migrator.records.batch import BATCH_BYTES_MAX, build_batch, iter_headers
from migrator.records.codec import encode, encode_all
from migrator.records.errors import CorruptRecordsError
from migrator.records.metadata import (
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
)
from migrator.records.versions import FEATURE_NAME, parse_version
from migrator.turns import TURN_BYTES, TURN_RECORDS
from tests.node.support.cluster import FOLLOWS, Cluster, until

AWAY, FOLLOWERS = 3, 2
LEVEL = parse_version("3.9").level
NO_OP = encode(NoOpRecord(), 0)
NO_OPS = 3 * TURN_RECORDS
BIG_BATCHES = 2
BIG_RECORDS = 3 * TURN_RECORDS
LONG_VALUE = "v" * 250
"""Batches with it do not fit into one answer."""
STOCK_BYTES = 100_001
"""Where the answer of the leader ends: a stock one counts bytes, not batches."""


def history(small: int = NO_OPS, big: int = BIG_BATCHES, value: str = "") -> bytes:
    """A log of one epoch: its metadata.version, a few batches of many records, and many of one."""
    batches = [build_batch([encode(FeatureLevelRecord(FEATURE_NAME, LEVEL), 0)], timestamp_ms=1, leader_epoch=1)]
    offset = 1
    for number in range(big):
        records = [ConfigRecord(ConfigResourceType.BROKER, "", f"k{i}", f"{value}{number}") for i in range(BIG_RECORDS)]
        batches.append(build_batch(encode_all(records, LEVEL), timestamp_ms=1, base_offset=offset, leader_epoch=1))
        offset += len(records)
    for _ in range(small):
        batches.append(build_batch([NO_OP], timestamp_ms=1, base_offset=offset, leader_epoch=1))
        offset += 1
    return b"".join(batches)


def fill(settings: Settings, data: bytes) -> None:
    log = MetadataLog.open(settings.metadata_directory)
    log.append(data)
    log.close()


def ends_anywhere(response: RaftResponse) -> RaftResponse:
    """As a stock leader answers: the last batch is cut, but never the first one."""
    if not isinstance(response, FetchResponse) or not response.records:
        return response
    first = next(iter_headers(response.records)).size
    return replace(response, records=response.records[: max(first, STOCK_BYTES)])


class Quorum:
    """Voters 1 and 2 have the history, the third has an empty log."""

    def __init__(self, folder: Path, data: bytes) -> None:
        self.cluster = Cluster(folder, AWAY)
        self.cluster.format()
        for node_id in range(1, AWAY):
            fill(self.cluster.settings(node_id), data)

    async def lead(self) -> NodeCore:
        for node_id in range(1, AWAY):
            self.cluster.start(node_id)
        return await self.cluster.leader()

    async def close(self) -> None:
        for node_id in list(self.cluster.nodes):
            await self.cluster.stop(node_id)
        assert not self.cluster.failures


async def test_a_fetch_that_ends_within_a_batch_is_taken_up_to_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "READ_BYTES_MAX", BATCH_BYTES_MAX)
    data = history()
    assert len(data) > 2 * STOCK_BYTES
    quorum = Quorum(tmp_path, data)
    leader = await quorum.lead()
    quorum.cluster.wires.on_the_way = ends_anywhere
    away = quorum.cluster.start(AWAY)
    end = leader.storage.log.end_offset()
    await until(lambda: away.storage.log.end_offset() >= end, "the third voter has the log")
    await quorum.cluster.agree(end - 1)
    assert away.metadata.published.configs == leader.metadata.published.configs
    assert away.quorum.refusals.count == 0
    await quorum.close()


async def test_no_turn_of_the_loop_does_more_than_its_share(tmp_path: Path) -> None:
    data = history(value=LONG_VALUE)
    assert len(data) > reads.READ_BYTES_MAX
    quorum = Quorum(tmp_path, data)
    leader = await quorum.lead()
    away = quorum.cluster.start(AWAY)
    leader.gauge.counts = away.gauge.counts = True
    await quorum.cluster.agree(leader.storage.log.end_offset() - 1)
    largest = away.gauge.largest
    assert 0 < largest[LoopWork.CHECKED_BATCHES] <= TURN_RECORDS
    assert 0 < largest[LoopWork.CHECKED_BYTES] <= TURN_BYTES + BATCH_BYTES_MAX
    assert 0 < largest[LoopWork.RECORDS] <= 2 * TURN_RECORDS
    assert 0 < largest[LoopWork.WRITTEN_BYTES] <= reads.READ_BYTES_MAX
    assert 0 < leader.gauge.largest[LoopWork.READ_BYTES] <= 2 * reads.READ_BYTES_MAX
    await quorum.close()


def damaged(response: RaftResponse) -> RaftResponse:
    if not isinstance(response, FetchResponse) or not response.records:
        return response
    return replace(response, records=response.records[:-1] + bytes([response.records[-1] ^ 1]))


def cut_within_the_first_batch(response: RaftResponse) -> RaftResponse:
    return replace(response, records=response.records[:40]) if isinstance(response, FetchResponse) else response


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [(damaged, "has checksum"), (cut_within_the_first_batch, "contain no complete batch")],
    ids=["damaged", "cut within the first batch"],
)
async def test_a_voter_that_cannot_follow_says_so_until_it_can(
    tmp_path: Path, spoil: Callable[[RaftResponse], RaftResponse], reason: str
) -> None:
    quorum = Quorum(tmp_path, history(small=10))
    leader = await quorum.lead()
    wires = quorum.cluster.wires
    wires.on_the_way = spoil
    wires.cut.add(2 if leader is quorum.cluster.nodes[1] else 1)
    away = quorum.cluster.start(AWAY)
    await until(lambda: away.quorum.refusals.count > 2, "the log of the third voter refuses")
    source = NodeStatusSource(quorum.cluster.settings(AWAY), away, FOLLOWS, lambda _after: [])
    assert any(reason in problem.what for problem in source.status().problems)
    wires.on_the_way = lambda response: response
    wires.cut.clear()
    await quorum.cluster.leader()
    await until(lambda: source.status().problems == (), "the third voter follows")
    await quorum.close()


async def test_a_batch_of_an_epoch_that_has_not_come_is_refused() -> None:
    data = build_batch([NO_OP], timestamp_ms=1, leader_epoch=1) + build_batch(
        [NO_OP], timestamp_ms=1, base_offset=1, leader_epoch=3
    )
    response = FetchResponse(ErrorCode.none, ErrorCode.none, 1, 2, 0, 0, records=data)
    checked = await check_records(response, 0, asyncio.get_running_loop().time() + 60, TurnGauge())
    with pytest.raises(CorruptRecordsError, match="of leader epoch 3, which is after 2"):
        checked.take()


async def test_a_slow_machine_takes_what_it_has_checked_in_time() -> None:
    data = history(small=3 * TURN_RECORDS)
    response = FetchResponse(ErrorCode.none, ErrorCode.none, 1, 1, 0, 0, records=data)
    checked = await check_records(response, 0, asyncio.get_running_loop().time(), TurnGauge())
    assert checked.run is not None
    assert 0 < checked.run.batches <= TURN_RECORDS
    assert next(iter_headers(data[checked.run.size :])).base_offset == checked.run.next_offset


async def test_a_voter_that_keeps_up_decodes_each_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower decodes records before it appends them, and applies the decoded ones."""
    quorum = Quorum(tmp_path, history(small=10, big=0))
    leader = await quorum.lead()
    away = quorum.cluster.start(AWAY)
    await quorum.cluster.agree(leader.storage.log.end_offset() - 1)
    leader = await quorum.cluster.leader()
    decoded: Counter[int] = Counter()
    decode = batch.Batch._decoded

    def counted(self: batch.Batch) -> Iterator[tuple[MetadataRecord, int, int]]:
        decoded[self.header.base_offset] += 1
        return decode(self)

    monkeypatch.setattr(batch.Batch, "_decoded", counted)
    offsets = [await leader.controller.append(leader.quorum.epoch, [NoOpRecord()]) for _ in range(5)]
    await quorum.cluster.agree(offsets[-1])
    assert away.metadata.end_offset == offsets[-1] + 1
    assert {offset: decoded[offset] for offset in offsets} == dict.fromkeys(offsets, FOLLOWERS)
    await quorum.close()
