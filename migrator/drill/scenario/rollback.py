"""The way back, state by state, and what must hold afterwards. Source: Kafka's migration guide, KIP-866."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from migrator.drill.cluster import ENCODER_SECRET, WAIT_SECONDS, Cluster
from migrator.drill.probes import controller_claim, highest_state_epoch, settled_metadata, until
from migrator.drill.report import DrillReport
from migrator.errors import ExitCode
from migrator.migration import rollback
from migrator.migration.machine.states import PublicState, State
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import decode_controller_epoch
from migrator.zookeeper.znodes.passwords import PasswordEncoder

WATCH_SECONDS = 3.0
UNSETTLED = frozenset({State.INACTIVE.value, State.EXAMINING.value})


async def roll_back(cluster: Cluster, report: DrillReport, before: Mapping[str, bytes | None], state: str) -> None:
    """Stop the quorum, roll the cluster back, and see a forgotten quorum keep away.

    :param before: the metadata that ZooKeeper must hold in the end; empty when changes were dual-written.
    :raises DrillFailedError: it cannot go on.
    """
    with report.step(f"Rollback at {state}"):
        leader = await cluster.leader()
        for controller in sorted(cluster.controllers, key=lambda each: each is leader):  # a successor would be behind
            if controller.runs:
                code = await asyncio.to_thread(controller.stop)
                report.check(f"controller {controller.node_id} left in good order", code == ExitCode.OK, code)
        await asyncio.to_thread(_run_rollback, cluster)
        seconds = await until(
            cluster, report, "the brokers elect a ZooKeeper controller", lambda: _broker_leads(cluster),
            seconds=WAIT_SECONDS,
        )  # fmt: skip
        report.figure("seconds without a controller", seconds)
        await asyncio.to_thread(_check_zookeeper, cluster, report, before)
        await cluster.roll_to_zookeeper(report)
        await until(
            cluster, report, "a broker is the controller after the last roll", lambda: _broker_leads(cluster),
            seconds=WAIT_SECONDS,
        )  # fmt: skip
    if state == PublicState.DUAL_WRITE.label:
        await _wake_forgotten_quorum(cluster, report)


async def _wake_forgotten_quorum(cluster: Cluster, report: DrillReport) -> None:
    """Its log says that it migrated this cluster; it must see that this was undone, and keep away."""
    with report.step("A forgotten quorum wakes up and keeps away"):
        for controller in cluster.controllers:
            await asyncio.to_thread(controller.start)
        await until(
            cluster, report, "it has a leader that knows where it is", lambda: _settled(cluster),
            seconds=WAIT_SECONDS,
        )  # fmt: skip
        await asyncio.sleep(WATCH_SECONDS)
        report.check("a broker still is the controller", await _broker_leads(cluster))
        problems = [problem for status in (await cluster.statuses()).values() for problem in status.problems]
        report.check("it says why, and what to do", any(problem.remedy for problem in problems), problems)


async def _settled(cluster: Cluster) -> bool:
    leader = await cluster.leader()
    status = None if leader is None else await leader.status()
    return status is not None and status.migration.internal_state not in UNSETTLED


def _run_rollback(cluster: Cluster) -> None:
    image = max((controller.image() for controller in cluster.controllers), key=lambda image: image.provenance.offset)
    with ZooKeeperSession(cluster.security.session(cluster.zookeeper_hosts)) as session:
        rollback.roll_back(session, image, PasswordEncoder(ENCODER_SECRET, os.urandom))


async def _broker_leads(cluster: Cluster) -> bool:
    def look() -> bool:
        with cluster.zookeeper_client() as client:
            claim = controller_claim(client)
            return claim is not None and not claim.is_kraft

    return await asyncio.to_thread(look)


def _check_zookeeper(cluster: Cluster, report: DrillReport, before: Mapping[str, bytes | None]) -> None:
    with cluster.zookeeper_client() as client:
        epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, client.get(paths.CONTROLLER_EPOCH)[0])
        highest = highest_state_epoch(client)
        report.check("no partition state is from the controller's future", highest <= epoch, f"{highest} > {epoch}")
        if before:
            now = settled_metadata(client, cluster.brokers_own)
            changed = sorted(path for path in now.keys() | before.keys() if now.get(path) != before.get(path))
            report.check("ZooKeeper holds what it held before", not changed, changed[:10])
