"""A stall is a worker that is silent, not one that is slow; and what operators read of its progress."""

from __future__ import annotations

import pytest

from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.progress import Course, Meter, MeteredSource, Working, WorkPhase
from migrator.migration.machine.states import State
from migrator.migration.machine.volatile_state import COMPARE_MAX_MS, STALL_MS, TELL_MS
from migrator.records.metadata import ZkMigrationState
from migrator.zookeeper.znodes import paths
from tests.migration.machine.test_driver import Run
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support.builders import standing

LIMIT_NEARLY_MS = STALL_MS - 1_000


def reconciling() -> tuple[Run, ev.Ticket]:
    run = Run(ZkMigrationState.MIGRATION).took_over()
    return run, run.asked(ef.Reconcile).ticket


def test_a_slow_worker_goes_on_for_as_long_as_it_does_something_in_whatever_phase() -> None:
    run, ticket = reconciling()
    for phase in (WorkPhase.LOAD, WorkPhase.COMPARE, WorkPhase.WRITE):
        for done in range(5):
            run.now += LIMIT_NEARLY_MS
            run(ev.WorkProgressed(ticket, Working(phase, done * phase.size, 100 * phase.size))).wait()
            assert run.state() is State.RECONCILING
            assert run.asked_nothing_of(ef.CancelWork)


def test_a_slow_look_at_all_assignments_is_not_asked_for_again_and_keeps_its_sentence() -> None:
    run = Run().examined(standing())
    ticket, said = run.asked(ef.ReadReadiness).ticket, run.why
    for done in range(5):
        run.now += LIMIT_NEARLY_MS
        run(ev.WorkProgressed(ticket, Working(WorkPhase.LOAD, done))).wait()
        assert run.asked_nothing_of(ef.ReadReadiness)
    assert run.why == said


def test_brokers_that_are_still_being_informed_are_not_informed_twice() -> None:
    run = Run().copied()
    run(ev.ReconcileDone(run.asked(ef.Reconcile).ticket, 0))
    assert not run.asked(ef.SendFullRpcs).again
    assert run.wait_for(ef.SendFullRpcs).again


def test_a_silent_worker_is_cancelled_and_the_work_begins_anew() -> None:
    run, ticket = reconciling()
    run(ev.WorkProgressed(ticket, Working(WorkPhase.COMPARE, 5, 10)))
    begin = run.now
    run.wait_for(ef.CancelWork)
    assert run.now - begin >= STALL_MS
    assert run.asked(ef.Reconcile).ticket != ticket


def test_a_comparison_beside_the_writes_has_a_time_in_which_it_ends() -> None:
    """Removals wait for it, whatever it does."""
    run = Run(ZkMigrationState.MIGRATION).took_over(holder=3002)
    ticket, begin = run.asked(ef.Resume).ticket, run.now
    while run.state() is State.COMPARING:
        run.now += LIMIT_NEARLY_MS
        run(ev.WorkProgressed(ticket, Working(WorkPhase.COMPARE, run.now, 10 * run.now))).wait()
        assert run.now - begin < COMPARE_MAX_MS + STALL_MS
    assert run.now - begin >= COMPARE_MAX_MS
    assert run.state() is State.RECONCILING
    assert run.asked(ef.CancelWork)
    assert run.asked(ef.Reconcile)
    assert "has not ended within 5 minutes" in run.why


def test_status_says_phase_count_total_and_rate() -> None:
    run, ticket = reconciling()
    said = []
    for done in (0, 0, 500, 1_500):
        run(ev.WorkProgressed(ticket, Working(WorkPhase.COMPARE, done, 20_000)))
        said.append(run.why)
        run.now += 1_000
    run(ev.WorkProgressed(ticket, Working(WorkPhase.WRITE, 30)))
    assert said == [
        "compares ZooKeeper with the log",
        "compares ZooKeeper with the log",
        "compares ZooKeeper with the log: 500 of 20,000 topics, 250 a second",
        "compares ZooKeeper with the log: 1,500 of 20,000 topics, 500 a second",
    ]
    assert run.why.startswith("compares ZooKeeper with the log: 1,500 of 20,000 topics")
    assert run.why.endswith("; writes to ZooKeeper what differs: 30 entities")


def test_bytes_are_shown_as_megabytes() -> None:
    course = (
        Course()
        .heard(Working(WorkPhase.LOAD, 0, 30_000_000), 0)
        .heard(Working(WorkPhase.LOAD, 12_300_000, 30_000_000), 0)
    )
    assert course.sentence(3_000) == "loads the metadata log: 12 of 30 MB, 4 a second"


def test_the_log_hears_of_each_phase_at_once_and_of_figures_now_and_then() -> None:
    run, ticket = reconciling()
    reports = 0
    for step in range(1, 101):
        run.now += TELL_MS // 50
        run(ev.WorkProgressed(ticket, Working(WorkPhase.LOAD if step <= 50 else WorkPhase.COMPARE, step * 1_000_000)))
        reports += not run.asked_nothing_of(ef.ReportSituation)
    assert reports == 2


@pytest.mark.parametrize("every", [0.0, 10.0])
def test_who_does_nothing_says_nothing_and_who_does_much_says_it_now_and_then(every: float) -> None:
    clock, heard = iter(range(1000)), list[Working]()
    meter = Meter(heard.append, lambda: float(next(clock)), every)
    meter.begin(WorkPhase.COMPARE, 30)
    assert heard == [Working(WorkPhase.COMPARE, 0, 30)], "a phase is announced at once"
    for _ in range(30):
        meter.did(1)
    assert len(heard) == 31 if not every else 1 < len(heard) <= 1 + 30 // every
    assert heard == sorted(heard, key=lambda working: working.done)


def test_a_source_counts_topics_and_takes_every_answer_for_a_sign_of_life() -> None:
    model, heard = ModelZooKeeper(), list[Working]()
    topics = paths.topic("a"), paths.topic("state")
    model.load(dict.fromkeys((*topics, paths.partition_state("a", 0)), b"{}"))
    clock = iter(range(1000))
    meter = Meter(heard.append, lambda: float(next(clock)), 0)
    source = MeteredSource(model, meter)
    meter.begin(WorkPhase.COMPARE)
    assert list(source.children([paths.TOPICS])) == [("a", "state")]
    wanted = [topics[0], paths.partition_state("a", 0), topics[1], paths.topic("missing")]
    assert [znode is not None for znode in source.read(wanted)] == [True, True, True, False]
    assert [(working.done, working.of) for working in heard] == [(0, 0), (0, 2), (1, 2), (1, 2), (2, 2), (2, 2)]
