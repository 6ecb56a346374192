"""The charts of the page: what is drawn, and what is left out."""

from __future__ import annotations

from dataclasses import replace

from migrator.observe.pages.charts import POINTS_MAX, thinned
from migrator.verify.page import badness, difference_bars, line, row_bars
from tests.verify.support.sample_pages import COUNTS, HISTORY


def test_the_longest_bar_is_the_measure_of_the_others() -> None:
    groups = row_bars(COUNTS)
    assert [group.name for group in groups] == [kind for kind in COUNTS if kind != "token"]
    shares = {(group.name, bar.series): bar.share for group in groups for bar in group.bars}
    assert max(shares.values()) == shares["partition", "zookeeper"] == 1
    assert 0 < shares["producer ids", "kraft"] < shares["scram", "kraft"] < 1


def test_only_what_differs_has_a_bar() -> None:
    bars = [(group.name, bar.label, bar.number) for group in difference_bars(COUNTS) for bar in group.bars]
    assert bars == [
        ("topic", "different", 1),
        ("partition", "missing", 3),
        ("partition", "different", 1),
        ("config", "extra", 1),
        ("acl", "missing", 1),
    ]


def test_an_unknown_lag_is_a_gap_and_not_a_zero() -> None:
    chart = line(HISTORY)
    assert chart is not None
    gap = chart.points[9]
    assert (gap.lag, gap.verdict) == (None, "could not tell")
    assert all(gap not in pair for pair in chart.lines)
    assert len(chart.lines) == len(HISTORY) - 3
    assert (chart.points[0].x, chart.points[-1].x, min(point.y for point in chart.points)) == (0, 100, 0)
    assert chart.verdicts == ("equal", "could not tell", "different")
    assert [entry.verdict for entry in chart.not_equal] == ["different"] * 5 + ["could not tell"]


def test_a_month_of_minutes_is_as_small_as_an_hour_and_hides_nothing_bad() -> None:
    month = [replace(HISTORY[0], time_ms=minute * 60_000, lag=minute % 7) for minute in range(43_200)]
    month[20_000] = replace(month[20_000], verdict="different", lag=0)
    month[30_000] = replace(month[30_000], lag=9_999)
    found = thinned(month, POINTS_MAX, badness)
    assert len(found) <= POINTS_MAX
    assert month[20_000] in found
    assert month[30_000] in found
    assert found == sorted(found, key=lambda entry: entry.time_ms)
    assert thinned(HISTORY, POINTS_MAX, badness) == HISTORY
