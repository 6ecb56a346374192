"""One step of a rollout, from the question whether it is needed to its end. Each kind of act has its file: gates
`step_gates`, files and processes `acts`, commands `job_acts`."""

from __future__ import annotations

from migrator.rollout.engine.acts import StepActs
from migrator.rollout.engine.context import RunContext
from migrator.rollout.engine.order import in_order, is_under_way
from migrator.rollout.engine.step_gates import StepGates
from migrator.rollout.engine.which_gates import leaves_rack
from migrator.rollout.gates.excuses import refuse_end_with
from migrator.rollout.gates.gatekeeper import Gatekeeper
from migrator.rollout.gates.gates import judge
from migrator.rollout.journal.journal import Event
from migrator.rollout.plan.steps import Act, Step
from migrator.rollout.ports import Observation


class StepRun:
    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._confirmed = False
        gates = Gatekeeper(run.parts, lambda: run.progress.baseline, run.note, run.is_aborted, run.looks.saw)
        self.gates = StepGates(run, gates)
        self._acts = StepActs(run, gates, self.gates)
        self.act: Act | None = None
        """The act under way."""

    async def take(self, step: Step, seen: Observation) -> bool:
        """Take one step to its end. Returns False when the operator does not want it.

        :raises OperatorError: an act fails.
        """
        self.act = None
        if not await self._begins(step, seen):
            return True
        await self._acts.take_other_settings(step)
        for act in step.acts:
            self.act = act
            if act in self._run.progress.of(step.name).done and not await self._must_do_again(step, act):
                continue
            await self.gates.check_again(step, act)
            await self._run.parts.lock.check(self._run.progress.rollout)
            if act is Act.CONFIRM:
                if not await self._is_wanted(step, seen):
                    return False
            elif act is Act.CHECK_BEFORE:
                await self.gates.check_before(step, seen if act is step.acts[0] else None)
            elif act is Act.CHECK_AFTER:
                await self._check_after(step)
            else:
                await self._acts.do(step, act)
        self._run.note(Event.DONE, step.name)
        return True

    async def _begins(self, step: Step, seen: Observation) -> bool:
        """Whether there is something to do; if not, the step is noted as left out."""
        if step.rules.ends_migration and not seen.is_finished:
            refuse_end_with(self._run.parts.inventory.gone, seen)
        if is_under_way(self._run.progress.of(step.name)):
            return True
        needed = step.rules.needed
        while True:
            sight = await self._acts.look(step, seen)
            if needed.is_there(sight):
                self._run.parts.tell(f"{step.name}: {step.rules.why}")
                return True
            gate = needed.before_leaving_out(sight)
            if gate is None or not judge(gate, seen):
                break
            await self.gates.wait_for(step, gate)
            seen = await self._run.parts.observer.observe(partitions=False)
        if leaves_rack(step, self._run.steps, self._run.progress, stays=step.name == self._run.stop):
            await self.gates.wait_after(step)
        self._run.note(Event.SKIPPED, step.name)
        return False

    async def _must_do_again(self, step: Step, act: Act) -> bool:
        """Whether an act that was done must be done again before a controller is touched, because it counts in one run
        only, or for a limited time."""
        if act not in (Act.CONFIRM, Act.PROVE) or (act is Act.CONFIRM and self._confirmed):
            return False
        return not await self.gates.was_restarted(step)

    async def _is_wanted(self, step: Step, seen: Observation) -> bool:
        """Ask the operator, unless the answer was yes in this run, or the migration has already ended. The files are
        compared first, because a change that is found later would come too late."""
        left = [
            each.node
            for each in in_order(self._run.steps, self._run.progress, seen)
            if each.rules.ends_migration and each.node is not None and not self._run.progress.of(each.name).finished
        ]
        await self._acts.see_files(left)
        names = [node.name for node in left]
        if not (seen.is_finished or self._confirmed):
            if not await self._run.agrees(self._run.confirm(names), step.name, Act.CONFIRM):
                return False
            self._confirmed = True
        if Act.CONFIRM not in self._run.progress.of(step.name).done:
            self._run.note(Event.PASSED, step.name, Act.CONFIRM)
        return True

    async def _check_after(self, step: Step) -> None:
        waited_for = self.gates.waited_for(step)
        for own in self._run.steps:
            is_waited_for = own is step or (own.phase is step.phase and own.node in waited_for)
            if is_waited_for and self._run.progress.of(own.name).started:
                await self._acts.start_what_ended(own, step)
        await self.gates.check_after(step)
        if self._run.progress.of(step.name).failed:
            await self._acts.take_as_mended(waited_for)
