"""The end of a migration that rests on a comparison: which verdict counts, and which does not."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from migrator.drill.cluster import COMMAND_SECONDS, MIGRATOR
from migrator.drill.report import DrillReport
from migrator.migration.machine.states import State
from migrator.observe.status import Goal, VerdictReport
from migrator.parts.processes import run_to_end
from migrator.rpc.find_controller import active_controller
from migrator.rpc.operator_client import OperatorClient
from migrator.verify.job import beginning_of
from migrator.verify.zookeeper.side import ZooKeeperSide
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import cluster_in, start_all


async def test_the_migration_ends_only_on_a_verdict_that_began_after_the_last_write(
    zookeeper: ZooKeeperSpace, tmp_path: Path
) -> None:
    async with cluster_in(
        tmp_path, zookeeper.hosts, controllers=1, brokers=2, partitions=30, migrator_finish_require_verify="true"
    ) as cluster:
        (controller,) = cluster.controllers
        start_all(cluster)
        await cluster.until_converged()
        early = await beginning_of(lambda: active_controller(controller.property_file, None))
        assert not early.finishing

        async def reported(epoch: int, *, equal: bool = True) -> str:
            """The controller's answer to a verdict about ZooKeeper as it is now."""

            def look() -> VerdictReport:
                with ZooKeeperSide(zookeeper.hosts, str(controller.property_file), secrets.token_bytes(8)) as side:
                    mark = side.mark()
                state = mark.state
                found = (mark.offset, state.kraft_metadata_epoch, mark.zxid)
                return VerdictReport(early.cluster_id, epoch, *found, equal=equal, differences=0 if equal else 2)

            async with OperatorClient.on_socket(controller.metadata_directory) as client:
                answer = await client.report_verdict(await asyncio.to_thread(look))
            return "" if answer.counts else answer.sentence

        assert "dual-writing: what is written from now on is not covered" in await reported(early.leader_epoch)
        await cluster.roll_to_kraft(DrillReport({}))
        assert await asyncio.to_thread(controller.stop) == 0
        controller.set_migration(enabled=False)
        controller.start()
        await cluster.until_problem("no verification has found", "migrator verify -c FILE --report")
        assert await cluster.in_state(State.FINISHING)

        async with OperatorClient.on_socket(controller.metadata_directory) as client:
            assert "verdict" in {gate.name for gate in await client.gates(Goal.FINISH) if not gate.open}

        late = await beginning_of(lambda: active_controller(controller.property_file, None))
        assert late.finishing
        assert late.leader_epoch > early.leader_epoch
        assert "began in leader epoch" in await reported(early.leader_epoch), "it was read before the last write"
        assert "differ in 2 rows" in await reported(late.leader_epoch, equal=False)
        await cluster.until_problem("no verification has found")
        assert await cluster.in_state(State.FINISHING)

        command = [MIGRATOR, "verify", "-c", str(controller.property_file), "--report", "--zookeeper", zookeeper.hosts]
        said = await asyncio.to_thread(run_to_end, "verify", command, timeout_seconds=COMMAND_SECONDS)
        assert "equal: " in said
        await cluster.until_state(State.FINISHED)
