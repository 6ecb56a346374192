"""The journal: what happened in the migration, kept across restarts, one JSON object a line.

It lies in the metadata directory, is written durably, and is bounded: a file that is full becomes the one older file
that is kept. An incomplete last line, as a crash leaves it, is passed over.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import orjson

from migrator.errors import OperatorError
from migrator.machine import machine
from migrator.observe.printable import json_text
from migrator.observe.status import JournalEvent

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
        try:
            for path in (self._path.with_name(file_name + OLD_SUFFIX), self._path):
                if machine().exists(path):
                    self._recent.extend(_events(machine().content(path)))
            self._open()
        except OSError as error:
            raise self._trouble(error) from error
        self._sequence = self._recent[-1].sequence if self._recent else 0

    def append(self, time_ms: int, kind: str, text: str, **details: str) -> JournalEvent:
        """Note an event; it is durable when this returns.

        :raises OperatorError: the disk refuses.
        """
        event = JournalEvent(self._sequence + 1, time_ms, kind, text, tuple(details.items()))
        line = {
            "sequence": event.sequence,
            "time_ms": time_ms,
            "kind": kind,
            "text": text,
            "details": details,
        }
        try:
            if machine().size(self._descriptor) >= self._max_bytes:
                self._rotate()
            self._write(json_text(line).encode() + b"\n")
            machine().sync(self._descriptor)
        except OSError as error:
            raise self._trouble(error) from error
        self._sequence = event.sequence
        self._recent.append(event)
        return event

    def after(self, sequence: int) -> list[JournalEvent]:
        """Events with a higher number, oldest first, as far as they are held."""
        return [event for event in self._recent if event.sequence > sequence]

    def close(self) -> None:
        """Close the file."""
        machine().close(self._descriptor)

    def _open(self) -> None:
        self._descriptor = machine().open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._sync_names()
        machine().chmod(self._descriptor, PRIVATE_FILE)
        size = machine().size(self._descriptor)
        if size and machine().read(self._descriptor, 1, size - 1) != b"\n":
            self._write(b"\n")

    def _sync_names(self) -> None:
        """A file that is new, or has a new name, is still there after a crash of the machine."""
        directory = machine().open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            machine().sync(directory)
        finally:
            machine().close(directory)

    def _write(self, data: bytes) -> None:
        """Behind what the file holds: all of it, or nothing."""
        size = end = machine().size(self._descriptor)
        try:
            while end < size + len(data):
                end += machine().write(self._descriptor, data[end - size :], end)
        except OSError:  # or the next line would go on where this one ends
            machine().truncate(self._descriptor, size)
            raise

    def _rotate(self) -> None:
        machine().close(self._descriptor)
        machine().rename(self._path, self._path.with_name(self._path.name + OLD_SUFFIX))
        self._open()

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
