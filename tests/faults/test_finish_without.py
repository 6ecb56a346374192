"""`migrator force finish --without ID`: a node that is gone for good holds up the end, and is left out."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from migrator.drill.cluster import ControllerProcess
from migrator.drill.light.broker import LightBrokerMode
from migrator.drill.report import DrillReport
from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState, State
from migrator.observe.status import Force, Gate, Goal, NodeRole
from migrator.parts.kafka import StockKafka
from migrator.rpc.operator_client import OperatorClient
from tests.conftest import ZooKeeperSpace
from tests.drill.support.stock_controllers import StockController
from tests.faults.support.cluster import FaultCluster, cluster_in, start_all
from tests.patience import PATIENCE_SECONDS

COMMAND = "migrator force finish --without {} --reason TEXT"


async def order(controller: ControllerProcess, *node_ids: int) -> None:
    async with OperatorClient.on_socket(controller.metadata_directory) as client:
        await client.force(Force.FINISH, "the machine is lost, CHG-43", node_ids)


async def refused(controller: ControllerProcess, *node_ids: int) -> str:
    """The controller's answer to an order that changes nothing."""
    with pytest.raises(OperatorError, match="nothing was forced") as refusal:
        await order(controller, *node_ids)
    return str(refusal.value)


async def named(cluster: FaultCluster) -> list[str]:
    """The problems of the active controller that name the command."""
    found = await cluster.active()
    assert found is not None
    return [problem.remedy for problem in found[1].problems if "--without" in problem.remedy]


async def turn_off(cluster: FaultCluster, *controllers: ControllerProcess) -> None:
    """Restart each with the migration turned off."""
    for controller in controllers:
        controller.set_migration(enabled=False)
        assert await asyncio.to_thread(controller.stop) in (0, 3)
        controller.start()
        await cluster.until("it is back", partial(back, controller))


async def back(controller: ControllerProcess) -> bool:
    status = await controller.status()
    return status is not None and status.quorum.leader_id >= 0


async def until_finished(cluster: FaultCluster, controllers: int) -> None:
    async def finished() -> bool:
        statuses = await cluster.statuses()
        states = [each.migration.public_state for each in statuses.values()]
        return states == [PublicState.FINISHED.label] * controllers

    await cluster.until("every controller that runs reports Finished", finished)


async def journal(controller: ControllerProcess) -> list[tuple[str, dict[str, str]]]:
    """Reason and details of each order to force."""
    async with OperatorClient.on_socket(controller.metadata_directory) as client:
        return [(event.text, dict(event.details)) async for event in client.journal(-1) if event.kind == "force"]


async def gates_of_finish(leader: ControllerProcess) -> dict[str, Gate]:
    async with OperatorClient.on_socket(leader.metadata_directory) as client:
        return {gate.name: gate for gate in await client.gates(Goal.FINISH)}


async def test_a_voter_that_is_dead_for_good_is_left_out_and_disturbs_nothing_when_it_returns(
    zookeeper: ZooKeeperSpace, tmp_path: Path
) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=2, partitions=20) as cluster:
        start_all(cluster)
        await cluster.until_converged()
        await cluster.roll_to_kraft(DrillReport({}))
        dead = await cluster.until_dual_writing()
        others = [each for each in cluster.controllers if each is not dead]
        assert "does not wait for controller" in await refused(dead, others[0].node_id)

        await turn_off(cluster, *others)
        assert await named(cluster) == [], "nobody holds up anything yet"
        dead.kill()
        await cluster.until_problem(f"controller {dead.node_id} does not answer", COMMAND.format(dead.node_id))
        leader = await cluster.until_state(State.FINISHING)
        (alive,) = (each for each in others if each is not leader)

        for ids, why in (
            ((leader.node_id,), f"controller {leader.node_id} answers"),
            ((dead.node_id, alive.node_id), f"controller {alive.node_id} answers"),
            ((4711,), "4711 is neither a controller of the quorum nor a registered broker"),
            ((cluster.brokers[0].options.broker_id,), "is in KRaft mode"),
            ((), "names no node"),
        ):
            assert why in await refused(leader, *ids)
        gates = await gates_of_finish(leader)
        assert not gates["controllers"].open
        assert COMMAND.format(dead.node_id) in gates["controllers"].remedy
        assert await cluster.in_state(State.FINISHING)
        assert await journal(leader) == []

        await order(leader, dead.node_id)
        await until_finished(cluster, 2)
        ((reason, details),) = await journal(leader)
        assert reason == "the machine is lost, CHG-43"
        assert (details["what"], details["without"]) == ("finish", str(dead.node_id))

        dead.start()  # its flag is still on
        await until_finished(cluster, 3)
        status = await dead.status()
        assert status is not None
        assert status.quorum.leader_id != dead.node_id
        assert all(broker.running.is_set() for broker in cluster.brokers)


