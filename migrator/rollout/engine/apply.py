"""Drives a rollout: takes step after step, with decisions, executor, observer, journal and lock.

Before each act, the lock is checked, and the journal on disk says what is to be done. A run with the same journal
continues where the run before ended, however that ended.

`StepRun` does one step, from the question whether it is needed to its end. Each kind of act has its file: gates
`step`, files and processes `acts`, commands `job_acts`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path

from migrator.errors import OperatorError
from migrator.rollout.engine.acts import HiddenProcessError, StepActs, UntrueRestartError
from migrator.rollout.engine.decisions import (
    FileAheadError,
    in_order,
    is_under_way,
    leaves_rack,
    next_step,
    open_rack,
    refuse_pause_at_end,
    refuse_reopened,
)
from migrator.rollout.engine.job_acts import JobFailedError
from migrator.rollout.engine.step import RunContext, RunMemory, StepContext, StepGates, UnansweredError
from migrator.rollout.files.archive import keep_output
from migrator.rollout.files.examined import remove_left_copies
from migrator.rollout.files.identities import IdentityError
from migrator.rollout.gates.excuses import BackAgainError, refuse_end_with
from migrator.rollout.gates.gatekeeper import (
    AbortedError,
    Gatekeeper,
    GateShutError,
    GateTimeoutError,
    ProcessEndedError,
)
from migrator.rollout.gates.gates import judge
from migrator.rollout.journal.journal import Detail, Event
from migrator.rollout.journal.looks import LooksFile
from migrator.rollout.journal.summary import BEFORE_CHANGES, has_changed_something
from migrator.rollout.journal.writer import RolloutJournal
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.plan import canary_steps, has_canary, plan, refuse_step
from migrator.rollout.plan.steps import Act, Job, Phase, Step
from migrator.rollout.ports import (
    ExecutorError,
    FileChangedError,
    HostUnreachableError,
    LockedError,
    Observation,
    Output,
    PlaceAwayError,
    QuorumAwayError,
)
from migrator.values import value


class StepRun:
    def __init__(self, at: StepContext) -> None:
        self._at = at
        self._run = at.run
        self._step = at.step
        self._gates = StepGates(at)
        self._acts = StepActs(at, self._gates)
        self.act: Act | None = None
        """The act under way."""

    async def take(self, seen: Observation) -> bool:
        """Take the step to its end. Returns False when the operator does not want it.

        :raises OperatorError: an act fails.
        """
        if not await self._begins(seen):
            return True
        await self._acts.take_other_settings()
        for act in self._step.acts:
            self.act = act
            if act in self._at.known.done and not await self._must_do_again(act):
                continue
            await self._gates.check_again(act)
            await self._check_lock(act)
            if act is Act.CONFIRM:
                if not await self._is_wanted(seen):
                    return False
            elif act is Act.CHECK_BEFORE:
                await self._gates.check_before(seen if act is self._step.acts[0] else None)
            elif act is Act.CHECK_AFTER:
                await self._check_after()
            else:
                await self._acts.do(act)
        self._at.note(Event.DONE)
        return True

    async def _check_lock(self, act: Act) -> None:
        """Check that the lock is still this rollout's. Where a controller was just restarted, no controller may lead
        yet: the gate behind the restart waits for one, and the next act checks the lock.

        :raises OperatorError: it is not, or nobody can say so.
        """
        try:
            await self._run.parts.lock.check(self._run.progress.rollout)
        except QuorumAwayError:
            if act is not Act.CHECK_AFTER:
                raise

    async def _begins(self, seen: Observation) -> bool:
        """Whether there is something to do; if not, the step is noted as left out."""
        rules = self._step.rules
        if rules.ends_migration and not seen.is_finished:
            refuse_end_with(self._run.parts.inventory.gone, seen)
        if is_under_way(self._at.known):
            return True
        while True:
            sight = await self._acts.look(seen)
            if rules.needed.is_there(sight):
                self._at.tell(rules.why)
                return True
            gate = rules.needed.before_leaving_out(sight)
            if gate is None or not judge(gate, seen):
                break
            await self._gates.wait_for(gate)
            seen = await self._run.parts.observer.observe(partitions=False)
        stays = self._step.name == self._run.stop
        if leaves_rack(self._step, self._run.steps, self._run.progress, stays=stays):
            await self._gates.wait_after()
        self._at.note(Event.SKIPPED)
        return False

    async def _must_do_again(self, act: Act) -> bool:
        """Whether an act that was done must be done again before a controller is touched, because it counts in one run
        only, or for a limited time."""
        if act not in (Act.CONFIRM, Act.PROVE) or (act is Act.CONFIRM and self._at.memory.confirmed):
            return False
        return not await self._gates.was_restarted()

    async def _is_wanted(self, seen: Observation) -> bool:
        """Ask the operator, unless the answer was yes in this run, or the migration has already ended. The files are
        compared first, because a change that is found later would come too late."""
        left = [
            each.node
            for each in in_order(self._run.steps, self._run.progress, seen)
            if each.rules.ends_migration and each.node is not None and not self._run.progress.of(each.name).finished
        ]
        await self._acts.see_files(left)
        if not (seen.is_finished or self._at.memory.confirmed):
            await self._acts.tell_odd_keys()
            question = self._run.confirm([node.name for node in left])
            if not await self._run.agrees(question, self._step.name, Act.CONFIRM):
                return False
            self._at.memory.confirmed = True
        if Act.CONFIRM not in self._at.known.done:
            self._at.note(Event.PASSED, Act.CONFIRM)
        return True

    async def _check_after(self) -> None:
        waited_for = self._gates.waited_for()
        for own in self._run.steps:
            is_waited_for = own is self._step or (own.phase is self._step.phase and own.node in waited_for)
            if is_waited_for and self._run.progress.of(own.name).started:
                at = replace(self._at, step=own)
                await StepActs(at, StepGates(at)).start_if_ended(self._at)
        await self._gates.wait_after()
        self._at.note(Event.PASSED, Act.CHECK_AFTER)
        if self._at.known.failed:
            await self._acts.take_as_mended(waited_for)


ORDER = list(Phase)
OWN_WORDS = (
    BackAgainError,
    FileAheadError,
    FileChangedError,
    GateShutError,
    GateTimeoutError,
    HiddenProcessError,
    IdentityError,
    JobFailedError,
    PlaceAwayError,
    ProcessEndedError,
    UntrueRestartError,
)
"""Errors whose sentences have only this program's words and names, so the journal may keep them."""
KINDS: Mapping[type[OperatorError], str] = {
    HostUnreachableError: "the host was not reached, or the connection broke",
    ExecutorError: "a command on the node's host failed, or did not end in time",
    LockedError: "another rollout has the lock",
}
OTHER_KIND = "the step failed"
OTHER_REMEDY = "Read the reason in that file, and mend it; then 'migrator rollout resume' tries again"


