"""The charts of the page: bars for each kind, and ZooKeeper's lag over time. Pure: shares, not pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from migrator.observe.pages.charts import POINTS_MAX, thinned
from migrator.observe.printable import utc
from migrator.values import value
from migrator.verify.comparison import KindCounts
from migrator.verify.history import HistoryEntry

NOT_EQUAL_MAX = 10
"""How many comparisons are listed below the line: the newest ones that did not end with "equal"."""
SIDES = {"zookeeper": "ZooKeeper", "kraft": "KRaft"}
"""Name of a series, which is its class in the style sheet -> its name for readers."""
STATUSES = {"missing": "missing", "extra": "extra", "different": "different"}
_SEVERITY = ("equal", "could not tell", "different")


@value
class Bar:
    """``series`` is its class in the style sheet; ``share``: its length as a share of the longest bar, from 0 to 1."""

    series: str
    label: str
    number: int
    share: float


@value
class BarGroup:
    """The bars of one kind."""

    name: str
    bars: tuple[Bar, ...]


@value
class Point:
    """A comparison in the line chart, in percent from the left and from the top. ``lag`` is None when unknown."""

    x: float
    y: float
    time: str
    verdict: str
    lag: int | None


@value
class LineChart:
    """``lines`` join neighbours whose lags are both known. ``verdicts``: the verdicts that occur."""

    points: tuple[Point, ...]
    lines: tuple[tuple[Point, Point], ...]
    most: int
    compared: int
    verdicts: tuple[str, ...]
    not_equal: tuple[HistoryEntry, ...]


def row_bars(kinds: Mapping[str, KindCounts]) -> tuple[BarGroup, ...]:
    """How many rows each side has, on a logarithmic scale; kinds without a row are left out."""
    return _groups(kinds, SIDES, lambda number: math.log10(number + 1), zeros=True)


def difference_bars(kinds: Mapping[str, KindCounts]) -> tuple[BarGroup, ...]:
    """How many rows differ in which way; kinds without differences are left out."""
    return _groups(kinds, STATUSES, float, zeros=False)


def _groups(
    kinds: Mapping[str, KindCounts], series: Mapping[str, str], scale: Callable[[int], float], *, zeros: bool
) -> tuple[BarGroup, ...]:
    numbers = {kind: {name: int(getattr(counts, name)) for name in series} for kind, counts in kinds.items()}
    most = max((scale(number) for row in numbers.values() for number in row.values()), default=0) or 1

    def bars(row: Mapping[str, int]) -> Iterator[Bar]:
        for name, number in row.items():
            if number or (zeros and any(row.values())):
                yield Bar(name, series[name], number, round(scale(number) / most, 3))

    found = (BarGroup(kind, tuple(bars(row))) for kind, row in numbers.items())
    return tuple(group for group in found if group.bars)


def line(history: Sequence[HistoryEntry]) -> LineChart | None:
    """ZooKeeper's lag in records at each comparison; None without two known numbers."""
    known = [entry.lag for entry in history if entry.lag is not None]
    if len(known) < 2:
        return None
    first, last = history[0].time_ms, history[-1].time_ms
    most = max(*known, 1)

    def point(entry: HistoryEntry) -> Point:
        across = (entry.time_ms - first) / max(last - first, 1)
        height = (entry.lag or 0) / most
        return Point(round(100 * across, 2), round(100 * (1 - height), 2), utc(entry.time_ms), entry.verdict, entry.lag)

    points = tuple(map(point, thinned(history, POINTS_MAX, badness)))
    lines = tuple((a, b) for a, b in pairwise(points) if a.lag is not None and b.lag is not None)
    verdicts = tuple(word for word in _SEVERITY if any(point.verdict == word for point in points))
    not_equal = [entry for entry in reversed(history) if entry.verdict != "equal"]
    return LineChart(points, lines, most, len(history), verdicts, tuple(not_equal[:NOT_EQUAL_MAX]))


def badness(entry: HistoryEntry) -> tuple[int, int]:
    """The worst verdict first, and of these the largest lag."""
    return _SEVERITY.index(entry.verdict), -1 if entry.lag is None else entry.lag
