"""The acts of a step: each is noted as begun, done on the cluster, and noted as done.

`apply` calls `StepActs` for one act after the other. After a crash the journal shows which act was begun, and the act
is looked at again before it is repeated: each can be done twice without harm. A file that somebody changed outside of
the rollout is never overwritten. No process is stopped before its gates are open.

`Processes` stops and starts nodes. When a failure comes between stop and start, the node is started all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from migrator.config.properties import encoded
from migrator.errors import OperatorError
from migrator.rollout.engine import decisions
from migrator.rollout.engine.context import RunContext
from migrator.rollout.engine.decisions import ActDecision, ahead_of_copy, may_be_ahead
from migrator.rollout.engine.job_acts import JobActs, refuse_old_log
from migrator.rollout.engine.soak import SoakAct
from migrator.rollout.engine.step_gates import StepGates
from migrator.rollout.files.archive import keep_changes
from migrator.rollout.files.identities import refuse_new_identity
from migrator.rollout.files.old_metadata_log import keep_log, remove_old_log
from migrator.rollout.files.property_files import backup, digest_of, text_of, wanted_file
from migrator.rollout.gates.gatekeeper import Gatekeeper
from migrator.rollout.gates.gates import judge
from migrator.rollout.journal.journal import Event
from migrator.rollout.journal.progress import StepProgress, restart_begun
from migrator.rollout.nodes import Node, Role
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.modes import FileMode, digest, file_mode, odd_keys, parsed, rewritten
from migrator.rollout.plan.phases import program_of
from migrator.rollout.plan.steps import STOPS, Act, Job, Sight, Step
from migrator.rollout.ports import ExecutorError, FileChangedError, Gate, GateKind, HostUnreachableError, Observation
from migrator.seeing.controllers import ControllerProgram

IN_ZOOKEEPER = (FileMode.BROKER_MIGRATING, FileMode.BROKER_ZOOKEEPER)


class UntrueRestartError(OperatorError):
    """A command to stop or restart succeeded, but the same process still runs."""


class HiddenProcessError(OperatorError):
    """The executor finds no process, but the node answers: a start would start it a second time."""


class Processes:
    def __init__(self, parts: RolloutParts, gates: Gatekeeper) -> None:
        self._parts = parts
        self._gates = gates

    async def incarnation(self, node: Node, seen: Observation | None = None) -> str | None:
        """The incarnation of the node's process; None when none runs and none answers. The process may have just begun
        or ended.

        :param seen: a look of just now, if there was one.
        :raises HiddenProcessError: the node answers, but no process is found, so a stop could not be verified.
        """
        found = await self._parts.executor.incarnation(node)
        program = program_of(self._parts.inventory)
        for look in (seen, None):
            if found is not None:
                return found
            if not _answers(node, look or await self._parts.observer.observe(partitions=False), program):
                return None
            found = await self._parts.executor.incarnation(node)
        if found is not None:
            return found
        raise HiddenProcessError(
            "the node answers, and its executor says that no process of it runs",
            where=f"{node.name} on {node.host}",
            remedy="Try the command 'incarnation' of its executor, and correct the command or its variables, such as "
            "'unit' or 'users'. If somebody has started it in another way, stop it, and start it as the executor does. "
            "Then 'migrator rollout resume'",
        )

    async def restart(self, step: Step, node: Node, before: str | None) -> None:
        """Restart a process, or start it if none runs.

        :param before: the incarnation of the process that runs; None when none runs.
        :raises UntrueRestartError: the same process still runs.
        :raises ExecutorError: a command fails, and the process has not ended; or it cannot be started.
        """
        if before is None:
            self._parts.tell(f"{step.name}: starts {node.name}")
            await self.start_again(step, node)
        else:
            self._parts.tell(f"{step.name}: restarts {node.name}")
            if self._parts.executor.stops_and_starts(node):
                await self.stop(step, node, before)
                await self.start_again(step, node)
            else:
                await self._parts.executor.restart(node)
        await self._believe(node, before)

    async def stop(self, step: Step, node: Node, before: str) -> None:
        """Stop a process; it has ended when this returns. A command that fails or times out may have begun the stop:
        Kafka takes minutes to hand over its partitions. So the process is watched as long as a gate may stay shut.

        :raises ExecutorError: the command failed, and the process still runs after that time.
        :raises UntrueRestartError: the command succeeded, and the process still runs after that time.
        """
        failed: ExecutorError | None = None
        try:
            await self._parts.executor.stop(node)
        except ExecutorError as error:
            failed = error
            self._parts.tell(f"{step.name}: {error}. Waits whether {node.name} ends nevertheless")
        if before == decisions.UNKNOWN_INCARNATION and failed is None:
            return
        has_ended = await self._ends(node, before, step.name)
        if failed is not None and not has_ended:
            raise failed
        if has_ended is False:
            raise _untrue(node, "stop")

    async def start_again(self, step: Step, node: Node) -> None:
        """Start a node after its stop. If a broker could not close its ZooKeeper session, wait until its znode is gone,
        because it would not start beside it."""
        if step.mode in IN_ZOOKEEPER:
            await self._gates.until_gone(node, step.name)
        self._gates.lifelines.starts(node.name)
        if self._parts.executor.stops_and_starts(node):
            await self._start(step, node)
        elif await self._parts.executor.incarnation(node) is None:  # otherwise it was started outside the rollout
            await self._parts.executor.restart(node)
        with suppress(ExecutorError):  # the gate after this step looks again
            if (runs := await self._parts.executor.incarnation(node)) is not None:
                self._gates.lifelines.shows(node.name, runs)

    async def _start(self, step: Step, node: Node) -> None:
        """Start a node; try again while its host is unreachable. To start a running node does nothing."""
        clock, times = self._parts.clock, self._parts.inventory.times
        deadline = clock.monotonic_ms() + int(times.gate * 1000)
        while True:
            try:
                await self._parts.executor.start(node)
            except HostUnreachableError as error:
                if clock.monotonic_ms() >= deadline:
                    raise
                self._parts.tell(f"{step.name}: {error}. Tries again")
                await clock.sleep(times.poll)
            else:
                return

    async def _ends(self, node: Node, before: str, step: str) -> bool | None:
        """Whether the process ends; None when this stays unknown."""
        clock, times = self._parts.clock, self._parts.inventory.times
        deadline = clock.monotonic_ms() + int(times.gate * 1000)
        with self._gates.patience(step) as patience:
            while True:
                ended: bool | None = None
                try:
                    ended = await self._parts.executor.incarnation(node) != before
                except ExecutorError as error:
                    self._parts.tell(f"{node.name}: {error}")
                if ended or clock.monotonic_ms() >= deadline:
                    return ended
                patience.waits(f"{node.name} has still to end", clock.monotonic_ms())
                await self._gates.sleep(patience)

    async def _believe(self, node: Node, before: str | None) -> None:
        after = await self._parts.executor.incarnation(node)
        if after is not None and after == before and after != decisions.UNKNOWN_INCARNATION:
            raise _untrue(node, "restart")


def _answers(node: Node, seen: Observation, program: ControllerProgram) -> bool:
    """Whether the node's process has answered at this look.

    :param program: for a controller, its program: during a hand-over another program may answer under the same id.
    """
    if node.role is Role.BROKER:
        broker = seen.broker(node)
        return broker is not None and broker.serving
    voter = seen.voter(node)
    return voter is not None and voter.program is program


def _untrue(node: Node, command: str) -> UntrueRestartError:
    return UntrueRestartError(
        f"the {command} command succeeded, but the same process runs",
        where=f"{node.name} on {node.host}",
        remedy="Correct the command in the inventory; then 'migrator rollout resume'",
    )


class StepActs:
    def __init__(self, run: RunContext, gates: Gatekeeper, step_gates: StepGates) -> None:
        self._run = run
        self._parts = run.parts
        self._gates = gates
        self._step_gates = step_gates
        self._processes = Processes(run.parts, gates)
        self._jobs = JobActs(run)
        self._soak = SoakAct(run, gates, self._jobs)
        self._started: set[str] = set()
        """Names of the steps whose node was started or restarted in this run."""

    async def look(self, step: Step, seen: Observation) -> Sight:
        """Look at a step's node: the mode of its file, and whether its process runs.

        :param seen: the look before.
        :raises HiddenProcessError: the node answers, but the executor finds no process.
        """
        if step.node is None or step.job is Job.UNREGISTER:  # the broker's host is gone
            return Sight(seen, step.node)
        runs = await self._processes.incarnation(step.node, seen) is not None
        file = None
        if step.mode not in (None, FileMode.STOCK):
            file = file_mode(step.node.role, parsed(step.node, await text_of(self._parts.executor, step.node)))
        return Sight(seen, step.node, file, runs, step.node.name in self._run.progress.returned)

    async def see_files(self, nodes: Iterable[Node]) -> None:
        """Look at the files before the operator is asked to confirm: no file may have been changed outside the rollout.

        :raises FileChangedError: a file was changed.
        """
        for node in nodes:
            now = await self._digest(node)
            if not self._run.progress.knows(node.name, now):
                raise self._changed(node, now)

    async def tell_odd_keys(self, step: Step) -> None:
        """Before the operator is asked to confirm: name keys in which one controller's file differs: they may be an
        editor's mistake. Values stay hidden."""
        settings, files = self._parts.mode_settings(self._run.progress.release_version), {}
        for node in self._parts.inventory.controllers.nodes:
            with suppress(OperatorError):  # its own step says so, if it still has one
                text = await text_of(self._parts.executor, node)
                files[node.name] = parsed(node, rewritten(node, text, FileMode.CONTROLLER_ENDED, settings))
        for name, key in odd_keys(files):
            self._parts.tell(
                f"{step.name}: {key} in the property file of {name} is not as in those of all other "
                "controllers. Say no to the next question if that is a mistake"
            )

    async def take_as_mended(self, nodes: Iterable[Node]) -> None:
        """Accept, after a failure, the files of nodes that serve as they should: the operator has corrected them."""
        for node in nodes:
            now = await self._digest(node)
            if not self._run.progress.knows(node.name, now):
                self._run.note(Event.FILE, node=node.name, file=now)

    async def take_other_settings(self, step: Step) -> None:
        """When the inventory's settings have changed since a step under way wrote its file, begin the step again at its
        file."""
        known, settings = self._run.progress.of(step.name), self._parts.mode_settings("").digest
        if step.node is None or not {Act.EDIT, Act.RESTART} <= {*step.acts} or not known.has_other_settings(settings):
            return
        text = await text_of(self._parts.executor, step.node)
        new, _ = await wanted_file(self._parts, step, step.node, text, self._run.progress)
        if new != encoded(text):
            self._parts.tell(f"{step.name}: the inventory has other settings now; {step.node.name} gets them")
            self._run.note(Event.REOPENED, step.name, Act.EDIT)

    async def do(self, step: Step, act: Act) -> None:
        """Do one act that changes something, or a job.

        :raises OperatorError: it fails.
        """
        if act is Act.SOAK:
            await self._soak.run(step)
        elif act is Act.PROVE:
            await self._jobs.prove(step)
        elif act is Act.RUN:
            await self._jobs.run(step)
        elif step.node is not None:
            if act in (Act.RESTART, Act.START):
                refuse_old_log(step.node, self._run.progress)
            if act in STOPS:
                stops = self._restart if act is Act.RESTART else self._stop
                await stops(step, step.node)
            else:
                await (self._edit if act is Act.EDIT else self._start)(step, step.node)
            if act in (Act.RESTART, Act.START):
                self._started.add(step.name)

    async def start_what_ended(self, own: Step, step: Step) -> None:
        """Start a node again that an earlier run has started, that a step waits for, and that has ended since, mostly
        because of its file. No gate delays this start.

        :param own: the step that has started the node.
        :param step: the step that waits for it.
        :raises FileChangedError: the file of the step's own node is not for the wanted mode.
        :raises ExecutorError: the node cannot be started.
        """
        node = own.node
        if node is None or own.name in self._started or await self._may_run(own, node):
            return
        target = own.successor or node
        if not await self._is_for(own):
            if own is step:
                raise self._changed(node, await self._digest(node))
            return
        self._started.add(own.name)
        self._run.note(Event.BEGUN, own.name, Act.START, node=target.name)
        self._parts.tell(f"{step.name}: {target.name} does not run; starts it")
        self._gates.steadiness.renews(node.node_id)
        await self._processes.start_again(own, target)
        self._run.note(Event.DONE, own.name, Act.START, node=target.name, file=await self._digest(target))

    async def _may_run(self, own: Step, node: Node) -> bool:
        """Whether the node serves, or its process runs, or neither can be told."""
        if (await self._parts.observer.observe(partitions=False)).serves(node):
            return True
        try:
            return await self._parts.executor.incarnation(own.successor or node) is not None
        except ExecutorError as error:
            self._parts.tell(f"{own.name}: {error}")
            return True

    async def _edit(self, step: Step, node: Node) -> None:
        target = step.successor or node
        ours = await text_of(self._parts.executor, node)
        if step.rules.to_zookeeper:
            await refuse_new_identity(self._parts, node, parsed(node, ours))
        here = FileMode.STOCK if step.mode is FileMode.STOCK else file_mode(node.role, parsed(node, ours))
        if decisions.is_ahead(step, here):
            await self._refuse_ahead(step, node)
            self._run.note(Event.FOUND, step.name, Act.EDIT, past=True)
            return
        old = encoded(ours) if step.successor is None else await self._parts.executor.read(target, target.properties)
        new, was = await wanted_file(self._parts, step, node, ours, self._run.progress)
        before, wanted = digest(old), digest(new)
        known = self._run.progress.knows(target.name, before)
        step_known, settings = self._run.progress.of(step.name), self._parts.mode_settings("").digest
        decision = decisions.decide_edit(step_known, before, wanted, file_is_known=known)
        if decision is ActDecision.TOOK_EFFECT and before != wanted:
            with_others = step_known.expected.get("settings", settings) != settings
            decision = ActDecision.DO if with_others else decision
        if decision is ActDecision.FILE_CHANGED:
            raise self._changed(target, before)
        if step.rules.first_of_brokers:
            note = partial(self._run.note, Event.REMOVES, step.name, Act.EDIT)
            await remove_old_log(self._parts, node, parsed(node, ours), lambda path: note(node=node.name, path=path))
        if decision is ActDecision.DO and here is FileMode.BROKER_KRAFT and step.rules.to_zookeeper:
            await keep_log(self._parts, node, parsed(node, ours), self._run.progress.rollout)
        if decision is ActDecision.DO:
            keep_changes(self._run.state, self._run.progress.rollout, step.name, target, old, new)
            kept = "" if old is None else backup(target, step.phase, self._run.progress.rollout)
            details = {"node": target.name, "before": before, "after": wanted, "backup": kept, "settings": settings}
            self._run.note(Event.BEGUN, step.name, Act.EDIT, **details)
            self._parts.tell(f"{step.name}: writes {target.properties}")
            await self._write(target, new, before, kept)
        event = Event.FOUND if decision is ActDecision.FOUND else Event.DONE
        now = before if decision is ActDecision.TOOK_EFFECT else wanted
        restored = was is not None and now == digest(was)
        self._run.note(event, step.name, Act.EDIT, node=target.name, file=now, restored=restored, settings=settings)

    async def _refuse_ahead(self, step: Step, node: Node) -> None:
        """
        :raises FileAheadError: the file is in KRaft mode, and the copy is seen not to be made.
        :raises GateTimeoutError: whether the copy is made stays unknown.
        """
        gate = Gate(GateKind.BROKERS_SEEN)
        while not may_be_ahead(node, seen := await self._parts.observer.observe(partitions=False)):
            if not judge(gate, seen):
                raise ahead_of_copy(node)
            await self._step_gates.wait_for(step, gate)

    async def _write(self, node: Node, content: bytes, before: str | None, kept: str) -> None:
        try:
            await self._parts.executor.write(node, node.properties, content, expected=before, backup=kept)
        except FileChangedError as error:
            error.node, error.digest = node.name, await self._digest(node)
            if error.digest != digest(content):  # when equal, a write of a killed command has just ended
                raise

    async def _restart(self, step: Step, node: Node) -> None:
        known = self._run.progress.of(step.name)
        words = self._parts.inventory.words_for(node)
        while True:
            before = await self._processes.incarnation(node)
            comparable = decisions.comparable(known, before, words)
            now = await self._digest(node)
            is_known = self._run.progress.knows(node.name, now) or await self._is_mended(step, known, before)
            seen = await self._parts.observer.observe()
            decision = decisions.decide_restart(step, known, seen, comparable, file_is_known=is_known)
            if decision is ActDecision.FILE_CHANGED:
                raise self._changed(node, now)
            if decision is not ActDecision.DO or await self._step_gates.is_open_now(step, seen):
                break
        if decision is ActDecision.FOUND:
            self._run.note(Event.FOUND, step.name, Act.RESTART)
            return
        self._gates.steadiness.renews(node.node_id)
        if decision is not ActDecision.TOOK_EFFECT:
            worded_anew = decision is ActDecision.DO and comparable != before
            if known.begun is not Act.RESTART or worded_anew:
                begun = restart_begun(node, seen, before)
                self._run.note(Event.BEGUN, step.name, Act.RESTART, **begun, words=words)
            await self._processes.restart(step, node, before)
        self._run.note(Event.DONE, step.name, Act.RESTART, node=node.name)

    async def _is_mended(self, step: Step, known: StepProgress, before: str | None) -> bool:
        """Whether a node that is down after a failure may start with its file as the operator has changed it since."""
        return known.failed and before is None and await self._is_for(step)

    async def _is_for(self, step: Step) -> bool:
        """Whether the file of a step's node is for the mode that the step wants; True when it wants none."""
        if step.node is None or step.mode in (None, FileMode.STOCK):
            return True
        return file_mode(step.node.role, parsed(step.node, await text_of(self._parts.executor, step.node))) is step.mode

    async def _start(self, step: Step, node: Node) -> None:
        target = step.successor or node
        decision = ActDecision.TOOK_EFFECT  # Kafka's controller, which this run started after it had stopped ours
        if step.successor is None or step.name not in self._started:
            look = self._processes.incarnation if step.successor is None else self._parts.executor.incarnation
            decision = decisions.decide_start(self._run.progress.of(step.name), await look(target))
        if decision is ActDecision.DO:
            self._run.note(Event.BEGUN, step.name, Act.START, node=target.name)
            self._parts.tell(f"{step.name}: starts {target.name}")
            await self._processes.start_again(step, target)
        if decision is ActDecision.FOUND:
            self._run.note(Event.FOUND, step.name, Act.START, node=target.name)
            return
        now = await self._digest(target)  # the operator may have corrected it: the node runs with this file
        self._run.note(Event.DONE, step.name, Act.START, node=target.name, file=now)

    async def _stop(self, step: Step, node: Node) -> None:
        while True:
            runs = await self._processes.incarnation(node)
            decision = decisions.decide_stop(self._run.progress.of(step.name), runs)
            if decision is not ActDecision.DO or await self._step_gates.is_open_now(step):
                break
        if decision is ActDecision.DO and runs is not None:
            self._run.note(Event.BEGUN, step.name, Act.STOP, node=node.name)
            self._parts.tell(f"{step.name}: stops {node.name}")
            await self._processes.stop(step, node, runs)
            if step.successor is not None:  # start it before the journal or the lock can fail
                self._parts.tell(f"{step.name}: starts {step.successor.name}")
                await self._processes.start_again(step, step.successor)
                self._started.add(step.name)
        self._run.note(
            Event.FOUND if decision is ActDecision.FOUND else Event.DONE, step.name, Act.STOP, node=node.name
        )

    async def _digest(self, node: Node) -> str | None:
        return await digest_of(self._parts.executor, node)

    def _changed(self, node: Node, now: str | None) -> FileChangedError:
        error = FileChangedError(
            "the file was changed since this rollout looked at it; nothing was done",
            where=f"{node.name} on {node.host}: {node.properties}",
            remedy="Look at it. 'migrator rollout resume' goes on with the file as it is now",
        )
        error.node, error.digest = node.name, now
        return error
