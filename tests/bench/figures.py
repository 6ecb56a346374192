"""What is measured, in which unit, and the table in which both peers stand side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from migrator.values import value


@value
class Figure:
    """One measured quantity. ``target`` is the goal for 200,000 partitions, with 2 cores and three controllers."""

    key: str
    label: str
    unit: str
    target: str = ""


FIGURES = (
    Figure("ready_to_claim", "last broker registered to claim", "s"),
    Figure("claim_to_copied", "claim to committed End (/migration says so)", "s", "<= 5"),
    Figure("ready_to_copied", "last broker registered to committed End", "s", "<= 7"),
    Figure("claim_to_informed", "claim to first UpdateMetadata at every broker", "s", "<= 8"),
    Figure("copied_to_written", "committed End to a topic made then, in ZooKeeper", "s"),
    Figure("claim_to_closing", "claim to closing UpdateMetadata at every broker", "s"),
    Figure("claim_to_dual_write", "claim to dual-write", "s", "<= 8"),
    Figure("update_metadata_mb", "UpdateMetadata to one broker until dual-write", "MB"),
    Figure("leader_rss_mb", "leader's process tree, peak", "MB", "<= 700"),
    Figure("follower_rss_mb", "follower's process tree, peak", "MB"),
    Figure("processor_s", "processor time of all controllers until dual-write", "s"),
    Figure("others_percent", "the processors' share that others took meanwhile", "%"),
    Figure("stall_ms", "longest event-loop stall until dual-write, any node", "ms", "<= 100"),
    Figure("told_ms", "topic acknowledged to UpdateMetadata at the last broker, median", "ms"),
    Figure("told_max_ms", "topic acknowledged to UpdateMetadata at the last broker, longest of 50", "ms"),
    Figure("acknowledged_rate", "created in dual-write, acknowledged", "partitions/s"),
    Figure("write_behind_rate", "created in dual-write, in ZooKeeper", "partitions/s", ">= 10000"),
    Figure("write_behind_lag", "last acknowledgement to last znode", "s"),
    Figure("kill_to_claim", "leader killed to next claim", "s"),
    Figure("kill_to_informed", "leader killed to next UpdateMetadata at every broker", "s", "<= 5"),
    Figure("kill_to_led", "leader killed to next LeaderAndIsr at every broker", "s"),
    Figure("kill_to_dual_write", "leader killed to dual-write", "s", "<= 7"),
    Figure("kill_to_written", "leader killed to a topic made then, in ZooKeeper", "s"),
    Figure("failover_stall_ms", "longest event-loop stall, the minute up to then, any survivor", "ms", "<= 100"),
)


@value
class Result:
    """One peer's run. ``figures`` lacks what was not reached; ``failure`` then says why."""

    peer: str
    title: str
    figures: Mapping[str, float]
    failure: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {"title": self.title, "figures": dict(self.figures), "failure": self.failure}


def ratio(figure: Figure, results: Sequence[Result]) -> float | None:
    """Ours divided by stock's; None when either is missing, or stock's is nothing."""
    measured = {result.peer: result.figures.get(figure.key) for result in results}
    ours, stock = measured.get("ours"), measured.get("stock")
    return None if ours is None or not stock else ours / stock


def table(
    results: Sequence[Result], caption: str, figures: Sequence[Figure] = FIGURES, goal: str = "goal at 200,000"
) -> Table:
    """Rows are figures, columns are peers, then ours/stock."""
    shown = Table(title="Side by side", caption=caption)
    shown.add_column("figure")
    shown.add_column("unit")
    for result in results:
        shown.add_column(result.title, justify="right")
    shown.add_column("ours/stock", justify="right")
    shown.add_column(goal, justify="right")
    for figure in figures:
        measured = [result.figures.get(figure.key) for result in results]
        if any(number is not None for number in measured):
            quotient = ratio(figure, results)
            cells = [*map(number_text, measured), "" if quotient is None else f"{quotient:.2f}", figure.target]
            shown.add_row(figure.label, figure.unit, *cells)
    return shown


def number_text(number: float | None) -> str:
    """Three significant digits or whole numbers; a dash for what was not measured."""
    if number is None:
        return "-"
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3g}"


def to_json(
    results: Sequence[Result], setting: Mapping[str, Any], figures: Sequence[Figure] = FIGURES
) -> dict[str, Any]:
    """Everything, for scripts."""
    ratios = {figure.key: quotient for figure in figures if (quotient := ratio(figure, results)) is not None}
    return {
        "setting": dict(setting),
        "peers": {result.peer: result.to_json() for result in results},
        "ours_to_stock": ratios,
        "units": {figure.key: figure.unit for figure in figures},
    }
