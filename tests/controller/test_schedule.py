"""Periodic tasks come when they are due, one decision at a time, and wait for the end of the copy."""

from __future__ import annotations

import pytest

from migrator.controller import periodic
from migrator.controller.migration_gate import Operation
from migrator.controller.schedule import FENCING_PUT_OFF_MS, MISSING_LEADERS_MS, SOON_MS, Schedule
from migrator.records.metadata import (
    NO_LEADER,
    PartitionChangeRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from tests.controller.world import SESSION_MS, World


def run(world: World, schedule: Schedule, until_ms: int) -> list[tuple[int, Operation]]:
    """What happens up to a moment, as a node would let it happen."""
    done = []
    while (due := schedule.next_due_ms(world.image, world.context())) is not None and due <= until_ms:
        world.now_ms = max(due, world.now_ms)
        while (found := schedule.due(world.image, world.context())) is not None:
            world.commit(found[1])
            done.append((world.now_ms, found[0]))
    return done


def test_no_ops_come_each_half_second_and_silence_fences() -> None:
    world = World()
    world.start([1, 2])
    start = world.now_ms
    schedule = Schedule(world.settings, start)
    done = run(world, schedule, start + SESSION_MS + 600)
    assert [at - start for at, task in done if task is Operation.NO_OP] == list(range(500, SESSION_MS + 501, 500))
    fenced = [at - start for at, task in done if task is Operation.FENCE_BROKER]
    assert fenced == [SESSION_MS + 1] * 2, "one at a time, at the same moment"
    assert all(broker.fenced for broker in world.image.cluster.brokers.values())


def test_an_interval_of_zero_or_a_flag_turns_tasks_off() -> None:
    world = World(metadata_max_idle_interval_ms=0, auto_leader_rebalance_enable=False)
    schedule = Schedule(world.settings, world.now_ms)
    done = {task for _, task in run(world, schedule, world.now_ms + 4_000_000)}
    assert done == {Operation.ELECT_MISSING, Operation.ELECT_UNCLEAN, Operation.SWEEP_TOKENS}


def test_a_task_that_is_not_finished_goes_on_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "MAX_ELECTIONS_PER_TURN", 2)
    world = World(metadata_max_idle_interval_ms=0)
    world.start([1, 2])
    topic_id = world.create("t", *[(1, 2)] * 5)
    world.write(*(PartitionChangeRecord(n, topic_id, leader=2) for n in range(5)))
    world.sessions = type(world.sessions)(10**9)
    world.sessions.follow(world.image, [1, 2], world.now_ms)
    start = world.now_ms
    done = run(world, Schedule(world.settings, start), start + 300_000 + 5 * SOON_MS)
    turns = [at - start for at, task in done if task is Operation.BALANCE_LEADERS]
    assert turns == [300_000, 300_000 + SOON_MS, 300_000 + 2 * SOON_MS]
    assert [world.partition("t", n).leader for n in range(5)] == [1] * 5


def test_before_the_copy_only_no_ops_are_written() -> None:
    world = World(ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION), zookeeper_metadata_migration_enable=True)
    world.start([1], is_migrating_zk_broker=True)
    start = world.now_ms
    schedule = Schedule(world.settings, start)
    done = run(world, schedule, start + SESSION_MS + FENCING_PUT_OFF_MS + 100)
    assert {task for _, task in done} == {Operation.NO_OP}
    world.write(ZkMigrationStateRecord(ZkMigrationState.MIGRATION))
    done = run(world, schedule, world.now_ms + FENCING_PUT_OFF_MS)
    assert Operation.FENCE_BROKER in {task for _, task in done}


def test_leaders_that_zookeepers_controller_did_not_elect_are_elected_after_the_copy_once() -> None:
    world = World(ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION), zookeeper_metadata_migration_enable=True)
    world.start([1, 2], is_migrating_zk_broker=True)
    schedule = Schedule(world.settings, world.now_ms)
    assert Operation.ELECT_MISSING not in {task for _, task in run(world, schedule, world.now_ms + 1_000)}
    world.write(ZkMigrationStateRecord(ZkMigrationState.MIGRATION))
    topic_id = world.create("t", (1, 2), (2, 1), (1,), (2, 3))
    world.write(*(PartitionChangeRecord(n, topic_id, leader=NO_LEADER, isr=(n % 2 + 1,)) for n in range(3)))
    world.write(PartitionChangeRecord(3, topic_id, leader=NO_LEADER, isr=(3,)))
    done = run(world, schedule, world.now_ms + MISSING_LEADERS_MS)
    assert [world.partition("t", n).leader for n in range(4)] == [1, 2, 1, NO_LEADER]
    done += run(world, schedule, world.now_ms + 3_000)
    assert [task for _, task in done].count(Operation.ELECT_MISSING) == 1
