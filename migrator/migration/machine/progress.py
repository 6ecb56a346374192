"""How far a worker is: a heartbeat that is made of work, not of time.

A worker counts what it has done, and says so at most a few times a second: who does nothing says nothing. So a slow
worker is told from one that hangs, which a thread that only ticks could not do. Pure: the clock is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum

from migrator.values import value
from migrator.zookeeper.ops import ZkSource, Znode
from migrator.zookeeper.znodes import paths

REPORT_SECONDS = 0.25
"""A worker reports no more often than that."""
_TOPIC_PREFIX = f"{paths.TOPICS}/"


class Phase(Enum):
    """What a worker is at, in what that is shown, and how much that is of what it counts."""

    LOAD = ("loads the metadata log", "MB", 1_000_000)
    DECODE = ("reads and decodes ZooKeeper", "topics", 1)
    COPY = ("copies ZooKeeper", "topics", 1)
    LOOK_AGAIN = ("looks for what changed during the copy", "topics", 1)
    COMPARE = ("compares ZooKeeper with the log", "topics", 1)
    WRITE = ("writes to ZooKeeper what differs", "entities", 1)

    @property
    def what(self) -> str:
        """For operators."""
        return self.value[0]

    @property
    def unit(self) -> str:
        """What is shown."""
        return self.value[1]

    @property
    def size(self) -> int:
        """Of one unit, in what is counted: bytes, or the unit itself."""
        return self.value[2]


@value
class Working:
    """``done`` of ``of`` in a phase; ``of`` 0 while nobody knows how much there is. It is sent only when something was
    done since the one before, which may be too little to be counted."""

    phase: Phase
    done: int = 0
    of: int = 0


class Meter:
    """Counts in a worker, and reports.

    :param report: takes each report; it may block.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self, report: Callable[[Working], None], clock: Callable[[], float], every_seconds: float = REPORT_SECONDS
    ) -> None:
        self._report = report
        self._clock = clock
        self._every = every_seconds
        self._due = 0.0
        self._now = Working(Phase.LOAD)

    def begin(self, phase: Phase, of: int = 0) -> None:
        """A new phase, which is reported at once."""
        self._now = Working(phase, 0, of)
        self._send()

    def expect(self, of: int) -> None:
        """It is known now how much the phase has."""
        self._now = replace(self._now, of=of)

    def did(self, more: int = 0) -> None:
        """Some work is done: so much more of what is counted, or a part of it."""
        if more:
            self._now = replace(self._now, done=self._now.done + more)
        if self._clock() >= self._due:
            self._send()

    def _send(self) -> None:
        self._due = self._clock() + self._every
        self._report(self._now)


class MeteredSource:
    """A `ZkSource` whose answers are counted: each znode is work, each topic's own znode a unit."""

    def __init__(self, source: ZkSource, meter: Meter) -> None:
        self._source = source
        self._meter = meter

    def read(self, paths: Iterable[str]) -> Iterator[Znode | None]:
        """One answer for each path, in order; None for a znode that does not exist."""
        for znode in self._source.read(paths):
            self._meter.did(znode is not None and _is_topic(znode.path))
            yield znode

    def children(self, wanted: Iterable[str]) -> Iterator[tuple[str, ...] | None]:
        """The names below each path, in order; None for a znode that does not exist."""
        asked = list(wanted)
        for path, names in zip(asked, self._source.children(asked), strict=True):
            if path == paths.TOPICS:
                self._meter.expect(len(names or ()))
            self._meter.did()
            yield names


def _is_topic(path: str) -> bool:
    return path.startswith(_TOPIC_PREFIX) and path.find("/", len(_TOPIC_PREFIX)) < 0


@value
class Step:
    """A phase as it was heard of: since when, and how far it was then."""

    working: Working
    since_ms: int
    first: int

    def sentence(self, now_ms: int) -> str:
        """What is done, how much of it, how fast. Of what has only begun no figure is given."""
        phase, done, of = self.working.phase, self.working.done, self.working.of
        if done < phase.size:
            return phase.what
        total = f" of {max(of, done) // phase.size:,}" if of else ""
        seconds = (now_ms - self.since_ms) / 1000
        rate = (done - self.first) / phase.size / seconds if seconds >= 1 else 0
        speed = f", {rate:,.0f} a second" if rate >= 1 else ""
        return f"{phase.what}: {done // phase.size:,}{total} {phase.unit}{speed}"


@value
class Course:
    """One piece of work, as it was heard of so far. Comparing and writing go on side by side."""

    latest: Step | None = None
    writing: Step | None = None

    def heard(self, working: Working, now_ms: int) -> Course:
        """After one more report."""
        is_writing = working.phase is Phase.WRITE
        before = self.writing if is_writing else self.latest
        step = Step(working, now_ms, working.done)
        if before is not None and before.working.phase is working.phase:
            step = replace(before, working=working)
        return replace(self, writing=step) if is_writing else replace(self, latest=step)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """What is under way."""
        return tuple(step.working.phase for step in (self.latest, self.writing) if step is not None)

    def sentence(self, now_ms: int) -> str:
        """For status and log."""
        return "; ".join(step.sentence(now_ms) for step in (self.latest, self.writing) if step is not None)
