"""``synced-end``: the offset up to which a log was durable when its process ended in order.

A crash tears the end of the last segment, and cutting that is in order. After a clean stop nothing is torn: what does
not verify below this offset was damaged later, and this voter has acknowledged it. So the file is written after the
last fsync and is gone, durably, before the log is changed again.

Stock Kafka knows nothing of the file. When a stock controller ran in between, it may have cut and replaced records; it
leaves index files beside the segments, which this program removes at each start and never writes.
"""

from __future__ import annotations

from pathlib import Path

import orjson

from migrator.log.errors import NoSpaceError, storage_errors
from migrator.log.files import remove_file, sync_directory, write_durably
from migrator.log.segment import COMPANION_SUFFIXES
from migrator.machine import machine

FILE_NAME = "synced-end"
_DATA_VERSION = 0


class SyncedEnd:
    """The file of one log directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def read(self) -> int | None:
        """The offset below which nothing may be missing; None when nobody can say: the last process did not end in
        order, another program wrote to the log since, or the file is none of ours.

        :raises StorageError: the disk refuses.
        """
        with storage_errors("cannot read", self._path):
            if not machine().exists(self._path) or self._stock_ran():
                return None
            return _decode(machine().content(self._path))

    def write(self, end_offset: int) -> None:
        """The log is durable up to there and not changed any more. A full disk is no reason to fail a stop.

        :raises StorageError: the disk refuses otherwise.
        """
        try:
            write_durably(self._path, orjson.dumps({"endOffset": end_offset, "data_version": _DATA_VERSION}))
        except NoSpaceError:
            self.remove()

    def remove(self) -> None:
        """Gone durably when this returns.

        :raises StorageError: the disk refuses.
        """
        if machine().exists(self._path):
            remove_file(self._path)
            sync_directory(self._path.parent)

    def _stock_ran(self) -> bool:
        return any(path.name.endswith(COMPANION_SUFFIXES) for path in machine().names(self._path.parent))


def _decode(data: bytes) -> int | None:
    try:
        fields = orjson.loads(data)
    except ValueError:
        return None
    if not isinstance(fields, dict) or fields.get("data_version") != _DATA_VERSION:
        return None
    end_offset = fields.get("endOffset")
    return end_offset if isinstance(end_offset, int) and end_offset >= 0 else None
