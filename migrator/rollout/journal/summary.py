"""The journal for people: how far a rollout is, the last failure, durations, the forecast. Pure.

Status, report and drill call it with the lines of the journal; it decides nothing. Durations leave out the time for
which the rollout waited for a person.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from migrator.rollout.journal.journal import Entry, Event
from migrator.rollout.journal.progress import Progress
from migrator.rollout.plan.steps import Act, Job, Phase, Step
from migrator.values import value

MINUTES_FROM = 120
"""The seconds from which a time is given in minutes."""
TOUCHES = (Act.RESTART, Act.START, Act.STOP)
BEFORE_CHANGES = (Phase.PREFLIGHT, Phase.REHEARSE)
"""Phases that change nothing."""
ENDS = (Event.DONE, Event.FOUND, Event.PASSED)


@value
class RehearsedTimes:
    """The rehearsal's forecast: seconds until both sides are written, and the error of that."""

    seconds: int
    error: int

    def __str__(self) -> str:
        return f"{self.seconds} s to dual-write, give or take {self.error} s, as the rehearsal measured"


@value
class LastEqual:
    """The last comparison that found both sides equal. ``rows``: how many it compared; None unknown."""

    time_ms: int
    rows: int | None

    def said(self, now_ms: int) -> str:
        """A sentence for the question before the end."""
        rows = "" if self.rows is None else f": {self.rows:,} rows"
        ago = (now_ms - self.time_ms) / 1000
        when = f"{ago:.0f} s ago" if ago < MINUTES_FROM else f"{ago / 60:.0f} minutes ago"
        return f"ZooKeeper and the log were compared {when}, and were equal{rows}."


@value
class TimeSpent:
    """All times are in seconds. ``restarts``: the time of nodes that stop, start and come back. ``own``: the rest of
    the same steps."""

    restarts: float
    own: float

    @property
    def share(self) -> float:
        """The rest as a percentage of the restarts."""
        return 100 * self.own / self.restarts if self.restarts else 0.0

    def __str__(self) -> str:
        return f"restarts {self.restarts:.1f} s; everything else of these steps {self.own:.1f} s ({self.share:.0f} %)"


@value
class LastFailure:
    """The last failure, unless the rollout has gone on since."""

    step: str
    act: str
    error: str
    where: str
    what: str
    remedy: str = ""
    output: str = ""

    def __str__(self) -> str:
        place = f"{self.step} ({self.act})" if self.act else self.step
        return (
            f"{place}: {self.what or self.error}{f', {self.where}' if self.where and self.where != self.step else ''}"
        )


def of_last(entries: Sequence[Entry]) -> Sequence[Entry]:
    """The lines of the rollout that was opened last."""
    opened = [number for number, entry in enumerate(entries) if entry.event is Event.OPENED]
    return entries[opened[-1] :] if opened else ()


def has_changed_something(entries: Sequence[Entry]) -> bool:
    """Whether the last rollout has begun to change a node or the cluster, or has turned back."""
    unchanging = [phase.value for phase in BEFORE_CHANGES]
    return any(
        entry.event in (Event.TURNED, Event.FORWARD, Event.BACK_IN)
        or (entry.event is Event.BEGUN and entry.step not in unchanging)
        for entry in of_last(entries)
    )


def forecast_of(entries: Sequence[Entry]) -> RehearsedTimes | None:
    """The forecast of the last rehearsal; None without one."""
    for entry in reversed(entries):
        if "forecast_seconds" in entry.details:
            return RehearsedTimes(
                int(entry.details["forecast_seconds"] or 0), int(entry.details.get("forecast_error") or 0)
            )
    return None


def verdict_of(entries: Sequence[Entry]) -> LastEqual | None:
    """The last comparison in the journal that found both sides equal; None without one."""
    for entry in reversed(entries):
        is_job = entry.event is Event.DONE and entry.details.get("job") == Job.VERIFY.value
        if is_job or entry.event is Event.VERIFIED:
            rows = entry.details.get("rows")
            return LastEqual(entry.time_ms, rows if isinstance(rows, int) else None)
    return None


