"""The journal of rollouts: what was begun and what was done, one JSON object a line, on disk before the action.

Each line has a number and a checksum (CRC-32C). An incomplete last line, as a crash leaves it, is cut off. A damaged
line anywhere else is refused, because it is unknown what is missing. A line never has the content of a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Final

import orjson
from crc32c import crc32c

from migrator.errors import OperatorError
from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.plan.steps import Act
from migrator.values import value

FORMAT: Final = 4
"""The number of the format; it goes up with a kind of line that the release before cannot read. Format 1 had no number,
2 no `RESUMED`, 3 no `REMOVES`."""
LINE_MAX: Final = 1 << 20
"""The most bytes of an incomplete first line; a file with more is no journal."""
Detail = str | int | bool | None
_ACTS: Final = tuple(Act)


class Event(StrEnum):
    """What a line says."""

    OPENED = "opened"
    """A rollout begins. The digest of each node's file follows, one `FILE` line each."""
    FILE = "file"
    TURNED = "turned"
    """The rollout goes back from here on."""
    RESUMED = "resumed"
    """A command begins or continues the rollout here. The time before is not counted as the rollout's."""
    FORWARD = "forward"
    """The rollout goes forward again from here on, because the migration has ended; it looks at every step again."""
    BEGUN = "begun"
    DONE = "done"
    FOUND = "found"
    """The act was not needed: its effect was there already."""
    REMOVES = "removes"
    """Comes before the deletion of a metadata log that an earlier attempt has left on a broker."""
    SKIPPED = "skipped"
    """The whole step was not needed."""
    PASSED = "passed"
    """All gates of a check were open."""
    SOAKED = "soaked"
    VERIFIED = "verified"
    """Both sides were equal, during the soak."""
    CONFIRMED = "confirmed"
    FAILED = "failed"
    REOPENED = "reopened"
    """The inventory has changed: the step is done again from this act on."""
    PAUSED = "paused"
    LEFT_OUT = "left-out"
    """A node is gone for good; the rollout goes on without it."""
    BACK_IN = "back-in"
    """A node that was left out is there again; its steps are looked at anew."""
    BASELINE = "baseline"
    """Partitions with replicas that are out of sync already; they do not delay the rollout."""
    HEALED = "healed"
    """Replicas of the baseline that are in sync again; if they fall out of sync now, the rollout waits for them."""
    LOCK_BROKEN = "lock-broken"
    CLOSED = "closed"
    """The rollout is complete."""


@value
class Entry:
    """``time_ms`` is for people: the clock may jump. ``step`` and ``act`` are "" where the line is about none."""

    number: int
    time_ms: int
    event: Event
    step: str = ""
    act: str = ""
    details: Mapping[str, Detail] = field(default_factory=dict)

    def as_json(self) -> dict[str, object]:
        """The line without its checksum."""
        return {
            "n": self.number,
            "t": self.time_ms,
            "event": self.event.value,
            "step": self.step,
            "act": self.act,
            "details": dict(self.details),
        }


def read_journal(directory: Path) -> list[Entry]:
    """Read the journal without changing it.

    :raises OperatorError: as `RolloutJournal`.
    """
    path = directory / COMMAND_FILE
    try:
        return read_lines(path.read_bytes(), path)[0]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise OperatorError(
            f"the journal cannot be read: {error.strerror or error}",
            where=str(path),
            remedy="See that its directory is one, and that you may read it; "
            "or name another one with 'state' in the inventory",
        ) from error


def line_of(content: Mapping[str, object]) -> bytes:
    """A line of the file, with its checksum."""
    return orjson.dumps({**content, "crc": _crc(content)}) + b"\n"


def _crc(content: Mapping[str, object]) -> str:
    return f"{crc32c(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)):08x}"


def read_lines(data: bytes, path: Path) -> tuple[list[Entry], int]:
    """The entries, and the bytes that they take; an incomplete line follows.

    :raises OperatorError: a line is damaged or of a newer release, or the file is no journal.
    """
    if b"\n" not in data and len(data) > LINE_MAX:
        raise _damaged(path, 1)
    entries: list[Entry] = []
    size = 0
    lines = data.splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            entry = _entry(line) if line.endswith(b"\n") else None
        except ValueError as error:
            raise by_another_release(str(error), f"{path}: line {number}") from None
        if entry is None and number == len(lines) and _is_torn(line):
            break
        if entry is None or entry.number != number:
            raise _damaged(path, number)
        entries.append(entry)
        size += len(line)
    return entries, size


def _damaged(path: Path, number: int) -> OperatorError:
    return OperatorError(
        "the journal is damaged: this line cannot be read",
        where=f"{path}: line {number}",
        remedy="The lines before it are JSON, and can be read. To begin anew, move the file away, and free its "
        "lock with 'migrator rollout unlock'. Then 'migrator rollout apply' goes forward, or 'migrator rollout "
        "rollback' back: it finds out by looking what is done already",
    )


def _is_torn(line: bytes) -> bool:
    """Whether a last line is incomplete: it has no end, or zeros inside. Then no action was begun after it. A line that
    is complete but wrong was changed later, and its content would count."""
    return not line.endswith(b"\n") or b"\0" in line


def by_another_release(what: str, where: str) -> OperatorError:
    """The error for a valid line that this release does not know."""
    return OperatorError(
        f"the journal was made by a newer release of this program: {what}",
        where=where,
        remedy="Go on with that release. Leave the journal where it is: nothing is wrong with it",
    )


def _entry(line: bytes) -> Entry | None:
    """None when the checksum is wrong.

    :raises ValueError: the checksum is right, but this release does not know the content.
    """
    try:
        content = orjson.loads(line)
        crc = content.pop("crc")
        if crc != _crc(content):
            return None
        number, time_ms, event = content["n"], content["t"], content["event"]
        step, act, details = content["step"], content["act"], content["details"]
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        return None
    made = details.get("format", 1) if event == Event.OPENED else 1
    if not isinstance(made, int) or made > FORMAT:
        raise ValueError(f"its format is {made}, and this release knows {FORMAT}")
    if act and act not in _ACTS:
        raise ValueError(f"an act {act}")
    return Entry(number, time_ms, Event(event), step, act, details)
