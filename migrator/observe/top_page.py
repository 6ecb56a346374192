"""The screen of `migrator top`: one screen for a cluster of any size. Pure: texts, no colours.

`status_page` makes the parts that `migrator status` has, too. This adds the stages of the migration, brokers counted by
mode and state, and rates.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from migrator.observe.names import number_ranges
from migrator.observe.problem_groups import Group
from migrator.observe.rates import Rates
from migrator.observe.status import BrokerState, BrokerStatus
from migrator.observe.status_page import Answers, Page, Table, page_of
from migrator.values import value

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
