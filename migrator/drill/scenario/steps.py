"""The steps of a drill and their checks.

A drill goes from a ZooKeeper cluster to a finished migration, or back from a given state. Each step notes its checks
and figures in the report; a condition that does not come in time ends the drill.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from migrator.drill.cluster import WAIT_SECONDS, Cluster, ClusterOptions, ControllerProcess
from migrator.drill.doors.every_door import try_doors, under_attack
from migrator.drill.probes import (
    StopAtClaim,
    all_report,
    answers,
    controller_claim,
    doomed_topics,
    dual_writing,
    image_in_zookeeper,
    leader_of,
    partition_count,
    registration_ms,
    settled_metadata,
    until,
    verify,
)
from migrator.drill.report import DrillReport, phases
from migrator.drill.scenario.finish import finish, refuse_rollback, roll_back
from migrator.drill.scenario.reassign import reassign
from migrator.drill.workload.fill import PLAIN_TOPIC
from migrator.drill.workload.workload import Workload
from migrator.errors import ExitCode
from migrator.image.model import MetadataImage
from migrator.migration.machine.states import PublicState
from migrator.values import value
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import ControllerClaim

INELIGIBLE, COPYING, DUAL_WRITE, FINISHED = (state.label for state in PublicState)
STOCK = "stock"
"""The way back begins when Kafka's own controllers rule after the end."""
WORK_SECONDS = 6.0


@value
class DrillOptions:
    """``kill_leader_at`` and ``rollback_at`` are public states of the migration, or None; ``rollback_at`` also `STOCK`.

    ``reassign``: after the migration, other controllers replace the first ones.
    """

    cluster: ClusterOptions
    kill_leader_at: str | None = None
    rollback_at: str | None = None
    reassign: bool = False


async def run_scenario(cluster: Cluster, options: DrillOptions, report: DrillReport) -> None:
    """Run it to its end.

    :raises DrillFailedError: the drill cannot continue.
    :raises OperatorError: a part does not start, or a command is refused.
    """
    drill = _Drill(cluster, options, report)
    await drill.zookeeper_cluster()
    await try_doors(cluster, report, "ZooKeeper mode")
    goes_home = options.rollback_at in (FINISHED, STOCK)
    # A rollout that hands over ends with it; Kafka's own controllers reopen no migration.
    drill.rehearsal = await cluster.prepare(report, hand_over=not (options.reassign or goes_home))
    await drill.quorum()
    if options.rollback_at == INELIGIBLE:
        return await _back(cluster, report, drill.before, INELIGIBLE)
    await drill.copy()
    if options.rollback_at == COPYING:
        return await _back(cluster, report, drill.before, COPYING)
    await drill.work()
    await try_doors(cluster, report, "dual-write")
    await drill.compare()
    if options.rollback_at == DUAL_WRITE:
        return await _back(cluster, report, {}, DUAL_WRITE)
    await drill.corrupt()
    await cluster.soak(report)
    await finish(cluster, report)
    await try_doors(cluster, report, "the migration is finished")
    if options.kill_leader_at == FINISHED:
        await drill.kill_leader(lambda: all_report(cluster, FINISHED))
    if goes_home:
        if options.rollback_at == STOCK:
            await cluster.hand_over(report)
            await drill.work_after_end()
            await cluster.take_back(report)
        else:
            await refuse_rollback(cluster, report)
            await drill.work_after_end()
        await roll_back(cluster, report, {}, FINISHED)
        await drill.check_zookeeper()
        return await _home(cluster, report)
    if options.reassign:
        await drill.reassign()
        await try_doors(cluster, report, "other controllers")
    await cluster.hand_over(report)
    await try_doors(cluster, report, "the end")
    drill.check_acknowledged()
    await cluster.audit_records(report)
    return None


async def _back(cluster: Cluster, report: DrillReport, before: Mapping[str, bytes | None], state: str) -> None:
    await roll_back(cluster, report, before, state)
    await _home(cluster, report)


async def _home(cluster: Cluster, report: DrillReport) -> None:
    await cluster.use_zookeeper_controller(report)
    await try_doors(cluster, report, "back in ZooKeeper mode")
    await cluster.audit_records(report)


