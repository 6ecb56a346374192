"""An operator's pause outlives the leader that took it, snapshots included."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.errors import OperatorError
from migrator.migration.machine import events as ev
from migrator.migration.machine.states import State, public_state
from migrator.node.core import NodeCore
from migrator.node.migration.pause import PauseOrder
from migrator.observe.status import Orderer
from migrator.records.metadata import MigrationHold, ZkMigrationState, ZkMigrationStateRecord
from tests.node.migration.test_start_check import append
from tests.node.support.cluster import IMPATIENT, running

NOT_BEGUN = ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION)

SOMEBODY = Orderer("User:CN=operator", "ipv4:127.0.0.1:1")


def unnoted(kind: str, text: str, **details: str) -> None:
    del kind, text, details


def order_on(core: NodeCore, fed: list[ev.Event], state: State = State.WAITING_FOR_BROKERS) -> PauseOrder:
    """The order of that node, whose driver is in a state; what the driver is fed is listed."""
    public = public_state(ZkMigrationState.PRE_MIGRATION, state)
    executor: Any = SimpleNamespace(
        feed=fed.append, coordinator=SimpleNamespace(status=lambda _now: SimpleNamespace(public=public, state=state))
    )
    return PauseOrder(3, core, executor, unnoted)


def hold_of(core: NodeCore) -> MigrationHold | None:
    return core.metadata.published.features.migration_hold


async def test_the_next_leader_has_the_order_and_the_resume(tmp_path: Path) -> None:
    async with running(tmp_path, 3, **IMPATIENT) as cluster:
        leader = await cluster.leader()
        await append(leader, NOT_BEGUN)
        fed: list[ev.Event] = []
        await order_on(leader, fed).give("maintenance", SOMEBODY)
        held = leader.metadata.published.features.migration_hold
        assert held is not None
        assert (held.node_id, held.reason) == (3, "maintenance")
        assert fed == [ev.OperatorPause(held)], "held at once, not only when it is committed"

        image = leader.metadata.snapshot_image
        assert image is not None
        await leader.snapshotter.write(image)
        await cluster.stop(next(voter for voter, node in cluster.nodes.items() if node is leader))
        second = await cluster.leader()
        assert hold_of(second) == held

        await order_on(second, fed).take_back(SOMEBODY)
        assert hold_of(second) is None
        with pytest.raises(OperatorError, match="is not paused"):
            await order_on(second, fed).take_back(SOMEBODY)


async def test_nothing_is_held_without_a_reason(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        await append(leader, NOT_BEGUN)
        fed: list[ev.Event] = []
        with pytest.raises(OperatorError, match="--reason"):
            await order_on(leader, fed).give(" ", SOMEBODY)
        assert (hold_of(leader), fed) == (None, [])


async def test_a_directory_that_is_opened_again_still_has_the_order(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        await append(leader, NOT_BEGUN)
        await order_on(leader, []).give("maintenance", SOMEBODY)
        held = leader.metadata.published.features.migration_hold
        image = leader.metadata.snapshot_image
        assert image is not None
        snapshot_id = await leader.snapshotter.write(image)
        leader.storage.log._forget_before(snapshot_id, 0)
        await cluster.stop(1)
        cluster.start(1)
        assert (await cluster.leader()).metadata.published.features.migration_hold == held


async def test_what_cannot_be_held_is_refused_and_the_copy_ends_the_order(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        leader = await cluster.leader()
        await append(leader, NOT_BEGUN)
        with pytest.raises(OperatorError, match="is in MigrateZkData"):
            await order_on(leader, [], State.CLAIMING).give("too late", SOMEBODY)
        with pytest.raises(OperatorError, match="only just been elected"):
            await order_on(leader, [], State.INACTIVE).give("too early: its driver would not remember", SOMEBODY)
        await append(leader, ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION, MigrationHold(3, 5, "why")))
        await append(leader, ZkMigrationStateRecord(ZkMigrationState.MIGRATION))
        assert leader.metadata.published.features.migration_hold is None
        with pytest.raises(OperatorError, match="nothing to migrate"):
            await order_on(leader, []).give("too late", SOMEBODY)
