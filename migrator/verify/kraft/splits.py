"""Divides a metadata log among tasks: ranges of its files that begin and end with a batch, each read by one task only.

To divide the log, only headers of batches are read. So damage that headers show (a gap, a cut end, falling epochs) is
found before any task begins; checksums and records are checked by the task that has the range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from migrator.errors import OperatorError
from migrator.log.errors import storage_errors
from migrator.log.files import iter_file_batches
from migrator.log.listing import LogListing, list_log
from migrator.log.snapshots import check_place
from migrator.raft.messages import EpochOffset
from migrator.records.batch import Batch, BatchHeader
from migrator.records.errors import CorruptRecordsError
from migrator.values import value
from migrator.verify.kraft.entities import Placed, partition_key, placed
from migrator.verify.kraft.files import (
    EmptyLogError,
    check_begin,
    checked,
    damaged,
    headers_of,
    log_directory_of,
    patiently,
    undecoded,
)
from migrator.verify.kraft.fold import SNAPSHOT
from migrator.verify.places import place

SPLIT_BYTES = 32 * 1024 * 1024
"""The most bytes of a file that one task reads; it goes on to the end of a batch."""

_LOST = (
    "Copy the directory again, with all its files. If this controller stopped while it replaced its log with a "
    "snapshot: start it once, and stop it with SIGTERM"
)


@value
class Split:
    """Bytes from ``start`` to ``end`` of a file; ``order`` is the place of the first record that begins there."""

    path: str
    start: int
    end: int
    order: int


def divided(directory: Path, count: int, until: int | None = None, *, history: bool = False) -> tuple[Split, ...]:
    """Divide the newest snapshot of a directory and the log after it into ``count`` parts, or more, if that is
    possible.

    :param until: the last offset to read; None for all that is there. A batch that ends later is left out.
    :param history: read as much of the log as there is, after the oldest snapshot that it continues, if any.
    :raises OperatorError: the directory cannot be read, holds no log, does not reach ``until``, or headers show damage;
        names file and offset.
    """
    return patiently(lambda: _divided(log_directory_of(directory), count, until, history=history))


def offset_at(directory: Path, time_ms: int) -> int:
    """The last offset of a log before its first batch that was appended after a time (ms since 1970).

    :raises OperatorError: as `divided`; or the log has nothing that old.
    """
    return patiently(lambda: _offset_at(log_directory_of(directory), time_ms))


def _offset_at(log_directory: Path, time_ms: int) -> int:
    listing = list_log(log_directory)
    found = None
    for _, _, header in checked(listing, listing.newest_snapshot(), headers_of, lambda header: header):
        if header.max_timestamp > time_ms:
            break
        found = header.last_offset
    if found is None:
        what = "the log in this directory begins after this time"
        raise OperatorError(what, where=str(log_directory), remedy="Give a later time, or a copy that is older")
    return found


def records_of(split: Split, salt: bytes) -> Iterator[Placed]:
    """Yield the records of one part; ``salt`` as for `placed`; errors as in `batches_of` and `placed_in`."""
    for order, batch in batches_of(split):
        yield from placed_in(split, order, batch, salt)


def batches_of(split: Split) -> Iterator[tuple[int, Batch]]:
    """Yield the batches of one part that hold metadata, each with the place of its first record.

    :raises OperatorError: the part cannot be read, or is damaged; names file and offset.
    """
    path, order = place(split.path), split.order
    batches = iter_file_batches(path, split.start, split.end)
    while (batch := _next(path, batches)) is not None:
        if order >= 0 and batch.header.base_offset != order:
            what = f"offset {batch.header.base_offset} stands where {order} stood a moment ago"
            raise OperatorError(what, where=str(path), remedy="Run the command again")
        if not batch.header.is_control:
            yield order, batch
        order += batch.header.count


def _next(path: Path, batches: Iterator[tuple[int, Batch]]) -> Batch | None:
    try:
        return next((batch for _, batch in batches), None)
    except CorruptRecordsError as error:
        raise damaged(path, error) from error


def placed_in(
    split: Split, order: int, batch: Batch, salt: bytes, wants: Callable[[bytes], bool] = lambda _: True
) -> Iterator[Placed]:
    """Yield the records of a batch; of those of partitions, only what ``wants`` says of their entity.

    :raises OperatorError: a record does not decode; names file and offset.
    """
    try:
        for number, content in enumerate(batch.contents(), order):
            key = partition_key(content)
            if key is None:
                yield placed(number, content, salt)
            elif wants(key):
                yield Placed(number, (key,), content)
    except CorruptRecordsError as error:
        raise undecoded(place(split.path), batch.header, error) from error


def _divided(log_directory: Path, count: int, until: int | None, *, history: bool) -> tuple[Split, ...]:
    listing = list_log(log_directory)
    newest = listing.newest_snapshot(until)
    base = _oldest_base(listing, until) if history else newest
    files = [*listing.segments, *(() if base is None else (listing.snapshots[base],))]
    with storage_errors("cannot read", log_directory):
        size = sum(path.stat().st_size for path in files)
    cutter = _Cutter(min(SPLIT_BYTES, -(-size // count)))
    end = 0
    if base is not None:
        end = base.offset
        for position, header in _snapshot_headers(listing.snapshots[base]):
            cutter.add(listing.snapshots[base], position, header, SNAPSHOT + header.base_offset)
    check_begin(listing, base)
    reached = int(listing.segments[0].stem) if listing.segments else -1
    for path, position, header in checked(listing, base or newest, headers_of, lambda header: header):
        reached = header.next_offset
        if header.base_offset < end:
            continue
        end = reached
        if until is None or header.last_offset <= until:
            cutter.add(path, position, header, header.base_offset)
    if newest is not None and reached < newest.offset:
        has = "has no segment" if reached < 0 else f"ends at offset {reached}"
        what = f"this snapshot holds the log up to offset {newest.offset}, but the log beside it {has}"
        raise OperatorError(what, where=str(listing.snapshots[newest]), remedy=_LOST)
    if not cutter.has_data:
        raise EmptyLogError(log_directory)
    if until is not None and until >= end:
        what = f"offset {until} is asked for, but the log ends with offset {end - 1}"
        raise OperatorError(what, where=str(log_directory), remedy="Ask for an offset that the log has reached")
    return tuple(cutter.splits)


def _oldest_base(listing: LogListing, until: int | None) -> EpochOffset | None:
    """The oldest snapshot that the log continues, if it ends at ``until`` or before; None if the log has its
    beginning."""
    first = int(listing.segments[0].stem) if listing.segments else 0
    if listing.segments and first == 0:
        return None
    usable = (one for one in listing.snapshots if one.offset >= first and (until is None or one.offset <= until + 1))
    return min(usable, key=lambda one: one.offset, default=None)


class _Cutter:
    """Joins consecutive batches of a file to splits, up to a size."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.splits: list[Split] = []
        self.has_data = False

    def add(self, path: Path, position: int, header: BatchHeader, order: int) -> None:
        """Take the next batch of the log."""
        self.has_data |= not header.is_control
        last = self.splits[-1] if self.splits else None
        end = position + header.size
        if last is not None and last.path == str(path) and last.end - last.start < self._size:
            self.splits[-1] = Split(last.path, last.start, end, last.order)
        else:
            self.splits.append(Split(str(path), position, end, order))


def _snapshot_headers(path: Path) -> Iterator[tuple[int, BatchHeader]]:
    expected, ended = 0, False
    try:
        for position, header in headers_of(path):
            ended = check_place(_of_control(path, position, header), position, expected=expected, ended=ended)
            expected = header.next_offset
            yield position, header
    except CorruptRecordsError as error:
        raise damaged(path, error) from error
    if not ended:
        raise damaged(path, CorruptRecordsError("it does not end with its footer"))


def _of_control(path: Path, position: int, header: BatchHeader) -> Batch:
    """Read the batch with its records, if it is a control batch."""
    if not header.is_control:
        return Batch(header, memoryview(b""))
    ((_, batch),) = iter_file_batches(path, position, position + header.size)
    return batch
