"""The file of the authorizer's log. Writers never wait for the disk, and the file takes bounded space there.

Lines go into a bounded queue, and one thread writes them. While the disk refuses, they wait in the queue. Lines that
find the queue full are counted, and the file says how many are missing, at the place where they are missing. A full
file gets a number by one rename, so a process that is killed at any moment loses no file, and at most the end of one
line.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Final

from migrator.clock import wall_ms
from migrator.errors import OperatorError
from migrator.observe.printable import json_text

log = logging.getLogger(__name__)

KEY: Final = "migrator.authorizer.log.file"
FILE_NAME: Final = "authorizer-log.jsonl"
"""The name in the metadata directory, unless the key says otherwise."""
FILES: Final = 10
"""The number of files; together they have at most the bytes of ``migrator.authorizer.log.max.bytes``."""
QUEUE_BYTES: Final = 8 << 20
"""The limit, in bytes, of the lines that wait for the disk."""
MODE: Final = 0o600
LINES_AT_ONCE: Final = 100
RETRY_SECONDS: Final = 1.0
COMPLAINT_SECONDS: Final = 60.0
CLOSE_SECONDS: Final = 5.0


class _Gap:
    """Stands in the queue for lines that found no room."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines = 0


class AuthorizerLog:
    """One for each process; any thread may use it.

    :param max_bytes: of all files together.
    """

    def __init__(self, path: Path, max_bytes: int, queue_bytes: int = QUEUE_BYTES) -> None:
        """
        :raises OperatorError: the file cannot be opened.
        """
        self._path = path
        self._file_bytes = max_bytes // FILES
        self._queue: deque[bytes | _Gap] = deque()
        self._room = queue_bytes
        self.lost = 0
        """The number of lines since the start for which the queue had no room."""
        self.is_failing = False
        """Whether the disk refuses lines now."""
        self._is_torn = False
        self._is_closing = False
        self._complained_at = float("-inf")
        self._changed = Condition()
        try:
            self._descriptor = self._open()
        except OSError as error:
            raise OperatorError(
                f"the log of the authorizer cannot be opened: {error.strerror or error}",
                where=f"{KEY}: {path}",
                remedy="Name a file in a directory in which this user may write",
            ) from error
        self._thread = Thread(target=self._run, name="authorizer-log", daemon=True)
        self._thread.start()

    def put(self, contents: Iterable[dict[str, Any]]) -> None:
        """Queue lines for writing, each with the time of now. Never waits."""
        lines = [_encoded(content) for content in contents]
        with self._changed:
            for line in lines:
                if len(line) > self._room or self._is_closing:
                    self._lose()
                else:
                    self._queue.append(line)
                    self._room -= len(line)
            self._changed.notify()

    def close(self) -> None:
        """Write the waiting lines, for at most `CLOSE_SECONDS`."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)
        if self._queue:
            log.error("%s: %d lines are not written, because this process stops", self._path, len(self._queue))
        if not self._thread.is_alive():
            os.close(self._descriptor)

    def _lose(self) -> None:
        self.lost += 1
        if not self._queue or not isinstance(self._queue[-1], _Gap):
            self._queue.append(_Gap())
        gap = self._queue[-1]
        if isinstance(gap, _Gap):
            gap.lines += 1

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._is_closing)
                if not self._queue:
                    return
                taken = [self._queue.popleft() for _ in range(min(len(self._queue), LINES_AT_ONCE))]
            waiting = deque(_encoded(_missing(each)) if isinstance(each, _Gap) else each for each in taken)
            try:
                self._write(waiting)
                self.is_failing = False
            except (OSError, ValueError) as error:
                self._complain(error)
            with self._changed:
                self._room += sum(len(each) for each in taken if not isinstance(each, _Gap)) - sum(map(len, waiting))
                self._queue.extendleft(reversed(waiting))
                if waiting and (self._is_closing or self._changed.wait_for(lambda: self._is_closing, RETRY_SECONDS)):
                    return

    def _write(self, waiting: deque[bytes]) -> None:
        """Write the lines, and take each out of the queue when all of it is in the file."""
        if not self._is_in_place():
            fresh = self._open()
            os.close(self._descriptor)
            self._descriptor, self._is_torn = fresh, False
        size = os.fstat(self._descriptor).st_size
        while waiting:
            line = b"\n" + waiting[0] if self._is_torn else waiting[0]
            if size and size + len(line) > self._file_bytes:
                self._rotate()
                size = 0
                continue
            written = os.write(self._descriptor, line)
            size += written
            self._is_torn = written < len(line)
            if self._is_torn:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            waiting.popleft()

    def _is_in_place(self) -> bool:
        """Whether the file is still at its path."""
        try:
            found, mine = self._path.stat(), os.fstat(self._descriptor)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(self._path, flags, MODE)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "it is no regular file")
        if stat.S_IMODE(found.st_mode) != MODE:
            os.fchmod(descriptor, MODE)
        self._is_torn = bool(found.st_size) and os.pread(descriptor, 1, found.st_size - 1) != b"\n"
        return descriptor

    def _rotate(self) -> None:
        numbers = sorted(self._numbers())
        self._path.rename(self._numbered(numbers[-1] + 1 if numbers else 1))
        for number in numbers[: max(0, len(numbers) + 2 - FILES)]:
            self._numbered(number).unlink(missing_ok=True)
        fresh = self._open()
        os.close(self._descriptor)
        self._descriptor = fresh

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number:06d}")

    def _numbers(self) -> Iterable[int]:
        for each in self._path.parent.iterdir():
            name, _, number = each.name.rpartition(".")
            if name == self._path.name and number.isascii() and number.isdecimal():
                yield int(number)

    def _complain(self, error: Exception) -> None:
        self.is_failing = True
        now = time.monotonic()
        if now - self._complained_at >= COMPLAINT_SECONDS:
            self._complained_at = now
            log.error(
                "%s: the log of the authorizer cannot be written: %s. Requests are served; %d lines are lost so far. "
                "Free space on the disk, or give this user the right to write there",
                self._path,
                error,
                self.lost,
            )


def _missing(gap: _Gap) -> dict[str, Any]:
    return {"lost": gap.lines, "text": "Lines are missing here: they found no room"}


def _encoded(content: dict[str, Any]) -> bytes:
    now = datetime.fromtimestamp(wall_ms() / 1000, UTC).isoformat(timespec="milliseconds")
    return json_text({"time": now.replace("+00:00", "Z"), **content}).encode() + b"\n"
