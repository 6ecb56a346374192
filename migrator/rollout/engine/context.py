"""Shared by all parts of one run, such as the journal, the operator's answers and the end of the run.

`migrator rollout` makes one `RunContext` for each command. Every line of the journal of a run goes through `note`. The
operator's abort is a file in the directory of the journal, so it also reaches a run in another terminal.
"""

"""Shared by all parts of one run, such as the journal and the end of the run; and by all parts of one step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from migrator.errors import OperatorError
from migrator.rollout.gates.gatekeeper import Gatekeeper
from migrator.rollout.journal.journal import Detail, Event
from migrator.rollout.journal.looks import LooksFile
from migrator.rollout.journal.progress import Progress, StepProgress
from migrator.rollout.journal.writer import RolloutJournal
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.steps import Act, Step
from migrator.values import value

ABORT_FILE = "abort"


class UnansweredError(OperatorError):
    """The operator did not answer a question, or did not agree. This is no failure."""


@value
class RunContext:
    """``state``: the directory of the journal, for verdicts and outputs too; the file `ABORT_FILE` in it asks the run
    to end. ``confirm``: asks the operator to confirm the end of the migration; it is given the names of the controllers
    that still have to be restarted without the migration. It is asked once in a run, while the last controller is not
    restarted. ``accept``: asks whether the rollout goes on in spite of so many warnings of preflight. ``steps``: of the
    whole way. ``stop``: the name of the step after which the run ends; "" for the end of the way. ``looks``: notes what
    is seen, for the report."""

    parts: RolloutParts
    journal: RolloutJournal
    state: Path
    confirm: Callable[[Sequence[str]], Awaitable[bool]]
    accept: Callable[[int], Awaitable[bool]]
    steps: Sequence[Step]
    looks: LooksFile
    stop: str = ""

    @property
    def progress(self) -> Progress:
        """How far the rollout is by its journal."""
        return self.journal.progress

    def note(self, event: Event, step: str = "", act: str = "", **details: Detail) -> None:
        self.journal.append(self.parts.clock.wall_ms(), event, step, act, **details)

    async def agrees(self, question: Awaitable[bool], step: str, act: Act, **details: Detail) -> bool:
        """Ask the operator before an act of a step ends. The journal keeps the answer, and how long it took. Unless the
        answer is yes, the rollout stays before this question, and what was checked so far is checked again later.

        :param details: for the line about a yes.
        :raises UnansweredError: nobody can answer.
        """
        asked_ms = self.parts.clock.wall_ms()
        self.parts.silences.hides()
        try:
            try:
                agreed = await question
            finally:
                self.parts.silences.begins()
        except OperatorError as error:
            self.note(Event.PAUSED, waited_ms=self._since(asked_ms))
            raise UnansweredError(error.what, where=error.where, remedy=error.remedy) from error
        if agreed:
            self.note(Event.CONFIRMED, step, act, waited_ms=self._since(asked_ms), **details)
        else:
            self.note(Event.PAUSED, waited_ms=self._since(asked_ms))
        return agreed

    def _since(self, began_ms: int) -> int:
        return max(0, self.parts.clock.wall_ms() - began_ms)

    @property
    def abort_file(self) -> Path:
        return self.state / ABORT_FILE

    def is_aborted(self) -> bool:
        return self.abort_file.exists()


class RunMemory:
    """What one run keeps from step to step; the next run begins without it."""

    def __init__(self) -> None:
        self.confirmed = False
        """Whether the operator has confirmed the end of the migration."""
        self.verified_ms: int | None = None
        """When both sides were last found equal, by the clock that continues while the machine sleeps."""
        self.started: set[str] = set()
        """Names of the steps whose node was started or restarted."""


@value
class StepContext:
    """A step under way, for its gates, acts and jobs. ``gates``: of the whole run."""

    run: RunContext
    gates: Gatekeeper
    memory: RunMemory
    step: Step

    @property
    def known(self) -> StepProgress:
        """How far the step is by the journal."""
        return self.run.progress.of(self.step.name)

    def note(self, event: Event, act: str = "", **details: Detail) -> None:
        self.run.note(event, self.step.name, act, **details)

    def tell(self, sentence: str) -> None:
        """Show a sentence about the step."""
        self.run.parts.tell(f"{self.step.name}: {sentence}")
