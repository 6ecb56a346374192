"""The steps of a drill and their checks: collected while it runs, written as ``report.json`` and ``summary.txt``.

Steps add checks and figures to one `DrillReport`; the display reads it meanwhile. The verdict is good only if every
check held and the drill came to its end. `phases` compares the forecast of the rehearsal with the migration; all times
of the migration are from one clock: the leader's, in its log and its journal.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from migrator.errors import OperatorError
from migrator.migration.machine.states import State
from migrator.observe.printable import json_text
from migrator.observe.status import JournalEvent
from migrator.values import value

TRANSITION = "transition"
HEAD = ("phase, seconds", "forecast", "migration")


@value
class PhaseTimes:
    """Seconds; ``error``: by how much the forecast may be wrong, None without a bound; ``migration``: None when the
    leader's journal does not have the phase, as after a change of leaders."""

    name: str
    forecast: float
    error: float | None
    migration: float | None

    @property
    def cells(self) -> tuple[str, str, str]:
        """The cells of the row below `HEAD`."""
        bound = "" if self.error is None else f" ± {self.error:.1f}"
        return (
            self.name,
            f"{self.forecast:.1f}{bound}",
            "not seen" if self.migration is None else f"{self.migration:.1f}",
        )

    def to_json(self) -> dict[str, Any]:
        """The JSON value for scripts."""
        return {
            "phase": self.name,
            "forecast": self.forecast,
            "error": self.error,
            "migration": None if self.migration is None else round(self.migration, 2),
        }


@value
class _Row:
    """``since`` is entered at the begin, ``until`` is left at the end. Without ``since``: from the registration of
    the last broker, until ``until`` is entered."""

    name: str
    forecast: Callable[[Mapping[str, Any]], tuple[float, float | None]]
    since: State | None
    until: State


def _phase(name: str) -> Callable[[Mapping[str, Any]], tuple[float, float | None]]:
    return lambda rehearsal: (rehearsal["seconds"][name], None)


def _estimate(name: str) -> Callable[[Mapping[str, Any]], tuple[float, float | None]]:
    return lambda rehearsal: (rehearsal["forecast"][name]["seconds"], rehearsal["forecast"][name]["error"])


_ROWS = (
    _Row("decode ZooKeeper", _phase("decode"), State.DECODING, State.DECODING),
    _Row("copy, from the claim to its committed end", _estimate("copy"), State.CLAIMING, State.COMMITTING),
    _Row("compare ZooKeeper with the log", _phase("compare and snapshot"), State.RECONCILING, State.RECONCILING),
    _Row("last broker registered to dual-write", _estimate("dual_write"), None, State.DUAL_WRITING),
)


def phases(
    rehearsal: Mapping[str, Any], journal: Sequence[JournalEvent], registered_ms: int | None
) -> tuple[PhaseTimes, ...]:
    """Forecast and duration of each phase; nothing when the rehearsal made no forecast.

    :param rehearsal: the output of `migrator rehearse --json`.
    :param journal: of the controller that led, oldest first.
    :param registered_ms: when the last broker registered, on the same clock; None when that is not known.
    """
    if rehearsal.get("forecast") is None:
        return ()
    entered: dict[str, int] = {}
    left: dict[str, int] = {}
    for event in journal:
        if event.kind == TRANSITION:
            details = dict(event.details)
            entered.setdefault(details["after"], event.time_ms)
            left.setdefault(details["before"], event.time_ms)

    def seconds(row: _Row) -> float | None:
        begin = registered_ms if row.since is None else entered.get(row.since.value)
        end = (entered if row.since is None else left).get(row.until.value)
        return None if begin is None or end is None else (end - begin) / 1000

    return tuple(PhaseTimes(row.name, *row.forecast(rehearsal), seconds(row)) for row in _ROWS)


