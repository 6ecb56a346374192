"""The table of leader epochs against the plain list of every record's epoch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.errors import InvariantViolation
from migrator.log.epochs import EpochStart, EpochTable

EPOCHS = st.lists(st.integers(0, 9), max_size=30).map(sorted)


def table_of(epochs: list[int]) -> EpochTable:
    table = EpochTable()
    for offset, epoch in enumerate(epochs):
        table.assign(epoch, offset)
    return table


@given(EPOCHS, st.integers(0, 10))
def test_ends_and_epochs_are_those_of_the_records(epochs: list[int], asked: int) -> None:
    table = table_of(epochs)
    assert [table.epoch_at(offset) for offset in range(len(epochs))] == epochs
    known = [epoch for epoch in epochs if epoch <= asked]
    expected = EpochStart(known[-1], len(known)) if known else None
    assert table.end_of(asked, len(epochs)) == expected
    assert table.latest == (epochs[-1] if epochs else None)


@given(EPOCHS, st.integers(0, 35))
def test_truncation_from_the_end_is_a_shorter_list(epochs: list[int], end: int) -> None:
    table = table_of(epochs)
    table.truncate_from_end(end)
    assert table.starts == table_of(epochs[:end]).starts


@given(EPOCHS.filter(bool), st.data())
def test_truncation_from_the_start_keeps_the_rest(epochs: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(epochs) - 1))
    table = table_of(epochs)
    table.truncate_from_start(start)
    assert [table.epoch_at(offset) for offset in range(start, len(epochs))] == epochs[start:]
    assert table.earliest == EpochStart(epochs[start], start)


def test_neither_column_may_fall() -> None:
    table = table_of([1, 1, 3])
    with pytest.raises(InvariantViolation, match="does not follow"):
        table.assign(2, 3)
    with pytest.raises(InvariantViolation, match="does not follow"):
        table.assign(4, 1)


def test_an_epoch_left_without_records_gives_way() -> None:
    table = table_of([1, 2])
    table.truncate_from_start(2)
    assert table.starts == (EpochStart(2, 2),)
    table.assign(5, 2)
    assert table.starts == (EpochStart(5, 2),)
