"""``.lock``: it keeps a second process from a directory. Stock Kafka takes the same lock: ``java.nio`` locks are POSIX
locks, too. The system drops the lock when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Self

from migrator.errors import OperatorError
from migrator.log.errors import storage_errors
from migrator.log.files import PRIVATE_FILE
from migrator.machine import machine

FILE_NAME = ".lock"
NOTE_BYTES_MAX = 200


_FLOCK = "hhqqi4x"
"""``struct flock`` of 64-bit Linux: type, whence, start, length, process."""


def is_in_use(directory: Path) -> bool:
    """Whether another process holds the directory's lock. The lock is only queried, so a starting process is not
    disturbed.

    :raises StorageError: the lock cannot be queried.
    """
    path = directory / FILE_NAME
    with storage_errors("cannot look at the lock file", path):
        if not path.exists():
            return False
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
        finally:
            os.close(descriptor)
    return bool(answer[0] != fcntl.F_UNLCK)


def holder_note(directory: Path) -> str:
    """The note that the process which holds the lock has written into the file; "" if none. The holder itself must not
    call this: a POSIX lock ends when its process closes the file, even through another descriptor.

    :raises StorageError: the file cannot be read.
    """
    path = directory / FILE_NAME
    with storage_errors("cannot read the lock file", path), path.open("rb") as file:
        return file.read(NOTE_BYTES_MAX).decode("utf-8", "replace")


class DirectoryLock:
    """Holds the lock of a directory while it is open. A POSIX lock keeps out other processes, not this one."""

    def __init__(self, directory: Path, says: str = "") -> None:
        """
        :param says: the note for `holder_note`; "" leaves the file, which is Kafka's, too, as it is.
        :raises OperatorError: another process holds the lock, or the file cannot be created.
        """
        path = directory / FILE_NAME
        with storage_errors("cannot open the lock file", path):
            self._descriptor = machine().open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            machine().lock(self._descriptor)
        except OSError as error:
            self.close()
            raise OperatorError(
                "another process uses this directory",
                where=str(directory),
                remedy=f"Stop this process ('fuser {path}' finds it). Never delete the file while the process runs",
            ) from error
        if says:
            with suppress(OSError):  # the lock holds without the note, for which a full disk has no room
                machine().truncate(self._descriptor, 0)
                machine().write(self._descriptor, says.encode()[:NOTE_BYTES_MAX], 0)

    def close(self) -> None:
        """Release the lock; twice does no harm."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            machine().close(descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
