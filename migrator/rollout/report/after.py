"""The page of a rollout that ran: its journal, its looks and its file changes, put together. It opens nothing.

`migrator rollout report` calls `after`, and `page` shows the result. Each figure comes from a line of the journal or
from a look; a figure that they do not give is None and not guessed. Secrets are hidden already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import orjson

from migrator.rollout.inventory import Inventory
from migrator.rollout.journal.journal import Entry, Event
from migrator.rollout.journal.looks import Look, Looked
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.journal.summary import (
    ENDS,
    TOUCHES,
    RehearsedTimes,
    TimeSpent,
    by_step,
    durations_of,
    failure_of,
    forecast_of,
    of_last,
    without_controller,
    without_people,
)
from migrator.rollout.plan.plan import plan
from migrator.rollout.plan.steps import Act, Direction, Job, Phase
from migrator.values import value

ENDED = {Event.FAILED: "failed", Event.PAUSED: "stopped, as was asked for", Event.CLOSED: "the rollout was complete"}
NO_WORD = "reached the wanted state, or was ended from outside"
ORDERS = {
    Event.OPENED: "a new rollout",
    Event.TURNED: "turns back",
    Event.FORWARD: "goes forward again",
    Event.RESUMED: "",
    Event.CONFIRMED: "says yes to the end of the migration",
    Event.LEFT_OUT: "leaves {node} out: {reason}",
    Event.BACK_IN: "takes {node} in again",
    Event.LOCK_BROKEN: "breaks the lock of rollout {of}",
}
"""Lines that a person has ordered, in words; "" where the command says enough."""
ACCEPTS = "goes on in spite of the warnings of preflight that ask: {warnings}"
RESULTS = {Job.PREFLIGHT.value: "no blockers", Job.VERIFY.value: "equal"}
"""The result of a job that is done."""


@value
class Order:
    """``by``: user@host; "" if the journal does not say. ``ended``: how the command ended."""

    time_ms: int
    by: str
    command: str
    what: str
    ended: str


@value
class ShutGateLine:
    """A gate that was shut. ``seconds`` may be too small by the time between two looks."""

    step: str
    began_ms: int
    seconds: float
    why: str


@value
class StepLine:
    """``began_ms``: when the line before was written. ``start``: seconds since the beginning of the rollout. ``start``
    and ``seconds`` leave out the time without a command, of questions to a person, and of other steps.
    ``restart_seconds``: from the order to stop or start until the node was back, summed over the step's restarts; None
    without a restart."""

    name: str
    why: str
    state: str
    began_ms: int
    start: float
    seconds: float
    restart_seconds: float | None
    waited_seconds: float
    failures: int


@value
class ComparisonLine:
    """``what``: preflight, rehearse or verify. ``rows``: the number of compared rows; None if unknown."""

    time_ms: int
    step: str
    what: str
    result: str
    rows: int | None = None


@value
class FailureLine:
    """A failure, with what was to be done about it."""

    time_ms: int
    step: str
    act: str
    what: str
    where: str
    remedy: str


@value
class FileChange:
    """``changes``: lines ``- key=value`` and ``+ key=value``, secrets hidden. ``before`` and ``after``: digests of
    the file, with secrets hidden (`digest_shown`); "" without a file, or if only the journal is left."""

    step: str
    node: str
    host: str
    file: str
    changes: tuple[str, ...]
    before: str
    after: str


@value
class After:
    """``state``: complete, failed or open. ``measured_seconds``: from the restart of the last broker in the phase
    ``migrate`` until both sides were seen to be written; beside the ``forecast``. ``silent_seconds``: the longest time
    without a line on the terminal. ``without_controller``: seconds, on the way back. ``span_seconds``: the length of
    the rollout, without the time in which no command ran. ``left_out``: the reason, by node. ``baseline``: partitions
    that had replicas out of sync before, as the journal names them."""

    cluster: str
    cluster_id: str
    rollout: str
    direction: Direction
    state: str
    began_ms: int
    ended_ms: int
    span_seconds: float
    durations: TimeSpent
    forecast: RehearsedTimes | None
    measured_seconds: float | None
    silent_seconds: float | None
    without_controller: float | None
    orders: tuple[Order, ...]
    steps: tuple[StepLine, ...]
    waits: tuple[ShutGateLine, ...]
    verdicts: tuple[ComparisonLine, ...]
    troubles: tuple[FailureLine, ...]
    files: tuple[FileChange, ...]
    looks: tuple[Look, ...]
    left_out: Mapping[str, str]
    baseline: tuple[str, ...]

    @property
    def longest_wait(self) -> ShutGateLine | None:
        return max(self.waits, key=lambda wait: wait.seconds, default=None)

    def as_json(self) -> dict[str, Any]:
        """The JSON value for scripts."""
        return {"kind": "after", **orjson.loads(orjson.dumps(self))}


def after(
    inventory: Inventory, entries: Sequence[Entry], looked: Looked, changes: Mapping[str, Mapping[str, Any]]
) -> After:
    """The facts of the rollout that was opened last.

    :param entries: the whole journal; it has a rollout.
    :param changes: of property files, by step.
    """
    last, progress = of_last(entries), progress_of(entries)
    active = _active(last)
    waits = tuple(_waits(looked.looks, last))
    steps = plan(inventory, progress.direction, progress.canary, reopens=progress.reopens)
    failed = failure_of(last) is not None
    return After(
        cluster=inventory.cluster,
        cluster_id=progress.cluster_id,
        rollout=progress.rollout,
        direction=progress.direction,
        state="complete" if progress.closed else "failed" if failed else "open",
        began_ms=last[0].time_ms,
        ended_ms=last[-1].time_ms,
        span_seconds=active[last[-1].number],
        durations=durations_of(last, steps),
        forecast=forecast_of(last),
        measured_seconds=_measured(last),
        silent_seconds=None if looked.silent_ms is None else looked.silent_ms / 1000,
        without_controller=without_controller(last),
        orders=tuple(_orders(last)),
        steps=tuple(_steps(inventory, last, active, waits)),
        waits=waits,
        verdicts=tuple(_verdicts(last)),
        troubles=tuple(_troubles(last)),
        files=tuple(_files(last, changes)),
        looks=looked.looks,
        left_out=dict(progress.left_out),
        baseline=tuple(str(each.details.get("partitions", "")) for each in last if each.event is Event.BASELINE),
    )


def _active(entries: Sequence[Entry]) -> dict[int, float]:
    """The seconds since the beginning in which a command worked, by line number."""
    begin = entries[0].time_ms
    return {each.number: max(0, each.time_ms - begin) / 1000 for each in without_people(entries)}


def _waits(looks: Sequence[Look], entries: Sequence[Entry]) -> Iterator[ShutGateLine]:
    """The waits of each step for shut gates. An open gate ends a wait, and so does the end of the command."""
    ends = [each.time_ms for each in entries if each.event in (Event.FAILED, Event.PAUSED, Event.RESUMED)]
    begun: Look | None = None
    for look, later in pairwise([*looks, None]):
        if look is None or not look.waits:
            continue
        begun = begun or look
        goes_on = later is not None and later.waits and later.step == look.step
        stopped = next((end for end in ends if end > look.time_ms and (later is None or end <= later.time_ms)), None)
        if goes_on and stopped is None:
            continue
        end = stopped or (look if later is None else later).time_ms
        yield ShutGateLine(begun.step, begun.time_ms, max(0, end - begun.time_ms) / 1000, begun.waits)
        begun = None


def _steps(
    inventory: Inventory, entries: Sequence[Entry], active: Mapping[int, float], waits: Sequence[ShutGateLine]
) -> Iterator[StepLine]:
    why = {step.name: step.rules.why for way in Direction for step in plan(inventory, way)}
    lines: dict[str, list[Entry]] = {}
    for before, entry in zip((*entries[:1], *entries), entries, strict=False):
        if entry.step:
            lines.setdefault(entry.step, [before]).append(entry)
    took: defaultdict[str, float] = defaultdict(float)
    for name, own in by_step(entries):  # other steps may have come between the parts of a step
        took[name] += active[own[-1].number] - active[own[0].number]
    for name, found in lines.items():
        yield StepLine(
            name,
            why.get(name, ""),
            _state_of(found[-1]),
            found[0].time_ms,
            active[found[0].number],
            took[name],
            _restarts(found, active),
            sum(wait.seconds for wait in waits if wait.step == name),
            sum(each.event is Event.FAILED for each in found),
        )


def _restarts(entries: Sequence[Entry], active: Mapping[int, float]) -> float | None:
    """The seconds of all restarts of one step; None without one."""
    spans: list[list[float]] = []
    is_back = True
    for entry in entries:
        if entry.event is Event.BEGUN and entry.act in TOUCHES and is_back:
            spans.append([active[entry.number], active[entry.number]])
            is_back = False
        elif not is_back and entry.event in ENDS and entry.act in (*TOUCHES, Act.CHECK_AFTER):
            spans[-1][1] = active[entry.number]
            is_back = entry.act == Act.CHECK_AFTER
    return sum(end - begin for begin, end in spans) if spans else None


def _state_of(last: Entry) -> str:
    if last.event is Event.SKIPPED:
        return "not needed"
    if last.event in (Event.DONE, Event.PAUSED) and not last.act:
        return "done"
    return "failed" if last.event is Event.FAILED else "under way"


def _orders(entries: Sequence[Entry]) -> Iterator[Order]:
    """Each command with the order in its first lines, and each answer to a question."""
    first: list[Order] = []
    confirmed = False
    for number, entry in enumerate(entries):
        confirmed = confirmed and entry.event is not Event.RESUMED
        is_answer = entry.event is Event.CONFIRMED
        if entry.event not in ORDERS or (is_answer and confirmed):
            continue
        order = _order(entry)
        if is_answer or entry.event is Event.LOCK_BROKEN:
            confirmed = is_answer and not entry.step  # an earlier release has such a line for each controller
            yield order
        elif entry.event is Event.RESUMED:
            own = [each for each in first if (each.by, each.command) == (order.by, order.command)]
            yield from (each for each in first if each not in own)
            what = "; ".join(each.what for each in own)
            yield replace(order, what=what, ended=_ended(entries[number + 1 :]))
            first = []
        else:
            first.append(order)
    yield from first


def _order(entry: Entry) -> Order:
    details = {name: str(each) for name, each in entry.details.items()}
    words = ACCEPTS if "warnings" in details else ORDERS[entry.event]
    what = words.format_map({"node": "", "reason": "", "of": "", **details})
    return Order(entry.time_ms, details.get("by", ""), details.get("command", ""), what, "")


def _ended(later: Sequence[Entry]) -> str:
    """How a command ended, by the lines after its first one."""
    for entry in later:
        if entry.event in (Event.RESUMED, *ENDED):
            return ENDED.get(entry.event, NO_WORD)
    return NO_WORD


def _verdicts(entries: Sequence[Entry]) -> Iterator[ComparisonLine]:
    for entry in entries:
        job = Job.VERIFY.value if entry.event is Event.VERIFIED else entry.details.get("job")
        rows = entry.details.get("rows")
        if entry.event not in (Event.DONE, Event.VERIFIED):
            continue
        if job in RESULTS:
            yield ComparisonLine(
                entry.time_ms, entry.step, str(job), RESULTS[str(job)], rows if isinstance(rows, int) else None
            )
        elif job == Job.REHEARSE.value:
            forecast = forecast_of([entry])
            yield ComparisonLine(
                entry.time_ms, entry.step, "rehearse", "fine" if forecast is None else f"fine; {forecast}"
            )


def _troubles(entries: Sequence[Entry]) -> Iterator[FailureLine]:
    for entry in entries:
        if entry.event is Event.FAILED:
            said = {name: str(entry.details.get(name) or "") for name in ("what", "error", "where", "remedy")}
            what = said["what"] or said["error"]
            yield FailureLine(entry.time_ms, entry.step, entry.act, what, said["where"], said["remedy"])


def _files(entries: Sequence[Entry], changes: Mapping[str, Mapping[str, Any]]) -> Iterator[FileChange]:
    """The last write of each step."""
    written = {each.step: each.details for each in entries if each.event is Event.BEGUN and each.act == Act.EDIT}
    for step, details in written.items():
        kept = changes.get(step, {})
        lines, digests = kept.get("changes"), kept.get("digests")
        old, new = map(str, digests) if isinstance(digests, list) and len(digests) == 2 else ("", "")
        yield FileChange(
            step,
            str(details.get("node") or ""),
            str(kept.get("host", "")),
            str(kept.get("file", "")),
            tuple(map(str, lines)) if isinstance(lines, list) else (),
            old,
            new,
        )


def _measured(entries: Sequence[Entry]) -> float | None:
    """Seconds from the last restart of the phase ``migrate`` until both sides were written."""
    written = [each.time_ms for each in entries if each.event is Event.PASSED and each.step == Phase.COPY.value]
    restarted = [
        each.time_ms
        for each in entries
        if each.event is Event.DONE and each.act == Act.RESTART and each.step.startswith(f"{Phase.MIGRATE.value}/")
        if written and each.time_ms <= written[-1]
    ]
    return (written[-1] - restarted[-1]) / 1000 if restarted else None
