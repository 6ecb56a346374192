"""``synced-end``: the end of the durable log at a clean stop.

A crash may tear the end of the last segment, and recovery may cut that off. After a clean stop no end is torn: a batch
below this offset that fails its check was damaged later, and this voter has acknowledged it. So the file is written
after the last fsync, and removed, durably, before the log changes again.

Stock Kafka ignores the file. A stock controller that ran in between may have truncated and replaced records. Its index
files next to the segments show that: this program never writes such files and removes them at each start.
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
    """The note in one log directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME

    def read(self) -> int | None:
        """The offset below which nothing may be missing; None when it is unknown: the last stop was not clean, another
        program has written to the log since, or this program has not written the file.

        :raises StorageError: the disk refuses.
        """
        with storage_errors("cannot read", self._path):
            if not machine().exists(self._path) or self._stock_ran():
                return None
            return _decode(machine().content(self._path))

    def write(self, end_offset: int) -> None:
        """Note that the log is durable up to ``end_offset`` and will not change any more. A full disk is no failure.

        :raises StorageError: the disk refuses otherwise.
        """
        try:
            write_durably(self._path, orjson.dumps({"endOffset": end_offset, "data_version": _DATA_VERSION}))
        except NoSpaceError:
            self.remove()

    def remove(self) -> None:
        """Remove the file; durable when this returns.

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
