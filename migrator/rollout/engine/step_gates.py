"""The gates before and after a step: waited for, noted, and asked again where the answer is not fresh any more."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from migrator.rollout.engine import decisions
from migrator.rollout.engine.context import RunContext
from migrator.rollout.engine.which_gates import asks_again, gates_after, gates_before
from migrator.rollout.gates.gatekeeper import Gatekeeper, GatesNow
from migrator.rollout.journal.journal import Event
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import TOUCH_NODE, Act, Step
from migrator.rollout.ports import Gate, Observation

FRESH_MS = 30_000
"""How long an open gate counts, until the file is changed behind it."""


class StepGates:
    """Of one run. Whatever waits here ends with a `GateTimeoutError` if a gate stays shut."""

    def __init__(self, run: RunContext, gates: Gatekeeper) -> None:
        self._run = run
        self._gates = gates
        self._looked = "", 0
        """The step whose gate before it was open last in this run, and when."""

    def _before(self, step: Step) -> GatesNow:
        return partial(gates_before, step, self._run.steps, self._run.progress)

    def _after(self, step: Step, *, stays: bool = False) -> GatesNow:
        stays = stays or step.name == self._run.stop
        return partial(gates_after, step, self._run.steps, self._run.progress, stays=stays)

    async def check_before(self, step: Step, seen: Observation | None) -> None:
        """
        :param seen: the first look, if there was one just now.
        """
        await self._gates.wait(self._before(step), step.name, seen=seen)
        self._passed(step, Act.CHECK_BEFORE)

    async def check_after(self, step: Step) -> None:
        """The last act of a step."""
        await self.wait_after(step)
        self._passed(step, Act.CHECK_AFTER)

    async def wait_after(self, step: Step, *, stays: bool = False) -> None:
        """The same, and nothing is noted.

        :param stays: whether the run ends behind the step.
        """
        await self._gates.wait(self._after(step, stays=stays), step.name, started=self._started(step))

    async def wait_for(self, step: Step, gate: Gate) -> None:
        """One gate, whatever is seen."""
        await self._gates.wait(lambda _: (gate,), step.name)

    def _started(self, step: Step) -> Sequence[Node]:
        """Nodes that the check after a step waits for, and that this rollout has started."""
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
        """The nodes that serve when the check after a step has passed: that of the step, of its rack, or all voters."""
        if step.rules.waits_for_all:
            return self._run.parts.inventory.controllers.nodes
        asked = self._after(step)(Observation())
        return [gate.node for gate in asked if gate.node is not None and step.successor is None]

    async def check_again(self, step: Step, act: Act) -> None:
        """A gate before a step that was passed by another run, or a while ago, and behind which nothing has happened.

        :param act: that comes next.
        """
        if not asks_again(step, self._run.progress.of(step.name), act):
            return
        name, when = self._looked
        if name == step.name and self._run.parts.clock.since_boot_ms() - when <= FRESH_MS:
            return
        if await self._gates.wait(self._before(step), step.name, partial(self._is_over, step)):
            self._passed(step, Act.CHECK_BEFORE)

    async def is_open_now(self, step: Step, seen: Observation | None = None) -> bool:
        """The gate before a node is stopped, as the last thing before that. Where it was waited for, whoever asks looks
        again at all the rest.

        :param seen: the first look, if there was one just now.
        """
        looks = await self._gates.wait(self._before(step), step.name, partial(self._is_over, step), seen)
        if looks > 1:
            self._passed(step, Act.CHECK_BEFORE)
        if looks != 1:
            await self._run.parts.lock.check(self._run.progress.rollout)
        return looks == 1

    async def was_restarted(self, step: Step) -> bool:
        """Whether the restart of a step has come to its end, or has stopped the process at least: what was begun may
        have failed, or been killed, before the stop. Then all that counts before the restart counts still."""
        known = self._run.progress.of(step.name)
        if known.begun is not Act.RESTART:
            return Act.RESTART in known.done
        return await self._is_over(step, await self._run.parts.observer.observe(partitions=False))

    async def _is_over(self, step: Step, seen: Observation) -> bool:
        """Whether the process of a step was stopped meanwhile: no gate holds up what brings it back."""
        if step.node is None or TOUCH_NODE.isdisjoint(step.acts):
            return False
        runs = await self._run.parts.executor.incarnation(step.node)
        known, words = self._run.progress.of(step.name), self._run.parts.inventory.words_for(step.node)
        return decisions.took_effect(step, known, seen, decisions.comparable(known, runs, words))

    def _passed(self, step: Step, act: Act) -> None:
        self._run.note(Event.PASSED, step.name, act)
        if act is Act.CHECK_BEFORE:
            self._looked = step.name, self._run.parts.clock.since_boot_ms()
