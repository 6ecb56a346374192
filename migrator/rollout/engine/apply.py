"""Drives a rollout: decisions, executor, observer, journal and lock, one act after the other.

Before an act the lock is looked at, and what is to be done stands in the journal on disk. Whoever runs the same journal
again goes on where it ended, however it ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path

from migrator.errors import OperatorError
from migrator.rollout.engine.acts import StepActs
from migrator.rollout.engine.file_ahead import FileAheadError
from migrator.rollout.engine.job_acts import JobFailedError
from migrator.rollout.engine.order import in_order, is_under_way, next_step, refuse_pause_at_end
from migrator.rollout.engine.processes import HiddenProcessError, UntrueRestartError
from migrator.rollout.engine.questions import (
    asks_again,
    leaves_rack,
    open_rack,
    questions_after,
    questions_before,
)
from migrator.rollout.files.archive import keep_output
from migrator.rollout.files.examined import remove_left_copies
from migrator.rollout.files.identities import IdentityError
from migrator.rollout.gates.excuses import BackAgainError, Baseline, refuse_end_with
from migrator.rollout.gates.gatekeeper import AbortedError, Asked, GateShutError, GateTimeoutError, always
from migrator.rollout.journal.journal import Detail, Event
from migrator.rollout.journal.progress import Progress
from migrator.rollout.journal.writer import RolloutJournal
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.plan import canary_steps, has_canary, plan, refuse_step
from migrator.rollout.plan.steps import Act, Job, Phase, Step
from migrator.rollout.ports import (
    ExecutorError,
    FileChangedError,
    LockedError,
    Observation,
    Output,
    PlaceAwayError,
    UnreachableError,
)
from migrator.values import value

ORDER = list(Phase)
ABORT_FILE = "abort"
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
    UntrueRestartError,
)
"""Errors whose sentences are made of this program's words, and names."""
KINDS: Mapping[type[OperatorError], str] = {
    UnreachableError: "the host was not reached, or the connection broke",
    ExecutorError: "a command on the node's host failed, or did not end in time",
    LockedError: "somebody else has the lock",
}
OTHER_KIND = "an error that the command showed on the terminal"
OTHER_REMEDY = "'migrator rollout resume' tries again, and shows the error in full"


class Ending(Enum):
    """Why a run came to its end, without a failure."""

    COMPLETE = "the rollout is complete"
    ALREADY = "already complete: nothing is to be done"
    REACHED = "it is as far as was asked for"
    PAUSED = "it waits after this step, as was asked for"
    ABORTED = "it stopped after the step under way, or where it waited, as was asked for"
    NOT_CONFIRMED = "it stopped before the end of the migration: nobody confirmed that there is no way back"


class UnansweredError(OperatorError):
    """The question before the end of the migration found no answer: nothing has failed."""


@value
class StopAt:
    """Where a run ends before the plan does: after a phase, or after a step."""

    phase: Phase | None = None
    step: str = ""


