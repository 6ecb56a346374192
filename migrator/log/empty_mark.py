"""``must-fetch-first``: the mark of a disk that was empty when its controller started.

The file is next to the log. The controller writes it before it sends its first message, and removes it when everything
up to a leader's high watermark is on disk. The file also notes that the quorum is new, once all voters have said so.
Stock Kafka ignores the file. See docs/adr/0033-an-empty-disk.md.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import orjson

from migrator.log.errors import storage_errors
from migrator.log.files import remove_file, sync_directory, write_durably
from migrator.machine import machine

FILE_NAME = "must-fetch-first"
_DATA_VERSION = 0


class EmptyReason(Enum):
    """Why the disk began empty."""

    UNKNOWN = "unknown"
    NEW_QUORUM = "new quorum"


class EmptyMark:
    def __init__(self, log_directory: Path) -> None:
        self._path = log_directory / FILE_NAME

    def read(self) -> EmptyReason | None:
        """The contents of the mark; None without a mark. A mark that cannot be understood counts as the strictest one.

        :raises StorageError: it cannot be read.
        """
        with storage_errors("cannot read", self._path):
            if not machine().exists(self._path):
                return None
            data = machine().content(self._path)
        is_new = data == _encode(EmptyReason.NEW_QUORUM)
        return EmptyReason.NEW_QUORUM if is_new else EmptyReason.UNKNOWN

    def write(self, beginning: EmptyReason) -> None:
        """Durable when this returns.

        :raises StorageError: when that fails.
        """
        write_durably(self._path, _encode(beginning))

    def remove(self) -> None:
        """Durable when this returns.

        :raises StorageError: when that fails.
        """
        remove_file(self._path)
        sync_directory(self._path.parent)


def _encode(beginning: EmptyReason) -> bytes:
    return orjson.dumps({"diskBeganEmpty": beginning.value, "data_version": _DATA_VERSION})
