"""The screen of `migrator top`: one screen for a cluster of any size. Pure: texts, no colours.

`status_page` makes the parts that `migrator status` has, too. This adds the stages of the migration, brokers counted by
mode and state, and rates.

How fast a quorum commits and ZooKeeper follows, measured from a controller's statuses, one after the other. Pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum

from migrator.observe.printable import number_ranges
from migrator.observe.problem_groups import Group
from migrator.observe.status import BrokerState, BrokerStatus, Status
from migrator.observe.status_page import Answers, Page, Table, page_of
from migrator.values import value

WINDOW_MS = 5_000
"""A rate is measured over this time: shorter ones jump with every batch."""
HISTORY = 60
"""How many seconds are kept for the graph of the rate."""


@value
class Rates:
    """Records per second; None while too little was seen. ``history``: records committed in each whole second of the
    last minute, oldest first. ``written``: how fast the write-behind advances in the log; None while it is off."""

    committed: float | None = None
    written: float | None = None
    history: tuple[int, ...] = ()


@value
class _Sample:
    time_ms: int
    committed: int
    written: int | None


class RateMeter:
    """Takes each status. It begins anew when another controller answers, or when time or offsets go backwards."""

    def __init__(self) -> None:
        self._node_id = -1
        self._samples: deque[_Sample] = deque()

    def look(self, status: Status) -> Rates:
        """Add a status; returns the rates."""
        if status.quorum.high_watermark < 0:  # a new leader does not know its high watermark yet
            self._samples.clear()
            return Rates()
        behind = status.write_behind
        sample = _Sample(
            status.time_ms, status.quorum.high_watermark, None if behind is None else behind.written_offset
        )
        if self._samples and (status.node_id != self._node_id or not _follows(sample, self._samples[-1])):
            self._samples.clear()
        self._node_id = status.node_id
        if not self._samples or sample.time_ms > self._samples[-1].time_ms:
            self._samples.append(sample)
        while self._samples[0].time_ms < sample.time_ms - HISTORY * 1000:
            self._samples.popleft()
        return self._rates()

    def _rates(self) -> Rates:
        last = self._samples[-1]
        if len(self._samples) < 2:
            return Rates()
        before = [sample for sample in self._samples if sample.time_ms <= last.time_ms - WINDOW_MS]
        first = before[-1] if before else self._samples[0]
        ms = last.time_ms - first.time_ms
        writes = last.written is not None and first.written is not None
        return Rates(
            (last.committed - first.committed) * 1000 / ms,
            ((last.written or 0) - (first.written or 0)) * 1000 / ms if writes else None,
            self._history(last.time_ms),
        )

    def _history(self, now_ms: int) -> tuple[int, ...]:
        """The counts by second. A status after a pause counts for the second in which it came."""
        seconds = [0] * HISTORY
        before = self._samples[0]
        for sample in list(self._samples)[1:]:
            age = min((now_ms - sample.time_ms) // 1000, HISTORY - 1)
            seconds[HISTORY - 1 - age] += sample.committed - before.committed
            before = sample
        seen = min(HISTORY, (now_ms - self._samples[0].time_ms) // 1000 + 1)
        return tuple(seconds[HISTORY - seen :])


def _follows(after: _Sample, before: _Sample) -> bool:
    writes = after.written is None or before.written is None or after.written >= before.written
    return after.time_ms >= before.time_ms and after.committed >= before.committed and writes


ROAD = ("MigrationIneligible", "MigrateZkData", "DualWrite", "Finished")
LINES_MAX = 12
"""The most lines of problems; those that block the migration come first."""
BARS = "▁▂▃▄▅▆▇█"


class StageMark(Enum):
    """Whether a stage is over, present, or still to come."""

    DONE = "✓"
    NOW = "●"
    AHEAD = "○"


@value
class StateReached:
    """One public state of the migration."""

    name: str
    mark: StageMark


@value
class TopPage:
    """``road``: empty when there is nothing to migrate. ``problems``: lines, and whether they are only warnings."""

    page: Page
    road: tuple[StateReached, ...]
    brokers: Table | None
    rates: tuple[str, ...]
    problems: tuple[tuple[str, bool], ...]


def top_page_of(answers: Answers, rates: Rates) -> TopPage:
    status, page = answers.best, page_of(answers)
    return TopPage(
        page,
        _road(status.migration.public_state) if status.migration.internal_state != "nothing to migrate" else (),
        _brokers(status.brokers, is_leaders=answers.is_leaders) if status.brokers else None,
        tuple(_rates(rates)),
        _problems(page.groups),
    )


def _road(state: str) -> tuple[StateReached, ...]:
    if state not in ROAD:
        return ()
    now, last = ROAD.index(state), len(ROAD) - 1
    marks = (
        StageMark.DONE if at < now or now == last else StageMark.NOW if at == now else StageMark.AHEAD
        for at in range(len(ROAD))
    )
    return tuple(StateReached(name, mark) for name, mark in zip(ROAD, marks, strict=True))


def _brokers(brokers: tuple[BrokerStatus, ...], *, is_leaders: bool) -> Table:
    """Counts brokers by mode and state, those with a problem first. A follower does not know the states."""
    groups: dict[tuple[bool, str, str], list[int]] = {}
    for broker in brokers:
        mode = "ZooKeeper" if broker.in_zookeeper_mode else "KRaft"
        state = broker.state.value if is_leaders else "not known"
        groups.setdefault((broker.state is BrokerState.RUNNING, mode, state), []).append(broker.broker_id)
    rows = [
        (number_ranges("broker", ids).partition(" ")[2], str(len(ids)), mode, state)
        for (_, mode, state), ids in sorted(groups.items())
    ]
    return Table(f"brokers: {len(brokers)}", ("ids", "how many", "mode", "state"), tuple(rows))


def _rates(rates: Rates) -> Iterable[str]:
    if rates.committed is None:
        return
    yield f"committed: {rates.committed:.0f} records/s  {sparkline(rates.history)}"
    if rates.written is not None:
        yield f"ZooKeeper follows: {rates.written:.0f} records/s"


def sparkline(figures: Iterable[int]) -> str:
    """One character for each figure; the highest is a full block."""
    found = list(figures)
    top = max(found, default=0) or 1
    return "".join(BARS[round(figure / top * (len(BARS) - 1))] for figure in found)


def _problems(groups: Iterable[Group]) -> tuple[tuple[str, bool], ...]:
    lines = [(line, group.warning) for group in groups for line in group.lines]
    if len(lines) > LINES_MAX:
        left = len(lines) - LINES_MAX + 1
        lines = [*lines[: LINES_MAX - 1], (f"and {left} more lines: see 'migrator status'", lines[-1][1])]
    return tuple(lines)
