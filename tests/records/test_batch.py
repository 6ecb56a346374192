"""Record batches: bytes <-> values, checksums, stamping, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch

from migrator.records import metadata as m
from migrator.records.batch import (
    HEADER_SIZE,
    build_batch,
    iter_batches,
    iter_headers,
    read_header,
    restamp,
    split_values,
)
from migrator.records.codec import decode, encode, encode_all
from migrator.records.errors import CorruptRecordsError
from migrator.records.runs import checked_batches
from migrator.records.uuid import Uuid

VALUES = st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=90)
NO_OP = encode(m.NoOpRecord(), 0)


@given(VALUES, st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(0, 2**62))
def test_values_to_batch_and_back(values: list[bytes], offset: int, epoch: int, timestamp: int) -> None:
    data = build_batch(values, timestamp_ms=timestamp, base_offset=offset, leader_epoch=epoch)
    (batch,) = checked_batches(data, next_offset=offset)
    header = batch.header
    assert [raw.value for raw in batch.raw_records()] == values
    assert [raw.offset for raw in batch.raw_records()] == list(range(offset, offset + len(values)))
    assert (header.size, header.next_offset, header.leader_epoch) == (len(data), offset + len(values), epoch)
    assert (header.base_timestamp, header.max_timestamp, header.is_control) == (timestamp, timestamp, False)


@given(VALUES)
def test_an_independent_codec_reads_our_batches(values: list[bytes]) -> None:
    data = build_batch(values, timestamp_ms=1_700_000_000_000, base_offset=5, leader_epoch=2)
    batch, size = read_batch(io.BytesIO(data).getbuffer(), 0)
    assert size == len(data)
    assert [record.value for record in batch.records] == values
    assert [record.offset for record in batch.records] == list(range(5, 5 + len(values)))


def test_long_records_and_many_of_them() -> None:
    values = [bytes([1 + index % 250]) * (1 + index % 3) for index in range(20_000)] + [b"\1" * 300_000]
    (batch,) = checked_batches(build_batch(values, timestamp_ms=0), next_offset=0)
    assert [raw.value for raw in batch.raw_records()] == values


@given(st.lists(VALUES, min_size=1, max_size=4), st.integers(0, 2**40), st.integers(0, 1000))
def test_stamping_is_building_with_other_numbers(groups: list[list[bytes]], offset: int, epoch: int) -> None:
    worker = b"".join(build_batch(values, timestamp_ms=9) for values in groups)
    stamped, end = restamp(worker, offset, epoch)
    expected = b""
    for values in groups:
        expected += build_batch(values, timestamp_ms=9, base_offset=offset, leader_epoch=epoch)
        offset += len(values)
    assert (stamped, end) == (expected, offset)


def test_records_of_a_data_batch_are_decoded_in_order() -> None:
    records: list[m.MetadataRecord] = [m.NoOpRecord(), m.ConfigRecord(2, "t", "k", None), m.EndTransactionRecord()]
    (batch,) = iter_batches(build_batch(encode_all(records, 21), timestamp_ms=0))
    assert [record for record, _ in batch.records()] == records


@given(st.data())
def test_any_flipped_bit_behind_the_stamp_is_noticed(data: st.DataObject) -> None:
    good = build_batch([NO_OP] * 3, timestamp_ms=77, base_offset=4, leader_epoch=1)
    position = data.draw(st.integers(16, len(good) - 1))
    bad = bytearray(good)
    bad[position] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptRecordsError):
        checked_batches(bytes(bad), next_offset=4)


def test_a_cut_batch_is_an_error_or_the_quiet_end_of_a_fetch() -> None:
    first = build_batch([NO_OP], timestamp_ms=0)
    second = build_batch([NO_OP, NO_OP], timestamp_ms=0, base_offset=1)
    for size in range(1, len(second)):
        cut = first + second[:size]
        assert [header.base_offset for header in iter_headers(cut, partial_tail=True)] == [0]
        with pytest.raises(CorruptRecordsError):
            list(iter_headers(cut))


def test_batches_are_views_and_keep_their_bytes() -> None:
    data = build_batch([NO_OP], timestamp_ms=0) + build_batch([b"x"], timestamp_ms=0, base_offset=1)
    batches = list(iter_batches(data))
    assert b"".join(batch.data for batch in batches) == data
    assert all(batch.data.obj is data for batch in batches)


def test_a_log_takes_only_what_follows_on() -> None:
    first = build_batch([NO_OP, NO_OP], timestamp_ms=0, base_offset=10, leader_epoch=3)
    with pytest.raises(CorruptRecordsError, match="starts at offset 10 instead of 9"):
        checked_batches(first, next_offset=9)
    gap = build_batch([NO_OP], timestamp_ms=0, base_offset=13, leader_epoch=3)
    with pytest.raises(CorruptRecordsError, match="starts at offset 13 instead of 12"):
        checked_batches(first + gap, next_offset=10)
    old = build_batch([NO_OP], timestamp_ms=0, base_offset=12, leader_epoch=2)
    with pytest.raises(CorruptRecordsError, match="epoch falls from 3 to 2"):
        checked_batches(first + old, next_offset=10)


def test_what_kraft_never_writes_is_refused() -> None:
    good = bytearray(build_batch([NO_OP], timestamp_ms=0))
    old_magic = good.copy()
    old_magic[16] = 1
    with pytest.raises(CorruptRecordsError, match="magic 1"):
        read_header(old_magic)
    compressed = good.copy()
    compressed[22] |= 2
    with pytest.raises(CorruptRecordsError, match="compressed"):
        next(iter_batches(compressed)).raw_records()
    keyed = build_batch([NO_OP], timestamp_ms=0, control_keys=[b"k"])
    data_with_key = bytearray(keyed)
    data_with_key[22] = 0
    with pytest.raises(CorruptRecordsError, match="has a key"):
        next(iter_batches(data_with_key)).records()
    with pytest.raises(CorruptRecordsError, match="control records"):
        next(iter_batches(keyed)).records()
    later = good.copy()
    later[HEADER_SIZE + 2] = 2
    with pytest.raises(CorruptRecordsError, match="timestamp"):
        next(iter_batches(later)).raw_records()
    with pytest.raises(ValueError, match="at least one"):
        build_batch([], timestamp_ms=0)


@given(st.data())
def test_records_that_begin_alike_are_checked_like_others(data: st.DataObject) -> None:
    on = (1, 2, 3)
    changes = [m.PartitionChangeRecord(number, Uuid(bytes(16)), (1, 2), 1) for number in range(70)]
    partitions = [m.PartitionRecord(number, Uuid(bytes(16)), on, on, (), (), 1, 0, 0, 0) for number in range(3)]
    written = bytearray(build_batch(encode_all([*partitions, *changes], 14), timestamp_ms=0))
    assert [record for record, _ in next(iter_batches(written)).sized_records()] == [*partitions, *changes]
    for _ in range(data.draw(st.integers(1, 2))):
        written[data.draw(st.integers(HEADER_SIZE, len(written) - 1))] ^= data.draw(st.integers(1, 255))
    (batch,) = iter_batches(written)
    assert outcome(lambda: [decode(content) for content in batch.contents()]) == outcome(batch.records)


def outcome(decoded: Callable[[], Sequence[object]]) -> Sequence[object] | None:
    """None: it was refused."""
    try:
        return decoded()
    except CorruptRecordsError:
        return None


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=60), st.integers(1, 20), st.integers(100, 400))
def test_groups_keep_order_and_both_bounds(values: list[bytes], records_max: int, bytes_max: int) -> None:
    groups = list(split_values(values, records_max=records_max, bytes_max=bytes_max))
    assert [content for group in groups for content in group] == values
    for group in groups:
        assert 0 < len(group) <= records_max
        assert len(group) == 1 or len(build_batch(group, timestamp_ms=0)) <= bytes_max
