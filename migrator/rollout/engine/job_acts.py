"""The jobs of a step: commands on the machines of controllers, and what their results mean.

`acts` calls `JobActs`. A command has succeeded if its exit code says so, and its report, if it prints one, has possible
figures; anything else stops the rollout before the next step. A controller leaves the migration only after a recent
comparison that found both sides equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from migrator.config.keys import IBP
from migrator.config.properties import decoded
from migrator.errors import ExitCode, OperatorError
from migrator.migration.broker_file_gates import broker_file_gates
from migrator.rollout.engine.hosts import with_hosts
from migrator.rollout.engine.step import StepContext, UnansweredError
from migrator.rollout.files.archive import keep_output, keep_verdict, make_archive
from migrator.rollout.files.examined import copies
from migrator.rollout.files.property_files import backup_of, digest_of, earlier_of, properties_of, text_of
from migrator.rollout.gates.excuses import refuse_gone
from migrator.rollout.journal.journal import Detail, Event
from migrator.rollout.journal.progress import Progress
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan import jobs
from migrator.rollout.plan.modes import FileMode, file_mode, parsed, rewritten
from migrator.rollout.plan.reports import lines_of, questions_of
from migrator.rollout.plan.steps import Act, Job
from migrator.rollout.ports import Observation, Output

VERDICT_MS = 900_000
"""How long a comparison of both sides counts. A controller is restarted without the migration only after a recent
one."""


class JobFailedError(OperatorError):
    """A command of a step failed, or its result is a no.

    :param output: the file on this machine with what the command printed; "" without one.
    """

    def __init__(self, what: str, *, where: str, remedy: str, output: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.output = output


AGREE_TO_WARNINGS = (
    "Read what preflight found. Without a terminal, 'migrator rollout resume --until preflight --yes' agrees to it; "
    "then 'resume' goes on, and still asks before the end of the migration"
)


def refuse_old_log(node: Node, progress: Progress) -> None:
    """Called before a controller starts.

    :raises JobFailedError: the controller was left out of a rollback, and its directory was not formatted since.
    """
    if node.role is not NodeKind.CONTROLLER or node.name not in progress.rolled_back:
        return
    raise JobFailedError(
        f"it may have the log of another quorum: rollout {progress.rolled_back[node.name]} went back without this "
        "controller, and its directory was not formatted since",
        where=node.place,
        remedy="Stop it, if it runs, and leave it out: 'migrator rollout resume --without-node "
        f"{node.name} --reason TEXT'. Until the migration has ended, '--with-node {node.name}' formats it anew",
    )


class JobActs:
    def __init__(self, at: StepContext) -> None:
        self._at = at
        self._run = at.run
        self._parts = at.run.parts
        self._step = at.step

    async def run(self) -> None:
        """Run the job of a step.

        :raises JobFailedError: its command fails, or its result is a no.
        """
        job, node = self._step.job, self._step.node
        if job is Job.LEAVE_OUT:
            await self._leave_out()
            return
        if job is None or node is None:
            raise ValueError(self._step.name)
        known, seen = self._at.known, await self._parts.observer.observe(partitions=False)
        if known.begun is Act.RUN and job is Job.GIVE_BACK and seen.controller_broker is not None:
            self._at.note(Event.DONE, Act.RUN)
            return
        goes_on = seen.migration is not None and bool(seen.migration.state) and not seen.is_finished
        if known.begun is Act.RUN and job is Job.REOPEN and goes_on:
            self._at.note(Event.DONE, Act.RUN)
            return
        if job is Job.FORMAT and await self._is_formatted(node, seen):
            file = await digest_of(self._parts.executor, node)
            self._at.note(Event.FOUND, Act.RUN, node=node.name, file=file)
            return
        self._at.note(Event.BEGUN, Act.RUN, job=job.value, node=node.name, host=node.host)
        details: dict[str, Detail] = {}
        if job is Job.ARCHIVE:
            details["archive"] = str(await make_archive(self._parts, node, self._run.state, self._run.progress.rollout))
        elif job is Job.SET_ASIDE:
            await self._set_aside(node, self._run.progress.rollout)
        elif job is Job.UNREGISTER:
            await self._unregister(node, seen)
        else:
            details |= await self._command(job, self._runner(job, node, seen), seen)
        if job is Job.FORMAT:  # the operator may have corrected it since it was written: the node starts with this file
            details |= {"node": node.name, "file": await digest_of(self._parts.executor, node)}
        self._at.note(Event.DONE, Act.RUN, job=job.value, **details)

    async def prove(self) -> None:
        """Compare both sides before the end, unless the last comparison is recent. What this step has begun stays
        noted. After the migration has ended, nothing is compared, because the sides differ.

        :raises JobFailedError: the sides differ, or the comparison fails.
        """
        seen = await self._parts.observer.observe(partitions=False)
        if not seen.is_finished and self._verdict_is_old():
            await self.verify(seen)
        if Act.PROVE not in self._at.known.done:
            self._at.note(Event.PASSED, Act.PROVE)

    async def verify(self, seen: Observation) -> None:
        """Compare both sides now, and note the figures.

        :raises JobFailedError: the sides differ, or the comparison fails.
        """
        if self._step.node is not None:
            runner = self._runner(Job.VERIFY, self._step.node, seen)
            figures = await self._command(Job.VERIFY, runner, seen)
            self._at.note(Event.VERIFIED, "", **figures)

    def _verdict_is_old(self) -> bool:
        clock = self._parts.clock
        if self._at.memory.verified_ms is not None:
            return clock.since_boot_ms() - self._at.memory.verified_ms > VERDICT_MS
        if self._run.progress.verified_ms is None:
            return True
        return not 0 <= clock.wall_ms() - self._run.progress.verified_ms <= VERDICT_MS

    async def _leave_out(self) -> None:
        """Order the leader to finish without controllers that are gone. An order is for one leader, so it is given
        again until it has worked."""
        seen = await self._parts.observer.observe(partitions=False)
        gone = jobs.silent_gone(self._parts.inventory.gone, seen)
        if seen.is_finished or not gone:
            self._at.note(Event.FOUND, Act.RUN)
            return
        self._at.note(Event.BEGUN, Act.RUN, job=Job.LEAVE_OUT.value)
        leader = self._leader(seen, self._parts.inventory.controllers.nodes[0])
        reason = f"rollout {self._run.progress.rollout}: {self._run.progress.reason}"[: jobs.REASON_MAX]
        words = jobs.finish_without(leader, self._parts.inventory, gone, reason)
        self._at.tell(f"orders controller {leader.node_id} to end without {', '.join(map(str, gone))}")
        output = await self._parts.executor.run(leader, words, seconds=self._parts.inventory.times.command)
        self._raise_if_failed(Job.LEAVE_OUT, leader, output)
        self._at.note(Event.DONE, Act.RUN, job=Job.LEAVE_OUT.value)

    async def _is_formatted(self, node: Node, seen: Observation) -> bool:
        """Whether the controller can use its directory as it is.

        :raises JobFailedError: the directory can neither be used nor formatted.
        """
        if node.name in self._run.progress.rolled_back:
            if self._at.known.begun is not Act.RUN:
                await self._leave_old_quorum(node, self._run.progress.rolled_back[node.name], seen)
            return False
        if not seen.has_data:
            return False
        await self._refuse_format(node)
        return True

    async def _refuse_format(self, node: Node) -> None:
        properties = await properties_of(self._parts.executor, node)
        for directory in jobs.directories_of(node, properties):
            if not await self._has_identity(node, directory):
                raise JobFailedError(
                    "the directory has no identity, and the quorum has data already: with an empty directory this "
                    "voter could vote away what is committed",
                    where=f"{node.place}: {directory}",
                    remedy="If the directory is lost, see docs/quorum.md. If the controller never ran, format the "
                    "directory by hand. Then 'migrator rollout resume'",
                )

    async def _leave_old_quorum(self, node: Node, rollout: str, seen: Observation) -> None:
        """Format anew a controller that was left out of a rollback: it has the log of that quorum, whose epochs may be
        higher than those of this quorum. When this quorum has data, only the operator may move the directory away: the
        controller may have been started meanwhile, and a voter must not forget what it has voted.

        :param rollout: the id of the rollback without this controller.
        """
        for directory in jobs.directories_of(node, await properties_of(self._parts.executor, node)):
            words = jobs.move_aside(directory, rollout)
            is_there, is_moved = await self._has_identity(node, directory), await self._has_identity(node, words[-1])
            if not is_there or is_moved:
                continue
            if seen.has_data:
                raise JobFailedError(
                    f"the directory has the log of another quorum: rollout {rollout} went back without this "
                    "controller. With this log it could lead, and the cluster's metadata would be lost",
                    where=f"{node.place}: {directory}",
                    remedy=f"If nobody has started the controller since, type there: {' '.join(words)}. "
                    "Then 'migrator rollout resume' formats it anew",
                )
            await self._move_aside(node, directory, rollout)

    async def _has_identity(self, node: Node, directory: str) -> bool:
        return await self._parts.executor.read(node, str(PurePosixPath(directory) / jobs.META_PROPERTIES)) is not None

    async def _unregister(self, node: Node, seen: Observation) -> None:
        refuse_gone((node,), seen)
        why_not = await self._parts.unregister(node.node_id)
        if why_not:
            raise JobFailedError(
                f"the registration of broker {node.node_id} cannot be removed: {why_not}",
                where=node.name,
                remedy=jobs.REMEDIES[Job.UNREGISTER],
            )

    async def _refuse_files_of_brokers(self, controller: Node, seen: Observation) -> None:
        """Before the migration is reopened: look at the files that the brokers will get in migration mode.

        :raises JobFailedError: with one of them, a broker would not start, or would lose something.
        """
        level = seen.metadata_version or self._run.progress.release_version
        settings, files = self._parts.mode_settings(level), {}
        for node in self._parts.inventory.brokers.nodes:
            text = await text_of(self._parts.executor, node)
            if file_mode(node.role, parsed(node, text)) is not FileMode.BROKER_KRAFT:
                continue
            earlier = await earlier_of(
                self._parts.executor, node, FileMode.BROKER_MIGRATING, self._run.progress.rollout, text
            )
            was = None if earlier is None else decoded(earlier)
            wanted = rewritten(node, text, FileMode.BROKER_MIGRATING, settings, was)
            broker = seen.broker(node)
            default = {IBP: level if broker is None or not broker.release else broker.release}
            files[f"{node.name} ({node.properties})"] = default | parsed(node, wanted)
        mine = await properties_of(self._parts.executor, controller)
        closed = [gate for gate in broker_file_gates(files, mine, level) if not gate.open]
        if closed:
            raise JobFailedError(
                "the migration was not reopened: as the rollout would make them, files of brokers do not fit. "
                + "; ".join(gate.what for gate in closed),
                where=controller.place,
                remedy=". ".join(gate.remedy for gate in closed) + ". Write it to the file of KRaft mode, which the "
                "rollout takes over; then 'migrator rollout resume'",
            )

    def _runner(self, job: Job, node: Node, seen: Observation) -> Node:
        """The controller on whose machine a job runs. Its log must be the newest."""
        controllers = self._parts.inventory.controllers.nodes
        if job is Job.GIVE_BACK:
            return next((each for each in controllers if each.name == self._run.progress.last_stopped), node)
        return self._leader(seen, node) if job in (Job.VERIFY, Job.REOPEN) else node

    def _leader(self, seen: Observation, otherwise: Node) -> Node:
        leader = None if seen.quorum is None else seen.quorum.leader_id
        controllers = self._parts.inventory.controllers.nodes
        return next((each for each in controllers if each.node_id == leader), otherwise)

    async def _command(self, job: Job, node: Node, seen: Observation) -> dict[str, int]:
        if job is Job.FORMAT and not seen.cluster_id:
            raise JobFailedError(
                "the cluster's id is unknown",
                where=node.name,
                remedy="ZooKeeper has it in /cluster/id: see that 'access' of the inventory reaches ZooKeeper",
            )
        if job is Job.VERIFY:
            node = await self._with_zookeeper(node, self._run.progress.rollout)
        if job is Job.REOPEN:
            await self._refuse_files_of_brokers(node, seen)
        words = jobs.command_of(job, node, self._parts.inventory, seen.cluster_id, self._run.progress.release_version)
        self._at.tell(f"{job.value} on {node.host}")
        seconds = self._parts.inventory.times.command
        examined: Mapping[str, str] = {}
        if job is Job.PREFLIGHT:
            async with copies(self._parts, node, self._run.progress.rollout) as files:
                examined = files.digests
                words = jobs.preflight_of(self._parts.inventory, files.controllers, files.brokers)
                output = files.known(await self._parts.executor.run(node, words, seconds=seconds))
            output = await with_hosts(self._parts, node, self._run.state, output)
        else:
            output = await self._parts.executor.run(node, words, seconds=seconds)
        report = jobs.printed(output)
        if job in (Job.PREFLIGHT, Job.REHEARSE, Job.VERIFY) and report is not None:
            keep_verdict(self._run.state, self._step.name, report)
        self._raise_if_failed(job, node, output)
        self._take_as_examined(examined)
        for line in lines_of(job, report):
            self._at.tell(line)
        if job is Job.PREFLIGHT:
            await self._ask(len(questions_of(report)))
        if job is Job.VERIFY:
            self._at.memory.verified_ms = self._parts.clock.since_boot_ms()
        try:
            return jobs.figures(job, report)
        except ValueError as error:
            raise JobFailedError(
                f"what {job.value} printed is no report of this program: {error} has an impossible value",
                where=node.place,
                remedy="See which program runs there as 'program' of the inventory, then 'migrator rollout resume'",
                output=str(keep_output(self._run.state, self._step.name, output)),
            ) from error

    async def _ask(self, count: int) -> None:
        """Ask the operator about warnings that are shown already.

        :raises UnansweredError: nobody answers, or the answer is no.
        """
        if not count:
            return
        try:
            agreed = await self._run.agrees(self._run.accept(count), self._step.name, Act.RUN, warnings=count)
        except UnansweredError as error:
            raise UnansweredError(error.what, where=self._step.name, remedy=AGREE_TO_WARNINGS) from error
        if not agreed:
            raise UnansweredError(
                "the answer was no, so the rollout ends before its first step",
                where=self._step.name,
                remedy="Mend what preflight found; 'migrator rollout resume' looks again",
                exit_code=ExitCode.DIFFERENT,
            )

    def _take_as_examined(self, digests: Mapping[str, str]) -> None:
        """Accept the files that preflight examined and passed: the operator has corrected them since the rollout began.

        :param digests: of property files, by node.
        """
        for name, now in digests.items():
            if not self._run.progress.knows(name, now):
                self._at.tell(f"the property file of {name} was changed, and is taken as it is")
                self._run.note(Event.FILE, node=name, file=now)

    async def _with_zookeeper(self, node: Node, rollout: str) -> Node:
        """A controller with a file that names ZooKeeper: its present file, or the one from before the step under
        way."""
        mode = file_mode(node.role, await properties_of(self._parts.executor, node))
        kept = backup_of(node, FileMode.CONTROLLER_MIGRATING, rollout)
        if mode is FileMode.CONTROLLER_MIGRATING or await self._parts.executor.read(node, kept) is None:
            return node
        return replace(node, properties=kept)

    def _raise_if_failed(self, job: Job, node: Node, output: Output) -> None:
        """The command's output may contain secrets: it goes to the terminal, and to a file that only this user can
        read."""
        what = jobs.meaning(job, output)
        if what:
            kept = keep_output(self._run.state, self._step.name, output)
            found = lines_of(job, jobs.printed(output))
            self._at.tell(f"{what}. The whole output is in {kept}{'' if found else '. It ends so'}:")
            for line in found or jobs.tail(output):
                self._parts.tell(f"  {line}")
            raise JobFailedError(what, where=node.place, remedy=jobs.REMEDIES[job], output=str(kept))

    async def _set_aside(self, node: Node, rollout: str) -> None:
        controllers = self._parts.inventory.controllers.nodes
        for each in self._parts.inventory.gone:
            if each.role is NodeKind.CONTROLLER and node.name == controllers[0].name:
                self._parts.tell(
                    f"{each.name} is left out, and its directory stays: do not start it. In the next rollout, "
                    f"'--with-node {each.name}' moves the directory away, and formats it anew"
                )
        for directory in jobs.directories_of(node, await properties_of(self._parts.executor, node)):
            if await self._has_identity(node, directory):
                await self._move_aside(node, directory, rollout)

    async def _move_aside(self, node: Node, directory: str, rollout: str) -> None:
        """Rename a directory on the controller's host.

        :param rollout: the id that becomes part of the new name.
        :raises JobFailedError: the directory is still there, or the controller runs.
        """
        where = f"{node.place}: {directory}"
        if await self._parts.executor.incarnation(node) is not None:
            what = "the controller runs again, and has this directory open"
            raise JobFailedError(what, where=where, remedy="Stop it, then 'migrator rollout resume'")
        words = jobs.move_aside(directory, rollout)
        output = await self._parts.executor.run(node, words, seconds=self._parts.inventory.times.command)
        self._raise_if_failed(Job.SET_ASIDE, node, output)
        if await self._has_identity(node, directory):  # some releases of mv fail without saying so
            what = f"the directory is still there: something has the name {words[-1]} already"
            raise JobFailedError(what, where=where, remedy=jobs.REMEDIES[Job.SET_ASIDE])
