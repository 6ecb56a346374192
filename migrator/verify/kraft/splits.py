"""Divides a metadata log among tasks: ranges of its files that begin and end with a batch, each read by one task only.

To divide the log, only headers of batches are read. So damage that headers show (a gap, a cut end, falling epochs) is
found before any task begins; checksums and records are checked by the task that has the range.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from migrator.errors import OperatorError
from migrator.log.errors import storage_errors
from migrator.log.files import iter_file_batches
from migrator.log.listing import LogListing, list_log
from migrator.log.snapshots import check_place
from migrator.records.batch import Batch, BatchHeader
from migrator.records.errors import CorruptRecordsError
from migrator.values import value
from migrator.verify.kraft.entities import Placed, placed
from migrator.verify.kraft.files import (
    COMPARE,
    EmptyLogError,
    checked,
    damaged,
    headers_of,
    log_directory_of,
    patiently,
    undecoded,
)
from migrator.verify.kraft.fold import SNAPSHOT

SPLIT_BYTES = 32 * 1024 * 1024
"""The most bytes of a file that one task reads; it goes on to the end of a batch."""


@value
class Split:
    """Bytes from ``start`` to ``end`` of a file; ``order`` is the place of the first record that begins there."""

    path: str
    start: int
    end: int
    order: int


def divided(directory: Path, count: int) -> tuple[Split, ...]:
    """Divide the newest snapshot of a directory and the log after it into ``count`` parts, or more, if that is
    possible.

    :raises OperatorError: the directory cannot be read, holds no log, or headers show damage; names file and offset.
    """
    return patiently(lambda: _divided(log_directory_of(directory), count))


def records_of(split: Split, salt: bytes) -> Iterator[Placed]:
    """Yield the records of one part; ``salt`` as for `placed`.

    :raises OperatorError: the part cannot be read, is damaged, or has a record that does not decode; names file and
        offset.
    """
    path, order = Path(split.path), split.order
    batches = iter_file_batches(path, split.start, split.end)
    while (batch := _next(path, batches)) is not None:
        if order >= 0 and batch.header.base_offset != order:
            what = f"offset {batch.header.base_offset} stands where {order} stood a moment ago"
            raise OperatorError(what, where=str(path), remedy="Run the command again")
        if not batch.header.is_control:
            yield from _placed(path, batch, order, salt)
        order += batch.header.count


def _next(path: Path, batches: Iterator[tuple[int, Batch]]) -> Batch | None:
    try:
        return next((batch for _, batch in batches), None)
    except CorruptRecordsError as error:
        raise damaged(path, error) from error


def _placed(path: Path, batch: Batch, order: int, salt: bytes) -> Iterator[Placed]:
    try:
        for each in enumerate(batch.contents(), order):
            yield placed(*each, salt)
    except CorruptRecordsError as error:
        raise undecoded(path, batch.header, error) from error


def _divided(log_directory: Path, count: int) -> tuple[Split, ...]:
    listing = list_log(log_directory)
    newest = listing.newest_snapshot()
    files = [*listing.segments, *(() if newest is None else (listing.snapshots[newest],))]
    with storage_errors("cannot read", log_directory):
        size = sum(path.stat().st_size for path in files)
    cutter = _Cutter(min(SPLIT_BYTES, -(-size // count)))
    start = 0
    if newest is not None:
        start = newest.offset
        for position, header in _snapshot_headers(listing.snapshots[newest]):
            cutter.add(listing.snapshots[newest], position, header, SNAPSHOT + header.base_offset)
    if listing.segments and (first := int(listing.segments[0].stem)) > start:
        what = f"the log begins at offset {first}, and no snapshot holds what was before"
        raise OperatorError(what, where=str(log_directory), remedy=COMPARE)
    for path, position, header in _log_headers(listing):
        if header.base_offset >= start:
            cutter.add(path, position, header, header.base_offset)
    if not cutter.has_data:
        raise EmptyLogError(log_directory)
    return tuple(cutter.splits)


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


def _log_headers(listing: LogListing) -> Iterator[tuple[Path, int, BatchHeader]]:
    return checked(listing.segments, headers_of, lambda header: header)


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
