"""The garbage collector passes over the image, and over nothing that could be in a cycle when it dies."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterable

import pytest

from migrator.node import metadata
from migrator.node.metadata import MetadataRuntime
from migrator.observe.loop_health import TurnGauge, freeze_live_objects
from migrator.records.batch import Batch, build_batch, iter_batches
from migrator.records.codec import encode_all
from migrator.records.metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
)
from tests.patience import PATIENCE_SECONDS

LEVEL = 21
FREEZE_RECORDS = 10


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def test_garbage_is_collected_and_not_frozen() -> None:
    gone = [weakref.ref(Cycle()) for _ in range(10)]
    collected = list[int]()
    note = lambda phase, info: collected.append(info["generation"]) if phase == "start" else None  # noqa: E731
    gc.callbacks.append(note)
    try:
        freeze_live_objects()
    finally:
        gc.callbacks.remove(note)
    assert max(collected) == 1, "the oldest generation grows with the process, and it is looked at in one turn"
    gc.collect()
    assert [ref() for ref in gone] == [None] * 10


def no_step(*_: object) -> None:
    """For an image that nobody follows."""


class Log:
    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.end = 0

    def append(self, records: Iterable[MetadataRecord]) -> None:
        values = encode_all(list(records), LEVEL)
        self.batches += iter_batches(build_batch(values, timestamp_ms=1, base_offset=self.end, leader_epoch=1))
        self.end += len(values)

    def read(self, offset: int) -> list[Batch]:
        return [batch for batch in self.batches if batch.header.next_offset > offset]


@pytest.mark.parametrize(("in_transaction", "frozen"), [(True, True), (False, False)])
async def test_only_a_copy_is_frozen_not_what_comes_in_daily_use(
    in_transaction: bool, frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "FREEZE_RECORDS", FREEZE_RECORDS)
    log = Log()
    log.append([FeatureLevelRecord("metadata.version", LEVEL)])
    runtime = MetadataRuntime(
        lambda _: (_ for _ in ()).throw(AssertionError),
        log.read,
        lambda: log.end,
        on_step=no_step,
        on_failure=lambda error: pytest.fail(str(error)),
        gauge=TurnGauge(),
    )
    runtime.appended()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await runtime.caught_up()
    before = gc.get_freeze_count()
    if in_transaction:
        log.append([BeginTransactionRecord("copy")])
    for _ in range(10 * FREEZE_RECORDS):
        log.append([NoOpRecord()])
    if in_transaction:
        log.append([EndTransactionRecord()])
    runtime.appended()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await runtime.caught_up()
    await runtime.close()
    assert (gc.get_freeze_count() > before) is frozen
