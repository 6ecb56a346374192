"""The gates before and after a step: waits for them, notes them, and asks them again when the answer is old.

`acts` and `apply` call `StepGates`; `which_gates` decides which gates there are, and `gatekeeper` waits. Right before a
node is stopped, its gates are asked once more. A gate that stays shut too long ends the run; nothing has been stopped
then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from migrator.rollout.engine import decisions
from migrator.rollout.engine.context import RunContext
from migrator.rollout.engine.decisions import asks_again, gates_after, gates_before
from migrator.rollout.gates.gatekeeper import Gatekeeper, GatesNow
from migrator.rollout.journal.journal import Event
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import TOUCH_NODE, Act, Step
from migrator.rollout.ports import Gate, Observation

FRESH_MS = 30_000
"""How long an open gate counts before the first change of the step."""


class StepGates:
    """The gates of one run. Every wait ends with a `GateTimeoutError` when a gate stays shut."""

    def __init__(self, run: RunContext, gates: Gatekeeper) -> None:
        self._run = run
        self._gates = gates
        self._looked = "", 0
        """The step whose gate before it was last found open in this run, and when."""

    def _before(self, step: Step) -> GatesNow:
        return partial(gates_before, step, self._run.steps, self._run.progress)

    def _after(self, step: Step, *, stays: bool = False) -> GatesNow:
        stays = stays or step.name == self._run.stop
        return partial(gates_after, step, self._run.steps, self._run.progress, stays=stays)

    async def check_before(self, step: Step, seen: Observation | None) -> None:
        """Wait for the gates before a step, and note them.

        :param seen: the first look, if there was one just now.
        """
        await self._gates.wait(self._before(step), step.name, seen=seen)
        self._passed(step, Act.CHECK_BEFORE)

    async def check_after(self, step: Step) -> None:
        """Wait for the gates after a step, and note them: the step's last act."""
        await self.wait_after(step)
        self._passed(step, Act.CHECK_AFTER)

    async def wait_after(self, step: Step, *, stays: bool = False) -> None:
        """Like `check_after`, without a note.

        :param stays: whether the run ends after the step.
        """
        await self._gates.wait(self._after(step, stays=stays), step.name, started=self._started(step))

    async def wait_for(self, step: Step, gate: Gate) -> None:
        await self._gates.wait(lambda _: (gate,), step.name)

    def _started(self, step: Step) -> Sequence[Node]:
        """The nodes that the check after a step waits for, and that this rollout has started."""
        nodes = [node.name for node in self.waited_for(step)]
        own = [each for each in self._run.steps if each.phase is step.phase and each.node is not None]
        return [
            each.successor or each.node
            for each in own
            if each.node is not None
            and (each is step or each.node.name in nodes)
            and self._run.progress.of(each.name).started
        ]

    def waited_for(self, step: Step) -> Sequence[Node]:
        """The nodes that serve when the check after a step has passed: the step's node, its rack, or all voters."""
        if step.rules.waits_for_all:
            return self._run.parts.inventory.controllers.nodes
        asked = self._after(step)(Observation())
        return [gate.node for gate in asked if gate.node is not None and step.successor is None]

    async def check_again(self, step: Step, act: Act) -> None:
        """Ask a gate before a step again: when another run has passed it, or some time ago, and no act has been done
        since.

        :param act: the act that comes next.
        """
        if not asks_again(step, self._run.progress.of(step.name), act):
            return
        name, when = self._looked
        if name == step.name and self._run.parts.clock.since_boot_ms() - when <= FRESH_MS:
            return
        if await self._gates.wait(self._before(step), step.name, partial(self._is_over, step)):
            self._passed(step, Act.CHECK_BEFORE)

    async def is_open_now(self, step: Step, seen: Observation | None = None) -> bool:
        """Ask the gate before a node is stopped, as the last thing before the stop. Returns False when this had to
        wait: then the caller looks again at everything else.

        :param seen: the first look, if there was one just now.
        """
        looks = await self._gates.wait(self._before(step), step.name, partial(self._is_over, step), seen)
        if looks > 1:
            self._passed(step, Act.CHECK_BEFORE)
        if looks != 1:
            await self._run.parts.lock.check(self._run.progress.rollout)
        return looks == 1

    async def was_restarted(self, step: Step) -> bool:
        """Whether the restart of a step is done, or has at least stopped the process. A restart that failed or was
        killed before the stop changes nothing: all gates before it still count."""
        known = self._run.progress.of(step.name)
        if known.begun is not Act.RESTART:
            return Act.RESTART in known.done
        return await self._is_over(step, await self._run.parts.observer.observe(partitions=False))

    async def _is_over(self, step: Step, seen: Observation) -> bool:
        """Whether the process of a step was stopped meanwhile: then no gate delays its start."""
        if step.node is None or TOUCH_NODE.isdisjoint(step.acts):
            return False
        runs = await self._run.parts.executor.incarnation(step.node)
        known, words = self._run.progress.of(step.name), self._run.parts.inventory.words_for(step.node)
        return decisions.took_effect(step, known, seen, decisions.comparable(known, runs, words))

    def _passed(self, step: Step, act: Act) -> None:
        self._run.note(Event.PASSED, step.name, act)
        if act is Act.CHECK_BEFORE:
            self._looked = step.name, self._run.parts.clock.since_boot_ms()
