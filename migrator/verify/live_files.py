"""Files that another process may be writing to."""

from __future__ import annotations

import time
from pathlib import Path

from migrator.log.errors import storage_errors

HALF_WRITTEN_SECONDS = 3.0
"""How many seconds an entry may stay half written. A running controller appends something each half second, and a
ZooKeeper server writes an entry with one call."""
POLL_SECONDS = 0.05

Stamp = tuple[int, int]
"""Size and time of last change."""


def stamp(path: Path) -> Stamp:
    """The stamp of a file. Take it before the file is read.

    :raises StorageError: the file can't be examined.
    """
    with storage_errors("cannot read", path):
        status = path.stat()
    return status.st_size, status.st_mtime_ns


def goes_on(path: Path, since: Stamp) -> bool:
    """Whether the file has changed since, or changes while we wait: then a process is writing the half-written
    entry."""
    deadline = time.monotonic() + HALF_WRITTEN_SECONDS
    while stamp(path) == since:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
