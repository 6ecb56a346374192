"""The progress of a worker: a heartbeat that counts work, not time.

A worker counts its work, and reports it at most a few times a second. A worker that does nothing reports nothing, so a
slow worker differs from one that hangs; a thread that only ticks would hide that. Pure: the clock is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import Enum

from migrator.values import value
from migrator.zookeeper.ops import ZkSource, Znode
from migrator.zookeeper.znodes import paths

REPORT_SECONDS = 0.25
"""The least seconds between two reports of a worker."""
_TOPIC_PREFIX = f"{paths.TOPICS}/"
_TOPIC_DEPTH = _TOPIC_PREFIX.count("/")


class WorkPhase(Enum):
    """A phase of a worker's task; the unit that operators see, and the size of that unit in what the worker counts."""

    LOAD = ("loads the metadata log", "MB", 1_000_000)
    DECODE = ("reads and decodes ZooKeeper", "topics", 1)
    COPY = ("copies ZooKeeper", "topics", 1)
    LOOK_AGAIN = ("looks for what changed during the copy", "topics", 1)
    COMPARE = ("compares ZooKeeper with the log", "topics", 1)
    WRITE = ("writes to ZooKeeper what differs", "entities", 1)

    @property
    def what(self) -> str:
        """The name of the phase, for operators."""
        return self.value[0]

    @property
    def unit(self) -> str:
        """The unit that operators see."""
        return self.value[1]

    @property
    def size(self) -> int:
        """The size of one unit in what is counted: bytes, or 1 where the unit itself is counted."""
        return self.value[2]


@value
class Working:
    """``done`` of ``of`` in a phase; ``of`` is 0 while the total is unknown. A report is sent only when work was done
    since the report before, perhaps less than one unit."""

    phase: WorkPhase
    done: int = 0
    of: int = 0


class Meter:
    """Counts the work of a worker, and reports it.

    :param report: called with each report; may block.
    :param clock: seconds, monotonic.
    """

    def __init__(
        self, report: Callable[[Working], None], clock: Callable[[], float], every_seconds: float = REPORT_SECONDS
    ) -> None:
        self._report = report
        self._clock = clock
        self._every = every_seconds
        self._due = 0.0
        self._now = Working(WorkPhase.LOAD)

    def begin(self, phase: WorkPhase, of: int = 0) -> None:
        """Begin a phase, and report it at once."""
        self._now = Working(phase, 0, of)
        self._send()

    def expect(self, of: int) -> None:
        """Set the total of the phase, now that it is known."""
        self._now = replace(self._now, of=of)

    def did(self, more: int = 0) -> None:
        """Count work that was done; 0 for a part of one unit."""
        if more:
            self._now = replace(self._now, done=self._now.done + more)
        if self._clock() >= self._due:
            self._send()

    def _send(self) -> None:
        self._due = self._clock() + self._every
        self._report(self._now)


class MeteredSource:
    """A `ZkSource` that counts its answers: each znode is work, and each topic's own znode is one unit."""

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
    return path.count("/") == _TOPIC_DEPTH and path.startswith(_TOPIC_PREFIX)


@value
class PhaseSeen:
    """A phase as its reports show it: the latest report, and the time and the count of the first one."""

    working: Working
    since_ms: int
    first: int

    def sentence(self, now_ms: int) -> str:
        """The work, its amount, and its rate. A phase that has just begun has no figures."""
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
    """One piece of work, as its reports show it so far. Comparing and writing may go on at the same time."""

    latest: PhaseSeen | None = None
    writing: PhaseSeen | None = None

    def heard(self, working: Working, now_ms: int) -> Course:
        """The course after one more report."""
        is_writing = working.phase is WorkPhase.WRITE
        before = self.writing if is_writing else self.latest
        step = PhaseSeen(working, now_ms, working.done)
        if before is not None and before.working.phase is working.phase:
            step = replace(before, working=working)
        return replace(self, writing=step) if is_writing else replace(self, latest=step)

    @property
    def phases(self) -> tuple[WorkPhase, ...]:
        """The phases that are under way."""
        return tuple(step.working.phase for step in (self.latest, self.writing) if step is not None)

    def sentence(self, now_ms: int) -> str:
        """The progress in words, for status and log."""
        return "; ".join(step.sentence(now_ms) for step in (self.latest, self.writing) if step is not None)
