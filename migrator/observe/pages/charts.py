"""Lines over time, for the charts of pages. Pure: percent of the plot, not pixels.

Pages of `verify` and of a rollout call `series`. A long series is thinned, and keeps the worst point of each stretch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

from migrator.observe.printable import utc
from migrator.values import value

T = TypeVar("T")
POINTS_MAX = 240
"""Points of a line; a longer series shows the worst point of each stretch."""


@value
class PlotPoint:
    """A place in a plot, in percent from the left and from the top."""

    x: float
    y: float


@value
class Series:
    """A number over time. It keeps its value until the next point, so ``lines`` are steps; None makes a gap. ``most``
    is the largest number, and ``most_at`` its time, as ``first`` and ``last`` in words."""

    lines: tuple[tuple[PlotPoint, PlotPoint], ...]
    most: int
    most_at: str
    latest: int
    count: int
    first: str
    last: str


def thinned(items: Sequence[T], most: int, badness: Callable[[T], Any]) -> list[T]:
    """At most ``most`` items, in order: the worst item of each stretch."""
    stretch = -(-len(items) // most) or 1
    return [max(items[start : start + stretch], key=badness) for start in range(0, len(items), stretch)]


def series(points: Sequence[tuple[int, int | None]], points_max: int = POINTS_MAX) -> Series | None:
    """The line through points of time (milliseconds since 1970) and number; None without two known numbers."""
    known = [(time_ms, number) for time_ms, number in points if number is not None]
    if len(known) < 2:
        return None
    worst = max(known, key=lambda point: point[1])
    shown = thinned(points, points_max, lambda point: -1 if point[1] is None else point[1])
    begin, end = points[0][0], points[-1][0]

    def mark(time_ms: int, number: int) -> PlotPoint:
        across = (time_ms - begin) / max(end - begin, 1)
        return PlotPoint(round(100 * across, 2), round(100 * (1 - number / max(worst[1], 1)), 2))

    def steps() -> Iterator[tuple[PlotPoint, PlotPoint]]:
        for (time_ms, number), (later_ms, after) in pairwise([*shown, (end, None)]):
            if number is None:
                continue
            corner = mark(later_ms, number)
            yield mark(time_ms, number), corner
            if after is not None and after != number:
                yield corner, mark(later_ms, after)

    return Series(tuple(steps()), worst[1], utc(worst[0]), known[-1][1], len(points), utc(begin), utc(end))
