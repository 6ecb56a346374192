"""Periodic tasks come when they are due, one decision at a time, and wait for the end of the copy."""

from __future__ import annotations

import pytest

from migrator import turns
from migrator.controller.migration_gate import Operation
from migrator.controller.schedule import FENCING_PUT_OFF_MS, MISSING_LEADERS_MS, SOON_MS, Schedule
from migrator.records.metadata import (
    NO_LEADER,
    PartitionChangeRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from tests.controller.support.leading_controller import SESSION_MS, LeadingController


def run(controller: LeadingController, schedule: Schedule, until_ms: int) -> list[tuple[int, Operation]]:
    """Let time pass up to a moment, as a node would."""
    done = []
    while (due := schedule.next_due_ms(controller.image, controller.context())) is not None and due <= until_ms:
        controller.now_ms = max(due, controller.now_ms)
        while (found := schedule.due(controller.image, controller.context())) is not None:
            controller.commit(found[1])
            done.append((controller.now_ms, found[0]))
    return done


def test_no_ops_come_each_half_second_and_silence_fences() -> None:
    controller = LeadingController()
    controller.start([1, 2])
    start = controller.now_ms
    schedule = Schedule(controller.settings, start)
    done = run(controller, schedule, start + SESSION_MS + 600)
    assert [at - start for at, task in done if task is Operation.NO_OP] == list(range(500, SESSION_MS + 501, 500))
    fenced = [at - start for at, task in done if task is Operation.FENCE_BROKER]
    assert fenced == [SESSION_MS + 1] * 2, "one at a time, at the same moment"
    assert all(broker.fenced for broker in controller.image.cluster.brokers.values())


def test_an_interval_of_zero_or_a_flag_turns_tasks_off() -> None:
    controller = LeadingController(metadata_max_idle_interval_ms=0, auto_leader_rebalance_enable=False)
    schedule = Schedule(controller.settings, controller.now_ms)
    done = {task for _, task in run(controller, schedule, controller.now_ms + 4_000_000)}
    assert done == {Operation.ELECT_MISSING, Operation.ELECT_UNCLEAN, Operation.SWEEP_TOKENS}


def test_a_task_that_is_not_finished_goes_on_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_RECORDS", 2)
    controller = LeadingController(metadata_max_idle_interval_ms=0)
    controller.start([1, 2])
    topic_id = controller.create("t", *[(1, 2)] * 5)
    controller.write(*(PartitionChangeRecord(n, topic_id, leader=2) for n in range(5)))
    controller.sessions = type(controller.sessions)(10**9)
    controller.sessions.follow(controller.image, [1, 2], controller.now_ms)
    start = controller.now_ms
    done = run(controller, Schedule(controller.settings, start), start + 300_000 + 5 * SOON_MS)
    times = [at - start for at, task in done if task is Operation.BALANCE_LEADERS]
    assert times == [300_000, 300_000 + SOON_MS, 300_000 + 2 * SOON_MS]
    assert [controller.partition("t", n).leader for n in range(5)] == [1] * 5


def test_before_the_copy_only_no_ops_are_written() -> None:
    controller = LeadingController(
        ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION), zookeeper_metadata_migration_enable=True
    )
    controller.start([1], is_migrating_zk_broker=True)
    start = controller.now_ms
    schedule = Schedule(controller.settings, start)
    done = run(controller, schedule, start + SESSION_MS + FENCING_PUT_OFF_MS + 100)
    assert {task for _, task in done} == {Operation.NO_OP}
    controller.write(ZkMigrationStateRecord(ZkMigrationState.MIGRATION))
    done = run(controller, schedule, controller.now_ms + FENCING_PUT_OFF_MS)
    assert Operation.FENCE_BROKER in {task for _, task in done}


def test_leaders_that_zookeepers_controller_did_not_elect_are_elected_after_the_copy_once() -> None:
    controller = LeadingController(
        ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION), zookeeper_metadata_migration_enable=True
    )
    controller.start([1, 2], is_migrating_zk_broker=True)
    schedule = Schedule(controller.settings, controller.now_ms)
    assert Operation.ELECT_MISSING not in {task for _, task in run(controller, schedule, controller.now_ms + 1_000)}
    controller.write(ZkMigrationStateRecord(ZkMigrationState.MIGRATION))
    topic_id = controller.create("t", (1, 2), (2, 1), (1,), (2, 3))
    controller.write(*(PartitionChangeRecord(n, topic_id, leader=NO_LEADER, isr=(n % 2 + 1,)) for n in range(3)))
    controller.write(PartitionChangeRecord(3, topic_id, leader=NO_LEADER, isr=(3,)))
    done = run(controller, schedule, controller.now_ms + MISSING_LEADERS_MS)
    assert [controller.partition("t", n).leader for n in range(4)] == [1, 2, 1, NO_LEADER]
    done += run(controller, schedule, controller.now_ms + 3_000)
    assert [task for _, task in done].count(Operation.ELECT_MISSING) == 1
