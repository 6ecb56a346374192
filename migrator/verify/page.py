"""The verdict as one HTML page that needs no network: charts drawn here as SVG, and a table to search.

The page's own policy forbids it to load anything; whatever comes from the cluster is escaped.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

from migrator.errors import ExitCode, OperatorError
from migrator.observe.printable import printable
from migrator.verify.canonical import RULES
from migrator.verify.history import Entry
from migrator.verify.spark.compare import Difference
from migrator.verify.verify import Verdict

ROWS_MAX = 5_000
"""Differences in the table; the counts are of all."""
WIDTH, LINE_WIDTH, LABEL, BAR = 540, 1120, 90, 14
_MARGIN = 80
_TEMPLATE = Path(__file__).with_name("page.html")

Series = Mapping[str, Sequence[int]]
"""Name of a series, which is its class in the style sheet -> one value a row."""


def render(verdict: Verdict, sources: Mapping[str, str], history: Sequence[Entry], now_ms: int) -> str:
    """The whole page.

    :param sources: what was compared, by label.
    :param history: earlier comparisons, oldest first; a chart from two on.
    """
    kinds = verdict.comparison.kinds
    names = tuple(kinds)
    rows = {
        "zookeeper": [counts.zookeeper for counts in kinds.values()],
        "kraft": [counts.kraft for counts in kinds.values()],
    }
    differing = {
        "missing": [counts.missing for counts in kinds.values()],
        "extra": [counts.extra for counts in kinds.values()],
        "different": [counts.different for counts in kinds.values()],
    }
    shown = [*verdict.comparison.found, *verdict.undecided][:ROWS_MAX]
    undecided = frozenset(difference.key for difference in verdict.undecided)
    return Template(_TEMPLATE.read_text("utf-8")).substitute(
        verdict=_text(verdict.word),
        tone={ExitCode.OK: "good", ExitCode.DIFFERENT: "bad"}.get(verdict.exit_code, "unsure"),
        sentence=_text(_sentence(verdict)),
        facts="".join(_fact(label, text) for label, text in {**_facts(verdict, now_ms), **sources}.items()),
        rows_chart=bars(names, rows, logarithmic=True),
        differences_chart=bars(names, differing),
        history=_history(history),
        differences="".join(_row(one, undecided=one.key in undecided) for one in shown),
        shown=f"{len(shown):,} of {verdict.comparison.differences + len(verdict.undecided):,}",
        kinds="".join(
            _kind_row(kind, [getattr(counts, column) for column in _COLUMNS]) for kind, counts in kinds.items()
        ),
        rules="".join(_rule_row(rule.kind, rule.field, rule.doc) for rule in RULES),
    )


def write(page: Path, text: str) -> None:
    """Put it into its file.

    :raises OperatorError: the file can't be written.
    """
    try:
        page.write_text(text, "utf-8")
    except OSError as error:
        raise OperatorError(f"the page cannot be written: {error.strerror}", where=str(page)) from error


_COLUMNS = ("zookeeper", "kraft", "missing", "extra", "different")


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


def _text(text: str) -> str:
    """Text as HTML shows it, and in the direction in which it is read."""
    return escape(printable(text))


def _fact(label: str, text: str) -> str:
    return f"<div><dt>{_text(label)}</dt><dd>{_text(text)}</dd></div>"


def _row(difference: Difference, *, undecided: bool) -> str:
    status = "undecided" if undecided else difference.status
    cells = (difference.kind, difference.entity, difference.field, difference.zookeeper, difference.kraft)
    values = "".join("<td class='none'>none</td>" if cell is None else f"<td>{_text(cell)}</td>" for cell in cells)
    return f"<tr><td><span class='tag {status}'>{status}</span></td>{values}</tr>"


def _kind_row(kind: str, counts: Iterable[int]) -> str:
    return f"<tr><td>{_text(kind)}</td>" + "".join(f"<td class='number'>{count:,}</td>" for count in counts) + "</tr>"


def _rule_row(kind: str, field: str, doc: str) -> str:
    return f"<tr><td>{_text(kind)}</td><td>{_text(field)}</td><td>{_text(doc)}</td></tr>"


def _time(time_ms: int) -> str:
    return dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def bars(names: Sequence[str], series: Series, *, logarithmic: bool = False) -> str:
    """Horizontal bars, one below the other for each series of a name."""
    scale = (lambda number: math.log10(number + 1)) if logarithmic else float
    most = max((scale(number) for numbers in series.values() for number in numbers), default=0) or 1
    group = BAR * len(series) + 10
    parts = []
    for index, name in enumerate(names):
        top = index * group
        middle = top + BAR * len(series) / 2 + 4
        parts.append(f"<text class='label' x='{LABEL - 8}' y='{middle:.0f}' text-anchor='end'>{_text(name)}</text>")
        for place, (kind, numbers) in enumerate(series.items()):
            number, y = numbers[index], top + place * BAR
            width = scale(number) / most * (WIDTH - LABEL - _MARGIN)
            said = _text(f"{name}, {kind}: {number:,}")
            parts.append(
                f"<rect class='{kind}' x='{LABEL}' y='{y}' width='{width:.1f}' height='{BAR - 2}' rx='2'>"
                f"<title>{said}</title></rect>"
            )
            if number or logarithmic:
                parts.append(f"<text class='value' x='{LABEL + width + 5:.1f}' y='{y + BAR - 4}'>{number:,}</text>")
    return _svg("".join(parts), group * len(names))


def line(points: Sequence[tuple[int, int]], tones: Sequence[str], height: int = 180) -> str:
    """Values over time, each point in the tone of its verdict; ``points`` are (time in ms, value)."""
    first, last = points[0][0], points[-1][0]
    most = max(*(number for _, number in points), 1)
    left, bottom = 60, height - 24

    def at(time_ms: int, number: int) -> tuple[float, float]:
        across = (time_ms - first) / max(last - first, 1)
        return left + across * (LINE_WIDTH - left - 20), bottom - number / most * (bottom - 12)

    places = [at(*point) for point in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(
        f"<circle class='{tone}' cx='{x:.1f}' cy='{y:.1f}' r='3.5'>"
        f"<title>{_text(f'{_time(time_ms)}: {number:,}')}</title></circle>"
        for (x, y), (time_ms, number), tone in zip(places, points, tones, strict=True)
    )
    axis = (
        f"<line class='axis' x1='{left}' y1='{bottom}' x2='{LINE_WIDTH - 20}' y2='{bottom}'/>"
        f"<text class='value' x='{left - 8}' y='16' text-anchor='end'>{most:,}</text>"
        f"<text class='value' x='{left - 8}' y='{bottom}' text-anchor='end'>0</text>"
        f"<text class='value' x='{left}' y='{height - 6}'>{_time(first)}</text>"
        f"<text class='value' x='{LINE_WIDTH - 20}' y='{height - 6}' text-anchor='end'>{_time(last)}</text>"
    )
    return _svg(f"{axis}<polyline class='line' points='{path}'/>{dots}", height, LINE_WIDTH)


def _history(history: Sequence[Entry]) -> str:
    if len(history) < 2:
        return "<p class='quiet'>One comparison so far: give --history DIR to see how the lag develops.</p>"
    tones = {"equal": "good", "different": "bad"}
    points = [(entry.time_ms, max(entry.lag or 0, 0)) for entry in history]
    return line(points, [tones.get(entry.verdict, "unsure") for entry in history])


def _svg(content: str, height: float, width: int = WIDTH) -> str:
    return f"<svg viewBox='0 0 {width} {height:.0f}' role='img'>{content}</svg>"
