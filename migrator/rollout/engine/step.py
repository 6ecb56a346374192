"""A step under way: what its gates, acts and jobs share, and its gates.

`migrator rollout` makes one `RunContext` for each command, `apply` one `StepContext` for each step. Every line of the
journal of a run goes through `note`. The operator's abort is a file in the directory of the journal, so it also reaches
a run in another terminal.

`acts` and `apply` call `StepGates`; `decisions` decides which gates there are, and `gatekeeper` waits. Right before a
node is stopped, its gates are asked once more. A gate that stays shut too long ends the run; nothing has been stopped
then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from migrator.errors import OperatorError
from migrator.rollout.engine import decisions
from migrator.rollout.gates.gatekeeper import Gatekeeper, GatesNow
from migrator.rollout.journal.journal import Detail, Event
from migrator.rollout.journal.looks import LooksFile
from migrator.rollout.journal.progress import Progress, StepProgress
from migrator.rollout.journal.writer import RolloutJournal
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.steps import TOUCH_NODE, Act, Step
from migrator.rollout.ports import Gate, Observation
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


FRESH_MS = 30_000
"""How long an open gate counts before the first change of the step."""


class StepGates:
    """The gates of one step. Every wait ends with a `GateTimeoutError` when a gate stays shut."""

    def __init__(self, at: StepContext) -> None:
        self._at = at
        self._run = at.run
        self._step = at.step
        self._opened_ms: int | None = None
        """When the gate before the step was last found open in this run."""

    def _before(self, seen: Observation) -> tuple[Gate, ...]:
        return decisions.gates_before(self._step, self._run.steps, self._run.progress, seen)

    def _after(self, *, stays: bool = False) -> GatesNow:
        stays = stays or self._step.name == self._run.stop
        return partial(decisions.gates_after, self._step, self._run.steps, self._run.progress, stays=stays)

    async def check_before(self, seen: Observation | None) -> None:
        """Wait for the gates before the step, and note them.

        :param seen: the first look, if there was one just now.
        """
        await self._at.gates.wait(self._before, self._step.name, seen=seen)
        self._passed()

    async def wait_after(self, *, stays: bool = False) -> None:
        """Wait for the gates after the step.

        :param stays: whether the run ends after the step.
        """
        await self._at.gates.wait(self._after(stays=stays), self._step.name, started=self._started())

    async def wait_for(self, gate: Gate) -> None:
        await self._at.gates.wait(lambda _: (gate,), self._step.name)

    def _started(self) -> Sequence[Node]:
        """The nodes that the check after the step waits for, and that this rollout has started."""
        nodes = [node.name for node in self.waited_for()]
        own = [each for each in self._run.steps if each.phase is self._step.phase and each.node is not None]
        return [
            each.successor or each.node
            for each in own
            if each.node is not None
            and (each is self._step or each.node.name in nodes)
            and self._run.progress.of(each.name).started
        ]

    def waited_for(self) -> Sequence[Node]:
        """The nodes that serve when the check after the step has passed: the step's node, its rack, or all voters."""
        if self._step.rules.waits_for_all:
            return self._run.parts.inventory.controllers.nodes
        asked = self._after()(Observation())
        return [gate.node for gate in asked if gate.node is not None and self._step.successor is None]

    async def check_again(self, act: Act) -> None:
        """Ask a gate before the step again: when another run has passed it, or some time ago, and no act has been done
        since.

        :param act: the act that comes next.
        """
        if not decisions.asks_again(self._step, self._at.known, act):
            return
        if self._opened_ms is not None and self._run.parts.clock.since_boot_ms() - self._opened_ms <= FRESH_MS:
            return
        if await self._at.gates.wait(self._before, self._step.name, self._is_over):
            self._passed()

    async def is_open_now(self, seen: Observation | None = None) -> bool:
        """Ask the gate before the node is stopped, as the last thing before the stop. Returns False when this had to
        wait: then the caller looks again at everything else.

        :param seen: the first look, if there was one just now.
        """
        looks = await self._at.gates.wait(self._before, self._step.name, self._is_over, seen)
        if looks > 1:
            self._passed()
        if looks != 1:
            await self._run.parts.lock.check(self._run.progress.rollout)
        return looks == 1

    async def was_restarted(self) -> bool:
        """Whether the restart of the step is done, or has at least stopped the process. A restart that failed or was
        killed before the stop changes nothing: all gates before it still count."""
        known = self._at.known
        if known.begun is not Act.RESTART:
            return Act.RESTART in known.done
        return await self._is_over(await self._run.parts.observer.observe(partitions=False))

    async def _is_over(self, seen: Observation) -> bool:
        """Whether the process of the step was stopped meanwhile: then no gate delays its start."""
        node, known = self._step.node, self._at.known
        if node is None or TOUCH_NODE.isdisjoint(self._step.acts):
            return False
        runs = await self._run.parts.executor.incarnation(node)
        words = self._run.parts.inventory.words_for(node)
        return decisions.took_effect(node, known, seen, decisions.comparable(known, runs, words))

    def _passed(self) -> None:
        self._at.note(Event.PASSED, Act.CHECK_BEFORE)
        self._opened_ms = self._run.parts.clock.since_boot_ms()
