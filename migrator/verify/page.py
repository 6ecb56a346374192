"""The verdict as one HTML page that needs no network: charts as SVG, and a table to search.

The page's own policy forbids it to load anything; the template escapes whatever comes from the cluster.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from migrator.errors import ExitCode, OperatorError
from migrator.observe.printable import printable
from migrator.values import value
from migrator.verify.canonical import RULES
from migrator.verify.comparison import KindCounts
from migrator.verify.history import Entry
from migrator.verify.verdict import Verdict

ROWS_MAX = 5_000
"""Differences in the table; the counts are of all."""
WIDTH, LINE_WIDTH, LINE_HEIGHT = 540, 1120, 180
LABEL, MARGIN, BAR = 90, 80, 14
_TONES = {"equal": "good", "different": "bad"}
UNSURE = "unsure"

Series = Mapping[str, Sequence[int]]
"""Name of a series, which is its class in the style sheet -> one value a row."""


@value
class Bar:
    """One bar; ``top`` and ``width`` in the chart's units."""

    series: str
    number: int
    top: int
    width: float


@value
class BarGroup:
    """The bars of one name, one below the other; ``middle``: where the name stands."""

    name: str
    middle: int
    bars: tuple[Bar, ...]


@value
class BarChart:
    """Horizontal bars from ``left``, ``thickness`` high each."""

    groups: tuple[BarGroup, ...]
    height: int
    logarithmic: bool
    width: int = WIDTH
    left: int = LABEL
    thickness: int = BAR - 2


@value
class Point:
    """A number at a time, in the tone of its verdict."""

    x: float
    y: float
    time: str
    number: int
    tone: str


@value
class LineChart:
    """Numbers over time; the axis is at ``bottom``, from ``left`` to ``right``."""

    points: tuple[Point, ...]
    most: int
    bottom: int = LINE_HEIGHT - 24
    left: int = 60
    right: int = LINE_WIDTH - 20
    width: int = LINE_WIDTH
    height: int = LINE_HEIGHT


def render(verdict: Verdict, sources: Mapping[str, str], history: Sequence[Entry], now_ms: int) -> str:
    """The whole page.

    :param sources: what was compared, by label.
    :param history: earlier comparisons, oldest first; a chart from two on.
    """
    kinds = verdict.comparison.kinds
    shown = [*verdict.comparison.found, *verdict.undecided][:ROWS_MAX]
    return _template().render(
        verdict=verdict.word,
        tone={ExitCode.OK: "good", ExitCode.DIFFERENT: "bad"}.get(verdict.exit_code, UNSURE),
        sentence=_sentence(verdict),
        facts={**_facts(verdict, now_ms), **sources},
        rows_chart=bars(tuple(kinds), _series(kinds, "zookeeper", "kraft"), logarithmic=True),
        differences_chart=bars(tuple(kinds), _series(kinds, "missing", "extra", "different")),
        history=line(history) if len(history) > 1 else None,
        differences=shown,
        undecided=frozenset(difference.key for difference in verdict.undecided),
        shown=f"{len(shown):,} of {verdict.comparison.differences + len(verdict.undecided):,}",
        kinds=kinds,
        rules=RULES,
    )


def write(page: Path, text: str) -> None:
    """Put it into its file.

    :raises OperatorError: the file can't be written.
    """
    try:
        page.write_text(text, "utf-8")
    except OSError as error:
        raise OperatorError(f"the page cannot be written: {error.strerror}", where=str(page)) from error


def _sentence(verdict: Verdict) -> str:
    rows = f"{verdict.comparison.rows:,} rows compared in {verdict.seconds:.1f} s"
    if verdict.exit_code is ExitCode.OK:
        return f"{rows}: ZooKeeper and the metadata log hold the same."
    if verdict.exit_code is ExitCode.DIFFERENT:
        return f"{rows}: {verdict.comparison.differences:,} of them differ."
    return f"{rows}, {len(verdict.undecided):,} could not be decided: {verdict.why or 'they kept changing'}."


def _facts(verdict: Verdict, now_ms: int) -> dict[str, str]:
    return {
        "Time": _time(now_ms),
        "ZooKeeper's transaction": f"{verdict.at.zxid:#x}",
        "Offset of the log": f"{verdict.at.offset:,}" if verdict.at.offset >= 0 else "no KRaft quorum writes there",
        "ZooKeeper behind by": "unknown" if verdict.lag is None else f"{verdict.lag:,} records",
        "Read more than once": f"{verdict.read_again:,} rows",
    }


def _time(time_ms: int) -> str:
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _template() -> Template:
    here = Path(__file__)
    environment = Environment(
        loader=FileSystemLoader(here.parent),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda text: printable(text) if type(text) is str else text,  # not what a macro has made of it
    )
    environment.filters["thousands"] = "{:,}".format
    return environment.get_template(here.with_suffix(".html").name)


def _series(kinds: Mapping[str, KindCounts], *columns: str) -> Series:
    return {column: [getattr(counts, column) for counts in kinds.values()] for column in columns}


def bars(names: Sequence[str], series: Series, *, logarithmic: bool = False) -> BarChart:
    """A group for each name, with a bar of each series."""
    scale = (lambda number: math.log10(number + 1)) if logarithmic else float
    most = max((scale(number) for numbers in series.values() for number in numbers), default=0) or 1
    group = BAR * len(series) + 10

    def bar(index: int, place: int, name: str) -> Bar:
        number = series[name][index]
        return Bar(name, number, index * group + place * BAR, round(scale(number) / most * (WIDTH - LABEL - MARGIN), 1))

    groups = (
        BarGroup(
            name,
            index * group + BAR * len(series) // 2 + 4,
            tuple(bar(index, place, series_name) for place, series_name in enumerate(series)),
        )
        for index, name in enumerate(names)
    )
    return BarChart(tuple(groups), group * len(names), logarithmic)


def line(history: Sequence[Entry]) -> LineChart:
    """How many records ZooKeeper was behind at each comparison."""
    first, last = history[0].time_ms, history[-1].time_ms
    lags = [max(entry.lag or 0, 0) for entry in history]
    chart = LineChart((), max(*lags, 1))

    def point(entry: Entry, lag: int) -> Point:
        across = (entry.time_ms - first) / max(last - first, 1)
        return Point(
            round(chart.left + across * (chart.right - chart.left), 1),
            round(chart.bottom - lag / chart.most * (chart.bottom - 12), 1),
            _time(entry.time_ms),
            lag,
            _TONES.get(entry.verdict, UNSURE),
        )

    return replace(chart, points=tuple(map(point, history, lags)))
