"""One file of the log: whole batches one after the other. The file's name is the first offset.

A sparse index is kept in memory. Kafka rebuilds its index files at each start, so this program writes none.
Source: ``org.apache.kafka.storage.internals.log.LogSegment``.
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
"""The bytes that a search for a batch reads at once."""
COMPANION_SUFFIXES = (".index", ".timeindex", ".txnindex", ".snapshot")
"""Disposable files that stock Kafka keeps next to a segment."""
RECENT = 64
"""The exact position of at least this many last appends is kept: followers and the image read there."""


def segment_name(base_offset: int) -> str:
    """File name of the segment with that first offset."""
    return f"{base_offset:020d}{SUFFIX}"


class Segment:
    """An open segment. Not thread-safe, except `sync`, which may run in another thread during appends and reads."""

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
        """Offset and position of each of the last appends."""

    @classmethod
    def open(cls, directory: Path, base_offset: int) -> Segment:
        """Open or create the file. Its content is not read; the caller reads it and calls `note` and `cut_at`.

        :raises StorageError: when it cannot be opened for writing.
        """
        path = directory / segment_name(base_offset)
        with storage_errors("cannot open the segment", path, no_space=NoSpaceError):
            return cls(directory, base_offset, machine().open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))

    def note(self, header: BatchHeader) -> None:
        """Note a batch that the file already holds at the position ``size``."""
        if not self._positions or self.size - self._positions[-1] > INDEX_INTERVAL_BYTES:
            self._offsets.append(header.base_offset)
            self._positions.append(self.size)
        if self.first_timestamp_ms is None:
            self.first_timestamp_ms = header.base_timestamp
        self.size += header.size
        self.next_offset = header.next_offset

    def append(self, run: BatchRun) -> None:
        """Write batches after the last one, without fsync.

        :raises NoSpaceError: the disk is full; the file ends where it ended before.
        :raises StorageError: another failure, or the half-written batch could not be cut off.
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
        """Add the index marks of a run. Its marks have the right distance from each other, so only its first one may be
        too close to the last mark here, and is then left out."""
        offsets, positions = run.marks
        first = int(bool(self._positions) and self.size - self._positions[-1] <= INDEX_INTERVAL_BYTES)
        self._offsets.extend(offsets[first:])
        self._positions.extend(self.size + position for position in positions[first:])

    def cut_at(self, size: int) -> None:
        """Set the file's size, without a change of the index.

        :raises StorageError: when that fails.
        """
        with storage_errors("cannot cut the segment", self.path):
            machine().truncate(self._descriptor, size)

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that holds ``offset`` and all later batches, durably.

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
        """Like `migrator.machine.write_again`: an fsync of the process that wrote the file may have failed.

        :raises StorageError: when that fails.
        """
        with storage_errors("cannot write the segment again", self.path):
            write_again(self._descriptor)

    def sync(self) -> None:
        """Make all that was written durable; callable from another thread.

        :raises StorageError: when that fails. The contents of the file are then unknown: the process must stop.
        """
        with storage_errors("cannot make the segment durable", self.path):
            sync_file(self._descriptor)

    def position_of(self, offset: int) -> int:
        """The byte position of the batch that holds an offset; the file's size for the end offset."""
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
        """First offset and position of the last batch at or before an offset whose position is in the index."""
        index = bisect_right(self._offsets, offset) - 1
        marked = (self._offsets[index], self._positions[index]) if index >= 0 else (self.base_offset, 0)
        index = bisect_right(self._recent, (offset, self.size)) - 1
        return max(marked, self._recent[index]) if index >= 0 else marked

    def header_of(self, offset: int) -> BatchHeader:
        """The header of the batch that holds an offset of this segment.

        :raises StorageError: the file cannot be read, or its content has changed.
        """
        try:
            return self._header_at(self.position_of(offset))
        except CorruptRecordsError as error:
            raise _changed(self.path, error) from error

    def read_batches(self, offset: int, max_bytes: int, end_offset: int) -> tuple[bytes, int]:
        """Whole batches from the one that holds an offset, and the offset after them: at most ``max_bytes`` bytes, but
        at least one batch, and none that reaches beyond ``end_offset``.

        :raises StorageError: the file cannot be read, or its content has changed.
        """
        try:
            start = self.position_of(offset)
            stop, next_offset = self._stop_of(start, offset, start + max_bytes, end_offset)
            data = self._read_all(start, stop - start)
            if data:
                read_header(data)  # the position came from the index: check that the file still has a batch there
        except CorruptRecordsError as error:
            raise _changed(self.path, error) from error
        return data, next_offset

    def size_of_read(self, offset: int, max_bytes: int, end_offset: int) -> int:
        """The number of bytes that `read_batches` would return; errors as there."""
        try:
            start = self.position_of(offset)
            return self._stop_of(start, offset, start + max_bytes, end_offset)[0] - start
        except CorruptRecordsError as error:
            raise _changed(self.path, error) from error

    def _stop_of(self, start: int, offset: int, limit: int, end_offset: int) -> tuple[int, int]:
        """Position and offset after the last whole batch from ``start`` on that stays within both bounds."""
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
        """Rename the file and return its new path; the caller removes it later. The rename is not durable yet.

        :raises StorageError: when that fails.
        """
        marked = self.path.with_name(self.path.name + DELETED_SUFFIX)
        with storage_errors("cannot rename the segment", self.path):
            machine().rename(self.path, marked)
        return marked

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            machine().close(descriptor)

    def _header_at(self, position: int) -> BatchHeader:
        return read_header(self._read(position, HEADER_SIZE))

    def _headers(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Every header from a batch's position on, with its position. One read covers many headers, up to about the
        next index mark: a controller's batches are small, and a read for each header took 26 reads for one search."""
        begun, window = position, b""
        while position < self.size:
            if position - begun + HEADER_SIZE > len(window):
                begun, window = position, self._read(position, WINDOW_BYTES)
            header = read_header(window, position - begun)
            yield position, header
            position += header.size

    def _end_offset(self) -> int:
        """The offset after the last batch."""
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
    for segment in segments:
        segment.close()
