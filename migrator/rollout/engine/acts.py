"""The acts of a step: each is noted as begun, done on the cluster, and noted as done.

`apply` calls `StepActs` for one act after the other. After a crash the journal shows which act was begun, and the act
is looked at again before it is repeated: each can be done twice without harm. A file that somebody changed outside of
the rollout is never overwritten. No process is stopped before its gates are open.

`Processes` stops and starts nodes. A stopped node is started again before the journal or the lock can fail. A command
that succeeded, while the same incarnation still runs, is an error. A node that answers, but whose process the executor
does not find, is not started a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from migrator.config.properties import encoded
from migrator.errors import OperatorError
from migrator.rollout.engine import decisions
from migrator.rollout.engine.decisions import ActDecision, ahead_of_copy, may_be_ahead
from migrator.rollout.engine.job_acts import JobActs, refuse_old_log
from migrator.rollout.engine.soak import SoakAct
from migrator.rollout.engine.step import StepContext, StepGates
from migrator.rollout.files.archive import keep_changes
from migrator.rollout.files.identities import refuse_new_identity
from migrator.rollout.files.old_metadata_log import keep_log, remove_old_log
from migrator.rollout.files.property_files import backup, digest_of, properties_of, text_of, wanted_file
from migrator.rollout.gates.gates import judge
from migrator.rollout.journal.journal import Event
from migrator.rollout.journal.progress import StepProgress, restart_begun
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.modes import FileMode, digest, file_mode, odd_keys, parsed, rewritten
from migrator.rollout.plan.phases import program_of
from migrator.rollout.plan.steps import Act, Job, Sight
from migrator.rollout.ports import ExecutorError, FileChangedError, Gate, GateKind, HostUnreachableError, Observation
from migrator.seeing.controllers import ControllerProgram

IN_ZOOKEEPER = (FileMode.BROKER_MIGRATING, FileMode.BROKER_ZOOKEEPER)


class UntrueRestartError(OperatorError):
    """A command to stop or restart succeeded, but the same process still runs."""


class HiddenProcessError(OperatorError):
    """The executor finds no process, but the node answers: a start would start it a second time."""


class Processes:
    """The process of a step's node."""

    def __init__(self, at: StepContext) -> None:
        self._at = at
        self._parts = at.run.parts
        self._gates = at.gates

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
            where=node.place,
            remedy="Try the command 'incarnation' of its executor, and correct the command or its variables, such as "
            "'unit' or 'users'. If somebody has started it in another way, stop it, and start it as the executor does. "
            "Then 'migrator rollout resume'",
        )

    async def restart(self, node: Node, before: str | None) -> None:
        """Restart a process, or start it if none runs.

        :param before: the incarnation of the process that runs; None when none runs.
        :raises UntrueRestartError: the same process still runs.
        :raises ExecutorError: a command fails, and the process has not ended; or it cannot be started.
        """
        if before is None:
            self._at.tell(f"starts {node.name}")
            await self.start_again(node)
        else:
            self._at.tell(f"restarts {node.name}")
            if self._parts.executor.stops_and_starts(node):
                await self.stop(node, before)
                await self.start_again(node)
            else:
                await self._parts.executor.restart(node)
        await self._believe(node, before)

    async def stop(self, node: Node, before: str) -> None:
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
            self._at.tell(f"{error}. Waits whether {node.name} ends nevertheless")
        if before == decisions.UNKNOWN_INCARNATION and failed is None:
            return
        has_ended = await self._ends(node, before)
        if failed is not None and not has_ended:
            raise failed
        if has_ended is False:
            raise _untrue(node, "stop")

    async def start_again(self, node: Node) -> None:
        """Start a node after its stop. If a broker could not close its ZooKeeper session, wait until its znode is gone,
        because it would not start beside it."""
        if self._at.step.mode in IN_ZOOKEEPER:
            await self._gates.until_gone(node, self._at.step.name)
        self._gates.lifelines.starts(node.name)
        if self._parts.executor.stops_and_starts(node):
            await self._start(node)
        elif await self._parts.executor.incarnation(node) is None:  # otherwise it was started outside the rollout
            await self._parts.executor.restart(node)
        with suppress(ExecutorError):  # the gate after this step looks again
            if (runs := await self._parts.executor.incarnation(node)) is not None:
                self._gates.lifelines.shows(node.name, runs)

    async def _start(self, node: Node) -> None:
        """Start a node; try again while its host is unreachable. To start a running node does nothing."""
        clock, times = self._parts.clock, self._parts.inventory.times
        deadline = clock.monotonic_ms() + int(times.gate * 1000)
        while True:
            try:
                await self._parts.executor.start(node)
            except HostUnreachableError as error:
                if clock.monotonic_ms() >= deadline:
                    raise
                self._at.tell(f"{error}. Tries again")
                await clock.sleep(times.poll)
            else:
                return

    async def _ends(self, node: Node, before: str) -> bool | None:
        """Whether the process ends; None when this stays unknown."""
        clock, times = self._parts.clock, self._parts.inventory.times
        deadline = clock.monotonic_ms() + int(times.gate * 1000)
        with self._gates.patience(self._at.step.name) as patience:
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
    if node.role is NodeKind.BROKER:
        broker = seen.broker(node)
        return broker is not None and broker.serving
    voter = seen.voter(node)
    return voter is not None and voter.program is program


