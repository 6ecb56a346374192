"""One file of the log: whole batches one behind the other, named after the first offset.

Next to the file there is only a sparse index in memory; the index files that Kafka keeps are rebuilt by it at each
boot, so we write none. Source: ``org.apache.kafka.storage.internals.log.LogSegment``.
"""

from __future__ import annotations

import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path

from migrator.log.errors import NoSpaceError, StorageError, storage_errors
from migrator.log.files import PRIVATE_FILE, sync_file, write_all
from migrator.machine import machine, write_again
from migrator.records.batch import HEADER_SIZE, BatchHeader, read_header
from migrator.records.errors import CorruptRecordsError
from migrator.records.runs import INDEX_INTERVAL_BYTES, BatchRun

SUFFIX = ".log"
DELETED_SUFFIX = ".deleted"
WINDOW_BYTES = INDEX_INTERVAL_BYTES + HEADER_SIZE
"""How much of the file one search for a batch reads at once."""
COMPANION_SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")
"""Disposable files that stock Kafka keeps beside a segment."""
RECENT = 64
"""Of at least so many appends, the place is known exactly: followers fetch there, and images are applied from there."""


def segment_name(base_offset: int) -> str:
    """File name of the segment with that first offset."""
    return f"{base_offset:020d}{SUFFIX}"


