"""A leader that stops: how long it waits for ZooKeeper, and what it says when that was not enough."""

from __future__ import annotations

from migrator.errors import ExitCode
from migrator.migration import events as ev
from migrator.migration.coordinator import Coordinator
from migrator.migration.lag import Lag
from migrator.migration.multis import Limits
from migrator.migration.soft import Identity
from migrator.node.behind import drain
from migrator.node.quorum import monotonic_ms
from migrator.records.metadata import ZkMigrationState
from tests.migration.builders import CLUSTER_ID
from tests.migration.model_images import crc_at, derive, image_of
from tests.migration.write_rig import EPOCH, Rig

LIMITS = Limits(jute_maxbuffer=4_000)


def elected() -> Coordinator:
    """A leader of a migrated cluster that has not reached ZooKeeper yet."""
    made = Coordinator(Identity(3001, CLUSTER_ID), derive, crc_at, LIMITS)
    image = image_of({"a": "1"}, 100, EPOCH)
    made.lead(ev.BecameLeader(EPOCH, ZkMigrationState.MIGRATION, enabled=True), image, monotonic_ms())
    return made


def caught_up(content: dict[str, str]) -> Coordinator:
    """One that has, and has written this."""
    made = elected()
    rig = Rig({"a": "1"}, LIMITS)
    rig.core = made.write_behind
    rig.open().publish(content)
    return made


def lag_of(coordinator: Coordinator) -> Lag:
    return coordinator.write_behind.lag(monotonic_ms())


async def test_a_leader_that_does_not_know_the_lag_is_not_drained() -> None:
    leader = elected()
    missing = await drain(leader, lambda: lag_of(leader), 0)
    assert missing is not None
    assert missing.exit_code == ExitCode.NOT_DRAINED
    assert "nobody knows yet how far ZooKeeper is behind" in str(missing)
    assert leader.state.value in str(missing)


async def test_a_leader_that_is_in_step_has_nothing_to_say() -> None:
    leader = caught_up({"a": "2"})
    assert await drain(leader, lambda: lag_of(leader), 0) is None


async def test_what_is_set_aside_is_missing() -> None:
    leader = caught_up({"a": "x" * LIMITS.jute_maxbuffer})
    missing = await drain(leader, lambda: lag_of(leader), 0)
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

    assert await drain(leader, lag, 3_600) is None
    assert len(looks) > 2


async def test_a_leader_that_is_deposed_while_it_waits_says_what_was_missing() -> None:
    """All voters are stopped at once: the leader loses its majority, and nobody comes after it."""
    leader = elected()
    looks = []

    def lag() -> Lag | None:
        looks.append(1)
        return lag_of(leader) if len(looks) < 3 else None

    missing = await drain(leader, lag, 3_600)
    assert missing is not None
    assert missing.exit_code == ExitCode.NOT_DRAINED
    assert "nobody knows yet how far ZooKeeper is behind" in str(missing)


async def test_the_wait_ends_with_the_leadership() -> None:
    assert await drain(elected(), lambda: None, 3_600) is None