class RolloutRun:
    """One run of the rollout that the journal has opened.

    :param state: the directory of the journal; `ABORT_FILE` in it asks for an end.
    :param confirm: whether the operator wants what cannot be undone, told the names of the controllers still to
        be restarted without the migration. Asked once in a run, as long as the last one was not.
    """

    def __init__(
        self,
        parts: RolloutParts,
        journal: RolloutJournal,
        state: Path,
        confirm: Callable[[Sequence[str]], Awaitable[bool]],
    ) -> None:
        self._parts = parts
        self._journal = journal
        self._state = state
        self._confirm = confirm
        self._confirmed = False
        self._stop_step = ""
        """The step behind which this run ends."""
        self._steps = plan(parts.inventory, self._progress.direction, self._progress.canary)
        self._acts = StepActs(parts, state, self._note, self._is_asked_to_stop, self._baseline)

    @property
    def _progress(self) -> Progress:
        return self._journal.progress

    def _baseline(self) -> Baseline:
        return self._progress.baseline

    async def run(self, stop: StopAt = StopAt()) -> Ending:  # noqa: B008 - a value that nobody changes
        """To the end of the plan, or as far as was asked for. May be called again after any failure.

        :raises OperatorError: something is not as it has to be; the journal and the message say what.
        """
        refuse_step(self._steps, stop.step)
        if stop.step and self._progress.of(stop.step).finished:
            return Ending.PAUSED
        self._stop_step = stop.step
        # Whether the migration is over, and so where the lock is.
        seen = await self._parts.observer.observe(partitions=False)
        self._refuse_other_cluster(seen)
        await self._parts.lock.acquire(self._progress.rollout)
        self._note(Event.RESUMED)
        if self._progress.canary and not has_canary(self._parts.inventory, self._progress.canary):
            self._parts.tell(f"the canary {self._progress.canary} is not there any more: no broker goes first")
        await remove_left_copies(self._parts, self._progress)
        try:
            return await self._run(stop)
        except AbortedError:
            return await self._aborted()

    def _refuse_other_cluster(self, seen: Observation) -> None:
        """
        :raises OperatorError: the journal is of another cluster, as that of a copied inventory is.
        """
        known = self._progress.cluster_id
        if known and seen.cluster_id and seen.cluster_id != known:
            raise OperatorError(
                f"the journal is of the cluster with the id {known}, and this cluster has the id {seen.cluster_id}",
                where=str(self._state),
                remedy="Correct 'access' of the inventory, or name another directory with 'state'",
            )

    async def _run(self, stop: StopAt) -> Ending:
        while True:
            if self._is_asked_to_stop():
                return await self._aborted()
            if canary := self._canary_done():
                self._note(Event.PAUSED, canary)
                return Ending.PAUSED
            seen = await self._parts.observer.observe()
            step = next_step(self._steps, self._progress, seen)
            if step is None:
                await self._parts.lock.release(self._progress.rollout)
                self._note(Event.CLOSED)
                return Ending.COMPLETE
            if stop.phase is not None and ORDER.index(step.phase) > ORDER.index(stop.phase):
                return Ending.REACHED
            if step.rules.ends_migration:
                refuse_pause_at_end(stop.step, in_order(self._steps, self._progress, seen), self._progress)
            if self._parts.inventory.handover is not None and step.rules.leaves_quorum_lock:
                await self._parts.lock.leave_quorum(self._progress.rollout)
            if not await self._take(step, seen):
                return Ending.NOT_CONFIRMED
            if step.name == stop.step:
                self._note(Event.PAUSED, step.name)
                return Ending.PAUSED

    async def _take(self, step: Step, seen: Observation) -> bool:
        """One step to its end; False: the operator does not want it."""
        act: Act | None = None
        try:
            if not await self._begins(step, seen):
                return True
            await self._acts.take_other_settings(step, self._progress)
            for act in step.acts:
                is_done = act in self._progress.of(step.name).done
                if is_done and not await self._must_do_again(step, act):
                    continue
                if asks_again(step, self._progress.of(step.name), act):
                    await self._acts.gates.check_again(step, self._progress, self._asked_before(step))
                await self._parts.lock.check(self._progress.rollout)
                if act is Act.CONFIRM:
                    if not await self._is_wanted(step, seen):
                        return False
                else:
                    await self._do(step, act, seen if act is step.acts[0] else None)
        except (AbortedError, UnansweredError):
            raise
        except OperatorError as error:
            with suppress(OperatorError):  # the disk may be full; the error that counts is the first one
                self._fail(step, act, error)
            raise
        self._note(Event.DONE, step.name)
        return True

    async def _begins(self, step: Step, seen: Observation) -> bool:
        """Whether there is something to do; if not, the step is noted as left out."""
        if step.rules.ends_migration and not seen.is_finished:
            refuse_end_with(self._parts.inventory.gone, seen)
        if is_under_way(self._progress.of(step.name)):
            return True
        while True:
            sight = await self._acts.look(step, seen, self._progress)
            if step.rules.needed.is_there(sight):
                self._parts.tell(f"{step.name}: {step.rules.why}")
                return True
            question = step.rules.needed.before_leaving_out(sight)
            if question is None or not self._parts.judge(question, seen):
                await self._leave_out(step)
                return False
            await self._acts.gates.wait(step, partial(always, question))
            seen = await self._parts.observer.observe(partitions=False)

    async def _leave_out(self, step: Step) -> None:
        if leaves_rack(step, self._steps, self._progress, stays=step.name == self._stop_step):
            await self._acts.gates.wait(step, self._asked_after(step))
        self._note(Event.SKIPPED, step.name)

    async def _must_do_again(self, step: Step, act: Act) -> bool:
        """What counts in one run only, or for a while, before a controller is touched."""
        if act not in (Act.CONFIRM, Act.PROVE) or (act is Act.CONFIRM and self._confirmed):
            return False
        return not await self._acts.gates.was_restarted(step, self._progress)

    async def _is_wanted(self, step: Step, seen: Observation) -> bool:
        """Ask, unless the answer was yes in this run, or the migration has ended already. Files are compared before:
        what is found later comes too late."""
        left = [
            each.node
            for each in in_order(self._steps, self._progress, seen)
            if each.rules.ends_migration and each.node is not None and self._open(each)
        ]
        await self._acts.see_files(left, self._progress)
        if not seen.is_finished and not self._confirmed and not await self._agrees(left):
            return False
        self._confirmed = True
        self._note(Event.CONFIRMED)
        if Act.CONFIRM not in self._progress.of(step.name).done:
            self._note(Event.PASSED, step.name, Act.CONFIRM)
        return True

    async def _agrees(self, left: Sequence[Node]) -> bool:
        """Without a yes, the rollout waits before the question: what a command before this one found is over."""
        try:
            agreed = await self._confirm([node.name for node in left])
        except OperatorError as error:
            self._note(Event.PAUSED)
            raise UnansweredError(error.what, where=error.where, remedy=error.remedy) from error
        if not agreed:
            self._note(Event.PAUSED)
        return agreed

    def _open(self, step: Step) -> bool:
        return not self._progress.of(step.name).finished

    async def _do(self, step: Step, act: Act, seen: Observation | None) -> None:
        """:param seen: the look that was taken just now, before which nothing of the step was done."""
        if act is Act.CHECK_BEFORE:
            await self._acts.gates.check(step, act, self._asked_before(step), seen)
        elif act is Act.CHECK_AFTER:
            await self._check_after(step)
        else:
            await self._acts.do(step, act, self._progress, self._asked_before(step))

    def _asked_before(self, step: Step) -> Asked:
        return partial(questions_before, step, self._steps, self._progress)

    def _asked_after(self, step: Step) -> Asked:
        return partial(questions_after, step, self._steps, self._progress, stays=step.name == self._stop_step)

    async def _check_after(self, step: Step) -> None:
        waited_for = self._waited_for(step)
        for own in self._steps:
            is_waited_for = own is step or (own.phase is step.phase and own.node in waited_for)
            if is_waited_for and self._progress.of(own.name).started:
                await self._acts.start_what_ended(own, step)
        await self._acts.gates.check(step, Act.CHECK_AFTER, self._asked_after(step))
        if self._progress.of(step.name).failed:
            await self._acts.take_as_mended(waited_for, self._progress)

    def _waited_for(self, step: Step) -> Sequence[Node]:
        """The nodes that serve when the check after a step has passed: that of the step, of its rack, or all voters."""
        if step.rules.waits_for_all:
            return self._parts.inventory.controllers.nodes
        asked = self._asked_after(step)(Observation())
        return [question.node for question in asked if question.node is not None and step.successor is None]

    def _note(self, event: Event, step: str = "", act: str = "", **details: Detail) -> None:
        self._journal.append(self._parts.clock.wall_ms(), event, step, act, **details)

    def _fail(self, step: Step, act: Act | None, error: OperatorError) -> None:
        """Our own words only: what a command or a host said may hold anything."""
        details: dict[str, Detail] = {"error": type(error).__name__, "where": error.where}
        if isinstance(error, OWN_WORDS):
            details |= {"what": error.what, "remedy": error.remedy}
        else:
            kind = next((words for kind, words in KINDS.items() if isinstance(error, kind)), OTHER_KIND)
            details |= {"what": kind, "remedy": OTHER_REMEDY}
        if isinstance(error, ExecutorError) and error.output is not None:
            details["output"] = self._kept(step, error.output)
        if isinstance(error, JobFailedError):
            details |= {"output": error.output} if error.output else {}
            if step.rules.again:
                details["reopens"] = " ".join(step.rules.again)
        if step.job is Job.LEAVE_OUT and act is Act.CHECK_AFTER:  # another leader knows nothing of the order
            details["again"] = Act.RUN.value
        if isinstance(error, FileChangedError):
            node, found = self._acts.found
            details |= {"again": Act.EDIT.value, "node": node, "file": found}
        self._note(Event.FAILED, step.name, "" if act is None else act, **details)

    def _kept(self, step: Step, output: Output) -> str:
        kept = keep_output(self._state, step.name, output)
        self._parts.tell(f"{step.name}: what the command printed is in {kept}")
        return str(kept)

    def _canary_done(self) -> str:
        """The canary's step that was done, and after which the rollout has not waited for the operator yet; or ""."""
        steps = canary_steps(self._steps, self._progress.canary) - self._progress.paused_after
        return next((name for name in sorted(steps) if self._was_done(name)), "")

    def _was_done(self, name: str) -> bool:
        known = self._progress.of(name)
        return known.finished and bool(known.done)

    @property
    def _abort_file(self) -> Path:
        return self._state / ABORT_FILE

    def _is_asked_to_stop(self) -> bool:
        return self._abort_file.exists()

    async def _aborted(self) -> Ending:
        """Of a rack that is left half-way, the operator is told who is not back."""
        if left := open_rack(self._steps, self._progress):
            asked = partial(questions_after, left, self._steps, self._progress, stays=True)
            try:
                await self._acts.gates.wait(left, asked)
            except AbortedError:
                pass
            except OperatorError as error:
                self._parts.tell(f"{left.name}: {error}")
        self._note(Event.PAUSED)
        self._abort_file.unlink(missing_ok=True)
        return Ending.ABORTED


def until_phase(name: str) -> Phase:
    """
    :param name: of a state or a phase, in upper or lower case.
    :raises OperatorError: there is no such state.
    """
    states = {"MigrationIneligible": Phase.START, "DualWrite": Phase.COPY, "Finished": Phase.FINISH}
    forward = ORDER[: ORDER.index(Phase.ARCHIVE) + 1]
    known = {**{phase.value: phase for phase in forward}, **states}
    found = next((phase for each, phase in known.items() if each.lower() == name.strip().lower()), None)
    if found is None:
        names = ", ".join([*states, *(phase.value for phase in forward)])
        raise OperatorError(f"there is no state {name}", where="--until", remedy=f"Name one of {names}")
    return found
