"""Files that survive a crash: durable replacement, new files, private modes, and reading the batches in a file.

The log, rollout, hand-over and rehearsal use it. After a crash a file of `write_durably` or `NewFile` has its old or
its new content, never a part. A failing fsync is a `StorageError` and is never retried: the kernel may have dropped the
pages. New files are private, because logs and settings hold credentials.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from migrator.log.errors import NoSpaceError, storage_errors
from migrator.machine import machine
from migrator.records.batch import HEADER_SIZE, Batch, read_header
from migrator.records.errors import CorruptRecordsError

log = logging.getLogger(__name__)

TEMPORARY_SUFFIX = ".tmp"
PRIVATE_FILE = 0o600
"""The mode of files that change: a log holds credentials. Stock Kafka can use them if it runs as the same user."""
PRIVATE_DIRECTORY = 0o700
FROZEN_FILE = 0o400
"""The mode of files that never change again."""


def sync_file(descriptor: int) -> None:
    """Make a file's content and size durable. Never retry a failure: the kernel may have dropped the unwritten pages,
    and then a second fsync succeeds without them."""
    machine().sync(descriptor)


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """Open a file and close it at the end of the context."""
    descriptor = machine().open(path, flags, PRIVATE_FILE)
    try:
        yield descriptor
    finally:
        machine().close(descriptor)


def sync_directory(directory: Path) -> None:
    """Make creations, renames and removals in a directory durable.

    :raises StorageError: when that fails.
    """
    with (
        storage_errors("cannot make the directory durable", directory),
        opened(directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor,
    ):
        sync_file(descriptor)


def write_all(descriptor: int, data: bytes | memoryview, position: int) -> None:
    view = memoryview(data)
    while view:
        written = machine().write(descriptor, view, position)
        view, position = view[written:], position + written


def write_durably(path: Path, data: bytes, *, like: Path | None = None) -> None:
    """Replace the content of a file. After a crash it holds the old or the new content, never a part.

    :param like: a file whose mode the new one gets, and whose owner and group if this process may set them. Without it
        the file is private to this process's user.
    :raises NoSpaceError: the disk is full; the old content is still there.
    :raises StorageError: the content could not be written or made durable.
    """
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    with storage_errors("cannot write", path, no_space=NoSpaceError):
        with opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW) as descriptor:
            machine().chmod(descriptor, PRIVATE_FILE)
            if like is not None:
                _make_alike(descriptor, like.stat())
            write_all(descriptor, data, 0)
            sync_file(descriptor)
        machine().rename(temporary, path)
    sync_directory(path.parent)


class NewFile:
    """A private file that is written piece by piece. `put` moves it to its place, whole and durable. If the context
    ends without `put`, the new content is removed.

    :raises StorageError: from each method. An old file at the place is then unchanged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(path.name + TEMPORARY_SUFFIX)

    def __enter__(self) -> Self:
        with storage_errors("cannot write", self._path):
            self._temporary.unlink(missing_ok=True)
            self._temporary.touch(PRIVATE_FILE, exist_ok=False)
            self._out = self._temporary.open("wb")
        return self

    def __exit__(self, *_: object) -> None:
        with storage_errors("cannot write", self._path):
            try:
                with suppress(OSError):  # nothing may be there yet, or `put` has already renamed it
                    self._out.close()
            finally:
                self._temporary.unlink(missing_ok=True)

    def write(self, data: bytes) -> None:
        """Append to the content."""
        try:
            self._out.write(data)
        except OSError:
            with storage_errors("cannot write", self._path):
                raise

    def restart(self) -> None:
        """Drop the content so far."""
        with storage_errors("cannot write", self._path):
            self._out.seek(0)
            self._out.truncate()

    def put(self) -> None:
        """The content is complete: make it durable and move it to its place."""
        with storage_errors("cannot write", self._path):
            self._out.flush()
            sync_file(self._out.fileno())
            self._out.close()
            self._temporary.replace(self._path)
        sync_directory(self._path.parent)


def file_digest(path: Path) -> str:
    """SHA-256 in hexadecimal, of a file of any size.

    :raises StorageError: it cannot be read.
    """
    with storage_errors("cannot read", path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _make_alike(descriptor: int, model: os.stat_result) -> None:
    for owner in (model.st_uid, -1):
        try:
            os.fchown(descriptor, owner, model.st_gid)
            break
        except PermissionError:
            continue  # only root may change the owner, and other users may set only their own groups
    os.fchmod(descriptor, stat.S_IMODE(model.st_mode))


def close_to_others(directory: Path, files: Iterable[Path]) -> None:
    """Remove the rights of group and others on a directory and on files: an older release, or stock Kafka, may have
    made them readable for all. A file of another user stays as it is, and a warning names it.

    :raises StorageError: the mode of a file cannot be read.
    """
    with storage_errors("cannot look at the rights of others", directory):
        for path in (directory, *files):
            try:
                mode = machine().mode(path)
                if mode & _OTHERS and not stat.S_ISLNK(mode):
                    machine().change_mode(path, stat.S_IMODE(mode) & ~_OTHERS)
            except PermissionError:
                log.warning("%s belongs to another user, and other users can read it. Remove this right", path)
            except FileNotFoundError:
                continue


_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_directory(path: Path) -> None:
    """Create a private directory and its parents, durably.

    :raises StorageError: when a directory cannot be made.
    """
    missing = [folder for folder in (path, *path.parents) if not machine().exists(folder)]
    with storage_errors("cannot create the directory", path):
        for folder in (*reversed(missing[1:]), path.parent):
            machine().make_directory(folder)
        machine().make_directory(path, PRIVATE_DIRECTORY)
    for folder in missing:
        sync_directory(folder.parent)


def remove_file(path: Path) -> None:
    """Remove a file if it exists. The removal is durable only after `sync_directory`.

    :raises StorageError: when the file cannot be removed.
    """
    with storage_errors("cannot remove", path):
        machine().remove(path)


def iter_file_batches(path: Path, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Batch]]:
    """Position and content of each batch in a segment or checkpoint, one after the other.

    :param start: the position of the first batch to read; ``end``: the position behind the last one.
    :raises CorruptRecordsError: at the first batch that is damaged or cut, with its byte position in the file.
    :raises StorageError: when the file cannot be read.
    """
    with storage_errors("cannot read", path):
        size = machine().file_size(path) if end is None else end
        with machine().reader(path) as file:
            position = file.seek(start)
            while position < size:
                try:
                    batch = _read_batch(file, size - position)
                    batch.check_crc()
                except CorruptRecordsError as error:
                    raise CorruptRecordsError(error.what, position) from error
                yield position, batch
                position += batch.header.size


def _read_batch(file: BinaryIO, left: int) -> Batch:
    head = file.read(HEADER_SIZE)
    header = read_header(head)
    if header.size > left:
        raise CorruptRecordsError(f"a batch of {header.size} bytes is cut after {left}")
    return Batch(header, memoryview(head + file.read(header.size - HEADER_SIZE)))
