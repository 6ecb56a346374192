"""A leader that stops: how long it waits for ZooKeeper, and what it says when that was not enough."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from migrator.clock import monotonic_ms
from migrator.config.keys import FLAG
from migrator.config.load import settings_from
from migrator.errors import ExitCode
from migrator.migration.coordinator import Coordinator
from migrator.migration.machine import events as ev
from migrator.migration.machine.volatile_state import Identity
from migrator.migration.write_behind.lag import Lag
from migrator.migration.write_behind.multis import Limits
from migrator.node.migration.behind import Debt, drain
from migrator.node.migration.cluster import migrated_cluster
from migrator.node.migration.runtime import MigrationRuntime
from migrator.observe.journal import Journal
from migrator.records.metadata import ZkMigrationState, ZkMigrationStateRecord
from migrator.wire.listener_settings import controller_security
from migrator.wire.voters import VoterSignals
from tests.migration.model.images import crc_at, derive, image_of
from tests.migration.support.builders import CLUSTER_ID
from tests.migration.write_behind.support.rig import EPOCH, Rig
from tests.node.migration.test_start_check import append
from tests.node.support.cluster import IMPATIENT, running, until

LIMITS = Limits(jute_maxbuffer=4_000)


def elected() -> Coordinator:
    """A leader of a migrated cluster that has not reached ZooKeeper yet."""
    made = Coordinator(Identity(3001, CLUSTER_ID), derive, crc_at, LIMITS)
    image = image_of({"a": "1"}, 100, EPOCH)
    made.lead(ev.BecameLeader(EPOCH, ZkMigrationState.MIGRATION, enabled=True), image, monotonic_ms())
    return made


def caught_up(content: dict[str, str]) -> Coordinator:
    """A leader with ZooKeeper, which has written this."""
    made = elected()
    rig = Rig({"a": "1"}, LIMITS)
    rig.core = made.write_behind
    rig.open().publish(content)
    return made


def nothing() -> None:
    """The default of ``missing_when_deposed``: this node has not lost the leadership."""


def lag_of(coordinator: Coordinator) -> Lag:
    return coordinator.write_behind.lag(monotonic_ms())


async def test_a_leader_that_does_not_know_the_lag_is_not_drained() -> None:
    leader = elected()
    missing = await drain(leader, lambda: lag_of(leader), nothing, 0)
    assert missing is not None
    assert missing.exit_code == ExitCode.NOT_DRAINED
    assert "it is not known yet how far ZooKeeper is behind" in str(missing)
    assert leader.state.value in str(missing)


async def test_a_leader_that_is_in_step_has_nothing_to_say() -> None:
    leader = caught_up({"a": "2"})
    assert await drain(leader, lambda: lag_of(leader), nothing, 0) is None


async def test_what_is_set_aside_is_missing() -> None:
    leader = caught_up({"a": "x" * LIMITS.jute_maxbuffer})
    missing = await drain(leader, lambda: lag_of(leader), nothing, 0)
    assert missing is not None
    (item,) = leader.write_behind.set_aside
    assert item.path in str(missing)
    assert "behind" not in missing.what.replace("write-behind", "")


async def test_the_wait_ends_when_zookeeper_has_followed() -> None:
    leader = elected()
    looks = []

    def lag() -> Lag:
        looks.append(1)
        if len(looks) == 2:
            rig = Rig({"a": "1"})
            rig.core = leader.write_behind
            rig.open()
        return lag_of(leader)

    assert await drain(leader, lag, nothing, 3_600) is None
    assert len(looks) > 2


async def test_a_leader_that_is_deposed_while_it_waits_says_what_was_missing() -> None:
    """All voters are stopped at once: the leader loses its majority, and nobody comes after it."""
    leader, debt = elected(), Debt()
    looks = []

    def lag() -> Lag | None:
        looks.append(1)
        if len(looks) == 3:
            debt.led(EPOCH, leader)
        return lag_of(leader) if len(looks) < 3 else None

    missing = await drain(leader, lag, lambda: debt.missing_when_deposed(other_leads=False, latest_epoch=EPOCH), 3_600)
    assert missing is not None
    assert missing.exit_code == ExitCode.NOT_DRAINED
    assert "it is not known yet how far ZooKeeper is behind" in str(missing)


async def test_the_wait_ends_with_the_leadership() -> None:
    assert await drain(elected(), lambda: None, nothing, 3_600) is None


def test_who_came_after_a_leader_writes_what_it_left() -> None:
    debt = Debt()
    debt.led(EPOCH, elected())
    assert debt.missing_when_deposed(other_leads=False, latest_epoch=EPOCH) is not None
    assert debt.missing_when_deposed(other_leads=True, latest_epoch=EPOCH) is None
    assert debt.missing_when_deposed(other_leads=False, latest_epoch=EPOCH + 1) is None, (
        "it has led, and left what it says itself"
    )
    debt.led(EPOCH, caught_up({"a": "2"}))
    assert debt.missing_when_deposed(other_leads=False, latest_epoch=EPOCH) is None


async def test_a_leader_that_loses_its_majority_before_it_is_stopped_knows_what_was_missing(
    tmp_path: Path,
) -> None:
    """The followers are stopped first, ZooKeeper is away, and the leader is told to stop some seconds later."""
    keys = {FLAG: "true", "zookeeper.connect": "localhost:1", "inter.broker.listener.name": "PLAINTEXT"}
    async with running(tmp_path, 2, **IMPATIENT) as cluster, AsyncExitStack() as stack:
        leader = await cluster.leader()
        await append(leader, ZkMigrationStateRecord(ZkMigrationState.MIGRATION))
        node_id = next(node_id for node_id, node in cluster.nodes.items() if node is leader)
        settings, _ = settings_from(dict(cluster.settings(node_id).explicit) | keys, "test")
        failed = cluster.failures.append
        signals = VoterSignals(settings, dict, controller_security(settings))
        journal = Journal(tmp_path, 1 << 20)
        stack.callback(journal.close)
        reached = migrated_cluster(settings, leader, failed, lambda _seconds: None)
        runtime = MigrationRuntime(settings, leader, reached, signals, journal, failed)
        stack.push_async_callback(runtime.close)
        runtime.became_active(leader.quorum.epoch, leader.metadata.published)
        assert runtime.missing_when_deposed is None
        (other,) = cluster.nodes.keys() - {node_id}
        await cluster.stop(other)
        await until(lambda: runtime.lag is None, "a leader without a majority steps down")
        missing = await drain(
            runtime.executor.coordinator, lambda: runtime.lag, lambda: runtime.missing_when_deposed, 0
        )
        assert missing is not None
        assert missing.exit_code == ExitCode.NOT_DRAINED