def failure_of(entries: Sequence[Entry]) -> LastFailure | None:
    """Why the last command of the rollout ended."""
    last = next((entry for entry in reversed(entries) if entry.event is not Event.RESUMED), None)
    if last is None or last.event is not Event.FAILED:
        return None
    details = last.details
    return LastFailure(
        last.step, last.act, *(str(details.get(key) or "") for key in ("error", "where", "what", "remedy", "output"))
    )


def durations_of(entries: Sequence[Entry], steps: Sequence[Step]) -> TimeSpent:
    """The durations of all steps that restarted, started or stopped a process. Time that a person took does not count:
    between two commands, and before an answer. Wrong when the time of day has jumped."""
    touching = {step.name for step in steps if any(act in TOUCHES for act in step.acts)}
    restarts = total = 0
    for step, lines in by_step(list(without_people(entries))):
        begun = next((entry.time_ms for entry in lines if entry.event is Event.BEGUN and entry.act in TOUCHES), None)
        if step not in touching or begun is None:
            continue
        ends = [entry.time_ms for entry in lines if entry.act in (*TOUCHES, Act.CHECK_AFTER) and entry.event in ENDS]
        restarts += max(0, max(ends, default=begun) - begun)
        total += max(0, lines[-1].time_ms - lines[0].time_ms)
    return TimeSpent(restarts / 1000, max(0, total - restarts) / 1000)


def without_controller(entries: Sequence[Entry]) -> float | None:
    """Seconds from the stop of the last controller to the election of a broker as controller; None if that did not
    happen."""
    stopped = f"{Phase.STOP_QUORUM.value}/"
    begun = [entry for entry in entries if entry.event is Event.BEGUN and entry.act == Act.STOP]
    stops = [entry.time_ms for entry in begun if entry.step.startswith(stopped)]
    elected = [entry.time_ms for entry in entries if entry.event is Event.PASSED and entry.step == Phase.GIVE_BACK]
    return max(0, elected[-1] - stops[-1]) / 1000 if stops and elected else None


def without_people(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The same lines, without the time in which the rollout waited for a person. Journals of earlier releases do not
    say how long an answer took: there it is all the time since the line before."""
    waited_ms = 0
    for before, entry in zip((*entries[:1], *entries), entries, strict=False):
        since_ms = max(0, entry.time_ms - before.time_ms)
        answered_ms = entry.details.get("waited_ms", since_ms if entry.event is Event.CONFIRMED else 0)
        waited_ms += since_ms if entry.event is Event.RESUMED else min(since_ms, int(answered_ms or 0))
        yield replace(entry, time_ms=entry.time_ms - waited_ms)


def by_step(entries: Sequence[Entry]) -> Iterator[tuple[str, list[Entry]]]:
    """The lines of one step, up to those of another. The line before them is included, because the step began at its
    time."""
    lines: list[Entry] = []
    for before, entry in zip((*entries[:1], *entries), entries, strict=False):
        if not entry.step:
            continue
        if lines and entry.step != lines[-1].step:
            yield lines[-1].step, lines
            lines = []
        lines += [entry] if lines else [before, entry]
    if lines:
        yield lines[-1].step, lines


def line_of(entry: Entry) -> str:
    """One line of the history, without its time."""
    place = " ".join(part for part in (entry.step, entry.act) if part)
    more = ", ".join(
        f"{key}={found}" for key, found in entry.details.items() if key not in ("before", "after", "file") and found
    )
    return f"{entry.event.value:<11} {place}{f' ({more})' if more else ''}"


def counted(steps: Sequence[Step], progress: Progress) -> tuple[int, int]:
    """How many steps are finished, and how many there are."""
    return sum(progress.of(step.name).finished for step in steps), len(steps)
