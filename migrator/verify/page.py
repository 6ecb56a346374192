"""The verdict as one HTML page that needs no network: what differs, charts, the next command, a table to search.

What all pages share is in `migrator.observe.pages`; `page.html` and `verify.css` are of this one.

The charts are bars for each kind, and ZooKeeper's lag over time, in shares, not pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from migrator.errors import ExitCode
from migrator.observe.pages.charts import POINTS_MAX, thinned
from migrator.observe.pages.template import template
from migrator.observe.printable import utc
from migrator.values import value
from migrator.verify.canonical import RULES
from migrator.verify.comparison import KindCounts
from migrator.verify.history import HistoryEntry
from migrator.verify.verdict import NextStep, Verdict

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
    """The number of rows on each side, on a logarithmic scale; kinds without a row are left out."""
    return _groups(kinds, SIDES, lambda number: math.log10(number + 1), zeros=True)


def difference_bars(kinds: Mapping[str, KindCounts]) -> tuple[BarGroup, ...]:
    """The number of rows for each kind of difference; kinds without differences are left out."""
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
    """The sort key of a comparison, by verdict and then by lag."""
    return _SEVERITY.index(entry.verdict), -1 if entry.lag is None else entry.lag


ROWS_MAX = 5_000
"""The most differences in the table; the counts include all."""
UNSURE = "unsure"


@value
class About:
    """One comparison. ``sources``: the compared sources, by label; ``host``: the machine that compared;
    ``version``: of this tool; ``next_step``: see there."""

    sources: Mapping[str, str]
    host: str
    version: str
    next_step: NextStep


def render(verdict: Verdict, about: About, history: Sequence[HistoryEntry], now_ms: int) -> str:
    """The whole page, as HTML.

    :param history: earlier comparisons, oldest first; two or more make a chart.
    """
    kinds = verdict.comparison.kinds
    shown = [*verdict.comparison.found, *verdict.undecided][:ROWS_MAX]
    return template(Path(__file__).with_suffix(".html")).render(
        verdict=verdict.word,
        tone={ExitCode.OK: "good", ExitCode.DIFFERENT: "bad"}.get(verdict.exit_code, UNSURE),
        sentence=_sentence(verdict),
        next=about.next_step,
        labelled=_facts(verdict, about, now_ms),
        row_bars=row_bars(kinds),
        difference_bars=difference_bars(kinds),
        history=line(history),
        utc=utc,
        differences=shown,
        undecided=frozenset(difference.key for difference in verdict.undecided),
        with_zxid=any(difference.zxid is not None for difference in shown),
        total=verdict.comparison.differences + len(verdict.undecided),
        rules=RULES,
    )


def _sentence(verdict: Verdict) -> str:
    rows = f"{verdict.comparison.rows:,} rows compared"
    if verdict.exit_code is ExitCode.OK:
        return f"{rows}: ZooKeeper and the metadata log hold the same."
    if verdict.exit_code is ExitCode.DIFFERENT:
        return f"{rows}: {verdict.comparison.differences:,} of them differ."
    why = verdict.why or "these rows kept changing"
    return f"{rows}, {len(verdict.undecided):,} could not be decided: {why}."


def _facts(verdict: Verdict, about: About, now_ms: int) -> dict[str, str]:
    """The facts of the comparison, by label."""
    at = verdict.at
    offset = f"{at.offset:,}" if at.offset >= 0 else "no KRaft quorum writes there"
    facts = {
        "Cluster id": verdict.cluster_id,
        **about.sources,
        "Compared on": about.host,
        "Time": utc(now_ms),
        "Duration": f"{verdict.seconds:.1f} s",
        "ZooKeeper's transaction (zxid)": f"{at.zxid:#x}" if at.zxid >= 0 else "",
        "Offset of the log": offset if at.zxid >= 0 else "",
        "ZooKeeper behind by": "" if verdict.lag is None else f"{verdict.lag:,} records",
        "Read more than once": f"{verdict.read_again:,} rows" if verdict.read_again else "",
        "Version of migrator": about.version,
    }
    return {label: text for label, text in facts.items() if text}
