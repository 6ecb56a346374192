"""The voters of a quorum move to a target: real disks, several controllers in one loop, wires that can be cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from migrator.controller.quorum_target import TargetOrder, target_of
from migrator.node.quorum.voter_changes import NO_OPS_MAX
from migrator.node.voter_orders import VoterOrders
from migrator.observe.status import Orderer
from migrator.observe.voters import VoterOrder
from migrator.raft.messages import FetchRequest
from migrator.raft.planner import Wait
from migrator.raft.states import Role
from migrator.raft.voter_changes import RemoveVoter, UpdateVoter, VotersNotChangedError
from migrator.raft.voter_set import ReplicaKey
from migrator.wire.voters import VoterAnswer
from tests.node.support.cluster import CLUSTER_ID, IMPATIENT, until
from tests.node.support.dynamic import DynamicCluster, dynamic
from tests.raft.support.reassignment import wanted

NEW = frozenset({4, 5, 6})


async def reached(cluster: DynamicCluster, *ids: int) -> None:
    """Every node has the set in force, and the target is cleared."""
    await until(lambda: cluster.voters() == {frozenset(ids)}, f"the voters {ids} everywhere")
    await until(
        lambda: all(target_of(node.metadata.published) is None for node in cluster.nodes.values()), "no target any more"
    )


async def test_three_voters_become_three_others_and_the_quorum_goes_on(tmp_path: Path) -> None:
    async with dynamic(tmp_path, 6, 3) as cluster:
        assert (await cluster.order(TargetOrder.TO, 4, 5, 6)).target == wanted(4, 5, 6)
        await reached(cluster, 4, 5, 6)
        for node_id in (1, 2, 3):
            await cluster.stop(node_id)
        leader = await cluster.leader()
        assert leader.quorum.leader_id in NEW
        assert (await cluster.order(TargetOrder.CANCEL)).replaced is None
        steps = [text.partition(": ")[2].partition("@")[0] for text in cluster.noted()]
        assert "clear the target" in steps


async def test_a_quorum_grows_and_shrinks(tmp_path: Path) -> None:
    async with dynamic(tmp_path, 5, 1) as cluster:
        for ids in ((1, 2, 3), (1, 2, 3, 4, 5), (3, 4, 5), (3,)):
            await cluster.order(TargetOrder.TO, *ids)
            await reached(cluster, *ids)


async def test_the_next_leader_goes_on_with_the_plan(tmp_path: Path) -> None:
    async with dynamic(tmp_path, 5, 3, **IMPATIENT) as cluster:
        cluster.wires.cut.add(5)
        await cluster.order(TargetOrder.TO, 1, 2, 3, 4, 5)
        await until(lambda: frozenset({1, 2, 3, 4}) in cluster.voters(), "4 joins, 5 is missing")
        leader = (await cluster.leader()).quorum.leader_id
        assert leader is not None
        await cluster.stop(leader)
        cluster.wires.cut.clear()
        await until(lambda: cluster.voters() == {frozenset({1, 2, 3, 4, 5})}, "5 joins under the next leader")


async def test_a_plan_that_holds_says_why_and_goes_on_when_it_can(tmp_path: Path) -> None:
    async with dynamic(tmp_path, 4, 3, **IMPATIENT) as cluster:
        cluster.wires.cut.add(4)
        await cluster.order(TargetOrder.TO, 1, 2, 4)
        text = "Reassignment of voters waits: Controller 4 does not fetch from this leader."
        await until(lambda: text in cluster.noted(), "the reason in the journal")
        leader = await cluster.leader()
        plan = cluster.plans[leader.quorum.leader_id or 0]
        status = await plan.status()
        assert isinstance(status.waiting_for, Wait)
        assert status.waiting_for.reason == "Controller 4 does not fetch from this leader."
        assert status.target == wanted(1, 2, 4)
        assert plan.idle_ms > 0
        cluster.wires.cut.clear()
        await reached(cluster, 1, 2, 4)


async def test_a_leader_without_a_successor_of_ours_leaves_by_its_own_record(tmp_path: Path) -> None:
    async with dynamic(tmp_path, 3, 3) as cluster:
        leader = await cluster.leader()
        own = leader.quorum.leader_id
        assert own is not None
        cluster.stock = {1, 2, 3} - {own}
        await cluster.order(TargetOrder.TO, *cluster.stock)
        await until(lambda: leader.quorum.role is not Role.LEADER, "the leader leaves")
        await reached(cluster, *cluster.stock)


async def test_a_cancelled_plan_ends_where_it_is(tmp_path: Path) -> None:
    async with dynamic(tmp_path, 5, 3) as cluster:
        cluster.wires.cut.add(5)
        await cluster.order(TargetOrder.TO, 1, 2, 3, 4, 5)
        await until(lambda: frozenset({1, 2, 3, 4}) in cluster.voters(), "4 joins, 5 is missing")
        assert (await cluster.order(TargetOrder.CANCEL)).replaced == wanted(1, 2, 3, 4, 5)
        cluster.wires.cut.clear()
        await reached(cluster, 1, 2, 3, 4)


async def shows(cluster: DynamicCluster, node_id: int, more: int) -> int:
    """A node shows the leader a log that is longer by so many records."""
    leader = await cluster.leader()
    epoch, shown = leader.quorum.epoch, leader.storage.log.end_offset() + more
    directory = cluster.directory_id(node_id)
    await leader.quorum.handle(FetchRequest(CLUSTER_ID, node_id, epoch, shown, epoch, 0, 1000, directory))
    return shown


@pytest.mark.parametrize("joins", [False, True])
async def test_a_plan_brings_the_log_to_where_the_old_log_of_a_voter_had_been(tmp_path: Path, joins: bool) -> None:
    """Nobody else writes here, and no voter changes before that (stock 3.9 would overlook the change)."""
    async with dynamic(tmp_path, 4, 3) as cluster:
        leader = await cluster.leader()
        other = 4 if joins else next(node_id for node_id in (1, 2, 3) if node_id != leader.quorum.leader_id)
        shown = await shows(cluster, other, 2 * NO_OPS_MAX + 500)
        await cluster.order(TargetOrder.TO, 1, 2, 3, 4)
        await reached(cluster, 1, 2, 3, 4)
        assert leader.storage.log.end_offset() > shown
        assert len([text for text in cluster.noted() if "add" in text]) == 1, "the step is noted when it is made"


async def test_whoever_asks_again_for_a_change_finds_the_log_where_an_old_one_had_been(tmp_path: Path) -> None:
    async with dynamic(tmp_path, 3, 3) as cluster:
        leader = await cluster.leader()
        shown = await shows(cluster, 1 + leader.addresses.node_id % 3, 500)
        voter = cluster.voter(leader.addresses.node_id)
        with pytest.raises(VotersNotChangedError, match="has to get there first"):
            await leader.voter_changes.update(voter)
        assert await leader.voter_changes.update(voter) >= shown


async def test_a_leader_that_cannot_leave_now_keeps_the_target(tmp_path: Path) -> None:
    """The target goes with the last leader of ours; when a change of somebody else comes first, neither may go yet."""
    async with dynamic(tmp_path, 3, 3) as cluster:
        leader = await cluster.leader()
        own = leader.quorum.leader_id
        assert own is not None
        cluster.stock = {1, 2, 3} - {own}
        other = min(cluster.stock)
        change = leader.controller.change_voters
        changed: list[int] = []

        async def late(*given: Any, **more: Any) -> int:
            if not changed:  # it waits its turn, and a voter changes its entry meanwhile
                changed.append(leader.quorum.change_voters(UpdateVoter(cluster.voter(other))))
            return await change(*given, **more)

        leader.controller.change_voters = late  # type: ignore[method-assign]
        await cluster.order(TargetOrder.TO, *cluster.stock)
        await until(lambda: leader.quorum.role is not Role.LEADER, "the leader leaves")
        await reached(cluster, *cluster.stock)
        assert changed


async def test_a_voter_that_falls_silent_while_it_is_asked_counts_as_silent(tmp_path: Path) -> None:
    """Otherwise the plan removes the last one whom a majority needs, and nobody leads until the silent one is back."""
    async with dynamic(tmp_path, 3, 3, **IMPATIENT) as cluster:
        leader = await cluster.leader()
        own = leader.quorum.leader_id
        assert own is not None
        stays = min({1, 2, 3} - {own})
        plan, ask = cluster.plans[own], cluster._ask

        async def hang(node_id: int) -> VoterAnswer | None:
            if node_id == stays and stays not in cluster.wires.cut:
                cluster.wires.cut.add(stays)
                await until(
                    lambda: all(it.key.node_id != stays or not it.is_live for it in plan.replicas()), "it is silent"
                )
            return await ask(node_id)

        plan._ask = hang
        await cluster.order(TargetOrder.TO, own, stays)
        await until(
            lambda: (
                len(leader.quorum.membership.voters or ()) < 3 or any("waits: Without" in it for it in cluster.noted())
            ),
            "a step, or the reason why there is none",
        )
        assert cluster.voters() == {frozenset({1, 2, 3})}
        plan._ask = ask
        cluster.wires.cut.clear()
        await reached(cluster, own, stays)


async def test_an_order_counts_from_the_voters_that_are_in_force_when_its_turn_comes(tmp_path: Path) -> None:
    """A voter that was removed while the order waited is not brought back by it."""
    async with dynamic(tmp_path, 4, 3) as cluster:
        leader = await cluster.leader()
        own = leader.quorum.leader_id
        assert own is not None
        gone = min({1, 2, 3} - {own})
        orders = VoterOrders(cluster.settings(own), leader, cluster.plans[own], cluster.journals[own])
        write = leader.controller.write

        async def late(*given: Any, **more: Any) -> Any:
            leader.controller.write = write  # type: ignore[method-assign]
            offset = leader.quorum.change_voters(RemoveVoter(ReplicaKey(gone, cluster.directory_id(gone))))
            await leader.metadata.committed_up_to(offset)
            return await write(*given, **more)

        leader.controller.write = late  # type: ignore[method-assign]
        answer = await orders.reassign(VoterOrder.ADD, "4", CLUSTER_ID, Orderer("somebody", "here"))
        assert answer.target == ",".join(map(str, sorted({1, 2, 3, 4} - {gone})))
