"""The rollback from each state, and the checks afterwards. Source: Kafka's migration guide, KIP-866.

`steps` calls `roll_back`. At the end ZooKeeper must hold the metadata, a broker must be the controller, and the old
quorum, started once more, must claim nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from migrator.drill.cluster import WAIT_SECONDS, Cluster
from migrator.drill.probes import broker_leads, highest_state_epoch, settled_metadata, until
from migrator.drill.report import DrillReport
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
