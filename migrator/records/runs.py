"""A run: consecutive whole batches that were checked, so that a log may append them.

Eight megabytes of small batches have 116,000 headers. So the check works in parts. It notes the run's bounds, the
beginnings of epochs, and a sparse index, so that the headers need not be read again.
Source: ``UnifiedLog.analyzeAndValidateRecords`` and ``trimInvalidBytes`` of Kafka 3.9.
"""

from __future__ import annotations

from array import array

import crc32c

from migrator.records.batch import CHECKED_FROM, Batch, Buffer, is_whole, iter_batches, read_header
from migrator.records.control import VotersRecord, voters_records
from migrator.records.errors import CorruptRecordsError
from migrator.values import value

INDEX_INTERVAL_BYTES = 4096
"""An index has about one batch for this many bytes (Kafka's default of ``log.index.interval.bytes``)."""


EPOCH_MAX = 2**31 - 1


@value
class BatchRun:
    """Batches that a log may append.

    ``epochs``: leader epochs with their first offset here, in rising order. ``marks``: offsets and positions of some
    batches, including the first, more than `INDEX_INTERVAL_BYTES` apart. ``voters``: the voters records with their
    offsets.
    """

    data: memoryview
    base_offset: int
    next_offset: int
    batches: int
    base_timestamp: int
    epochs: tuple[tuple[int, int], ...]
    marks: tuple[array[int], array[int]]
    voters: tuple[tuple[int, VotersRecord], ...] = ()

    @property
    def size(self) -> int:
        return len(self.data)


class RunChecker:
    """Checks the batches of a buffer that is to be appended at ``next_offset``: checksums are right, offsets have no
    gap, epochs do not fall, and voters can form a quorum.

    :param partial_tail: whether an incomplete last batch ends the run without an error, as in a stock leader's answer.
    :param max_epoch: the highest allowed epoch. The checksum does not cover a batch's epoch.
    """

    def __init__(
        self, data: Buffer, next_offset: int, *, partial_tail: bool = False, max_epoch: int = EPOCH_MAX
    ) -> None:
        self._view = memoryview(data)
        self._partial_tail = partial_tail
        self._max_epoch = max_epoch
        self._base_offset = next_offset
        self._next_offset = next_offset
        self._position = 0
        self._batches = 0
        self._epochs: list[tuple[int, int]] = []
        self._voters: list[tuple[int, VotersRecord]] = []
        self._offsets = array("q")
        self._positions = array("q")
        self._ended = False

    @property
    def checked_batches(self) -> int:
        """The number of batches that have passed the check."""
        return self._batches

    @property
    def checked_bytes(self) -> int:
        """The bytes of these batches."""
        return self._position

    def checked_from(self, position: int) -> memoryview:
        """The bytes that have passed the check, from a position on."""
        return self._view[position : self._position]

    def advance(self, max_batches: int, max_bytes: int) -> bool:
        """Check at most ``max_batches`` more batches, and stop after ``max_bytes``. Returns whether something is left.

        :raises CorruptRecordsError: a log must not append the next batch.
        """
        stop_batches, stop_bytes = self._batches + max_batches, self._position + max_bytes
        while not self._ended and self._batches < stop_batches and self._position < stop_bytes:
            self._ended = not self._check_next()
        return not self._ended

    def run(self) -> BatchRun | None:
        """The batches that have passed the check; None without any."""
        if not self._batches:
            return None
        return BatchRun(
            data=self._view[: self._position],
            base_offset=self._base_offset,
            next_offset=self._next_offset,
            batches=self._batches,
            base_timestamp=read_header(self._view).base_timestamp,
            epochs=tuple(self._epochs),
            marks=(self._offsets, self._positions),
            voters=tuple(self._voters),
        )

    def _check_next(self) -> bool:
        """Check the next batch; False at the end."""
        view, position = self._view, self._position
        left = len(view) - position
        if not left or (self._partial_tail and not is_whole(view, position)):
            return False
        header = read_header(view, position)
        if header.size > left:
            raise CorruptRecordsError(f"a batch of {header.size} bytes is cut after {left}", position)
        if header.base_offset != self._next_offset:
            raise CorruptRecordsError(f"a batch starts at offset {header.base_offset} instead of {self._next_offset}")
        actual = crc32c.crc32c(view[position + CHECKED_FROM : position + header.size])
        if actual != header.crc:
            raise CorruptRecordsError(
                f"the batch at offset {header.base_offset} has checksum {actual:#010x} instead of {header.crc:#010x}"
            )
        self._note_epoch(header.leader_epoch)
        if header.is_control:
            self._voters += voters_records(Batch(header, view[position : position + header.size]))
        if not self._positions or position - self._positions[-1] > INDEX_INTERVAL_BYTES:
            self._offsets.append(header.base_offset)
            self._positions.append(position)
        self._batches += 1
        self._position = position + header.size
        self._next_offset = header.next_offset
        return True

    def _note_epoch(self, epoch: int) -> None:
        latest = self._epochs[-1][0] if self._epochs else -1
        if epoch < latest:
            raise CorruptRecordsError(f"the leader epoch falls from {latest} to {epoch}")
        if epoch > self._max_epoch:
            raise CorruptRecordsError(f"a batch is of leader epoch {epoch}, which is after {self._max_epoch}")
        if epoch > latest:
            self._epochs.append((epoch, self._next_offset))


def check_run(data: Buffer, next_offset: int, *, partial_tail: bool = False) -> BatchRun | None:
    """Check a buffer in one call; parameters and errors as `RunChecker`."""
    checker = RunChecker(data, next_offset, partial_tail=partial_tail)
    size = len(data)
    checker.advance(max_batches=size, max_bytes=size)
    return checker.run()


def checked_batches(data: Buffer, *, next_offset: int, partial_tail: bool = False) -> list[Batch]:
    """The batches of a buffer that a log may append at ``next_offset``; errors as `RunChecker`."""
    run = check_run(data, next_offset, partial_tail=partial_tail)
    return [] if run is None else list(iter_batches(run.data))
