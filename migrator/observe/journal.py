"""The journal: what happened in the migration, kept across restarts, one JSON object a line.

It lies in the metadata directory, is written durably, and is bounded: a file that is full becomes the one older file
that is kept. An incomplete last line, as a crash leaves it, is cut.

An order is in the journal before it is carried out, or it is refused (`Journal.append`). What happens by itself does
not wait for the disk (`Journal.note`): a leader that steps down because its disk is full would stop for saying so.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import orjson

from migrator.errors import OperatorError
from migrator.machine import machine, write_again
from migrator.observe.printable import json_text
from migrator.observe.status import JournalEvent

log = logging.getLogger(__name__)

FILE_NAME = "migration-journal.jsonl"
"""Of a controller, in its log directory."""
COMMAND_FILE = "journal.jsonl"
"""Of a command that goes on where it ended (a rollout, a hand-over), in a directory of its own."""
OLD_SUFFIX = ".1"
RECENT_MAX = 1_000
"""How many events are held in memory for those who ask."""
PRIVATE_FILE = 0o600


class Journal:
    """One per process; not thread-safe.

    :param max_bytes: size at which the file is rotated.
    """

    def __init__(self, directory: Path, max_bytes: int, *, file_name: str = FILE_NAME) -> None:
        """
        :raises OperatorError: the file can't be read or written.
        """
        self._path = directory / file_name
        self._max_bytes = max_bytes
        self._recent: deque[JournalEvent] = deque(maxlen=RECENT_MAX)
        self._unwritten: deque[bytes] = deque(maxlen=RECENT_MAX)
        """Lines that the disk has not taken yet, oldest first."""
        content = b""
        try:
            for path in (self._path.with_name(file_name + OLD_SUFFIX), self._path):
                content = machine().content(path) if machine().exists(path) else b""
                self._recent.extend(_events(content))
            self._descriptor = self._opened()
        except OSError as error:
            raise self._trouble(error) from error
        try:
            self._end_last_line(content)
            write_again(self._descriptor)
            machine().sync(self._descriptor)
        except OSError as error:
            machine().close(self._descriptor)
            raise self._trouble(error) from error
        self._sequence = self._recent[-1].sequence if self._recent else 0

    def append(self, time_ms: int, kind: str, text: str, **details: str) -> JournalEvent:
        """An event that must not happen without its entry, such as an order; it is durable when this returns.

        :raises OperatorError: the disk refuses; there is no entry.
        """
        event, line = self._next(time_ms, kind, text, details)
        try:
            self._put(line)
        except OSError as error:
            raise self._trouble(error) from error
        self._take(event)
        return event

    def note(self, time_ms: int, kind: str, text: str, **details: str) -> None:
        """An event that happens in any case. If the disk refuses the entry, it waits in memory for the next one."""
        event, line = self._next(time_ms, kind, text, details)
        self._take(event)
        try:
            self._put(line)
        except OSError as error:
            self._unwritten.append(line)
            log.error("%s. This entry is in memory only: %s: %s", self._trouble(error), kind, text)  # noqa: TRY400 - no defect

    def _next(self, time_ms: int, kind: str, text: str, details: Mapping[str, str]) -> tuple[JournalEvent, bytes]:
        event = JournalEvent(self._sequence + 1, time_ms, kind, text, tuple(details.items()))
        line = {
            "sequence": event.sequence,
            "time_ms": time_ms,
            "kind": kind,
            "text": text,
            "details": details,
        }
        return event, json_text(line).encode() + b"\n"

    def _take(self, event: JournalEvent) -> None:
        self._sequence = event.sequence
        self._recent.append(event)

    def _put(self, line: bytes = b"") -> None:
        """A line, behind those that wait; all of them or none."""
        if machine().size(self._descriptor) >= self._max_bytes:
            self._rotate()
        self._write(b"".join(self._unwritten) + line, machine().size(self._descriptor))
        self._unwritten.clear()

    def after(self, sequence: int) -> list[JournalEvent]:
        """Events with a higher number, oldest first, as far as they are held."""
        return [event for event in self._recent if event.sequence > sequence]

    def close(self) -> None:
        """Close the file. Entries that the disk does not take now either are lost; the log of the process has them."""
        if self._unwritten:
            with suppress(OSError):
                self._put()
        machine().close(self._descriptor)

    def _opened(self) -> int:
        descriptor = machine().open(self._path, os.O_RDWR | os.O_CREAT)
        try:
            self._sync_names()
            machine().chmod(descriptor, PRIVATE_FILE)
        except OSError:
            machine().close(descriptor)
            raise
        return descriptor

    def _end_last_line(self, content: bytes) -> None:
        """A crash may have cut it. It stays if only its end is missing."""
        whole = content.rfind(b"\n") + 1
        if any(_events(content[whole:])):
            machine().write(self._descriptor, b"\n", len(content))
        else:
            machine().truncate(self._descriptor, whole)

    def _sync_names(self) -> None:
        """A file that is new, or has a new name, is still there after a crash of the machine."""
        directory = machine().open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            machine().sync(directory)
        finally:
            machine().close(directory)

    def _write(self, data: bytes, position: int) -> None:
        """All of it, durably, or nothing: neither a part nor what an fsync has failed for is left for the next line to
        go on behind it."""
        end = position
        try:
            while end < position + len(data):
                end += machine().write(self._descriptor, data[end - position :], end)
            machine().sync(self._descriptor)
        except OSError:
            machine().truncate(self._descriptor, position)
            raise

    def _rotate(self) -> None:
        full = self._path.with_name(self._path.name + OLD_SUFFIX)
        if machine().exists(self._path):  # else an earlier rotation could neither go on nor back
            machine().rename(self._path, full)
        try:
            descriptor = self._opened()
        except OSError:  # the full one goes on
            with suppress(OSError):
                machine().rename(full, self._path)
            raise
        machine().close(self._descriptor)
        self._descriptor = descriptor

    def _trouble(self, error: OSError) -> OperatorError:
        return OperatorError(
            f"the journal cannot be written: {error.strerror or error}",
            where=str(self._path),
            remedy="Free space on the disk, or give this user the right to write to this file",
        )


def _events(data: bytes) -> Iterable[JournalEvent]:
    for line in data.splitlines():
        try:
            found = orjson.loads(line)
            yield JournalEvent(
                found["sequence"], found["time_ms"], found["kind"], found["text"], tuple(found["details"].items())
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            continue