def _untrue(node: Node, command: str) -> UntrueRestartError:
    return UntrueRestartError(
        f"the {command} command succeeded, but the same process runs",
        where=node.place,
        remedy="Correct the command in the inventory; then 'migrator rollout resume'",
    )


class StepActs:
    def __init__(self, at: StepContext, gates: StepGates) -> None:
        self._at = at
        self._run = at.run
        self._parts = at.run.parts
        self._step = at.step
        self._gates = gates
        self._processes = Processes(at)

    async def look(self, seen: Observation) -> Sight:
        """Look at the step's node: the mode of its file, and whether its process runs.

        :param seen: the look before.
        :raises HiddenProcessError: the node answers, but the executor finds no process.
        """
        node = self._step.node
        if node is None or self._step.job is Job.UNREGISTER:  # the broker's host is gone
            return Sight(seen, node)
        runs = await self._processes.incarnation(node, seen) is not None
        file = None if self._step.mode in (None, FileMode.STOCK) else await self._mode(node)
        return Sight(seen, node, file, runs, node.name in self._run.progress.returned)

    async def _mode(self, node: Node) -> FileMode | None:
        """The mode of a node's file."""
        return file_mode(node.role, await properties_of(self._parts.executor, node))

    async def see_files(self, nodes: Iterable[Node]) -> None:
        """Look at the files before the operator is asked to confirm: no file may have been changed outside the rollout.

        :raises FileChangedError: a file was changed.
        """
        for node in nodes:
            now = await self._digest(node)
            if not self._run.progress.knows(node.name, now):
                raise self._changed(node, now)

    async def tell_odd_keys(self) -> None:
        """Before the operator is asked to confirm: name keys in which one controller's file differs: they may be an
        editor's mistake. Values stay hidden."""
        settings, files = self._parts.mode_settings(self._run.progress.release_version), {}
        for node in self._parts.inventory.controllers.nodes:
            with suppress(OperatorError):  # its own step says so, if it still has one
                text = await text_of(self._parts.executor, node)
                files[node.name] = parsed(node, rewritten(node, text, FileMode.CONTROLLER_ENDED, settings))
        for name, key in odd_keys(files):
            self._at.tell(
                f"{key} in the property file of {name} is not as in those of all other controllers. Say no to the next "
                "question if that is a mistake"
            )

    async def take_as_mended(self, nodes: Iterable[Node]) -> None:
        """Accept, after a failure, the files of nodes that serve as they should: the operator has corrected them."""
        for node in nodes:
            now = await self._digest(node)
            if not self._run.progress.knows(node.name, now):
                self._run.note(Event.FILE, node=node.name, file=now)

    async def take_other_settings(self) -> None:
        """When the inventory's settings have changed since a step under way wrote its file, begin the step again at its
        file."""
        node, settings = self._step.node, self._parts.mode_settings("").digest
        restarts = {Act.EDIT, Act.RESTART} <= {*self._step.acts}
        if node is None or not restarts or not self._at.known.has_other_settings(settings):
            return
        text = await text_of(self._parts.executor, node)
        new, _ = await self._wanted(node, text)
        if new != encoded(text):
            self._at.tell(f"the inventory has other settings now; {node.name} gets them")
            self._at.note(Event.REOPENED, Act.EDIT)

    async def _wanted(self, node: Node, text: str) -> tuple[bytes, bytes | None]:
        if self._step.mode is None:
            raise ValueError(self._step.name)
        return await wanted_file(self._parts, self._step.mode, node, text, self._run.progress, self._at.tell)

    async def do(self, act: Act) -> None:
        """Do one act that changes something, or a job.

        :raises OperatorError: it fails.
        """
        jobs, node = JobActs(self._at), self._step.node
        if act is Act.SOAK:
            await SoakAct(self._at, jobs).run()
        elif act is Act.PROVE:
            await jobs.prove()
        elif act is Act.RUN:
            await jobs.run()
        elif node is not None:
            if act in (Act.RESTART, Act.START):
                refuse_old_log(node, self._run.progress)
            doing = {Act.EDIT: self._edit, Act.STOP: self._stop, Act.START: self._start, Act.RESTART: self._restart}
            await doing[act](node)
            if act in (Act.RESTART, Act.START):
                self._at.memory.started.add(self._step.name)

    async def start_if_ended(self, waits: StepContext) -> None:
        """Start the step's node again that an earlier run has started, that a step waits for, and that has ended since,
        mostly because of its file. No gate delays this start.

        :param waits: the step that waits for the node, this one or another.
        :raises FileChangedError: the step waits for itself, and its file is not for the wanted mode.
        :raises ExecutorError: the node cannot be started.
        """
        node, started = self._step.node, self._at.memory.started
        if node is None or self._step.name in started or await self._may_run(node):
            return
        target = self._step.successor or node
        if not await self._is_for():
            if self._step is waits.step:
                raise self._changed(node, await self._digest(node))
            return
        started.add(self._step.name)
        self._at.note(Event.BEGUN, Act.START, node=target.name)
        waits.tell(f"{target.name} does not run; starts it")
        self._at.gates.steadiness.renews(node.node_id)
        await self._processes.start_again(target)
        self._at.note(Event.DONE, Act.START, node=target.name, file=await self._digest(target))

    async def _may_run(self, node: Node) -> bool:
        """Whether the node serves, or its process runs, or neither can be told."""
        if (await self._parts.observer.observe(partitions=False)).serves(node):
            return True
        try:
            return await self._parts.executor.incarnation(self._step.successor or node) is not None
        except ExecutorError as error:
            self._at.tell(str(error))
            return True

    async def _edit(self, node: Node) -> None:
        target = self._step.successor or node
        ours = await text_of(self._parts.executor, node)
        if self._step.rules.to_zookeeper:
            await refuse_new_identity(self._parts, node, parsed(node, ours))
        here = FileMode.STOCK if self._step.mode is FileMode.STOCK else file_mode(node.role, parsed(node, ours))
        if decisions.is_ahead(self._step, here):
            await self._refuse_ahead(node)
            self._at.note(Event.FOUND, Act.EDIT, past=True)
            return
        old = encoded(ours) if target is node else await self._parts.executor.read(target, target.properties)
        new, was = await self._wanted(node, ours)
        before, wanted = digest(old), digest(new)
        known = self._run.progress.knows(target.name, before)
        step_known, settings = self._at.known, self._parts.mode_settings("").digest
        decision = decisions.decide_edit(step_known, before, wanted, file_is_known=known)
        if decision is ActDecision.TOOK_EFFECT and before != wanted:
            with_others = step_known.expected.get("settings", settings) != settings
            decision = ActDecision.DO if with_others else decision
        if decision is ActDecision.FILE_CHANGED:
            raise self._changed(target, before)
        if self._step.rules.first_of_brokers:
            note = partial(self._at.note, Event.REMOVES, Act.EDIT)
            await remove_old_log(self._parts, node, parsed(node, ours), lambda path: note(node=node.name, path=path))
        if decision is ActDecision.DO and here is FileMode.BROKER_KRAFT and self._step.rules.to_zookeeper:
            await keep_log(self._parts, node, parsed(node, ours), self._run.progress.rollout)
        if decision is ActDecision.DO:
            keep_changes(self._run.state, self._run.progress.rollout, self._step.name, target, old, new)
            kept = "" if old is None else backup(target, self._step.phase, self._run.progress.rollout)
            details = {"node": target.name, "before": before, "after": wanted, "backup": kept, "settings": settings}
            self._at.note(Event.BEGUN, Act.EDIT, **details)
            self._at.tell(f"writes {target.properties}")
            await self._write(target, new, before, kept)
        event = Event.FOUND if decision is ActDecision.FOUND else Event.DONE
        now = before if decision is ActDecision.TOOK_EFFECT else wanted
        restored = was is not None and now == digest(was)
        self._at.note(event, Act.EDIT, node=target.name, file=now, restored=restored, settings=settings)

    async def _refuse_ahead(self, node: Node) -> None:
        """
        :raises FileAheadError: the file is in KRaft mode, and the copy is seen not to be made.
        :raises GateTimeoutError: whether the copy is made stays unknown.
        """
        gate = Gate(GateKind.BROKERS_SEEN)
        while not may_be_ahead(node, seen := await self._parts.observer.observe(partitions=False)):
            if not judge(gate, seen):
                raise ahead_of_copy(node)
            await self._gates.wait_for(gate)

    async def _write(self, node: Node, content: bytes, before: str | None, kept: str) -> None:
        try:
            await self._parts.executor.write(node, node.properties, content, expected=before, backup=kept)
        except FileChangedError as error:
            error.node, error.digest = node.name, await self._digest(node)
            if error.digest != digest(content):  # when equal, a write of a killed command has just ended
                raise

    async def _restart(self, node: Node) -> None:
        known = self._at.known
        words = self._parts.inventory.words_for(node)
        while True:
            before = await self._processes.incarnation(node)
            comparable = decisions.comparable(known, before, words)
            now = await self._digest(node)
            is_known = self._run.progress.knows(node.name, now) or await self._is_mended(known, before)
            seen = await self._parts.observer.observe()
            decision = decisions.decide_restart(self._step, known, seen, comparable, file_is_known=is_known)
            if decision is ActDecision.FILE_CHANGED:
                raise self._changed(node, now)
            if decision is not ActDecision.DO or await self._gates.is_open_now(seen):
                break
        if decision is ActDecision.FOUND:
            self._at.note(Event.FOUND, Act.RESTART)
            return
        self._at.gates.steadiness.renews(node.node_id)
        if decision is not ActDecision.TOOK_EFFECT:
            worded_anew = decision is ActDecision.DO and comparable != before
            if known.begun is not Act.RESTART or worded_anew:
                begun = restart_begun(node, seen, before)
                self._at.note(Event.BEGUN, Act.RESTART, **begun, words=words)
            await self._processes.restart(node, before)
        self._at.note(Event.DONE, Act.RESTART, node=node.name)

    async def _is_mended(self, known: StepProgress, before: str | None) -> bool:
        """Whether a node that is down after a failure may start with its file as the operator has changed it since."""
        return known.failed and before is None and await self._is_for()

    async def _is_for(self) -> bool:
        """Whether the file of the step's node is for the mode that the step wants; True when it wants none."""
        if self._step.node is None or self._step.mode in (None, FileMode.STOCK):
            return True
        return await self._mode(self._step.node) is self._step.mode

    async def _start(self, node: Node) -> None:
        target = self._step.successor or node
        decision = ActDecision.TOOK_EFFECT  # Kafka's controller, which this run started after it had stopped ours
        if self._step.successor is None or self._step.name not in self._at.memory.started:
            look = self._processes.incarnation if self._step.successor is None else self._parts.executor.incarnation
            decision = decisions.decide_start(self._at.known, await look(target))
        if decision is ActDecision.DO:
            self._at.note(Event.BEGUN, Act.START, node=target.name)
            self._at.tell(f"starts {target.name}")
            await self._processes.start_again(target)
        if decision is ActDecision.FOUND:
            self._at.note(Event.FOUND, Act.START, node=target.name)
            return
        now = await self._digest(target)  # the operator may have corrected it: the node runs with this file
        self._at.note(Event.DONE, Act.START, node=target.name, file=now)

    async def _stop(self, node: Node) -> None:
        while True:
            runs = await self._processes.incarnation(node)
            decision = decisions.decide_stop(self._at.known, runs)
            if decision is not ActDecision.DO or await self._gates.is_open_now():
                break
        if decision is ActDecision.DO and runs is not None:
            self._at.note(Event.BEGUN, Act.STOP, node=node.name)
            self._at.tell(f"stops {node.name}")
            await self._processes.stop(node, runs)
            if self._step.successor is not None:  # start it before the journal or the lock can fail
                self._at.tell(f"starts {self._step.successor.name}")
                await self._processes.start_again(self._step.successor)
                self._at.memory.started.add(self._step.name)
        self._at.note(Event.FOUND if decision is ActDecision.FOUND else Event.DONE, Act.STOP, node=node.name)

    async def _digest(self, node: Node) -> str | None:
        return await digest_of(self._parts.executor, node)

    def _changed(self, node: Node, now: str | None) -> FileChangedError:
        error = FileChangedError(
            "the file was changed since this rollout looked at it; nothing was done",
            where=node.file_place,
            remedy="Look at it. 'migrator rollout resume' goes on with the file as it is now",
        )
        error.node, error.digest = node.name, now
        return error