class Segment:
    """An open segment. Not thread-safe, but for `sync`, which may run beside appends and reads."""

    def __init__(self, directory: Path, base_offset: int, descriptor: int) -> None:
        self.path = directory / segment_name(base_offset)
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.first_timestamp_ms: int | None = None
        self._descriptor = descriptor
        self._offsets = array("q")
        self._positions = array("q")
        self._recent: list[tuple[int, int]] = []
        """Offset and position of what was appended last."""

    @classmethod
    def open(cls, directory: Path, base_offset: int) -> Segment:
        """Open or create the file. What it already holds is not looked at: `note` and `cut_at` do that.

        :raises StorageError: when it cannot be opened for writing.
        """
        path = directory / segment_name(base_offset)
        with storage_errors("cannot open the segment", path, no_space=NoSpaceError):
            return cls(directory, base_offset, machine().open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))

    def note(self, header: BatchHeader) -> None:
        """Take a batch that the file holds at ``size`` into the books."""
        if not self._positions or self.size - self._positions[-1] > INDEX_INTERVAL_BYTES:
            self._offsets.append(header.base_offset)
            self._positions.append(self.size)
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = header.base_timestamp
        self.size += header.size
        self.next_offset = header.next_offset

    def append(self, run: BatchRun) -> None:
        """Write batches behind the last one, without fsync.

        :raises NoSpaceError: when there is no room; the file then ends where it ended before.
        :raises StorageError: when writing failed otherwise, or the half-written batch could not be cut.
        """
        try:
            with storage_errors("cannot append", self.path, no_space=NoSpaceError):
                write_all(self._descriptor, run.data, self.size)
        except NoSpaceError:
            self.cut_at(self.size)
            raise
        self._index(run)
        if len(self._recent) >= 2 * RECENT:
            del self._recent[:RECENT]
        self._recent.append((self.next_offset, self.size))
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = run.base_timestamp
        self.size += run.size
        self.next_offset = run.next_offset

    def _index(self, run: BatchRun) -> None:
        """Only a run's first mark can be too close to the last one that is here."""
        offsets, positions = run.marks
        first = int(bool(self._positions) and self.size - self._positions[-1] <= INDEX_INTERVAL_BYTES)
        self._offsets.extend(offsets[first:])
        self._positions.extend(self.size + position for position in positions[first:])

    def cut_at(self, size: int) -> None:
        """Make the file that short, nothing else.

        :raises StorageError: when that fails.
        """
        with storage_errors("cannot cut the segment", self.path):
            machine().truncate(self._descriptor, size)

    def truncate_to(self, offset: int) -> None:
        """Remove the batches that hold ``offset`` and what follows, durably.

        :raises StorageError: when that fails.
        """
        position = self.position_of(offset)
        self.cut_at(position)
        self.sync()
        kept = bisect_right(self._positions, position - 1)
        del self._offsets[kept:], self._positions[kept:]
        self._recent.clear()
        if position == 0:
            self.first_timestamp_ms = None
        self.size = position
        self.next_offset = self._end_offset()

    def write_again(self) -> None:
        """As `migrator.machine.write_again`: an fsync may have failed for whoever wrote to the file before.

        :raises StorageError: when that fails.
        """
        with storage_errors("cannot write the segment again", self.path):
            write_again(self._descriptor)

    def sync(self) -> None:
        """Make all that was written durable; callable from another thread.

        :raises StorageError: when that fails. What the file holds is then unknown: the process must stop.
        """
        with storage_errors("cannot make the segment durable", self.path):
            sync_file(self._descriptor)

    def position_of(self, offset: int) -> int:
        """Byte position of the batch that holds an offset; the size for the end offset."""
        if offset >= self.next_offset:
            return self.size
        first, known = self._known_before(offset)
        if first == offset:
            return known
        for position, header in self._headers(known):
            if offset < header.next_offset:
                return position
        return self.size

    def _known_before(self, offset: int) -> tuple[int, int]:
        """First offset and position of the last batch before an offset, or at it, whose place is known."""
        index = bisect_right(self._offsets, offset) - 1
        marked = (self._offsets[index], self._positions[index]) if index >= 0 else (self.base_offset, 0)
        index = bisect_right(self._recent, (offset, self.size)) - 1
        return max(marked, self._recent[index]) if index >= 0 else marked

    def header_of(self, offset: int) -> BatchHeader:
        """The header of the batch that holds an offset of this segment.

        :raises StorageError: when the file cannot be read, or does not hold what was written.
        """
        try:
            return self._header_at(self.position_of(offset))
        except CorruptRecordsError as error:
            raise _changed(self.path, error) from error

    def read_batches(self, offset: int, max_bytes: int, end_offset: int) -> tuple[bytes, int]:
        """Whole batches from the one that holds an offset, and the offset behind them: at most so many bytes, but at
        least one batch, and none that reaches beyond ``end_offset``. The index spares a look at every header.

        :raises StorageError: when the file cannot be read, or does not hold what was written.
        """
        try:
            start = self.position_of(offset)
            stop, next_offset = self._stop_of(start, offset, start + max_bytes, end_offset)
            data = self._read_all(start, stop - start)
            if data:
                read_header(data)  # the books know the place, and not that the file still holds what was written
        except CorruptRecordsError as error:
            raise _changed(self.path, error) from error
        return data, next_offset

    def size_of_read(self, offset: int, max_bytes: int, end_offset: int) -> int:
        """How many bytes `read_batches` would give; errors as there."""
        try:
            start = self.position_of(offset)
            return self._stop_of(start, offset, start + max_bytes, end_offset)[0] - start
        except CorruptRecordsError as error:
            raise _changed(self.path, error) from error

    def _stop_of(self, start: int, offset: int, limit: int, end_offset: int) -> tuple[int, int]:
        """Position and offset behind the last whole batch from ``start`` on that stays within both bounds."""
        if limit >= self.size and end_offset >= self.next_offset:
            return self.size, self.next_offset
        index = min(bisect_right(self._positions, limit), bisect_right(self._offsets, end_offset)) - 1
        stop, reached = start, offset
        if index >= 0 and self._positions[index] > start:
            stop, reached = self._positions[index], self._offsets[index]
        for position, header in self._headers(stop):
            too_far = position + header.size > limit and position > start
            if too_far or header.next_offset > end_offset:
                break
            stop, reached = position + header.size, header.next_offset
        return stop, reached

    def _read_all(self, position: int, size: int) -> bytes:
        data = self._read(position, size)
        if len(data) != size:
            raise CorruptRecordsError(f"{len(data)} bytes are left of {size}", position)
        return data

    def _read(self, position: int, size: int) -> bytes:
        with storage_errors("cannot read the segment", self.path):
            return machine().read(self._descriptor, min(size, self.size - position), position)

    def mark_deleted(self) -> Path:
        """Rename the file, to be removed later by whoever gets its new path; not yet durable.

        :raises StorageError: when that fails.
        """
        marked = self.path.with_name(self.path.name + DELETED_SUFFIX)
        with storage_errors("cannot rename the segment", self.path):
            machine().rename(self.path, marked)
        return marked

    def close(self) -> None:
        """Close the file; twice does no harm."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            machine().close(descriptor)

    def _header_at(self, position: int) -> BatchHeader:
        return read_header(self._read(position, HEADER_SIZE))

    def _headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Every header from a batch's position on, with its own position. One read serves all batches up to about the
        next mark of the index: those of a controller are small, and a read for each header was 26 a look-up."""
        begun, window = position, b""
        while position < self.size:
            if position - begun + HEADER_SIZE > len(window):
                begun, window = position, self._read(position, WINDOW_BYTES)
            header = read_header(window, position - begun)
            yield position, header
            position += header.size

    def _end_offset(self) -> int:
        """The offset behind the last batch."""
        end = self.base_offset
        for _, header in self._headers(self._positions[-1] if self._positions else 0):
            end = header.next_offset
        return end


def _changed(path: Path, error: CorruptRecordsError) -> StorageError:
    remedy = (
        "Check the kernel log (dmesg) for disk errors, and start the controller again: the start repairs what "
        "can be repaired"
    )
    return StorageError(f"the segment has changed: {error}", where=str(path), remedy=remedy)


def close_all(segments: Iterable[Segment]) -> None:
    """Close every one of them."""
    for segment in segments:
        segment.close()
