"""A whole controller whose file names no ZooKeeper any more, while its log says that a migration is under way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from migrator.config.load import settings_from
from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState, State
from migrator.node.node import _assemble
from migrator.node.stop_reason import StopReason
from migrator.observe.status import Goal, Status
from migrator.records.metadata import ZkMigrationState, ZkMigrationStateRecord
from migrator.rpc.operator_client import OperatorClient
from tests.node.migration.test_start_check import append, registration
from tests.node.support.cluster import running
from tests.patience import PATIENCE_SECONDS


async def log_of(directory: Path, record: ZkMigrationState, *, zookeeper_mode: bool) -> dict[str, str]:
    """Leave the log of a quorum of one, with that record and one broker; gives the properties of its controller."""
    async with running(directory, 1) as cluster:
        leader = await cluster.leader()
        await append(leader, ZkMigrationStateRecord(record), registration(7, in_zookeeper_mode=zookeeper_mode))
        return dict(cluster.settings(1).explicit)


@asynccontextmanager
async def controller(properties: dict[str, str]) -> AsyncIterator[OperatorClient]:
    """The controller, and a way to ask it."""
    settings, _ = settings_from(properties, "test")
    failure = StopReason()
    async with AsyncExitStack() as stack:
        await _assemble(settings, failure, stack)
        yield await stack.enter_async_context(OperatorClient.on_socket(settings.metadata_directory))
    assert failure.error is None


async def status_in(client: OperatorClient, state: State) -> Status:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (status := await client.status(PATIENCE_SECONDS)).migration.internal_state != state.value:
            await asyncio.sleep(0.01)
    return status


@pytest.mark.parametrize(
    "left",
    [
        {},
        {"zookeeper.connect": ""},
        {"zookeeper.metadata.migration.enable": "false", "zookeeper.connect": "localhost:1"},
        {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT"},
    ],
    ids=["nothing left", "empty connection", "flag false", "no listener of brokers"],
)
async def test_a_migration_ends_without_a_zookeeper(tmp_path: Path, left: dict[str, str]) -> None:
    properties = await log_of(tmp_path, ZkMigrationState.MIGRATION, zookeeper_mode=False)
    async with controller(properties | left) as client:
        status = await status_in(client, State.FINISHED)
        assert (status.migration.public_state, status.migration.active) == (PublicState.FINISHED.label, True)
        assert status.problems == ()
        assert all(gate.open for gate in await client.gates(Goal.FINISH)), "nothing stands between here and the end"
        closed = {gate.name: gate.what for gate in await client.gates(Goal.REOPEN) if not gate.open}
        assert set(closed) >= {"controllers", "zookeeper"}
        assert closed["controllers"] == "the migration is off on controller 1"
        assert "ZooKeeper cannot be read: " in closed["zookeeper"]


async def test_a_migration_that_has_not_begun_says_that_it_is_turned_off(tmp_path: Path) -> None:
    properties = await log_of(tmp_path, ZkMigrationState.PRE_MIGRATION, zookeeper_mode=True)
    async with controller(properties) as client:
        status = await status_in(client, State.TURNED_OFF)
        assert status.migration.public_state == PublicState.MIGRATION_INELIGIBLE.label
        (problem,) = status.problems
        assert "turned off" in problem.what


async def test_an_order_to_pause_is_there_again_after_a_restart(tmp_path: Path) -> None:
    properties = await log_of(tmp_path, ZkMigrationState.PRE_MIGRATION, zookeeper_mode=True)
    async with controller(properties) as client:
        await status_in(client, State.TURNED_OFF)
        await client.pause("maintenance")
    async with controller(properties) as client:
        status = await status_in(client, State.TURNED_OFF)
        assert status.migration.paused
        assert any("maintenance (ordered at controller 1, " in problem.what for problem in status.problems)
        await client.resume()
        status = await client.status(PATIENCE_SECONDS)
        assert (status.migration.paused, len(status.problems)) == (False, 1)
        with pytest.raises(OperatorError, match="is not paused"):
            await client.resume()


async def test_nobody_is_told_that_zookeeper_holds_everything_by_a_leader_that_does_not_write(tmp_path: Path) -> None:
    properties = await log_of(tmp_path, ZkMigrationState.MIGRATION, zookeeper_mode=False)
    async with controller(properties | {"migrator.finish.require.verify": "true"}) as client:
        await status_in(client, State.FINISHING)
        (lag,) = [gate for gate in await client.gates(Goal.ROLLBACK) if gate.name == "lag"]
        assert not lag.open
        assert "turned off" in lag.what