class Ending(Enum):
    """Why a run ended without a failure."""

    COMPLETE = "the rollout is complete"
    ALREADY = "already complete: nothing is to be done"
    NO_WAY_BACK = "nothing is to go back from: ZooKeeper and its brokers have the cluster. Nothing was done"
    REACHED = "it is as far as was asked for"
    PAUSED = "it waits after this step, as was asked for"
    ABORTED = "it stopped after the step under way, or where it waited, as was asked for"
    NOT_CONFIRMED = "it stopped before the end of the migration: it was not confirmed"


@value
class StopAt:
    """Where a run ends before the end of the plan: after a phase, or after a step."""

    phase: Phase | None = None
    step: str = ""


StepAt = Callable[[Step], StepContext]


class RolloutRun:
    """One run of the rollout that the journal has opened; for its parameters see `RunContext`."""

    def __init__(
        self,
        parts: RolloutParts,
        journal: RolloutJournal,
        state: Path,
        confirm: Callable[[Sequence[str]], Awaitable[bool]],
        accept: Callable[[int], Awaitable[bool]],
    ) -> None:
        progress = journal.progress
        steps = plan(parts.inventory, progress.direction, progress.canary, reopens=progress.reopens)
        looks = LooksFile(state, progress.rollout, parts.clock)
        parts.silences.notes = looks.was_silent
        looks.was_silent(parts.silences.longest_ms)
        self._parts = parts.heard()
        self._run = RunContext(self._parts, journal, state, confirm, accept, steps, looks)

    async def run(self, stop: StopAt = StopAt()) -> Ending:  # noqa: B008 - a value that nobody changes
        """Run to the end of the plan, or to ``stop``. May be called again after any failure.

        :raises OperatorError: something is not as it has to be; the journal and the message say what.
        """
        refuse_step(self._run.steps, stop.step)
        if stop.step and self._run.progress.of(stop.step).finished:
            return Ending.PAUSED
        # This look says whether the migration is over, and so which places have the lock.
        seen = await self._parts.observer.observe(partitions=False)
        self._refuse_other_cluster(seen)
        await self._parts.lock.acquire(self._run.progress.rollout)
        self._run.note(Event.RESUMED)
        if self._run.progress.canary and not has_canary(self._parts.inventory, self._run.progress.canary):
            self._parts.tell(f"the canary {self._run.progress.canary} is not there any more: no broker goes first")
        await remove_left_copies(self._parts, self._run.progress)
        run = replace(self._run, stop=stop.step)
        gates = Gatekeeper(run.parts, lambda: run.progress.baseline, run.note, run.is_aborted, run.looks.saw)
        at = partial(StepContext, run, gates, RunMemory())
        try:
            return await self._take_all(stop, at)
        except AbortedError:
            return await self._aborted(at)
        finally:
            self._parts.silences.ends()

    def _refuse_other_cluster(self, seen: Observation) -> None:
        """
        :raises OperatorError: the journal belongs to another cluster, as after copying an inventory with its
            directory.
        """
        known = self._run.progress.cluster_id
        if known and seen.cluster_id and seen.cluster_id != known:
            raise OperatorError(
                f"the journal is of the cluster with the id {known}, and this cluster has the id {seen.cluster_id}",
                where=str(self._run.state),
                remedy="Correct 'access' of the inventory, or name another directory with 'state'",
            )

    async def _take_all(self, stop: StopAt, at: StepAt) -> Ending:
        while True:
            if self._run.is_aborted():
                return await self._aborted(at)
            if canary := self._canary_done():
                self._run.note(Event.PAUSED, canary)
                return Ending.PAUSED
            seen = await self._parts.observer.observe()
            refuse_reopened(seen, self._run.progress)
            step = next_step(self._run.steps, self._run.progress, seen)
            if step is None:
                await self._parts.lock.release(self._run.progress.rollout)
                self._run.note(Event.CLOSED)
                return Ending.COMPLETE
            if stop.phase is not None and ORDER.index(step.phase) > ORDER.index(stop.phase):
                return Ending.REACHED
            if step.rules.ends_migration:
                refuse_pause_at_end(stop.step, in_order(self._run.steps, self._run.progress, seen), self._run.progress)
            leaves = self._run.progress.goes_back or self._parts.inventory.handover is not None
            if leaves and step.rules.leaves_quorum_lock:
                await self._parts.lock.leave_quorum(self._run.progress.rollout)
            if not await self._take(StepRun(at(step)), step, seen):
                return Ending.NOT_CONFIRMED
            if step.name == stop.step:
                self._run.note(Event.PAUSED, step.name)
                return Ending.PAUSED

    async def _take(self, taking: StepRun, step: Step, seen: Observation) -> bool:
        try:
            return await taking.take(seen)
        except AbortedError:
            raise
        except UnansweredError:
            await self._unlock_unchanged(step)
            raise
        except OperatorError as error:
            with suppress(OperatorError):  # the disk may be full; the first error is the one to report
                self._fail(step, taking.act, error)
            await self._unlock_unchanged(step)
            raise

    async def _unlock_unchanged(self, step: Step) -> None:
        """Give the lock back if nothing was changed yet: the operator needs none to correct preflight's findings, and
        another host may begin."""
        if step.phase in BEFORE_CHANGES and not has_changed_something(self._run.journal.entries):
            with suppress(OperatorError, OSError):  # the first error is the one to report
                await self._parts.lock.release(self._run.progress.rollout)

    def _fail(self, step: Step, act: Act | None, error: OperatorError) -> None:
        """Note a failure, in our own words only: the output of a command or a host may contain secrets."""
        details: dict[str, Detail] = {"error": type(error).__name__, "where": error.where}
        if isinstance(error, OWN_WORDS):
            details |= {"what": error.what, "remedy": error.remedy}
        else:
            kind = next((words for kind, words in KINDS.items() if isinstance(error, kind)), OTHER_KIND)
            details |= {"what": kind, "remedy": OTHER_REMEDY}
        if isinstance(error, ExecutorError | ProcessEndedError) and error.output is not None:
            details["output"] = self._kept(step, error.output)
        elif not isinstance(error, OWN_WORDS):
            details["output"] = str(keep_output(self._run.state, step.name, Output(0, str(error))))
        if isinstance(error, JobFailedError):
            details |= {"output": error.output} if error.output else {}
            if step.rules.again:
                details["reopens"] = " ".join(step.rules.again)
        if step.job is Job.LEAVE_OUT and act is Act.CHECK_AFTER:  # a new leader does not know the order
            details["again"] = Act.RUN.value
        if isinstance(error, FileChangedError):
            details |= {"again": Act.EDIT.value, "node": error.node, "file": error.digest}
        self._run.note(Event.FAILED, step.name, "" if act is None else act, **details)

    def _kept(self, step: Step, output: Output) -> str:
        kept = keep_output(self._run.state, step.name, output)
        self._parts.tell(f"{step.name}: what the command printed is in {kept}")
        return str(kept)

    def _canary_done(self) -> str:
        """The step of the canary that is done, if the rollout has not yet waited for the operator after it; else ""."""
        steps = canary_steps(self._run.steps, self._run.progress.canary) - self._run.progress.paused_after
        return next((name for name in sorted(steps) if self._was_done(name)), "")

    def _was_done(self, name: str) -> bool:
        known = self._run.progress.of(name)
        return known.finished and bool(known.done)

    async def _aborted(self, at: StepAt) -> Ending:
        """End a run on request. If it leaves a rack half-way, the operator is told which brokers are not back."""
        if left := open_rack(self._run.steps, self._run.progress):
            try:
                await StepGates(at(left)).wait_after(stays=True)
            except AbortedError:
                pass
            except OperatorError as error:
                self._parts.tell(f"{left.name}: {error}")
        self._run.note(Event.PAUSED)
        self._run.abort_file.unlink(missing_ok=True)
        return Ending.ABORTED


def until_phase(name: str) -> Phase:
    """
    :param name: of a state or a phase, in upper or lower case.
    :raises OperatorError: there is no such state or phase.
    """
    states = {"MigrationIneligible": Phase.START, "DualWrite": Phase.COPY, "Finished": Phase.FINISH}
    forward = ORDER[: ORDER.index(Phase.ARCHIVE) + 1]
    known = {**{phase.value: phase for phase in forward}, **states}
    found = next((phase for each, phase in known.items() if each.lower() == name.strip().lower()), None)
    if found is None:
        names = ", ".join([*states, *(phase.value for phase in forward)])
        raise OperatorError(f"there is no state {name}", where="--until", remedy=f"Name one of {names}")
    return found
