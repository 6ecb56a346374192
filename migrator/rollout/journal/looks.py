"""The results of a rollout's looks, for its report: partitions, ZooKeeper's lag, shut gates, and the longest silence.

One file for each rollout, beside the journal. It decides nothing, so it is not synced, and a disk that refuses it stops
nothing. It stays small: a line is written when something changes, or after `EVERY_MS`; beyond `LINES_MAX` lines, of
each two the worse one stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import orjson

from migrator.log.errors import StorageError
from migrator.log.files import PRIVATE_FILE, write_durably
from migrator.observe.pages.charts import thinned
from migrator.observe.printable import number_of
from migrator.observe.status import ImagesStatus
from migrator.rollout.journal.figures import FiguresFile
from migrator.rollout.journal.journal import Entry, Event
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.ports import Clock, Observation
from migrator.values import value

EVERY_MS = 30_000
LINES_MAX = 4_000
WAITS_MAX = 400
"""The most characters of a line about who is waited for."""
_NUMBERS = ("offline", "under_replicated", "lag")
_NO_IMAGES: tuple[tuple[int, ...], ...] = ()


@value
class Look:
    """One look. ``waits``: who the gates of ``step`` wait for, and why; "" for open gates. ``state``: of the migration.
    ``offline`` and ``under_replicated``: how many partitions; ``lag``: the records that ZooKeeper is behind; None
    unknown. ``images``: how the controllers' digests compare; None in most lines."""

    time_ms: int
    step: str = ""
    waits: str = ""
    state: str = ""
    offline: int | None = None
    under_replicated: int | None = None
    lag: int | None = None
    images: ImagesStatus | None = None

    @property
    def badness(self) -> tuple[int, ...]:
        """The key for thinning: the worst looks come last."""
        return (self.offline or 0, self.under_replicated or 0, bool(self.waits), self.lag or 0)

    @property
    def said(self) -> str:
        """The result of the look, in one line; "" for none."""
        said = [self.state] if self.state else []
        counts = {"offline": self.offline, "under-replicated": self.under_replicated}
        known = [f"{count} {name}" for name, count in counts.items() if count is not None]
        said += [f"partitions: {', '.join(known)}"] if known else []
        said += [] if self.lag is None else [f"ZooKeeper is {number_of(self.lag, 'record')} behind"]
        return "; ".join(said)


@value
class Looked:
    """All looks of a rollout. ``silent_ms``: the longest time without a line on the terminal; None unknown."""

    looks: tuple[Look, ...] = ()
    silent_ms: int | None = None


def look_at(seen: Observation, time_ms: int = 0, step: str = "", waits: str = "") -> Look:
    """A look at the gates of a step, without digests."""
    partitions, migration = seen.partitions, seen.migration
    return Look(
        time_ms,
        step,
        waits[:WAITS_MAX],
        "" if migration is None else migration.state,
        None if partitions is None else partitions.offline.count,
        None if partitions is None else partitions.under_replicated.count,
        None if migration is None or migration.write_behind_lag < 0 else migration.write_behind_lag,
    )


def looks_file(state: Path, rollout: str) -> Path:
    return state / f"looks-{rollout}.jsonl"


def read_looks(state: Path, rollout: str) -> Looked:
    """Yields nothing if there is no file. A line that is damaged is left out."""
    try:
        lines = looks_file(state, rollout).read_bytes().splitlines()
    except OSError:
        return Looked()
    found = [each for each in map(_parsed, lines) if each is not None]
    silent = [each for each in found if isinstance(each, int)]
    return Looked(tuple(each for each in found if isinstance(each, Look)), max(silent, default=None))


@value
class ShutGate:
    """A gate that the last look found shut. ``since_ms``: when it was found shut first, by the wall clock."""

    last: Look
    since_ms: int


