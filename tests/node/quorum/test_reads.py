"""Answers to fetches: in order, some in each turn of the event loop, and never of a log that is another one by now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.log.metadata_log import MetadataLog
from migrator.log.segment import Segment
from migrator.node.quorum.reads import READ_BYTES_MAX, TURN_READS, FetchReads
from migrator.observe.loop_health import LoopWork, TurnGauge
from migrator.raft.effects import ReadLog
from migrator.raft.messages import FetchResponse
from migrator.records.batch import BATCH_BYTES_MAX, BatchHeader, iter_headers
from migrator.records.runs import INDEX_INTERVAL_BYTES
from tests.log.support.builders import batch

EPOCH = 1
BATCHES = 40_000
SIZE = len(batch(0))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[MetadataLog]:
    opened = MetadataLog.open(tmp_path)
    opened.append(b"".join(batch(offset, EPOCH) for offset in range(BATCHES)))
    yield opened
    opened.close()


class Asker:
    """A client that fetches."""

    def __init__(self, log: MetadataLog) -> None:
        self.epoch = EPOCH
        self.gauge = TurnGauge()
        self.gauge.counts = True
        self.answers: list[tuple[Any, bytes]] = []
        self.reads = FetchReads(log, lambda: self.epoch, self._take, self._fail, self.gauge)

    def ask(self, name: Any, offset: int = 0, max_bytes: int = 1) -> None:
        response = FetchResponse(ErrorCode.none, ErrorCode.none, 1, EPOCH, 0, 0)
        effect = ReadLog(name, response, offset, max_bytes)
        self.reads.add(effect, self.reads.size_of(effect))

    def _take(self, context: Any, response: FetchResponse) -> None:
        self.answers.append((context, response.records))

    def _fail(self, error: BaseException) -> None:
        raise error


async def test_everybody_is_answered_in_order_some_in_each_turn(log: MetadataLog) -> None:
    asker = Asker(log)
    for number in range(3 * TURN_READS):
        asker.ask(number, offset=number)
    for turn in range(1, 4):
        await asyncio.sleep(0)
        assert len(asker.answers) == turn * TURN_READS
    assert asker.answers == [(number, batch(number, EPOCH)) for number in range(3 * TURN_READS)]


async def test_nobody_gets_more_than_a_turn_can_bear(log: MetadataLog) -> None:
    asker = Asker(log)
    for number in range(3):
        asker.ask(number, max_bytes=1 << 31)
    while len(asker.answers) < 3:
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert {len(records) for _, records in asker.answers} == {READ_BYTES_MAX // SIZE * SIZE}
    assert asker.gauge.largest[LoopWork.READ_BYTES] < READ_BYTES_MAX + READ_BYTES_MAX


async def test_an_answer_that_is_late_by_an_election_says_nothing(log: MetadataLog) -> None:
    asker = Asker(log)
    asker.ask("late")
    asker.epoch += 1
    log.truncate_to(0)
    log.append(batch(0, EPOCH + 1))
    await asyncio.sleep(0)
    assert asker.answers == [("late", b"")]


async def test_nothing_is_answered_after_the_end(log: MetadataLog) -> None:
    asker = Asker(log)
    asker.ask("somebody")
    asker.reads.close()
    await asyncio.sleep(0)
    assert asker.answers == []


@pytest.mark.parametrize("offset", [0, 1, BATCHES // 2, BATCHES - 1])
def test_a_read_looks_at_few_headers_however_long_it_is(
    log: MetadataLog, monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    looked = 0
    header_at = Segment._header_at

    def counted(segment: Segment, position: int) -> BatchHeader:
        nonlocal looked
        looked += 1
        return header_at(segment, position)

    monkeypatch.setattr(Segment, "_header_at", counted)
    for max_bytes, up_to in ((BATCH_BYTES_MAX, None), (READ_BYTES_MAX, None), (BATCH_BYTES_MAX, BATCHES - 7)):
        looked = 0
        data = log.read(offset, max_bytes, up_to)
        assert looked <= 2 * (INDEX_INTERVAL_BYTES // SIZE + 2)
        end = min(BATCHES if up_to is None else up_to, offset + max_bytes // SIZE)
        assert [header.base_offset for header in iter_headers(data)] == [*range(offset, end)]