def columns(found: Sequence[PhaseTimes]) -> list[str]:
    """Lines of text, the head first; nothing without phases."""
    rows = [HEAD, *(phase.cells for phase in found)] if found else []
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    return [f"{name:<{widths[0]}}  {first:>{widths[1]}}  {second:>{widths[2]}}" for name, first, second in rows]


Meter = Callable[[float, float], Mapping[str, float | int]]
"""Returns the observations of clients between two times (of `time.monotonic`)."""
DATA = "cluster"
"""The folder of the cluster's files, below the drill's directory; the report is beside it."""
IF_SECURED = (
    " Where an intruder was not refused a rule is missing: see the property files there, and docs/security.md. "
    "For anything else run it once without --secure: should that hold, protection is in the way."
)
LIGHT = "none"
"""The release of light brokers in options and report."""
PAUSES = ("produce", "consume", "commit")
"""The names of the longest pauses in `DrillStep.traffic`."""


class DrillStepState(Enum):
    """The state of a step, as it is shown."""

    RUNNING = "running"
    HELD = "held"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


MARKS = {
    DrillStepState.HELD: "ok  ",
    DrillStepState.FAILED: "FAIL",
    DrillStepState.INTERRUPTED: "STOP",
    DrillStepState.RUNNING: "... ",
}
"""The mark of each state in text; `INTERRUPTED` is no failure."""


class DrillFailedError(Exception):
    """The drill cannot go on, because a condition that it waits for did not come."""


@dataclass(slots=True)
class DrillCheck:
    """A condition that must hold; ``detail`` describes the observation when it did not."""

    name: str
    held: bool
    detail: str = ""


@dataclass(slots=True)
class DrillStep:
    name: str
    seconds: float = 0.0
    checks: list[DrillCheck] = field(default_factory=list)
    figures: dict[str, float | int | str] = field(default_factory=dict)
    traffic: dict[str, float | int] = field(default_factory=dict)
    """The observations of the cluster's clients during the step, by name: their longest pauses in seconds, and
    counts."""
    done: bool = False
    """Whether the step has ended without an exception."""
    ended: bool = False

    @property
    def held(self) -> bool:
        return self.done and all(check.held for check in self.checks)

    @property
    def pauses(self) -> str:
        """The longest pauses, in words; empty without traffic."""
        texts = [f"{name} {number:.2f} s" for name, number in self.traffic.items() if name in PAUSES]
        return f"longest pauses: {', '.join(texts)}" if texts else ""

    @property
    def counts(self) -> str:
        """The counts of `traffic`, in words; empty without traffic."""
        texts = [f"{number:,} {name}" for name, number in self.traffic.items() if name not in PAUSES]
        return f"records: {', '.join(texts)}" if texts else ""


@value
class DrillBrokers:
    """``release`` of Apache Kafka, or `LIGHT`; ``why`` light brokers stand in for Kafka's."""

    release: str
    why: str = ""

    @property
    def text(self) -> str:
        if self.release != LIGHT:
            return f"Apache Kafka {self.release}"
        return f"light brokers instead of Apache Kafka: {self.why}"

    def to_json(self) -> dict[str, str]:
        """The JSON value for scripts."""
        return {"kind": "light" if self.release == LIGHT else "kafka", "release": self.release, "why": self.why}


