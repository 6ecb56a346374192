"""The journal: the events of the migration, kept across restarts, one JSON object a line.

It is in the metadata directory, durable and bounded: a full file becomes the one older file that is kept. An incomplete
last line, as a crash leaves it, is cut off.

An order is in the journal before it is carried out, or it is refused (`Journal.append`). An event that happens by
itself does not wait for the disk (`Journal.note`): a leader that resigns because its disk is full must not stop because
it cannot note that.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import orjson

from migrator.errors import OperatorError
from migrator.machine import machine, write_again
from migrator.observe.printable import json_text
from migrator.observe.status import JournalEvent

log = logging.getLogger(__name__)

FILE_NAME = "migration-journal.jsonl"
"""The file of a controller, in its log directory."""
COMMAND_FILE = "journal.jsonl"
"""The file of a command that can be continued (a rollout, a hand-over), in a separate directory."""
OLD_SUFFIX = ".1"
RECENT_MAX = 1_000
"""How many events are kept in memory for readers."""
OVERFULL = 2
"""A full file may grow to so many times its size when no new file can be made."""
PRIVATE_FILE = 0o600


class Journal:
    """One for each process; not thread-safe.

    :param max_bytes: the size at which the file is rotated.
    """

    def __init__(self, directory: Path, max_bytes: int, *, file_name: str = FILE_NAME) -> None:
        """
        :raises OperatorError: the file can't be read or written.
        """
        self._path = directory / file_name
        self._max_bytes = max_bytes
        self._recent: deque[JournalEvent] = deque(maxlen=RECENT_MAX)
        self._waiting: deque[JournalEvent] = deque(maxlen=RECENT_MAX)
        """Events that are not on disk yet, oldest first."""
        self._is_renamed = False
        """Whether the present file has the name of the older one, because no new one could be made."""
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
            self._end = machine().size(self._descriptor)
            """The end of the last valid entry."""
        except OSError as error:
            machine().close(self._descriptor)
            raise self._trouble(error) from error
        self._sequence = self._recent[-1].sequence if self._recent else 0

    def append(self, time_ms: int, kind: str, text: str, **details: str) -> JournalEvent:
        """Note an event that must not happen without its entry, such as an order. It is durable when this returns.

        :raises OperatorError: the disk refuses. There is no entry; a part that was written is removed before the next
            entry.
        """
        try:
            return self._put(JournalEvent(0, time_ms, kind, text, tuple(details.items())))[-1]
        except OSError as error:
            raise self._trouble(error) from error

    def note(self, time_ms: int, kind: str, text: str, **details: str) -> None:
        """Note an event that happens in any case. If the disk refuses the entry, it waits in memory for the next one.
        It gets its number only on disk: a number that a reader has seen must not become another event's after a kill.
        """
        event = JournalEvent(0, time_ms, kind, text, tuple(details.items()))
        try:
            self._put(event)
        except OSError as error:
            self._waiting.append(event)
            log.error("%s. This entry is in memory only: %s: %s", self._trouble(error), kind, text)  # noqa: TRY400 - no defect

    def _put(self, *events: JournalEvent) -> list[JournalEvent]:
        """Write events with the next numbers, after those that wait: all of them or none."""
        if machine().size(self._descriptor) > self._end:
            machine().truncate(self._descriptor, self._end)  # of a refused entry that could not be removed then
        first = self._sequence + 1
        numbered = [replace(event, sequence=first + n) for n, event in enumerate([*self._waiting, *events])]
        if numbered and self._end >= self._max_bytes:
            self._rotate()
        self._write(b"".join(map(_line, numbered)))
        self._waiting.clear()
        self._recent.extend(numbered)
        self._sequence += len(numbered)
        return numbered

    def after(self, sequence: int) -> list[JournalEvent]:
        """The events in memory with a higher number, oldest first. Events that wait for the disk have
        number 0."""
        return [event for event in (*self._recent, *self._waiting) if event.sequence > sequence]

    def close(self) -> None:
        """Close the file. Entries that the disk still refuses are lost here; the process log has them."""
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
        """Repair the last line after a crash: it stays if only its line end is missing."""
        whole = content.rfind(b"\n") + 1
        if any(_events(content[whole:])):
            machine().write(self._descriptor, b"\n", len(content))
        else:
            machine().truncate(self._descriptor, whole)

    def _sync_names(self) -> None:
        """Make a new file, or a new name, survive a crash of the machine."""
        directory = machine().open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            machine().sync(directory)
        finally:
            machine().close(directory)

    def _write(self, data: bytes) -> None:
        """Write all of it durably, or nothing: neither a part, nor data whose fsync has failed, may be left before the
        next line."""
        end, position = self._end, self._end
        try:
            while position < end + len(data):
                position += machine().write(self._descriptor, data[position - end :], position)
            machine().sync(self._descriptor)
        except OSError:
            with suppress(OSError):
                machine().truncate(self._descriptor, end)
            raise
        self._end = position

    def _rotate(self) -> None:
        """Begin a new file. When the disk has no room for one, the full file is used further, under its new name if it
        has that already, and the next entry tries again."""
        try:
            if not self._is_renamed:
                machine().rename(self._path, self._path.with_name(self._path.name + OLD_SUFFIX))
                self._is_renamed = True
            descriptor = self._opened()
        except OSError:
            if self._end >= OVERFULL * self._max_bytes:
                raise
            return
        machine().close(self._descriptor)
        self._descriptor, self._end, self._is_renamed = descriptor, 0, False

    def _trouble(self, error: OSError) -> OperatorError:
        return OperatorError(
            f"the journal cannot be written: {error.strerror or error}",
            where=str(self._path),
            remedy="Free space on the disk, or give this user the right to write to this file",
        )


def _line(event: JournalEvent) -> bytes:
    fields = {
        "sequence": event.sequence,
        "time_ms": event.time_ms,
        "kind": event.kind,
        "text": event.text,
        "details": dict(event.details),
    }
    return json_text(fields).encode() + b"\n"


def _events(data: bytes) -> Iterable[JournalEvent]:
    for line in data.splitlines():
        try:
            found = orjson.loads(line)
            yield JournalEvent(
                found["sequence"], found["time_ms"], found["kind"], found["text"], tuple(found["details"].items())
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            continue
