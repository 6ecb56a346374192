"""The gates before and after a step: waited for, noted, and asked again where the answer is not fresh any more."""

from __future__ import annotations

from functools import partial

from migrator.rollout.engine import decisions
from migrator.rollout.gates.gatekeeper import Asked, Gatekeeper, Note
from migrator.rollout.journal.journal import Event
from migrator.rollout.journal.progress import Progress
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.steps import TOUCH_NODE, Act, Step
from migrator.rollout.ports import Observation

FRESH_MS = 30_000
"""How long an open gate counts, until the file is changed behind it."""


class StepGates:
    """Of one run.

    :param note: writes a line of the journal.
    """

    def __init__(self, parts: RolloutParts, gates: Gatekeeper, note: Note) -> None:
        self._parts = parts
        self._gates = gates
        self._note = note
        self._looked = "", 0
        """The step whose gate before it was open last in this run, and when."""

    async def check(self, step: Step, act: Act, asked: Asked, seen: Observation | None = None) -> None:
        """Wait until all gates are open.

        :param seen: the first look, if there was one just now.
        :raises GateTimeoutError: one stays shut.
        """
        await self._gates.wait(asked, step.name, seen=seen)
        self._passed(step, act)

    async def wait(self, step: Step, asked: Asked) -> None:
        """The same, and nothing is noted.

        :raises GateTimeoutError: one stays shut.
        """
        await self._gates.wait(asked, step.name)

    async def check_again(self, step: Step, progress: Progress, asked: Asked) -> None:
        """A gate before a step that was passed by another run, or a while ago, and behind which nothing has happened.

        :raises GateTimeoutError: it is shut now.
        """
        name, when = self._looked
        if name == step.name and self._parts.clock.since_boot_ms() - when <= FRESH_MS:
            return
        if await self._gates.wait(asked, step.name, partial(self._is_over, step, progress)):
            self._passed(step, Act.CHECK_BEFORE)

    async def was_restarted(self, step: Step, progress: Progress) -> bool:
        """Whether the restart of a step has come to its end, or has stopped the process at least: what was begun may
        have failed, or been killed, before the stop. Then all that counts before the restart counts still."""
        known = progress.of(step.name)
        if known.begun is not Act.RESTART:
            return Act.RESTART in known.done
        return await self._is_over(step, progress, await self._parts.observer.observe(partitions=False))

    async def _is_over(self, step: Step, progress: Progress, seen: Observation) -> bool:
        """Whether the process of a step was stopped meanwhile: no gate holds up what brings it back."""
        if step.node is None or TOUCH_NODE.isdisjoint(step.acts):
            return False
        runs = await self._parts.executor.incarnation(step.node)
        known, words = progress.of(step.name), self._parts.inventory.words_for(step.node)
        return decisions.took_effect(step, known, seen, decisions.comparable(known, runs, words))

    async def is_open_now(self, step: Step, progress: Progress, asked: Asked, seen: Observation | None = None) -> bool:
        """The gate before a node is stopped, as the last thing before that. Where it was waited for, whoever asks looks
        again at all the rest.

        :param seen: the first look, if there was one just now.
        :raises GateTimeoutError: it is shut.
        """
        looks = await self._gates.wait(asked, step.name, partial(self._is_over, step, progress), seen)
        if looks > 1:
            self._passed(step, Act.CHECK_BEFORE)
        if looks != 1:
            await self._parts.lock.check(progress.rollout)
        return looks == 1

    def _passed(self, step: Step, act: Act) -> None:
        self._note(Event.PASSED, step.name, act)
        if act is Act.CHECK_BEFORE:
            self._looked = step.name, self._parts.clock.since_boot_ms()