@pytest.mark.lane("test-long")
async def test_a_broker_that_vanished_in_zookeeper_mode_is_left_out_and_refused_when_it_returns(
    zookeeper: ZooKeeperSpace, tmp_path: Path
) -> None:
    async with cluster_in(
        tmp_path, zookeeper.hosts, brokers=3, partitions=30, migrator_audit_interval_ms="1000"
    ) as cluster:
        start_all(cluster)
        await cluster.until_converged()
        leader = await cluster.until_dual_writing()
        lost, *others = cluster.brokers
        broker_id = lost.options.broker_id
        assert "sends heartbeats" in await refused(leader, broker_id)

        await lost.stop(controlled=False)
        await lost.start(LightBrokerMode.ZOOKEEPER)  # silent, but it runs
        await cluster.until_problem(f"broker {broker_id}", "it runs in ZooKeeper mode, but sends no heartbeats")
        assert f"/brokers/ids/{broker_id} exists" in await refused(leader, broker_id)
        await lost.stop(controlled=False)
        assert await named(cluster) == [], "the other brokers hold up the end, too"

        for broker in others:
            await broker.stop()
            await broker.start(LightBrokerMode.KRAFT)
            await asyncio.wait_for(broker.running.wait(), PATIENCE_SECONDS)
        await cluster.until_problem(f"broker {broker_id}", COMMAND.format(broker_id))
        gates = await gates_of_finish(leader)
        assert COMMAND.format(broker_id) in gates["brokers"].remedy

        await order(leader, broker_id)
        status = await leader.status()
        assert status is not None
        assert broker_id not in {each.broker_id for each in status.brokers}
        assert await named(cluster) == []

        await turn_off(cluster, *cluster.controllers)
        await until_finished(cluster, 3)
        await lost.start()

        async def turned_away() -> bool:
            return lost.errors.get(ErrorCode.broker_id_not_registered, 0) > 0

        await cluster.until("the broker that came back in ZooKeeper mode is refused", turned_away)
        await lost.stop(controlled=False)
        await lost.start(LightBrokerMode.KRAFT)
        await asyncio.wait_for(lost.running.wait(), PATIENCE_SECONDS)


@pytest.mark.lane("test-long")
async def test_a_broker_that_returns_after_the_order_holds_up_the_end_again(
    zookeeper: ZooKeeperSpace, tmp_path: Path
) -> None:
    """A majority that cannot be reached without the dead node is no majority: nothing is finished then, either."""
    async with cluster_in(
        tmp_path, zookeeper.hosts, brokers=1, partitions=10, migrator_audit_interval_ms="1000"
    ) as cluster:
        start_all(cluster)
        await cluster.until_converged()
        leader = await cluster.until_dual_writing()
        (lost,) = cluster.brokers
        await lost.stop(controlled=False)
        await cluster.until_problem(COMMAND.format(lost.options.broker_id))
        await order(leader, lost.options.broker_id)
        await lost.start()
        await asyncio.wait_for(lost.running.wait(), PATIENCE_SECONDS)
        gates = await gates_of_finish(leader)
        assert not gates["brokers"].open
        await lost.stop()
        await lost.start(LightBrokerMode.KRAFT)
        await asyncio.wait_for(lost.running.wait(), PATIENCE_SECONDS)

        dead = await cluster.until_dual_writing()
        others = [each for each in cluster.controllers if each is not dead]
        await turn_off(cluster, *others)
        dead.kill()
        leader = await cluster.until_state(State.FINISHING)
        (last,) = (each for each in others if each is not leader)
        last.kill()

        async def nobody_leads() -> bool:
            status = await leader.status()
            return status is not None and status.quorum.leader_id < 0

        await cluster.until("nobody leads", nobody_leads)
        with pytest.raises(OperatorError, match="does not lead"):
            await order(leader, dead.node_id)
        last.start()
        await cluster.until_problem(COMMAND.format(dead.node_id))
        leader = await cluster.until_state(State.FINISHING)
        await order(leader, dead.node_id)
        await until_finished(cluster, 2)


@pytest.mark.lane("test-long")
async def test_a_stock_voter_that_is_dead_for_good_is_left_out(
    zookeeper: ZooKeeperSpace, kafka_391: StockKafka, tmp_path: Path
) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=2, partitions=20) as cluster:
        *ours, last = cluster.controllers
        stock = StockController(kafka_391, last)
        cluster.controllers = [*ours, stock]
        for controller in ours:
            controller.start()
        await cluster.until("one of ours leads", partial(back, ours[0]))
        stock.start()  # finds a leader, and so does not stand for election
        await cluster.until_converged()
        await cluster.roll_to_kraft(DrillReport({}))
        await cluster.until_dual_writing()
        stock.kill()
        await turn_off(cluster, *ours)
        leader = await cluster.until_state(State.FINISHING)
        command = COMMAND.format(stock.node_id)
        await cluster.until_problem(f"controller {stock.node_id} does not answer", command)

        stock.start()  # its flag is still on
        await cluster.until("the stock voter is back", stock.status)
        assert f"controller {stock.node_id} " in await refused(leader, stock.node_id)
        stock.kill()
        await cluster.until_problem(f"controller {stock.node_id} does not answer", command)
        await order(leader, stock.node_id)
        await until_finished(cluster, 2)
        ((_, details),) = await journal(leader)
        assert (details["what"], details["without"]) == ("finish", str(stock.node_id))

        stock.start()
        await until_finished(cluster, 3)
        status = await stock.status()
        assert status is not None
        assert status.quorum.role is not NodeRole.LEADER
        assert all(broker.running.is_set() for broker in cluster.brokers)
