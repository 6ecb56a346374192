"""The journal while a command writes it. Each line is on disk, and in the progress, before the action.

A command that holds the lock opens one `RolloutJournal`. A failed append leaves nothing of its line in the file. A cut
last line, from a crash, is removed at the next opening; any other damage is refused.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from migrator.errors import OperatorError
from migrator.log.files import PRIVATE_FILE, sync_directory
from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.journal.journal import Detail, Entry, Event, line_of, read_lines
from migrator.rollout.journal.progress import progress_of

ORDERED = frozenset(
    (
        Event.OPENED, Event.TURNED, Event.FORWARD, Event.RESUMED, Event.CONFIRMED, Event.LEFT_OUT, Event.BACK_IN,
        Event.LOCK_BROKEN,
    )
)  # fmt: skip
"""Lines that say who has ordered it, and with which command."""


def user() -> str:
    """The name of this process's user, or the number of one without a name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


def order_of(command: str) -> dict[str, str]:
    """What a line says of its order.

    :param command: as it was typed.
    """
    return {"by": f"{user()}@{socket.gethostname()}", "command": command}


class RolloutJournal:
    """The one writer of a journal. Opening reads the file and cuts off an incomplete last line. ``progress`` is the
    fold of all lines so far.

    :param order: for the lines of `ORDERED`; see `order_of`.
    :raises OperatorError: the file can't be read, or a line before the last is damaged.
    """

    def __init__(self, directory: Path, order: Mapping[str, str] | None = None) -> None:
        self._order = order or {}
        self.path = directory / COMMAND_FILE
        try:
            data = self.path.read_bytes() if self.path.exists() else b""
            self.entries, self._size = read_lines(data, self.path)
            self.progress = progress_of(self.entries)
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(self.path, flags, PRIVATE_FILE)
            os.fchmod(self._descriptor, PRIVATE_FILE)
            os.ftruncate(self._descriptor, self._size)
            os.fsync(self._descriptor)
            sync_directory(directory)
        except OSError as error:
            raise self._trouble(error) from error

    def append(self, time_ms: int, event: Event, step: str = "", act: str = "", **details: Detail) -> Entry:
        """Append a line. When this returns it is durable; when it raises, nothing of it is in the file.

        :raises OperatorError: the disk refuses.
        """
        number = self.entries[-1].number + 1 if self.entries else 1
        entry = Entry(number, time_ms, event, step, act, {**details, **(self._order if event in ORDERED else {})})
        line = line_of(entry.as_json())
        try:
            written = 0
            while written < len(line):
                written += os.pwrite(self._descriptor, line[written:], self._size + written)
            os.fsync(self._descriptor)
        except OSError as error:
            self._take_back()
            raise self._trouble(error) from error
        self._size += len(line)
        self.entries.append(entry)
        self.progress = progress_of((entry,), self.progress)
        return entry

    def close(self) -> None:
        os.close(self._descriptor)

    def _take_back(self) -> None:
        """Cut off the part of a line that was written. If that fails too, the next opening does it."""
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            return

    def _trouble(self, error: OSError) -> OperatorError:
        return OperatorError(
            f"the journal cannot be written: {error.strerror or error}. Nothing was begun that is not in it",
            where=str(self.path),
            remedy="Make room on the disk, or give this user the right to write there; then 'migrator rollout resume'",
        )
