"""The page and the JSON of a report. The page needs no network and no script (`migrator.observe.pages`).

`migrator rollout report` calls `render` with the facts of `before` or `after`. It adds no fact. All text is escaped by
the templates, because names come from the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from migrator.observe.pages.charts import Series, series
from migrator.observe.pages.template import template
from migrator.observe.printable import number_of, utc
from migrator.rollout.engine.preview import StepPreview, StepState, asked
from migrator.rollout.journal.looks import Look
from migrator.rollout.plan.steps import Direction
from migrator.rollout.report.after import After, FileChange, Order, StepLine
from migrator.rollout.report.before import Before
from migrator.values import value

Cell = str | tuple[str, ...]
MINUTES_FROM, HOURS_FROM = 120, 7_200
"""The seconds from which a time is given in minutes, or in hours."""
DIGEST = 12
"""Characters of a digest that are shown; the JSON has all."""
SEE = "see what the command said"
TONES = {"complete": "good", "failed": "bad"}


@value
class ReportTable:
    """``name``: the id of its heading. A cell of several texts has a line for each."""

    name: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@value
class StepBar:
    """A step on the time line, as shares of the whole time."""

    step: StepLine
    start: float
    share: float


@value
class Chart:
    """``what``: for the sentence below it."""

    name: str
    title: str
    what: str
    line: Series


def render(facts: After | Before, now_ms: int) -> str:
    """The whole page, as HTML."""
    shown = _after(facts) if isinstance(facts, After) else _before(facts)
    made = {"Made": utc(now_ms), "Version of migrator": version("kraft-migrator")}
    labelled = {label: text for label, text in {**shown.pop("labelled"), **made}.items() if text}
    page = template(Path(__file__).with_name("report.html"))
    return page.render(labelled=labelled, utc=utc, duration=duration, **shown)


def _after(facts: After) -> dict[str, Any]:
    return {
        "heading": f"Rollout of {facts.cluster}: {_state(facts)}",
        "tone": TONES.get(facts.state, "unsure"),
        "sentence": _sentence(facts),
        "labelled": _labelled(facts),
        "risks": (),
        "bars": tuple(_bars(facts)),
        "charts": tuple(_charts(facts.looks)),
        "tables": tuple(table for table in _tables(facts) if table.rows),
    }


def _before(facts: Before) -> dict[str, Any]:
    way = "forward" if facts.direction is Direction.FORWARD else "back to ZooKeeper"
    is_soak = facts.direction is Direction.FORWARD and facts.soak_seconds
    return {
        "heading": f"Plan for {facts.cluster}",
        "tone": "unsure",
        "sentence": f"What the rollout would do, {way}, as the cluster looks now. Nothing was changed.",
        "labelled": {
            "Cluster id": facts.cluster_id,
            "ZooKeeper": facts.zookeeper,
            "Nodes": facts.nodes,
            "Steps": str(len(facts.steps)),
            "Stops and restarts": str(facts.restarts),
            "A gate waits at most": duration(facts.gate_seconds),
            "Soak": duration(facts.soak_seconds) if is_soak else "",
            "Forecast": str(facts.forecast or "none yet; the step 'rehearse' makes one"),
        },
        "risks": facts.risks,
        "bars": (),
        "charts": (),
        "tables": (_planned(facts.steps),),
    }


def duration(seconds: float) -> str:
    """A time in a unit that is easy to read."""
    if seconds < MINUTES_FROM:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < HOURS_FROM else f"{seconds / 3600:.1f} hours"


def _state(facts: After) -> str:
    if facts.state == "complete":
        return "complete" if facts.direction is Direction.FORWARD else "back with ZooKeeper"
    return "failed" if facts.state == "failed" else "not complete"


def _sentence(facts: After) -> str:
    done = sum(step.state in ("done", "not needed") for step in facts.steps)
    wait = facts.longest_wait
    said = f"{done} of {number_of(len(facts.steps), 'step')} that were begun are done or were not needed."
    if wait is None:
        return f"{said} No gate was seen shut."
    return f"{said} The longest wait was {duration(wait.seconds)}, at {wait.step}: {wait.why}."


def _labelled(facts: After) -> dict[str, str]:
    wait, measured = facts.longest_wait, facts.measured_seconds
    offline, under, lag = (
        max((getattr(look, name) or 0 for look in facts.looks), default=0)
        for name in ("offline", "under_replicated", "lag")
    )
    seen = bool(facts.looks)
    return {
        "Cluster id": facts.cluster_id,
        "Rollout": facts.rollout,
        "Began": utc(facts.began_ms),
        "Ended" if facts.state == "complete" else "Last line": utc(facts.ended_ms),
        "Commands worked for": duration(facts.span_seconds),
        "Restarts took": duration(facts.durations.restarts),
        "Longest wait": "" if wait is None else duration(wait.seconds),
        "Longest silence on the terminal": "" if facts.silent_seconds is None else duration(facts.silent_seconds),
        "Forecast to dual-write": ""
        if facts.forecast is None
        else f"{facts.forecast.seconds} s ± {facts.forecast.error} s",
        "Measured to dual-write": "" if measured is None else duration(measured),
        "Without a controller": "" if facts.without_controller is None else duration(facts.without_controller),
        "Offline partitions, at most": f"{offline:,}" if seen else "",
        "Under-replicated partitions, at most": f"{under:,}" if seen else "",
        "ZooKeeper behind, at most": number_of(lag, "record") if seen else "",
    }


def _bars(facts: After) -> Iterator[StepBar]:
    whole = max(facts.span_seconds, 0.001)
    for step in facts.steps:
        yield StepBar(step, round(step.start / whole, 4), round(step.seconds / whole, 4))


def _charts(looks: Sequence[Look]) -> Iterator[Chart]:
    for name, title, what in (
        ("offline", "Offline partitions", "partitions were offline"),
        ("under_replicated", "Under-replicated partitions", "partitions were under-replicated"),
        ("lag", "Records that ZooKeeper was behind", "records were missing in ZooKeeper"),
    ):
        line = series([(look.time_ms, getattr(look, name)) for look in looks])
        if line is not None:
            yield Chart(name, title, what, line)


def _tables(facts: After) -> Iterator[ReportTable]:
    yield ReportTable(
        "orders",
        "Who ordered what",
        "Each command of the rollout, and each answer to a question.",
        ("time", "who", "command", "ended"),
        tuple(map(_ordered, facts.orders)),
    )
    yield ReportTable(
        "waits",
        "What stood still, and why",
        "Gates that were seen shut. Looks are some seconds apart, so a wait may have lasted a little longer.",
        ("time", "step", "for", "waited for"),
        tuple((utc(each.began_ms), each.step, duration(each.seconds), each.why) for each in facts.waits),
    )
    yield ReportTable(
        "failures",
        "Failures",
        "Each of them stopped the rollout; the next command went on from there.",
        ("time", "step", "what", "where", "remedy"),
        tuple((utc(each.time_ms), each.step, each.what, each.where, each.remedy or SEE) for each in facts.troubles),
    )
    yield ReportTable(
        "verdicts",
        "Verdicts",
        "Each examination that was made, and its result.",
        ("time", "step", "examination", "result", "rows"),
        tuple(
            (utc(each.time_ms), each.step, each.what, each.result, "none" if each.rows is None else f"{each.rows:,}")
            for each in facts.verdicts
        ),
    )
    yield ReportTable(
        "metadata",
        "Metadata of the controllers",
        "The leader compares the digest of its metadata with those of the other controllers, at one offset.",
        ("time", "offset", "same as the leader", "different", "did not tell"),
        tuple(_images(facts.looks)),
    )
    yield ReportTable(
        "files",
        "Property files",
        "Values that may be secrets are hidden. The digests (SHA-256, shortened) leave them out.",
        ("step", "file", "changes", "digest"),
        tuple(
            (each.step, _place(each.node, each.host, each.file), each.changes, _digests(each)) for each in facts.files
        ),
    )
    yield ReportTable(
        "left-out",
        "Left out",
        "Nodes that are gone for good, as the operator said; and partitions that had replicas out of sync before.",
        ("what", "reason"),
        (
            *facts.left_out.items(),
            *((names, "out of sync before the rollout: no gate waits for it") for names in facts.baseline),
        ),
    )


def _ordered(order: Order) -> tuple[Cell, ...]:
    command = f"migrator rollout {order.command}" if order.command else "not in the journal"
    return utc(order.time_ms), order.by or "not in the journal", (command, order.what), order.ended or "answered"


def _place(node: str, host: str, file: str) -> str:
    return " ".join(part for part in (node, f"on {host}:" if host else "", file) if part)


def _digests(change: FileChange) -> tuple[str, ...]:
    if not change.after:
        return ()
    before = f"before {change.before[:DIGEST]}" if change.before else "a new file"
    return before, f"after {change.after[:DIGEST]}"


def _images(looks: Sequence[Look]) -> Iterator[tuple[Cell, ...]]:
    """The last comparison of each result."""
    found: dict[tuple[tuple[int, ...], ...], tuple[Cell, ...]] = {}
    for look in looks:
        if (told := look.images) is not None:
            groups = (told.equal, told.different, told.unknown)
            found.pop(groups, None)  # the order of the last ones
            found[groups] = (
                utc(told.time_ms),
                f"{told.offset:,}",
                *(", ".join(map(str, group)) or "none" for group in groups),
            )
    yield from found.values()


def _planned(shown: Sequence[StepPreview]) -> ReportTable:
    return ReportTable(
        "steps",
        "Steps",
        "In this order. Each step waits for its gates, before it and after it.",
        ("step", "why", "waits for", "changes", "way back"),
        tuple(map(_planned_row, shown)),
    )


def _planned_row(one: StepPreview) -> tuple[Cell, ...]:
    step, node = one.step, one.step.node
    where = "" if node is None else f"on {node.host}"
    gates = (*(f"before: {each}" for each in asked(step.before)), *(f"after: {each}" for each in asked(step.after)))
    file = (one.file, *one.changes) if one.changes else ()
    runs = (f"runs {' '.join(one.command)}",) if one.command else ()
    state = "" if one.state is StepState.OPEN else one.state.value
    return (step.name, where, state), step.rules.why, gates, (*file, *runs), step.rules.undo
