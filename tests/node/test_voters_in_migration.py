"""Voters that change while ZooKeeper is written, too: what is taken, what is refused, and who is elected afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.context import KRAFT_VERSION
from migrator.controller.decision import RefusedError
from migrator.controller.quorum_target import KEY, RESOURCE, TargetOrder
from migrator.node.core import NodeCore
from migrator.raft.planner import Wait
from migrator.raft.voter_changes import VotersNotChangedError
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.control import DynamicVoter, KRaftVersionRange, VoterEndpoint
from migrator.records.metadata import ConfigRecord, ZkMigrationState, ZkMigrationStateRecord
from migrator.wire.api_versions import OUR_FEATURE, OUR_FEATURE_RANGE, Features
from migrator.wire.schemas import VersionRange
from migrator.wire.server import KafkaListener
from migrator.wire.voters import VoterAnswer
from tests.node.quorum.test_ballot import Nobody
from tests.node.support.cluster import IMPATIENT, STEADY, running, until
from tests.node.support.dynamic import LISTENER, DynamicCluster

MIGRATING = {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": "localhost:1"}
KRAFT = {KRAFT_VERSION: VersionRange(0, 1)}


class MigratingCluster(DynamicCluster):
    """In dual-write, as far as the log says. Whoever is up answers the ballots; `stock` is without the flag."""

    async def ask_voter(self, node_id: int, seconds: float) -> VoterAnswer | None:
        del seconds
        return await self._ask(node_id)

    async def joining(self, node_id: int, supported: dict[str, VersionRange]) -> tuple[KafkaListener, DynamicVoter]:
        """A listener that says so of itself, and the entry with which it would vote."""
        listener = KafkaListener(LISTENER, Nobody(), features=lambda: Features(supported | KRAFT, {}))
        at = VoterEndpoint(LISTENER, "localhost", await listener.start("localhost", 0))
        return listener, DynamicVoter(node_id, self.directory_id(node_id), (at,), KRaftVersionRange(0, 0))

    async def add(self, node_id: int, *, is_ours: bool = True) -> None:
        """As AddRaftVoter does at the leader."""
        leader = await self.leader()
        await until(
            lambda: any(
                row.replica_id == node_id and row.last_caught_up_ms >= 0 for row in leader.quorum.status().observers
            ),
            "it has caught up",
        )
        own = {OUR_FEATURE: OUR_FEATURE_RANGE} if is_ours else {}
        listener, voter = await self.joining(node_id, own)
        try:
            await leader.voter_changes.add(voter)
        finally:
            await listener.close()

    async def remove(self, node_id: int) -> None:
        """As RemoveRaftVoter does."""
        await (await self.leader()).voter_changes.remove(ReplicaKey(node_id, self.directory_id(node_id)))

    async def kill_leader(self) -> int:
        """Stop the leader; returns its id."""
        leader_id = (await self.leader()).quorum.leader_id
        assert leader_id is not None
        await self.stop(leader_id)
        return leader_id


@asynccontextmanager
async def dual_writing(
    directory: Path, size: int, voters: int, **extra: str
) -> AsyncIterator[tuple[MigratingCluster, NodeCore]]:
    cluster = MigratingCluster(directory, size, voters, **MIGRATING | STEADY | extra)
    cluster.format()
    for node_id in range(1, size + 1):
        cluster.start(node_id)
    try:
        leader = await cluster.leader()
        await append(leader, ZkMigrationStateRecord(ZkMigrationState.MIGRATION))
        yield cluster, leader
    finally:
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
        assert not cluster.failures, cluster.failures


async def append(leader: NodeCore, record: ZkMigrationStateRecord | ConfigRecord) -> None:
    await leader.metadata.stable(await leader.controller.append(leader.quorum.epoch, [record]))


async def test_a_voter_that_is_dead_for_good_is_replaced_and_the_next_failure_is_survived(tmp_path: Path) -> None:
    async with dual_writing(tmp_path, 4, 3, **IMPATIENT) as (cluster, _leader):
        await cluster.register(range(1, 5))
        dead = await cluster.kill_leader()
        await cluster.add(4)
        await cluster.remove(dead)
        alive = frozenset({1, 2, 3, 4} - {dead})
        await until(lambda: cluster.voters() == {alive}, "three voters are alive again")
        second = await cluster.kill_leader()
        leader = await cluster.leader()
        assert leader.quorum.leader_id in alive - {second}
        await cluster.agree(leader.metadata.end_offset - 1)


async def test_a_voter_that_has_not_seen_the_change_elects_who_joined(tmp_path: Path) -> None:
    """The log of the voter that is left is the shorter one: only the stranger can be elected."""
    async with dual_writing(tmp_path, 3, 2, **IMPATIENT) as (cluster, leader):
        await cluster.register(range(1, 4))
        old = next(node_id for node_id in (1, 2) if node_id != leader.quorum.leader_id)
        await cluster.agree(leader.metadata.end_offset - 1)
        cluster.wires.cut.add(old)
        await cluster.add(3)
        dead = await cluster.kill_leader()
        assert dead in {1, 2}
        cluster.wires.cut.clear()
        assert (await cluster.leader()).quorum.leader_id == 3
        await until(lambda: cluster.voters() == {frozenset({1, 2, 3})}, "the other one follows")


async def test_who_would_get_no_votes_does_not_join(tmp_path: Path) -> None:
    async with dual_writing(tmp_path, 4, 3) as (cluster, _leader):
        with pytest.raises(VotersNotChangedError, match="has not registered") as caught:
            await cluster.add(4)
        assert caught.value.refusal.error is ErrorCode.request_timed_out
        await cluster.register(range(1, 5))
        with pytest.raises(VotersNotChangedError, match="a stock controller without") as caught:
            await cluster.add(4, is_ours=False)
        assert caught.value.refusal.error is ErrorCode.invalid_request
        assert cluster.voters() == {frozenset({1, 2, 3})}


async def test_who_keeps_stock_voters_from_a_majority_stays(tmp_path: Path) -> None:
    async with dual_writing(tmp_path, 3, 3) as (cluster, leader):
        own = leader.quorum.leader_id
        assert own is not None
        first, second = sorted({1, 2, 3} - {own})
        cluster.stock = {first}
        await cluster.remove(second)
        with pytest.raises(VotersNotChangedError, match=f"^The controllers {first} are stock"):
            await cluster.remove(own)
        await cluster.remove(first)
        assert leader.quorum.membership.voters is not None
        assert leader.quorum.membership.voters.ids == {own}


async def test_the_other_doors_say_what_to_do_instead(tmp_path: Path) -> None:
    async with dual_writing(tmp_path, 3, 3) as (cluster, _):
        for order in (TargetOrder.TO, TargetOrder.ADD, TargetOrder.REMOVE):
            with pytest.raises(RefusedError, match=r"first add-controller, then remove-controller"):
                await cluster.order(order, 4 if order is TargetOrder.ADD else 1)


async def test_configured_voters_stay_configured_until_the_end(tmp_path: Path) -> None:
    async with running(tmp_path, 1, **MIGRATING) as cluster:
        leader = await cluster.leader()
        with pytest.raises(VotersNotChangedError, match=r"Finish it first, or roll it back"):
            await leader.voter_changes.upgrade(VoterSet.of([leader.addresses.own_voter()]), lambda: None)


async def test_a_plan_that_is_older_than_the_migration_rests_and_says_so(tmp_path: Path) -> None:
    async with dual_writing(tmp_path, 4, 3) as (cluster, leader):
        await cluster.register(range(1, 5))
        await append(leader, ConfigRecord(RESOURCE.resource_type, RESOURCE.name, KEY, "1,2,4"))
        status = await cluster.plans[leader.quorum.leader_id or 0].status()
        assert isinstance(status.waiting_for, Wait)
        assert "rests during a migration" in status.waiting_for.reason
        assert "first add-controller, then remove-controller" in status.waiting_for.reason
        assert cluster.voters() == {frozenset({1, 2, 3})}
