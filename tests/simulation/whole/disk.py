"""A disk that forgets at a power cut what was not made durable, file by file and name by name.

As POSIX promises and no more: a file is durable up to its last fsync, a name (of a new, renamed or removed file) up to
the last fsync of its directory. Of what was done since, a cut leaves a part that the seed chooses: operations on names
in their order or not, writes in any order, the last of them torn: its beginning is there, or some of its sectors.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from pathlib import Path, PurePosixPath
from random import Random

SECTOR = 512
"""Bytes that a disk writes as a whole."""
SECTORS_KEPT = 0.8


class File:
    """Content now, and what of it is durable."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.mode = 0o600
        self._durable = b""
        self._pending: list[tuple[int, bytes | None]] = []
        """Writes since the last fsync: where, and what; None for a cut to that size."""
        self._is_stale = False
        """The cache shows what is not on the disk, and what nobody will write: an fsync has failed."""

    def write(self, data: bytes, position: int) -> None:
        if position > len(self.data):
            self.data.extend(bytes(position - len(self.data)))
        self.data[position : position + len(data)] = data
        self._pending.append((position, data))

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.data.extend(bytes(max(0, size - len(self.data))))
        self._pending.append((size, None))

    @property
    def is_durable(self) -> bool:
        """Whether a power cut would change nothing."""
        return not self._pending and not self._is_stale

    @property
    def durable(self) -> bytes:
        """What is there after a power cut, of what was ever made durable."""
        return self._durable

    @property
    def durable_size(self) -> int:
        """Up to here a power cut would change nothing."""
        return min((position for position, _ in self._pending), default=len(self.data))

    def sync(self) -> None:
        if self._pending:
            self._durable = bytes(self._on_disk().data if self._is_stale else self.data)
            self._pending.clear()
            self._is_stale = self._durable != self.data

    def fail_sync(self) -> None:
        """As Linux with ext4 or XFS: what could not be written counts as written. The cache shows it until it is
        dropped, and later fsyncs pass over it. The size of the file is the journal's."""
        self._pending = [
            (position, None) if data is None else (position + len(data), b"") for position, data in self._pending
        ]
        self._is_stale = True

    def drop_cache(self) -> None:
        """Clean pages are read from the disk again."""
        if self._is_stale:
            self.data, self._is_stale = self._on_disk().data, False

    def _on_disk(self) -> File:
        """What is there once everything is written that is still to be written."""
        file = File()
        file.data = bytearray(self._durable)
        for position, data in self._pending:
            if data is None:
                file.truncate(position)
            else:
                file.write(data, position)
        return file

    def lose_power(self, random: Random) -> bool:
        """What is left of it; whether something is lost."""
        if not self._pending and not self._is_stale:
            return False
        survivor = File()
        survivor.data = bytearray(self._durable)
        kept = random.randint(0, len(self._pending))
        for index, (position, data) in enumerate(self._pending):
            if index > kept or (index < kept and random.random() < 0.05):  # some writes overtake others
                continue
            if data is None:
                if index < kept:
                    survivor.truncate(position)
            elif index == kept:
                _tear(survivor, data, position, random)
            else:
                survivor.write(data, position)
        was = bytes(self.data)
        self.data, self._durable = survivor.data, bytes(survivor.data)
        self._pending.clear()
        self._is_stale = False
        return was != self._durable


def _tear(file: File, data: bytes, position: int, random: Random) -> None:
    """A write that a power cut meets: its beginning is on the disk, or some of its sectors are."""
    second = SECTOR - position % SECTOR
    if len(data) <= second or random.random() < 0.5:
        file.write(data[: random.randrange(len(data) + 1)], position)
        return
    for begin, end in pairwise((0, *range(second, len(data), SECTOR), len(data))):
        if random.random() < SECTORS_KEPT:
            file.write(data[begin:end], position + begin)


@dataclass
class Directory:
    """Names now, and those that are durable."""

    names: dict[str, File | Directory] = field(default_factory=dict)
    durable: dict[str, File | Directory] = field(default_factory=dict)
    pending: list[tuple[tuple[str, File | Directory | None], ...]] = field(default_factory=list)
    """Each change since the last fsync: names, and what they stand for since; None for nothing."""
    mode: int = 0o700

    def change(self, *changes: tuple[str, File | Directory | None]) -> None:
        """Do it at once, all or nothing."""
        self.pending.append(changes)
        _apply(self.names, changes)

    @property
    def is_durable(self) -> bool:
        """Whether a power cut would change none of its names."""
        return not self.pending

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.pending.clear()

    def drop_cache(self) -> None:
        """Of all files in it."""
        for entry in self.names.values():
            entry.drop_cache()

    def lose_power(self, random: Random) -> bool:
        """What is left of the names, and of what they stand for; whether something is lost."""
        was = dict(self.names)
        in_order = random.random() < 0.7  # most file systems keep a journal
        kept = random.randint(0, len(self.pending))
        for index, changes in enumerate(self.pending):
            if index < kept if in_order else random.random() < 0.5:
                _apply(self.durable, changes)
        self.names, self.pending = dict(self.durable), []
        lost = was != self.names
        for entry in self.names.values():
            lost |= entry.lose_power(random)
        return lost


def _apply(names: dict[str, File | Directory], changes: tuple[tuple[str, File | Directory | None], ...]) -> None:
    for name, entry in changes:
        if entry is None:
            names.pop(name, None)
        else:
            names[name] = entry


class Operation(Enum):
    """What a disk can fail at."""

    READ = "reads"
    WRITE = "writes"
    SYNC = "fsyncs"


class SimulatedDisk:
    """Everything of one machine that survives its process, and most of which survives a power cut."""

    def __init__(self) -> None:
        self.root = Directory()
        self.fails_at: Operation | None = None
        """Every other one ends with EIO."""
        self.is_read_only = False
        """Its file system could not write a directory, and takes nothing any more until its machine starts again."""
        self.free: int | None = None
        """Bytes that may still be written; None: as many as one likes."""

    def lose_power(self, random: Random) -> bool:
        """Forget what is not durable; whether that was anything."""
        self.is_read_only = False
        return self.root.lose_power(random)

    def take(self, size: int) -> int:
        """How many of so many bytes there is room for.

        :raises OSError: for none.
        """
        if self.free is None:
            return size
        if self.free <= 0 < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(size, self.free)
        self.free -= taken
        return taken

    def find(self, path: Path | PurePosixPath) -> File | Directory | None:
        entry: File | Directory | None = self.root
        for part in path.parts[1:]:
            if not isinstance(entry, Directory):
                return None
            entry = entry.names.get(part)
        return entry

    def file(self, path: Path) -> File:
        """
        :raises OSError: there is none.
        """
        entry = self._entry(path)
        if not isinstance(entry, File):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        return entry

    def directory(self, path: Path) -> Directory:
        """
        :raises OSError: there is none.
        """
        entry = self._entry(path)
        if not isinstance(entry, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return entry

    def _entry(self, path: Path) -> File | Directory:
        entry = self.find(path)
        if entry is None:
            raise _missing(path)
        return entry

    def files(self) -> Iterator[tuple[Path, File]]:
        """All of them, by their paths."""
        folders = [(Path("/"), self.root)]
        while folders:
            path, folder = folders.pop()
            for name, entry in folder.names.items():
                if isinstance(entry, Directory):
                    folders.append((path / name, entry))
                else:
                    yield path / name, entry


def _missing(path: Path) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
