"""The jobs of a step: commands on the machines of controllers, and whether their answer is yes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath

from migrator.errors import OperatorError
from migrator.rollout.engine.looks import has_data, silent_gone
from migrator.rollout.files.archive import keep_output, keep_verdict, make_archive
from migrator.rollout.files.examined import copies
from migrator.rollout.files.property_files import backup_of, digest_of, text_of
from migrator.rollout.gates.excuses import refuse_gone
from migrator.rollout.gates.gatekeeper import Note
from migrator.rollout.journal.journal import Detail, Event
from migrator.rollout.journal.progress import Progress
from migrator.rollout.nodes import Node
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan import jobs
from migrator.rollout.plan.modes import FileMode, file_mode, parsed
from migrator.rollout.plan.steps import Act, Job, Step
from migrator.rollout.ports import Observation, Output

VERDICT_MS = 900_000
"""How long a comparison of both sides counts, before a controller is restarted without the migration."""


class JobFailedError(OperatorError):
    """A command of a step failed, or its answer is no.

    :param output: the file on this machine that has what the command printed; "" without one.
    """

    def __init__(self, what: str, *, where: str, remedy: str, output: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.output = output


class JobActs:
    """Of one run.

    :param state: the directory of the rollout: verdicts and outputs are kept there.
    :param note: writes a line of the journal.
    """

    def __init__(self, parts: RolloutParts, state: Path, note: Note) -> None:
        self._parts = parts
        self._state = state
        self._note = note
        self._verified_ms: int | None = None
        """When both sides were found equal last in this run, by the clock that goes on while the machine sleeps."""

    async def run(self, step: Step, progress: Progress) -> None:
        """The job of a step.

        :raises JobFailedError: its command fails, or its answer is no.
        """
        job, node = step.job, step.node
        if job is Job.LEAVE_OUT:
            await self._leave_out(step, progress)
            return
        if job is None or node is None:
            raise ValueError(step.name)
        known, seen = progress.of(step.name), await self._parts.observer.observe(partitions=False)
        if known.begun is Act.RUN and job is Job.GIVE_BACK and seen.controller_broker is not None:
            self._note(Event.DONE, step.name, Act.RUN)
            return
        if job is Job.FORMAT and has_data(seen):
            await self._refuse_format(node)
            file = await digest_of(self._parts.executor, node)
            self._note(Event.FOUND, step.name, Act.RUN, node=node.name, file=file)
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
            details |= {"node": node.name, "file": await digest_of(self._parts.executor, node)}
        self._note(Event.DONE, step.name, Act.RUN, job=job.value, **details)

    async def prove(self, step: Step, progress: Progress) -> None:
        """Nothing that this step has begun is forgotten: what is noted here says when both sides were equal, no more.
        After the end of the migration, as one of Kafka's controllers brings it, they differ.

        :raises JobFailedError: the sides differ, or the comparison fails.
        """
        seen = await self._parts.observer.observe(partitions=False)
        if not seen.is_finished and self._verdict_is_old(progress):
            await self.verify(step, seen, progress)
        if Act.PROVE not in progress.of(step.name).done:
            self._note(Event.PASSED, step.name, Act.PROVE)

    async def verify(self, step: Step, seen: Observation, progress: Progress) -> None:
        """Compare both sides now, and note the figures.

        :raises JobFailedError: they differ, or the comparison fails.
        """
        if step.node is not None:
            runner = self._runner(Job.VERIFY, step.node, seen, progress)
            figures = await self._command(step, Job.VERIFY, runner, seen, progress)
            self._note(Event.VERIFIED, step.name, **figures)

    def _verdict_is_old(self, progress: Progress) -> bool:
        clock = self._parts.clock
        if self._verified_ms is not None:
            return clock.since_boot_ms() - self._verified_ms > VERDICT_MS
        if progress.verified_ms is None:
            return True
        return not 0 <= clock.wall_ms() - progress.verified_ms <= VERDICT_MS

    async def _leave_out(self, step: Step, progress: Progress) -> None:
        """The leader gets the order again whenever it is not finished: each order is for one leader only."""
        seen = await self._parts.observer.observe(partitions=False)
        gone = silent_gone(self._parts.inventory.gone, seen)
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
