"""The end of a migration as Kafka's manual words it, and every mixture on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path

from migrator.config.keys import FLAG
from migrator.drill.cluster import ControllerProcess
from migrator.drill.report import DrillReport
from migrator.migration.machine.states import PublicState, State
from migrator.observe.status import Status
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import FaultCluster, cluster_in, start_all


async def restart(cluster: FaultCluster, controller: ControllerProcess) -> Status:
    """With the properties as they are now; gives its status, once it knows who leads."""
    assert await asyncio.to_thread(controller.stop) == 0
    controller.start()
    found: list[Status] = []

    async def back() -> bool:
        status = await controller.status()
        found[:] = [] if status is None or status.quorum.leader_id < 0 else [status]
        return bool(found)

    await cluster.until(f"controller {controller.node_id} is back", back)
    return found[0]


async def test_without_flag_connection_and_listener_and_with_zookeeper_gone(
    zookeeper: ZooKeeperSpace, tmp_path: Path
) -> None:
    """Kafka's manual takes three lines away; ZooKeeper may be switched off before the last controller is restarted."""
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=2, partitions=30) as cluster:
        start_all(cluster)
        await cluster.until_converged()
        await cluster.roll_to_kraft(DrillReport({}))
        leading = await cluster.until_dual_writing()
        first, second = (each for each in cluster.controllers if each is not leading)

        first.set_migration(enabled=False)
        second.properties["zookeeper.connect"] = ""
        second.properties[FLAG] = "false"
        for controller in (first, second):
            await restart(cluster, controller)
        assert await cluster.in_state(State.DUAL_WRITING), "the leader still has it on"

        for gate in cluster.gates.values():
            gate.cut()
        leading.kill()
        await cluster.until_problem(f"controller {leading.node_id} does not answer", f"Remove {FLAG}")
        assert await cluster.in_state(State.FINISHING)

        leading.set_migration(enabled=False)
        leading.start()

        async def finished() -> bool:
            statuses = await cluster.statuses()
            return [each.migration.public_state for each in statuses.values()] == [PublicState.FINISHED.label] * 3

        await cluster.until("every controller reports Finished", finished)