class DrillReport:
    """The steps in order.

    :param brokers: the sort of the brokers; None in tests of parts.
    """

    def __init__(self, options: Mapping[str, Any], brokers: DrillBrokers | None = None) -> None:
        self.options = dict(options)
        self.brokers = brokers
        self.changed: Callable[[], None] = lambda: None
        """Called after every change, for a live display."""
        self.interrupted = False
        """Whether Ctrl-C or SIGTERM ended the drill. Steps that did not run have not failed then."""
        self.phases: Sequence[PhaseTimes] = ()
        """The forecast and the migration; empty without a rehearsal."""
        self.steps: list[DrillStep] = []
        self.failure = ""
        self.now = ""
        """The condition for which the drill waits."""
        self.totals: dict[str, int] = {}
        """Counts that are 0 in a sound drill, e.g. ``lost records``."""
        self.secured: Sequence[str] = ()
        """The protected parts and their protection; empty on a cluster in clear."""
        self.refused: dict[str, int] = {}
        self.let_in: list[str] = []
        self.unproved: list[str] = []
        """``attempts`` of callers without permission, and how many were ``denied``; empty on a cluster in clear."""
        self.meter: Meter | None = None
        """Asked at the end of each step for its `DrillStep.traffic`."""
        self._begin = time.monotonic()
        self._end: float | None = None

    @property
    def held(self) -> bool:
        """Whether every check held."""
        return not self.failure and not self.interrupted and bool(self.steps) and all(step.held for step in self.steps)

    @property
    def failed(self) -> bool:
        """Whether a check is known not to hold. Checks that an interrupted drill has not made do not count."""
        return bool(self.failure) or not all(check.held for step in self.steps for check in step.checks)

    @property
    def outcome(self) -> str:
        """``held``, ``did not hold``, or ``interrupted`` before anything failed."""
        if self.interrupted and not self.failed:
            return DrillStepState.INTERRUPTED.value
        return "held" if self.held else "did not hold"

    @property
    def heading(self) -> str:
        """The heading: which brokers, and the duration."""
        with_brokers = "" if self.brokers is None else f" with {self.brokers.text}"
        return f"Drill{with_brokers}, {self.seconds:.0f} s"

    @property
    def verdict(self) -> str:
        """The result, at the end."""
        totals = self.totals_text(": ")
        if self.interrupted:
            at = f' in the step "{self.steps[-1].name}"' if self.steps and not self.steps[-1].done else ""
            before = "A check had failed" if self.failed else "No check had failed"
            return f"Interrupted after {self.seconds:.0f} s{at}. {before}{totals}."
        return f"{'Every check passed' if self.held else 'A check failed'}{totals}."

    @property
    def remedy(self) -> str:
        """The remedy when a condition did not hold; empty while no fault is known."""
        if not self.failed:
            return ""
        where = f"look at what is named above, and at the logs in the folder {DATA!r} beside this report"
        return f"What to do: {where}.{IF_SECURED if self.secured else ''}"

    @property
    def seconds(self) -> float:
        """Seconds from its begin until it was written."""
        return (self._end or time.monotonic()) - self._begin

    @contextmanager
    def step(self, name: str) -> Iterator[DrillStep]:
        """Open a step. It is done when its block ends without an exception."""
        step = DrillStep(name)
        self.steps.append(step)
        self.changed()
        begin = time.monotonic()
        try:
            yield step
            step.done = True
        except asyncio.CancelledError:
            self.interrupted = True
            raise
        finally:
            end = time.monotonic()
            step.seconds = round(end - begin, 2)
            step.ended = True
            if self.meter is not None:
                step.traffic = {name: _rounded(number) for name, number in self.meter(begin, end).items()}
            self.now = ""
            self.changed()

    def check(self, name: str, held: bool, detail: object = "") -> None:  # noqa: FBT001 (reads as a sentence)
        """Note in the current step whether something holds."""
        self.steps[-1].checks.append(DrillCheck(name, held, "" if held else str(detail)))
        self.changed()

    def figure(self, name: str, number: float | str) -> None:
        """Note a figure of the current step."""
        self.steps[-1].figures[name] = number if isinstance(number, str) else _rounded(number)
        self.changed()

    def none_of(self, name: str, count: int, detail: object = "") -> None:
        """Note a count that must be 0, such as ``lost records``."""
        self.totals[name] = self.totals.get(name, 0) + count
        self.check(f"no {name}", count == 0, f"{count} {detail}")

    def attempts(self, count: int, let_in: Sequence[str], unproved: Sequence[str] = ()) -> None:
        """Note the number of forbidden attempts, with a sentence for each that was let in, and for each that proves
        nothing. Each sentence names the door, the attempt and the answer; the report begins with them."""
        denied = count - len(let_in) - len(unproved)
        for name, more in (("attempts", count), ("denied", denied)):
            self.refused[name] = self.refused.get(name, 0) + more
        at = f'In the step "{self.steps[-1].name}": '
        self.let_in += [at + text for text in let_in]
        self.unproved += [at + text for text in unproved]
        self.figure("attempts that were denied", f"{denied} of {count}")
        self.none_of("intrusions", len(let_in), let_in)
        self.check("every attempt was answered, and every door opens to the right login", not unproved, unproved)

    def wait_for(self, what: str) -> None:
        """Show the condition for which the drill waits now."""
        self.now = what
        self.changed()

    def to_json(self) -> dict[str, Any]:
        """The content of ``report.json``."""
        return {
            "held": self.held,
            "outcome": self.outcome,
            "refused": {**self.refused, "let in": self.let_in, "unproved": self.unproved} if self.refused else {},
            "brokers": None if self.brokers is None else self.brokers.to_json(),
            "seconds": round(self.seconds, 2),
            "failure": self.failure,
            "remedy": self.remedy,
            "options": self.options,
            "totals": self.totals,
            "secured": list(self.secured),
            "phases": [phase.to_json() for phase in self.phases],
            "steps": [
                {
                    "name": step.name,
                    "held": step.held,
                    "seconds": step.seconds,
                    "figures": step.figures,
                    "traffic": step.traffic,
                    "checks": [{"name": each.name, "held": each.held, "detail": each.detail} for each in step.checks],
                }
                for step in self.steps
            ],
        }

    def state_of(self, step: DrillStep) -> DrillStepState:
        """The state of a step now."""
        if step.held:
            return DrillStepState.HELD
        if self.interrupted and not step.done and all(check.held for check in step.checks):
            return DrillStepState.INTERRUPTED
        return DrillStepState.FAILED if step.ended else DrillStepState.RUNNING

    def totals_text(self, before: str) -> str:
        """E.g. ``0 lost records, 0 differences``, after ``before``; nothing when nothing was counted."""
        text = ", ".join(f"{count:,} {name}" for name, count in self.totals.items())
        if self.refused:
            text += f"; denied {self.refused['denied']:,} of {self.refused['attempts']:,}"
        return before + text if text else ""

    def summary(self) -> str:
        """The report as text."""
        lines = [f"{self.outcome.upper()} in {self.seconds:.0f} s{self.totals_text(': ')}"]
        lines += [f"     LET IN: {text}" for text in self.let_in]
        lines += [f"     UNPROVED: {text}" for text in self.unproved]
        lines += [] if self.brokers is None else [f"     brokers: {self.brokers.text}"]
        lines += [f"     secured: {text}" for text in self.secured]
        for step in self.steps:
            lines.append(f"{MARKS[self.state_of(step)]} {step.name} ({step.seconds:.1f} s)")
            lines += [f"       {name}: {number}" for name, number in step.figures.items()]
            lines += [f"       {text}" for text in (step.pauses, step.counts) if text]
            lines += [f"     - NOT: {each.name}: {each.detail}" for each in step.checks if not each.held]
        lines += columns(self.phases)
        if self.failure:
            lines.append(f"It ended early: {self.failure}")
        if self.remedy:
            lines.append(self.remedy)
        return "\n".join(lines) + "\n"

    def write(self, directory: Path) -> None:
        """Write both files; their content is fixed from now on.

        :raises OperatorError: the files cannot be written, as on a full disk.
        """
        self._end = time.monotonic()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "report.json").write_text(json_text(self.to_json(), indent=True) + "\n", "utf-8")
            (directory / "summary.txt").write_text(self.summary(), "utf-8")
        except OSError as error:
            raise OperatorError(
                f"the report cannot be written: {error.strerror or error}. {self.verdict}",
                where=str(directory),
                remedy="Make room there, or name another --dir, and run the drill again",
            ) from error


def _rounded(number: float) -> float:
    return round(number, 3) if isinstance(number, float) else number
