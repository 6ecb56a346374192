"""The progress of loading the disk, and the batch that is being decoded, on a node that applies its log.

`metadata` counts here what it has read, and the status shows it. A batch of a stock leader may have 10,000 records: it
is decoded in parts, so no turn of the event loop takes long.
"""

from __future__ import annotations

import logging

from migrator.clock import monotonic_seconds
from migrator.records.batch import Batch
from migrator.records.metadata import MetadataRecord
from migrator.turns import Turn

log = logging.getLogger(__name__)

TELL_SECONDS = 5.0


class Loading:
    """Counts what is read of the snapshot and of the log after it, and logs the progress from time to time.

    :param size: the bytes of both.
    """

    def __init__(self, size: int = 0) -> None:
        self._size = size
        self._read = 0
        self._began = self._told = monotonic_seconds()

    def __str__(self) -> str:
        return f"{min(self._read, self._size) / 1e6:,.1f} of {self._size / 1e6:,.1f} MB"

    @property
    def is_read(self) -> bool:
        """Whether everything is read, so that only the index is missing."""
        return self._read >= self._size

    def read(self, size: int) -> None:
        """Count more bytes."""
        self._read += size
        now = monotonic_seconds()
        if now - self._told >= TELL_SECONDS:
            self._told = now
            log.info("Loading the metadata from the disk: %s", self)

    def ended(self, partitions: int) -> None:
        """The image is complete."""
        self._read = self._size
        seconds = monotonic_seconds() - self._began
        log.info("The metadata on the disk are loaded: %d partitions, %.1f s", partitions, seconds)


class Decoding:
    """A batch that is being decoded in parts: a stock leader makes batches of 10,000 records."""

    def __init__(self, batch: Batch) -> None:
        self.header = batch.header
        self.records: list[MetadataRecord] = []
        self._source = batch.sized_records()

    def go_on(self, turn: Turn) -> bool:
        """Decode some records. Returns whether the turn is over before the end of the batch."""
        for record, size in self._source:
            self.records.append(record)
            if turn.is_over(size=size):
                return True
        return False
