"""The driver looks at the running brokers once more before the claim, and once more before the copy counts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.readiness import Surroundings
from migrator.migration.machine.states import POLL_MS, State
from migrator.migration.machine.volatile_state import REPLICAS_MS
from migrator.records.metadata import ZkMigrationState
from migrator.zookeeper.znodes.controller import ControllerClaim
from tests.migration.machine.test_driver import CLAIM, Run
from tests.migration.support.builders import standing, surroundings

READY = surroundings(0, running={0: 1})
LATE = {0: 1, 7: 50}
"""Broker 7 has come up while everything was read and decoded."""


def decoded() -> Run:
    run = Run().examined(standing()).ready()
    return run(ev.DecodeResult(run.asked(ef.DecodeAll).ticket, records=10))


def copying() -> Run:
    run = decoded().examined(standing(), READY)
    return run(ev.ClaimResult(run.asked(ef.TakeClaim).ticket, CLAIM))


@pytest.mark.parametrize(
    ("around", "named"),
    [
        (surroundings(0, running=LATE), "broker 7: it runs, but has not registered with the quorum"),
        (surroundings(0, silent=(0,)), "broker 0: it runs and is registered, but sends no heartbeats"),
    ],
)
def test_a_broker_that_came_up_without_the_flag_while_all_was_decoded_keeps_the_claim_back(
    around: Surroundings, named: str
) -> None:
    run = decoded()
    assert run.asked(ef.Examine).brokers, "ZooKeeper's brokers and the heartbeats are read again"
    run.examined(standing(), around)
    assert run.asked_nothing_of(ef.TakeClaim)
    assert run.state() is State.WAITING_FOR_BROKERS
    assert named in run.why


def test_everything_is_decoded_again_once_such_a_broker_is_ready() -> None:
    run = decoded().examined(standing(), surroundings(0, running=LATE)).ready()
    assert run.asked(ef.DecodeAll)


def test_a_claim_of_unknown_outcome_is_given_back_when_somebody_is_missing_meanwhile() -> None:
    run = decoded().examined(standing(), READY)
    run(ev.ClaimResult(run.asked(ef.TakeClaim).ticket, None, "connection lost"))
    ours = standing(controller=ControllerClaim(3001, 0, 5), mark=CLAIM.migration)
    run.examined(ours, surroundings(0, running=LATE))
    assert run.asked(ef.ReleaseClaim)


def test_a_leader_that_takes_over_asks_nobody_who_runs() -> None:
    """The copy is committed by then; the audit names such brokers."""
    assert not Run(ZkMigrationState.MIGRATION).asked(ef.Examine).brokers


@pytest.mark.parametrize(
    ("around", "counts"),
    [
        (READY, True),
        (surroundings(0, running={}), True),  # it is down: it will register when it comes back
        (surroundings(0, running=LATE), False),
        (surroundings(0, running={0: 1}, silent=(0,)), False),
        (surroundings(0, running={0: 60, 7: 50}, silent=(0,), asking=(0, 7)), True),  # told to wait for the end
    ],
)
def test_a_copy_counts_only_if_every_broker_that_runs_will_obey(around: Surroundings, counts: bool) -> None:
    run = copying()
    run(ev.CopyDone(run.asked(ef.StartCopy).ticket, 10, 8, 1, around))
    assert run.state() is (State.COMMITTING if counts else State.ABORTING)
    assert counts or "do not follow this quorum started meanwhile: broker" in run.why


def waiting_for_a_new_znode() -> tuple[Run, int]:
    """The copy is complete, and broker 0 has had another znode since; the moment at which that was read."""
    run = copying()
    run(ev.CopyDone(run.asked(ef.StartCopy).ticket, 10, 8, 1, surroundings(0, running={0: 60}, alive_ms=0)))
    assert run.state() is State.COPYING
    assert "broker 0: its znode in /brokers/ids is new" in run.why
    return run, run.now


def test_the_copy_of_a_broker_whose_session_expired_counts_with_its_next_heartbeats() -> None:
    run, read_ms = waiting_for_a_new_znode()
    for alive_ms in (read_ms, read_ms + 1):
        asked = run.wait_for(ef.LookAgain)
        assert asked.records == 10
        assert run.state() is State.COPYING
        run(ev.CopyDone(asked.ticket, 10, 8, 1, surroundings(0, running={0: 60}, alive_ms=alive_ms)))
    assert run.state() is State.COMMITTING
    assert run.asked_nothing_of(ef.StartCopy), "nothing is copied twice"


@pytest.mark.parametrize(
    ("around", "versions", "why"),
    [
        (surroundings(0, running={0: 60}, silent=(0,), alive_ms=0), (8, 1), "sends no heartbeats"),
        (surroundings(0, running={0: 60, 7: 61}), (8, 1), "broker 7"),
        (surroundings(0, running={0: 60}), (9, 1), "another controller"),
    ],
)
def test_while_a_broker_is_waited_for_the_copy_can_still_fail(
    around: Surroundings, versions: tuple[int, int], why: str
) -> None:
    run, _ = waiting_for_a_new_znode()
    run(ev.CopyDone(run.wait_for(ef.LookAgain).ticket, 10, *versions, around))
    assert run.state() is State.ABORTING
    assert why in run.why


def test_a_last_look_that_fails_fails_the_copy() -> None:
    run, _ = waiting_for_a_new_znode()
    run(ev.CopyFailed(run.wait_for(ef.LookAgain).ticket, "ZooKeeper is away"))
    assert run.state() is State.ABORTING


def test_a_session_that_expires_before_the_copy_holds_it_up_until_the_next_heartbeats_only() -> None:
    run = Run().examined(standing()).looked(READY)
    heard = run.now + 1_000
    for alive_ms in (0, heard, heard):
        assert run.asked_nothing_of(ef.DecodeAll)
        run.wait_for(ef.ReadReadiness)
        run.looked(surroundings(0, running={0: 60}, alive_ms=alive_ms))
    assert run.asked(ef.DecodeAll)


@pytest.mark.parametrize("holder", [None, ControllerClaim(3003, 0, 4)])
def test_assignments_are_read_again_after_a_time_without_looks(holder: ControllerClaim | None) -> None:
    """ZooKeeper was out of reach, or another controller held the claim. A broker may have got replicas and stopped."""
    run, around = Run().examined(standing()).registered(0), surroundings(0)
    looked = run.wait_for(ef.ReadReadiness)
    assert looked.replicas is not None
    seen = None if holder is None else around.brokers
    run(ev.ReadinessInputs(looked.ticket, seen, around.signals, around.cluster, 19, holder=holder))
    run.now += 3_600_000
    if holder is not None:
        run.examined(standing(controller=ControllerClaim(0, 0)))
    again = run.wait_for(ef.ReadReadiness) if run.asked_nothing_of(ef.ReadReadiness) else run.asked(ef.ReadReadiness)
    assert again.replicas is None


def test_who_waits_for_brokers_looks_twice_a_second_and_reads_all_assignments_more_rarely() -> None:
    run = Run().examined(standing()).registered()
    assert run.registered().state() is State.WAITING_FOR_BROKERS
    since, looks, readings = run.now, 0, 0
    while run.now - since < 60_000:
        readings += run.wait_for(ef.ReadReadiness).replicas is None
        run.registered()
        assert run.asked_nothing_of(ef.ReadReadiness)
        looks += 1
    assert 100 <= looks <= 60_000 / POLL_MS
    assert readings == 60_000 / REPLICAS_MS
    run.wait_for(ef.ReadReadiness)
    run.registered(0)
    assert run.state() is State.WAITING_FOR_BROKERS
    assert run.wait_for(ef.ReadReadiness).replicas is None, "other brokers may have got replicas since the last reading"
    assert run.registered(0).state() is State.DECODING


def test_assignments_are_not_known_while_a_broker_has_not_registered() -> None:
    unread = surroundings()
    unread = replace(unread, brokers=replace(unread.brokers, replicas=frozenset()))
    run = Run().examined(standing()).looked(unread)
    assert run.wait_for(ef.ReadReadiness).replicas is None
