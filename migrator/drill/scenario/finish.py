"""The end of a migration, and the rollback from each state. Source: Kafka's migration guide, KIP-866.

`steps` calls it with a cluster and a report. In `finish` brokers become KRaft brokers and controllers drop the flag;
`refuse_rollback` checks that the flag alone leads nowhere after that. After `roll_back` a broker must be the
controller, ZooKeeper must hold the metadata, and the old quorum, started once more, must claim nothing. A step after
which nothing can go on raises `DrillFailedError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from migrator.drill.cluster import WAIT_SECONDS, Cluster
from migrator.drill.doors.every_door import try_doors, under_attack
from migrator.drill.probes import (
    all_report,
    answers,
    broker_leads,
    dual_writing,
    highest_state_epoch,
    log_tail,
    settled_metadata,
    until,
)
from migrator.drill.report import DrillReport
from migrator.errors import ExitCode
from migrator.migration.machine.states import PublicState, State
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import decode_controller_epoch

WATCH_SECONDS = 3.0
UNSETTLED = frozenset({State.INACTIVE.value, State.EXAMINING.value})


async def roll_back(cluster: Cluster, report: DrillReport, before: Mapping[str, bytes | None], state: str) -> None:
    """Stop the quorum, roll the cluster back, and check that the old quorum does not claim the cluster again.

    :param before: the metadata that ZooKeeper must hold at the end; empty when changes were dual-written.
    :raises DrillFailedError: the drill cannot continue.
    """
    with report.step(f"Rollback at {state}"):
        seconds = await cluster.go_back(report, reopens=state == PublicState.FINISHED.label)
        await until(
            cluster, report, "a broker is the controller after the last roll", lambda: broker_leads(cluster),
            seconds=WAIT_SECONDS,
        )  # fmt: skip
        if seconds is not None:
            report.figure("seconds without a controller", seconds)
        await asyncio.to_thread(_check_zookeeper, cluster, report, before)
    if state in (PublicState.DUAL_WRITE.label, PublicState.FINISHED.label):
        await _wake_forgotten_quorum(cluster, report)


async def _wake_forgotten_quorum(cluster: Cluster, report: DrillReport) -> None:
    """Start the old quorum. Its log says that it migrated this cluster; it must detect the rollback, and claim
    nothing."""
    with report.step("A forgotten quorum wakes up and keeps away"):
        cluster.remember_quorum()
        for controller in cluster.controllers:
            await asyncio.to_thread(controller.run)
        await until(
            cluster, report, "it has a leader that knows where it is", lambda: _settled(cluster),
            seconds=WAIT_SECONDS,
        )  # fmt: skip
        await until(
            cluster, report, "it says why it keeps away, and what to do", lambda: _says_why(cluster),
            seconds=WAIT_SECONDS,
        )  # fmt: skip
        await asyncio.sleep(WATCH_SECONDS)
        report.check("a broker still is the controller", await broker_leads(cluster))


async def _settled(cluster: Cluster) -> bool:
    leader = await cluster.leader()
    status = None if leader is None else await leader.status()
    return status is not None and status.migration.internal_state not in UNSETTLED


async def _says_why(cluster: Cluster) -> bool:
    return any(problem.remedy for status in (await cluster.statuses()).values() for problem in status.problems)


def _check_zookeeper(cluster: Cluster, report: DrillReport, before: Mapping[str, bytes | None]) -> None:
    with cluster.zookeeper_client() as client:
        epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, client.get(paths.CONTROLLER_EPOCH)[0])
        highest = highest_state_epoch(client)
        report.check("no partition state is from the controller's future", highest <= epoch, f"{highest} > {epoch}")
        if before:
            now = settled_metadata(client, cluster.brokers_own)
            changed = sorted(path for path in now.keys() | before.keys() if now.get(path) != before.get(path))
            report.check("ZooKeeper holds what it held before", not changed, changed[:10])


FINISHED = PublicState.FINISHED.label


async def finish(cluster: Cluster, report: DrillReport) -> None:
    """Roll the brokers to KRaft mode, then the controllers to a configuration without the migration.

    :raises DrillFailedError: the drill cannot continue.
    """
    with report.step("Finishing too early is refused"):
        await _too_early(cluster, report)
    with report.step("Brokers restart in KRaft mode"):
        await cluster.roll_to_kraft(report)
        await until(cluster, report, "dual-write goes on", lambda: dual_writing(cluster), seconds=WAIT_SECONDS)
    await try_doors(cluster, report, "brokers in KRaft mode")
    with report.step("Controllers restart without the migration"):
        async with under_attack(cluster, report, "while they restart"):
            await cluster.end_migration(report)
        await until(
            cluster, report, "every controller reports Finished", lambda: all_report(cluster, FINISHED),
            seconds=WAIT_SECONDS,
        )  # fmt: skip


async def refuse_rollback(cluster: Cluster, report: DrillReport) -> None:
    """Turn the migration on again: it stays finished, and nothing is written to or read from ZooKeeper. At the end the
    controllers have their files as before, so the rollout can go on.

    :raises DrillFailedError: the drill cannot continue.
    """
    with report.step("A rollback without a reopening is refused"):
        before = await asyncio.to_thread(_metadata, cluster)
        as_they_were = [controller.property_file.read_bytes() for controller in cluster.controllers]
        for controller in cluster.controllers:
            controller.set_migration(enabled=True)
            await asyncio.to_thread(controller.stop)
            await asyncio.to_thread(controller.start)
        await _still_finished(cluster, report)
        await cluster.refuse_migrating_broker(report)
        now = await asyncio.to_thread(_metadata, cluster)
        report.check("ZooKeeper stays as it was", now == before)
        for controller, content in zip(cluster.controllers, as_they_were, strict=True):
            controller.set_migration(enabled=False)
            await asyncio.to_thread(controller.stop)
            controller.property_file.write_bytes(content)
            await asyncio.to_thread(controller.run)
        await _still_finished(cluster, report)


async def _still_finished(cluster: Cluster, report: DrillReport) -> None:
    await until(
        cluster, report, "every controller still reports Finished", lambda: all_report(cluster, FINISHED),
        seconds=WAIT_SECONDS,
    )  # fmt: skip


async def _too_early(cluster: Cluster, report: DrillReport) -> None:
    leader = await cluster.leader()
    controller = next(each for each in cluster.controllers if each is not leader or len(cluster.controllers) == 1)
    as_it_was = controller.property_file.read_bytes()
    await asyncio.to_thread(controller.stop)
    controller.set_migration(enabled=False)
    await asyncio.to_thread(controller.start)
    process = controller.process
    if process is None:
        return
    code = await asyncio.to_thread(process.wait, timeout_seconds=WAIT_SECONDS)
    tail = log_tail(controller)
    report.check("a controller without the flag ends with exit code 2", code == ExitCode.REFUSED, tail)
    named = all(str(broker) in tail for broker in cluster.broker_ids)
    report.check("and names the brokers in ZooKeeper mode", named, tail)
    controller.set_migration(enabled=True)
    controller.property_file.write_bytes(as_it_was)  # a rollout refuses files that it does not know
    await asyncio.to_thread(controller.run)
    back = partial(answers, cluster, controller.node_id)  # before that, a SIGTERM ends it without a clean stop
    await until(cluster, report, f"controller {controller.node_id} is back", back, seconds=WAIT_SECONDS)
    await until(cluster, report, "dual-write goes on", lambda: dual_writing(cluster), seconds=WAIT_SECONDS)


def _metadata(cluster: Cluster) -> dict[str, bytes | None]:
    with cluster.zookeeper_client() as client:
        return settled_metadata(client, cluster.brokers_own)
