"""The acts of a step, each done on the cluster: noted as begun, done, and noted as done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from migrator.config.properties import encoded
from migrator.errors import OperatorError
from migrator.rollout import engine, jobs
from migrator.rollout.archive import keep_output, keep_verdict, make_archive
from migrator.rollout.engine import Decision
from migrator.rollout.examined import copies
from migrator.rollout.excuses import Baseline, refuse_gone
from migrator.rollout.files import backup, backup_of, text_of
from migrator.rollout.gatekeeper import AbortedError, Asked, Gatekeeper, Note
from migrator.rollout.identities import LEAVES, refuse_new_identity
from migrator.rollout.journal import Detail, Event
from migrator.rollout.modes import FileMode, digest, file_mode, parsed
from migrator.rollout.nodes import Node
from migrator.rollout.old_metadata_log import remove_old_log
from migrator.rollout.parts import RolloutParts
from migrator.rollout.ports import ExecutorError, FileChangedError, Observation, Output
from migrator.rollout.processes import Processes
from migrator.rollout.progress import Progress, StepProgress, restart_begun
from migrator.rollout.step_gates import StepGates
from migrator.rollout.steps import Act, Job, Phase, Step
from migrator.rollout.wanted_file import wanted_file

SOAK_NOTE_MS = 60_000
"""How much of a soak a crash may cost."""
VERDICT_MS = 900_000
"""How long a comparison of both sides counts, before a controller is restarted without the migration."""


class JobFailedError(OperatorError):
    """A command of a step failed, or its answer is no.

    :param output: the file on this machine that has what the command printed; "" without one.
    """

    def __init__(self, what: str, *, where: str, remedy: str, output: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.output = output


class StepActs:
    """Of one run.

    :param note: writes a line of the journal.
    :param is_aborted: whether the operator asks for an end.
    :param baseline: gives partitions that were not well before.
    """

    def __init__(
        self,
        parts: RolloutParts,
        state: Path,
        note: Note,
        is_aborted: Callable[[], bool],
        baseline: Callable[[], Baseline],
    ) -> None:
        self._parts = parts
        self._is_aborted = is_aborted
        self._state = state
        self._note = note
        self._gates = Gatekeeper(parts, baseline, note, is_aborted)
        self.gates = StepGates(parts, self._gates, note)
        self._processes = Processes(parts, self._gates)
        self._started: set[str] = set()
        """Names of the steps whose node was started, or restarted, in this run."""
        self.found: tuple[str, str | None] = ("", None)
        """Node and digest of the file that was found changed last."""
        self._verified_ms: int | None = None
        """When both sides were found equal last in this run, by the clock that goes on while the machine sleeps."""

    async def look(self, step: Step) -> tuple[FileMode | None, bool]:
        """What the file of a step's node is for, and whether its process runs."""
        if step.node is None or step.job is Job.UNREGISTER:  # that one's host is gone
            return None, False
        runs = await self._parts.executor.incarnation(step.node) is not None
        if step.mode is None or step.mode is FileMode.STOCK:
            return None, runs
        return file_mode(step.node.role, parsed(step.node, await text_of(self._parts.executor, step.node))), runs

    async def see_files(self, nodes: Iterable[Node], progress: Progress) -> None:
        """Before a person is asked: nobody else may have changed one of these files.

        :raises FileChangedError: somebody has.
        """
        for node in nodes:
            now = await self._digest(node)
            if not progress.knows(node.name, now):
                raise self._changed(node, now)

    async def take_as_mended(self, nodes: Iterable[Node], progress: Progress) -> None:
        """Nodes that serve as they should, after a failure: the files that the operator has mended are the base now."""
        for node in nodes:
            now = await self._digest(node)
            if not progress.knows(node.name, now):
                self._note(Event.FILE, node=node.name, file=now)

    async def take_other_settings(self, step: Step, progress: Progress) -> None:
        """A step under way whose file was made with other settings than the inventory has now: back to its file."""
        known, settings = progress.of(step.name), self._parts.mode_settings("").digest
        if step.node is None or not {Act.EDIT, Act.RESTART} <= {*step.acts} or Act.EDIT not in known.done:
            return
        if known.past or known.settings in ("", settings):
            return
        text = await text_of(self._parts.executor, step.node)
        new, _ = await wanted_file(self._parts, step, step.node, text, progress)
        if new != encoded(text):
            self._parts.tell(f"{step.name}: the inventory has other settings now; {step.node.name} gets them")
            self._note(Event.REOPENED, step.name, Act.EDIT)

    async def do(self, step: Step, act: Act, progress: Progress, asked: Asked) -> None:
        """One act that changes something, or a job.

        :param asked: the gate before the step: asked again as the last thing before a process is stopped.

        :raises OperatorError: it fails.
        """
        if act is Act.SOAK:
            await self._soak(step, progress)
        elif act is Act.PROVE:
            await self._prove(step, progress)
        elif act is Act.RUN:
            await self._run(step, progress)
        elif step.node is not None:
            if act in (Act.RESTART, Act.START):
                self._started.add(step.name)
            if act in engine.STOPS:
                stops = self._restart if act is Act.RESTART else self._stop
                await stops(step, step.node, progress, asked)
            else:
                await (self._edit if act is Act.EDIT else self._start)(step, step.node, progress)

    async def start_what_ended(self, own: Step, step: Step) -> None:
        """What an earlier run has started, and a step waits for, may have ended since, mostly because of its file. No
        gate holds up its start.

        :param own: the step that has started it.
        :param step: that waits for it.
        :raises FileChangedError: the file of the step's own node is not for the mode that is wanted.
        :raises ExecutorError: it cannot be started.
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
        self._note(Event.BEGUN, own.name, Act.START, node=target.name)
        self._parts.tell(f"{step.name}: {target.name} does not run; starts it")
        self._gates.steadiness.renews(node.node_id)
        await self._processes.start_again(own, target)
        self._note(Event.DONE, own.name, Act.START, node=target.name, file=await self._digest(target))

    async def _may_run(self, own: Step, node: Node) -> bool:
        """Whether the node is seen to serve, or its process to run, or nobody can say."""
        if engine.serves(node, await self._parts.observer.observe()):
            return True
        try:
            return await self._parts.executor.incarnation(own.successor or node) is not None
        except ExecutorError as error:
            self._parts.tell(f"{own.name}: {error}")
            return True

    async def _edit(self, step: Step, node: Node, progress: Progress) -> None:
        target = step.successor or node
        ours = await text_of(self._parts.executor, node)
        if step.phase in LEAVES:
            await refuse_new_identity(self._parts, node, parsed(node, ours))
        if step.phase is Phase.MIGRATE:
            await remove_old_log(self._parts, node, parsed(node, ours))
        here = FileMode.STOCK if step.mode is FileMode.STOCK else file_mode(node.role, parsed(node, ours))
        if engine.is_past(step, here):
            self._note(Event.FOUND, step.name, Act.EDIT, past=True)
            return
        old = encoded(ours) if step.successor is None else await self._parts.executor.read(target, target.properties)
        new, was = await wanted_file(self._parts, step, node, ours, progress)
        before, wanted = digest(old), digest(new)
        known = progress.knows(target.name, before)
        step_known, settings = progress.of(step.name), self._parts.mode_settings("").digest
        decision = engine.decide_edit(step_known, before, wanted, file_is_known=known)
        if decision is Decision.TOOK_EFFECT and before != wanted:
            with_others = step_known.expected.get("settings", settings) != settings
            decision = Decision.DO if with_others else decision
        if decision is Decision.FILE_CHANGED:
            raise self._changed(target, before)
        if decision is Decision.DO:
            kept = "" if old is None else backup(target, step.phase, progress.rollout)
            details = {"node": target.name, "before": before, "after": wanted, "backup": kept, "settings": settings}
            self._note(Event.BEGUN, step.name, Act.EDIT, **details)
            self._parts.tell(f"{step.name}: writes {target.properties}")
            await self._write(target, new, before, kept)
        event = Event.FOUND if decision is Decision.FOUND else Event.DONE
        now = before if decision is Decision.TOOK_EFFECT else wanted
        restored = was is not None and now == digest(was)
        self._note(event, step.name, Act.EDIT, node=target.name, file=now, restored=restored, settings=settings)

    async def _write(self, node: Node, content: bytes, before: str | None, kept: str) -> None:
        try:
            await self._parts.executor.write(node, node.properties, content, expected=before, backup=kept)
        except FileChangedError:
            now = await self._digest(node)
            if now != digest(content):  # else what a killed command had begun has ended just now
                self.found = node.name, now
                raise

    async def _restart(self, step: Step, node: Node, progress: Progress, asked: Asked) -> None:
        known = progress.of(step.name)
        words = self._parts.inventory.words_for(node)
        while True:
            seen = await self._parts.observer.observe()
            before = await self._parts.executor.incarnation(node)
            comparable = engine.comparable(known, before, words)
            now = await self._digest(node)
            is_known = progress.knows(node.name, now) or await self._is_mended(step, known, before)
            decision = engine.decide_restart(step, known, seen, comparable, file_is_known=is_known)
            if decision is Decision.FILE_CHANGED:
                raise self._changed(node, now)
            if decision is not Decision.DO or await self.gates.is_open_now(step, progress, asked):
                break
        if decision is Decision.FOUND:
            self._note(Event.FOUND, step.name, Act.RESTART)
            return
        self._gates.steadiness.renews(node.node_id)
        if decision is not Decision.TOOK_EFFECT:
            worded_anew = decision is Decision.DO and comparable != before
            if known.begun is not Act.RESTART or worded_anew:
                begun = restart_begun(node, engine.broker_before(node, seen), before)
                self._note(Event.BEGUN, step.name, Act.RESTART, **begun, words=words)
            await self._processes.restart(step, node, before)
        self._note(Event.DONE, step.name, Act.RESTART, node=node.name)

    async def _is_mended(self, step: Step, known: StepProgress, before: str | None) -> bool:
        """Whether a node that a failure has left down may start with its file, as the operator has changed it since."""
        return known.failed and before is None and await self._is_for(step)

    async def _is_for(self, step: Step) -> bool:
        """Whether the file of a step's node is for the mode that the step wants; where it wants none, too."""
        if step.node is None or step.mode in (None, FileMode.STOCK):
            return True
        return file_mode(step.node.role, parsed(step.node, await text_of(self._parts.executor, step.node))) is step.mode

    async def _start(self, step: Step, node: Node, progress: Progress) -> None:
        target = step.successor or node
        decision = engine.decide_start(progress.of(step.name), await self._parts.executor.incarnation(target))
        if decision is Decision.DO:
            self._note(Event.BEGUN, step.name, Act.START, node=target.name)
            self._parts.tell(f"{step.name}: starts {target.name}")
            await self._parts.executor.start(target)
        if decision is Decision.FOUND:
            self._note(Event.FOUND, step.name, Act.START, node=target.name)
            return
        now = await self._digest(target)  # a person may have mended it before: it runs with this file
        self._note(Event.DONE, step.name, Act.START, node=target.name, file=now)

    async def _stop(self, step: Step, node: Node, progress: Progress, asked: Asked) -> None:
        while True:
            runs = await self._parts.executor.incarnation(node)
            decision = engine.decide_stop(progress.of(step.name), runs)
            if decision is not Decision.DO or await self.gates.is_open_now(step, progress, asked):
                break
        if decision is Decision.DO and runs is not None:
            self._note(Event.BEGUN, step.name, Act.STOP, node=node.name)
            self._parts.tell(f"{step.name}: stops {node.name}")
            await self._processes.stop(step, node, runs)
        self._note(Event.FOUND if decision is Decision.FOUND else Event.DONE, step.name, Act.STOP, node=node.name)

    async def _soak(self, step: Step, progress: Progress) -> None:
        """Only time that is watched counts: the wall clock may jump, and nobody watched before this process."""
        soaked, wanted = progress.soaked_ms, int(self._parts.inventory.times.soak * 1000)
        poll = self._parts.inventory.times.poll
        last, noted, verified = self._parts.clock.monotonic_ms(), soaked, soaked
        verify = int(self._parts.inventory.times.verify * 1000)
        while soaked < wanted:
            await self._gates.wait(lambda _: step.before, step.name)
            await self._parts.clock.sleep(min(poll, (wanted - soaked) / 1000))
            now = self._parts.clock.monotonic_ms()
            soaked, last = soaked + now - last, now
            if soaked - noted >= SOAK_NOTE_MS or soaked >= wanted:
                self._note(Event.SOAKED, step.name, Act.SOAK, soaked_ms=soaked)
                noted = soaked
            if verify and soaked - verified >= verify and soaked < wanted:
                await self._verify_again(step, await self._parts.observer.observe(), progress)
                verified = soaked
            if self._is_aborted():
                self._note(Event.SOAKED, step.name, Act.SOAK, soaked_ms=soaked)
                raise AbortedError("the soak was stopped")
        self._note(Event.DONE, step.name, Act.SOAK)

    async def _verify_again(self, step: Step, seen: Observation, progress: Progress) -> None:
        if step.node is not None:
            runner = self._runner(Job.VERIFY, step.node, seen, progress)
            figures = await self._command(step, Job.VERIFY, runner, seen, progress)
            self._note(Event.VERIFIED, step.name, **figures)

    async def _prove(self, step: Step, progress: Progress) -> None:
        """Nothing that this step has begun is forgotten: what is noted here says when both sides were equal, no more.
        After the end of the migration, as one of Kafka's controllers brings it, they differ."""
        seen = await self._parts.observer.observe()
        if not seen.is_finished and self._verdict_is_old(progress):
            await self._verify_again(step, seen, progress)
        if Act.PROVE not in progress.of(step.name).done:
            self._note(Event.PASSED, step.name, Act.PROVE)

    def _verdict_is_old(self, progress: Progress) -> bool:
        clock = self._parts.clock
        if self._verified_ms is not None:
            return clock.since_boot_ms() - self._verified_ms > VERDICT_MS
        if progress.verified_ms is None:
            return True
        return not 0 <= clock.wall_ms() - progress.verified_ms <= VERDICT_MS

    async def _leave_out(self, step: Step, progress: Progress) -> None:
        """The leader gets the order again whenever it is not finished: each order is for one leader only."""
        seen = await self._parts.observer.observe()
        gone = engine.silent_gone(self._parts.inventory.gone, seen)
        if seen.is_finished or not gone:
            self._note(Event.FOUND, step.name, Act.RUN)
            return
        self._note(Event.BEGUN, step.name, Act.RUN, job=Job.LEAVE_OUT.value)
        leader = self._leader(seen, self._parts.inventory.controllers.nodes[0])
        reason = f"rollout {progress.rollout}: {progress.reason}"[: jobs.REASON_MAX]
        words = jobs.finish_without(leader, self._parts.inventory, gone, reason)
        self._parts.tell(f"{step.name}: orders controller {leader.node_id} to end without {', '.join(map(str, gone))}")
        output = await self._parts.executor.run(leader, words, seconds=self._parts.inventory.times.command)
        self._raise_if_failed(step, Job.LEAVE_OUT, leader, output)
        self._note(Event.DONE, step.name, Act.RUN, job=Job.LEAVE_OUT.value)

    async def _run(self, step: Step, progress: Progress) -> None:
        job, node = step.job, step.node
        if job is Job.LEAVE_OUT:
            await self._leave_out(step, progress)
            return
        if job is None or node is None:
            raise ValueError(step.name)
        known, seen = progress.of(step.name), await self._parts.observer.observe()
        if known.begun is Act.RUN and job is Job.GIVE_BACK and seen.controller_broker is not None:
            self._note(Event.DONE, step.name, Act.RUN)
            return
        if job is Job.FORMAT and engine.has_data(seen):
            await self._refuse_format(node)
            self._note(Event.FOUND, step.name, Act.RUN, node=node.name, file=await self._digest(node))
            return
        self._note(Event.BEGUN, step.name, Act.RUN, job=job.value, node=node.name, host=node.host)
        details: dict[str, Detail] = {}
        if job is Job.ARCHIVE:
            details["archive"] = str(await make_archive(self._parts, node, self._state, progress.rollout))
        elif job is Job.SET_ASIDE:
            await self._set_aside(step, node, progress.rollout)
        elif job is Job.UNREGISTER:
            await self._unregister(node, seen)
        else:
            details |= await self._command(step, job, self._runner(job, node, seen, progress), seen, progress)
        if job is Job.FORMAT:  # a person may have mended it since it was written: the node is made with this file
            details |= {"node": node.name, "file": await self._digest(node)}
        self._note(Event.DONE, step.name, Act.RUN, job=job.value, **details)

    async def _refuse_format(self, node: Node) -> None:
        properties = parsed(node, await text_of(self._parts.executor, node))
        for directory in jobs.directories_of(properties):
            identity = str(PurePosixPath(directory) / jobs.META_PROPERTIES)
            if await self._parts.executor.read(node, identity) is None:
                raise JobFailedError(
                    "the directory has no identity, and the quorum has data already: with an empty directory this "
                    "voter could vote away what is committed",
                    where=f"{node.name} on {node.host}: {directory}",
                    remedy="If the directory is lost, see docs/quorum.md. If the controller never ran, format the "
                    "directory by hand. Then 'migrator rollout resume'",
                )

    async def _unregister(self, node: Node, seen: Observation) -> None:
        refuse_gone((node,), seen)
        why_not = await self._parts.unregister(node.node_id)
        if why_not:
            raise JobFailedError(
                f"the registration of broker {node.node_id} cannot be removed: {why_not}",
                where=node.name,
                remedy=jobs.REMEDIES[Job.UNREGISTER].format(node.node_id),
            )

    def _runner(self, job: Job, node: Node, seen: Observation, progress: Progress) -> Node:
        """The controller on whose machine a job runs: its log has to be the newest."""
        controllers = self._parts.inventory.controllers.nodes
        if job is Job.GIVE_BACK:
            return next((each for each in controllers if each.name == progress.last_stopped), node)
        return self._leader(seen, node) if job is Job.VERIFY else node

    def _leader(self, seen: Observation, otherwise: Node) -> Node:
        leader = None if seen.quorum is None else seen.quorum.leader_id
        controllers = self._parts.inventory.controllers.nodes
        return next((each for each in controllers if each.node_id == leader), otherwise)

    async def _command(self, step: Step, job: Job, node: Node, seen: Observation, progress: Progress) -> dict[str, int]:
        if job is Job.FORMAT and not seen.cluster_id:
            raise JobFailedError(
                "nobody says the cluster's id",
                where=node.name,
                remedy="ZooKeeper has it in /cluster/id: see that 'access' of the inventory reaches ZooKeeper",
            )
        if job is Job.VERIFY:
            node = await self._with_zookeeper(node, progress.rollout)
        words = jobs.command_of(job, node, self._parts.inventory, seen.cluster_id, progress.release_version)
        self._parts.tell(f"{step.name}: {job.value} on {node.host}")
        seconds = self._parts.inventory.times.command
        if job is Job.PREFLIGHT:
            async with copies(self._parts, node, progress.rollout) as files:
                words = jobs.preflight_of(self._parts.inventory, files.controllers, files.brokers)
                output = files.known(await self._parts.executor.run(node, words, seconds=seconds))
        else:
            output = await self._parts.executor.run(node, words, seconds=seconds)
        report = jobs.printed(output)
        if job in (Job.REHEARSE, Job.VERIFY) and report is not None:
            keep_verdict(self._state, step.name, report)
        self._raise_if_failed(step, job, node, output)
        if job is Job.VERIFY:
            self._verified_ms = self._parts.clock.since_boot_ms()
        return jobs.figures(job, report)

    async def _with_zookeeper(self, node: Node, rollout: str) -> Node:
        """A controller by a file that names ZooKeeper: its own, or what that was before the step that is under way."""
        mode = file_mode(node.role, parsed(node, await text_of(self._parts.executor, node)))
        kept = backup_of(node, FileMode.CONTROLLER_MIGRATING, rollout)
        if mode is FileMode.CONTROLLER_MIGRATING or await self._parts.executor.read(node, kept) is None:
            return node
        return replace(node, properties=kept)

    def _raise_if_failed(self, step: Step, job: Job, node: Node, output: Output) -> None:
        """What the command said may hold anything: it goes to the terminal, and to a file that only this user reads."""
        what = jobs.meaning(job, output)
        if what:
            kept = keep_output(self._state, step.name, output)
            self._parts.tell(f"{step.name}: {what}. The whole output is in {kept}. It ends so:")
            for line in jobs.tail(output):
                self._parts.tell(f"  {line}")
            raise JobFailedError(what, where=f"{node.name} on {node.host}", remedy=jobs.REMEDIES[job], output=str(kept))

    async def _set_aside(self, step: Step, node: Node, rollout: str) -> None:
        for directory in jobs.directories_of(parsed(node, await text_of(self._parts.executor, node))):
            identity = str(PurePosixPath(directory) / jobs.META_PROPERTIES)
            if await self._parts.executor.read(node, identity) is None:
                continue
            words = jobs.move_aside(directory, rollout)
            output = await self._parts.executor.run(node, words, seconds=self._parts.inventory.times.command)
            self._raise_if_failed(step, Job.SET_ASIDE, node, output)
            if await self._parts.executor.read(node, identity) is not None:  # some releases of mv say nothing of it
                raise JobFailedError(
                    f"the directory is still there: something has the name {words[-1]} already",
                    where=f"{node.name} on {node.host}: {directory}",
                    remedy=jobs.REMEDIES[Job.SET_ASIDE],
                )

    async def _digest(self, node: Node) -> str | None:
        return digest(await self._parts.executor.read(node, node.properties))

    def _changed(self, node: Node, now: str | None) -> FileChangedError:
        self.found = node.name, now
        return FileChangedError(
            "somebody else has changed the file since this rollout looked at it; nothing was done",
            where=f"{node.name} on {node.host}: {node.properties}",
            remedy="Look at it. 'migrator rollout resume' goes on with the file as it is now",
        )
