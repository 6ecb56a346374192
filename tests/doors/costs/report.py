"""The table of what attacks cost, as Markdown: ours, stock's, ours divided by stock's, and which goals are not met."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from migrator.values import value
from tests.doors.costs import honest
from tests.doors.costs.run import Costs
from tests.doors.costs.table import Attack

MEMORY_MIB, P99_MS, LONGEST_MS, OPERATOR_MS, TURN_MS = 256 + 64, 100.0, 1_000.0, 1_000.0, 100.0
"""The goals: `queued.max.request.bytes` and 64 MiB; of heartbeats and Fetches; of an operator's command; of a turn of
the event loop, in processor time."""


@value
class Row:
    """One attack, and what it cost; None where it was not tried, or where there is no such door."""

    attack: Attack
    ours: Costs | None
    stock: Costs | None


def _of(what: str, figure: str) -> Callable[[Costs], float | None]:
    return lambda costs: None if (found := costs.latencies.get(what)) is None else float(getattr(found, figure))


COLUMNS: Sequence[tuple[str, Callable[[Costs], float | None], float]] = (
    ("memory above rest, MiB", lambda costs: costs.above_rest, MEMORY_MIB),
    ("heartbeat p99, ms", _of(honest.HEARTBEAT, "p99"), P99_MS),
    ("longest, ms", _of(honest.HEARTBEAT, "longest"), LONGEST_MS),
    ("Fetch p99, ms", _of(honest.FETCH, "p99"), P99_MS),
    ("longest, ms", _of(honest.FETCH, "longest"), LONGEST_MS),
    ("operator, longest, ms", _of(honest.OPERATOR, "longest"), OPERATOR_MS),
    ("turn of the loop, ms", lambda costs: costs.turn_processor, TURN_MS),
)


def table(rows: Sequence[Row]) -> str:
    """A line for each attack."""
    heads = ["attack", *(name for name, _, _ in COLUMNS), "scrapes", "elections"]
    lines = [heads, ["---"] * len(heads), *map(_cells, rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def missed(rows: Sequence[Row]) -> list[str]:
    """The goals that were not met, by attack."""
    found = []
    for row in rows:
        if row.ours is None:
            continue
        missing = [f"{name} {figure:.0f}" for name, read, goal in COLUMNS if (figure := read(row.ours) or 0.0) > goal]
        answered, asked = row.ours.scrapes or (0, 0)
        missing += [f"scrapes {answered} of {asked}"] if answered < asked else []
        missing += ["a new leader"] if row.ours.elections else []
        missing += ["it ended"] if not row.ours.survived else []
        found += [f"{row.attack.title}: {', '.join(missing)}"] if missing else []
    return found


def _cells(row: Row) -> list[str]:
    return [
        row.attack.title,
        *(_pair(row, read, goal) for _, read, goal in COLUMNS),
        "" if row.ours is None or row.ours.scrapes is None else f"{row.ours.scrapes[0]} of {row.ours.scrapes[1]}",
        " / ".join(_leadership(costs) for costs in (row.ours, row.stock) if costs is not None),
    ]


def _pair(row: Row, read: Callable[[Costs], float | None], goal: float) -> str:
    """``ours / stock (ratio)``, ours in bold when it misses the goal."""
    ours, stock = (None if costs is None else read(costs) for costs in (row.ours, row.stock))
    if ours is None:
        return "" if stock is None else f"- / {stock:,.0f}"
    text = f"**{ours:,.0f}**" if ours > goal else f"{ours:,.0f}"
    if stock is None:
        return text
    return f"{text} / {stock:,.0f} ({ours / stock:.2f})" if stock >= 1 else f"{text} / {stock:,.0f}"


def _leadership(costs: Costs) -> str:
    return "ended" if not costs.survived else str(costs.elections)
