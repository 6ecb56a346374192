"""The verdict as one HTML page that needs no network: what differs, charts, the next command, a table to search.

What all pages share is in `migrator.observe.pages`; `page.html` and `verify.css` are of this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from migrator.errors import ExitCode
from migrator.observe.pages.template import template
from migrator.observe.printable import utc
from migrator.values import value
from migrator.verify.canonical import RULES
from migrator.verify.charts import difference_bars, line, row_bars
from migrator.verify.history import HistoryEntry
from migrator.verify.next_step import NextStep
from migrator.verify.verdict import Verdict

ROWS_MAX = 5_000
"""The most differences in the table; the counts include all."""
UNSURE = "unsure"


@value
class About:
    """Where a comparison was made. ``sources``: what was compared, by label; ``host``: the machine that compared;
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