class _Drill:
    """The way to dual-write and through it."""

    def __init__(self, cluster: Cluster, options: DrillOptions, report: DrillReport) -> None:
        self._cluster = cluster
        self._options = options
        self._report = report
        self._workload: Workload | None = None
        self.before: dict[str, bytes | None] = {}
        """The metadata in ZooKeeper before the migration."""
        self.rehearsal: Mapping[str, Any] = {}
        """The output of `migrator rehearse`; empty without a rehearsal."""

    async def zookeeper_cluster(self) -> None:
        with self._report.step("A Kafka cluster in ZooKeeper mode"):
            await self._cluster.begin(self._report)
            claim, self.before = await asyncio.to_thread(self._look)
            elected = claim is not None and claim.broker_id in self._cluster.broker_ids
            if len(self._cluster.broker_ids) > 1:
                self._report.check("a broker was elected as the ZooKeeper controller", elected, claim)

    async def quorum(self) -> None:
        with self._report.step("The quorum waits for the last broker"):
            async with under_attack(self._cluster, self._report, "from their first start on", decided=False):
                await self._cluster.start_quorum(self._report)
                await until(
                    self._cluster, self._report, "every controller is MigrationIneligible",
                    lambda: all_report(self._cluster, INELIGIBLE), seconds=WAIT_SECONDS,
                )  # fmt: skip
            await self._cluster.migrate_first_brokers(self._report)
            late = self._cluster.late_broker
            await until(
                self._cluster, self._report, f"the leader names broker {late} as missing",
                lambda: self._names_missing(late), seconds=WAIT_SECONDS,
            )  # fmt: skip
            claim, now = await asyncio.to_thread(self._look)
            kraft = claim is not None and claim.is_kraft
            self._report.check("nothing was written to ZooKeeper", now == self.before and not kraft, claim)
            if self._options.kill_leader_at == INELIGIBLE:
                await self.kill_leader(lambda: self._names_missing(late))

    async def copy(self) -> None:
        with self._report.step("Copy in one metadata transaction, up to dual-write"):
            stop_there = COPYING in (self._options.kill_leader_at, self._options.rollback_at)
            trap = StopAtClaim(self._cluster) if stop_there else None
            if trap is not None:
                await asyncio.to_thread(trap.arm)
            begin = asyncio.get_running_loop().time()
            if self._options.rollback_at == COPYING:
                return await self._join_last_broker(trap)
            async with under_attack(self._cluster, self._report, "during the copy"):
                await self._join_last_broker(trap)
            await until(
                self._cluster, self._report, "the leader dual-writes",
                lambda: dual_writing(self._cluster), seconds=WAIT_SECONDS,
            )  # fmt: skip
            seconds = asyncio.get_running_loop().time() - begin
            self._report.figure("seconds from the last broker's turn to dual-write", seconds)
            await until(
                self._cluster, self._report, "every controller reports DualWrite",
                lambda: all_report(self._cluster, DUAL_WRITE), seconds=WAIT_SECONDS,
            )  # fmt: skip
            leader = await leader_of(self._cluster)
            if self.rehearsal:
                journal, late = await leader.journal(), self._cluster.late_broker
                registered_ms = await asyncio.to_thread(registration_ms, leader, late)
                self._report.phases = phases(self.rehearsal, journal, registered_ms)
            image = leader.image()
            expected = partition_count(self.before)
            copied = sum(len(topic.partitions) for topic in image.topics.by_id.values())
            self._report.check("every partition was copied", copied == expected, f"{copied} instead of {expected}")
            doomed = doomed_topics(self.before).intersection(image.topics.ids)
            self._report.check("no topic under deletion was", not doomed, doomed)
            return None

    async def _join_last_broker(self, trap: StopAtClaim | None) -> None:
        """Start the last broker in migration mode, unless all controllers were killed meanwhile."""
        joining = asyncio.create_task(self._cluster.migrate_last_broker(self._report))
        try:
            if trap is not None:
                await self._kill_mid_copy(trap)
                if self._options.rollback_at == COPYING:
                    return
            await joining
        finally:
            joining.cancel()
            await asyncio.wait({joining})

    async def work(self) -> None:
        with self._report.step("Changes of every kind while dual-writing"):
            await self._work(kill=self._options.kill_leader_at == DUAL_WRITE)
            await until(
                self._cluster, self._report, "ZooKeeper has everything",
                lambda: dual_writing(self._cluster), seconds=WAIT_SECONDS,
            )  # fmt: skip

    async def work_after_end(self) -> None:
        with self._report.step("Changes of every kind after the end"):
            await self._work(kill=False)

    async def _work(self, *, kill: bool) -> None:
        """Change things for a while.

        :param kill: whether the leader is killed in the middle.
        """
        earlier, workload = self._workload, self._cluster.workload()
        if earlier is not None:
            workload.continue_from(earlier)
        self._workload = workload
        running = asyncio.create_task(workload.run())
        try:
            await asyncio.wait({running}, timeout=WORK_SECONDS / 2)
            if kill:
                await self.kill_leader(lambda: dual_writing(self._cluster))
            await asyncio.wait({running}, timeout=WORK_SECONDS / 2)
        finally:
            workload.stop()
            await running
            await workload.close()
        self._report.figure("acknowledged changes", sum(workload.acknowledged.values()))
        self._report.figure("kinds of change", len(workload.acknowledged))
        self._report.figure("longest wait for an answer, seconds", workload.longest_wait_seconds)
        self._report.check("no change was refused", not workload.refusals, workload.refusals[:5])

    async def compare(self) -> None:
        with self._report.step("ZooKeeper, metadata log and brokers agree"):
            await until(
                self._cluster, self._report, "the brokers know what the log says",
                self._brokers_agree, seconds=WAIT_SECONDS,
            )  # fmt: skip
            image = (await leader_of(self._cluster)).image()
            for who, violations in self._cluster.violations(image).items():
                self._report.check(f"{who} saw nothing that a real one suffers from", not violations, violations[:5])
            self._check_acknowledged(self._image_of_a_log())
            if self._options.rollback_at == DUAL_WRITE:  # else the next step runs verify
                await self._verify(ExitCode.OK, "Spark says that both sides are equal")

    async def corrupt(self) -> None:
        with self._report.step("One znode is corrupted, found, and repaired"):
            name = await asyncio.to_thread(self._corrupt_a_config)
            await self._verify(ExitCode.DIFFERENT, "Spark finds that, and nothing else", expected=name)
            await self._verify(ExitCode.OK, "verify --repair mends it", repair=True)

    async def reassign(self) -> None:
        """Replace the controllers by others while changes go on."""
        if self._workload is not None:
            self._workload = await reassign(self._cluster, self._report, self._workload)

    def check_acknowledged(self) -> None:
        """Check, after the end, that no acknowledged change is lost."""
        with self._report.step("No acknowledged change was lost"):
            self._check_acknowledged(self._image_of_a_log())

    async def check_zookeeper(self) -> None:
        """Check, back in ZooKeeper mode, that ZooKeeper has every acknowledged change, also those after the end."""
        with self._report.step("ZooKeeper has every acknowledged change"):
            self._check_acknowledged(await asyncio.to_thread(image_in_zookeeper, self._cluster))

    async def kill_leader(self, recovered: Callable[[], Awaitable[bool]]) -> None:
        """``kill -9`` the leader, wait until the next one reaches the same state, start the killed one again."""
        leader = await leader_of(self._cluster)
        copied = self._options.kill_leader_at != INELIGIBLE
        async with under_attack(self._cluster, self._report, "from the leader's death on", decided=copied):
            await asyncio.to_thread(leader.kill)
            await self._recover(leader, recovered)

    async def _recover(self, killed: ControllerProcess, recovered: Callable[[], Awaitable[bool]]) -> None:
        """Wait for the recovery. With fewer than three controllers there is no majority without the killed one, so it
        starts first."""
        majority_left = len(self._cluster.controllers) >= 3
        if not majority_left:
            await asyncio.to_thread(killed.run)
        seconds = await until(
            self._cluster, self._report, f"another leader after controller {killed.node_id} was killed", recovered,
            seconds=WAIT_SECONDS,
        )  # fmt: skip
        self._report.figure("seconds from kill -9 to the next leader's same state", seconds)
        if majority_left:
            await asyncio.to_thread(killed.run)
        await until(
            self._cluster, self._report, f"controller {killed.node_id} is back",
            lambda: answers(self._cluster, killed.node_id), seconds=WAIT_SECONDS,
        )  # fmt: skip

    async def _kill_mid_copy(self, trap: StopAtClaim) -> None:
        try:
            self._report.wait_for("a controller claims ZooKeeper")
            async with asyncio.timeout(WAIT_SECONDS):
                await trap.claimed.wait()
            leader = await leader_of(self._cluster)
            status = await leader.status()
            state = "nothing" if status is None else status.migration.public_state
            self._report.check("the leader was killed during the copy", state == COPYING, state)
            victims = self._cluster.controllers if self._options.rollback_at == COPYING else [leader]
            for victim in victims:
                await asyncio.to_thread(victim.kill)
        finally:
            await asyncio.to_thread(trap.release)
        if self._options.rollback_at != COPYING:
            await self._recover(leader, lambda: dual_writing(self._cluster))

    async def _brokers_agree(self) -> bool:
        """Whether nothing changes any more, and every broker equals the leader's image."""
        leader = await self._cluster.leader()
        if leader is None:
            return False
        image = leader.image()
        partitions = [each for topic in image.topics.by_id.values() for each in topic.partitions.values()]
        at_rest = all(set(each.isr) == set(each.replicas) and not each.adding_replicas for each in partitions)
        found = await self._cluster.differences(image)
        if found:
            self._report.wait_for(f"brokers know what the log says: {found[0]}")
        return at_rest and not found

    async def _names_missing(self, broker_id: int) -> bool:
        statuses = await self._cluster.statuses()
        mention = re.compile(rf"\b{broker_id}\b")
        return any(
            mention.search(f"{problem.who} {problem.what}") and problem.remedy
            for status in statuses.values()
            for problem in status.problems
        )

    async def _verify(self, expected_code: int, name: str, *, expected: str = "", repair: bool = False) -> None:
        """Compare in Spark; every difference except those of the ``expected`` entity counts in the report."""
        self._report.wait_for("verify --repair" if repair else "verify compares in Spark")
        code, verdict = await verify(self._cluster, repair=repair)
        examples = [json.dumps(example, ensure_ascii=False) for example in verdict["examples"]]
        wanted = sum(1 for example in examples if expected and expected in example)
        sound = code == expected_code and (wanted > 0) == bool(expected)
        self._report.check(name, sound, f"exit code {code}: {examples[:5]}")
        self._report.none_of("differences", verdict["differences"] - wanted, examples[:5])
        if self._cluster.options.secure:
            reachable = self._cluster.watch.reachable
            self._report.figure("ports that Spark opened, on loopback", len(self._cluster.watch.ports))
            self._report.check("nobody on the network reaches Spark", not reachable, reachable)

    def _image_of_a_log(self) -> MetadataImage:
        controllers = self._cluster.controllers
        return next((each for each in controllers if each.runs), controllers[0]).image()

    def _check_acknowledged(self, image: MetadataImage) -> None:
        workload = self._workload
        if workload is None:
            return
        missing = list(workload.ledger.missing_from(image))
        self._report.none_of("lost changes", len(missing), missing[:5])
        if blocks := workload.producer_ids:
            self._report.check("no producer id was given twice", len(set(blocks)) == len(blocks), blocks)

    def _corrupt_a_config(self) -> str:
        """Change a topic's config in ZooKeeper without the controllers; return the topic's name."""
        with self._cluster.zookeeper_client() as client:
            name = min(name for name in client.get_children(paths.TOPIC_CONFIGS) if name.startswith(PLAIN_TOPIC))
            client.set(paths.topic_config(name), b'{"version":1,"config":{"retention.ms":"1"}}')
        return str(name)

    def _look(self) -> tuple[ControllerClaim | None, dict[str, bytes | None]]:
        with self._cluster.zookeeper_client() as client:
            return controller_claim(client), settled_metadata(client, self._cluster.brokers_own)