def shut_gate(state: Path, entries: Sequence[Entry]) -> ShutGate | None:
    """The gate at which the last command of the rollout waits, or waited as it ended; None for none.

    :param entries: of the journal.
    """
    began_ms = next((entry.time_ms for entry in reversed(entries) if entry.event is Event.RESUMED), None)
    if began_ms is None:
        return None
    looks = read_looks(state, progress_of(entries).rollout).looks
    step = looks[-1].step if looks and looks[-1].time_ms >= began_ms else None
    shut = list(takewhile(lambda look: look.waits and look.step == step, reversed(looks)))
    return ShutGate(shut[0], max(shut[-1].time_ms, began_ms)) if shut else None


def _parsed(line: bytes) -> Look | int | None:
    """A look, the milliseconds of a silence, or None."""
    try:
        found = orjson.loads(line)
        if "silent" in found:
            return int(found["silent"])
        images = found.get("images")
        step, waits, state = (str(found.get(name, "")) for name in ("step", "waits", "state"))
        offline, under, lag = (None if found.get(name) is None else int(found[name]) for name in _NUMBERS)
        digests = None if images is None else ImagesStatus(int(images[0]), int(images[1]), *map(tuple, images[2:5]))
        return Look(int(found["t"]), step, waits, state, offline, under, lag, digests)
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError):
        return None


class LooksFile:
    """Writes the looks of one run."""

    def __init__(self, state: Path, rollout: str, clock: Clock) -> None:
        self._path = looks_file(state, rollout)
        self._figures = FiguresFile(state, rollout, clock)
        self._clock = clock
        self._last, self._images = Look(0), _NO_IMAGES
        self._lines: int | None = None
        self._silent_ms = 0

    def saw(self, step: str, seen: Observation, waits: str = "") -> None:
        """Take in a look at the gates of a step. What the look did not ask for is as it was."""
        self._figures.saw(step, is_shut=bool(waits))
        now_ms, before = self._clock.wall_ms(), self._last
        look = look_at(seen, now_ms, step, waits)
        if seen.partitions is None:
            look = replace(look, offline=before.offline, under_replicated=before.under_replicated)
        is_due = not 0 <= now_ms - before.time_ms < EVERY_MS
        if not is_due and look == replace(before, time_ms=now_ms):
            return
        images = None if seen.migration is None else seen.migration.images
        if not is_due and _groups(images) == self._images:
            images = None
        self._last, self._images = look, _groups(images) or self._images
        self._write(_line(replace(look, images=images)))

    def was_silent(self, silent_ms: int) -> None:
        """Note the longest time without a line on the terminal, if it is longer by a second than the last one."""
        if silent_ms >= self._silent_ms + 1000:
            self._silent_ms = silent_ms
            self._write({"silent": silent_ms})

    def _write(self, line: Mapping[str, object]) -> None:
        with suppress(OSError, StorageError):
            if self._lines is None:
                self._path.touch(PRIVATE_FILE)
                self._lines = self._path.read_bytes().count(b"\n")
            if self._lines >= LINES_MAX:
                self._halve()
            with self._path.open("ab") as file:
                file.write(orjson.dumps(line) + b"\n")
            self._lines += 1

    def _halve(self) -> None:
        kept = read_looks(self._path.parent, self._path.stem.removeprefix("looks-"))
        looks = thinned(kept.looks, LINES_MAX // 2, lambda look: look.badness)
        lines = [*map(_line, looks), *([] if kept.silent_ms is None else [{"silent": kept.silent_ms}])]
        write_durably(self._path, b"".join(orjson.dumps(each) + b"\n" for each in lines))
        self._lines = len(lines)


def _groups(images: ImagesStatus | None) -> tuple[tuple[int, ...], ...]:
    return _NO_IMAGES if images is None else (images.equal, images.different, images.unknown)


def _line(look: Look) -> dict[str, Any]:
    images = look.images
    found = {name: getattr(look, name) for name in ("step", "waits", "state", *_NUMBERS)}
    shown = {name: each for name, each in found.items() if each not in ("", None)}
    more = {} if images is None else {"images": [images.offset, images.time_ms, *map(list, _groups(images))]}
    return {"t": look.time_ms, **shown, **more}
