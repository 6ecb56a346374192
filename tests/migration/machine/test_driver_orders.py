"""The pure driver with the migration turned off, under the operator's pause, and after the order to reopen."""

from __future__ import annotations

import pytest

from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.finish import FinishInputs
from migrator.migration.machine.states import PublicState, State
from migrator.migration.machine.transitions import TRANSITIONS
from migrator.observe.status import Force
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import MigrationReopening, ZkMigrationState
from migrator.zookeeper.znodes.controller import ControllerClaim
from tests.migration.machine.test_driver import COPIED, HOLD, KEPT, Run
from tests.migration.support.builders import standing


def successors(state: State) -> set[State]:
    """All but those of a leader that is elected: they are decided by its flag."""
    found = set(TRANSITIONS[state].values())
    return set() if state is State.INACTIVE else found


def test_pause_holds_before_the_claim_and_resume_asks_again_who_is_ready() -> None:
    run = Run().examined(standing()).ready()
    asked = run.asked(ef.DecodeAll)
    run(ev.OperatorPause(HOLD))
    run(ev.DecodeResult(asked.ticket, records=10))
    assert run.state() is State.PAUSED
    run.examined(standing())
    assert run.asked_nothing_of(ef.TakeClaim)
    assert run(ev.OperatorResume()).asked(ef.ReadReadiness)


def test_a_pause_that_the_log_keeps_holds_the_next_leader_too() -> None:
    run = Run(hold=HOLD).examined(standing()).ready()
    run(ev.DecodeResult(run.asked(ef.DecodeAll).ticket, records=10))
    assert run.state() is State.PAUSED
    for said in ("maintenance", "controller 3002", "2023-11-14 22:13:20 UTC", "migrator resume"):
        assert said in str(run.driver.status(run.now).situation)
    run(ev.BecameLeader(6, ZkMigrationState.PRE_MIGRATION, enabled=True))
    assert not run.driver.status(run.now).paused, "the log of the next term holds no order"


def test_a_pause_between_the_first_reading_and_the_claim_holds_too() -> None:
    run = Run().examined(standing()).ready()
    run(ev.DecodeResult(run.asked(ef.DecodeAll).ticket, records=10))
    asked = run.asked(ef.Examine)
    run(ev.OperatorPause(HOLD))(ev.Examined(asked.ticket, standing()))
    assert run.state() is State.PAUSED
    assert run(ev.OperatorResume()).asked(ef.ReadReadiness)


def test_a_claim_that_appears_while_paused_is_released() -> None:
    run = Run().examined(standing()).ready()
    asked = run.asked(ef.DecodeAll)
    run(ev.OperatorPause(HOLD))(ev.DecodeResult(asked.ticket, records=10))
    run.examined(standing(controller=ControllerClaim(3002, 0, 4)))
    assert run.asked(ef.ReleaseClaim)


def test_finish_waits_for_every_voter_then_ends() -> None:
    run = Run(ZkMigrationState.MIGRATION, enabled=False)
    run(ev.VotersAsked(run.asked(ef.AskVoters).ticket, FinishInputs({3001: False, 3002: True}, ())))
    assert run.state() is State.FINISHING
    assert "controller 3002" in run.why
    asked = run.wait_for(ef.AskVoters)
    run(ev.VotersAsked(asked.ticket, FinishInputs({3001: False, 3002: False}, ())))
    run(ev.Committed(run.asked(ef.AppendFinished).ticket, EpochOffset(5, 90)))
    assert run.driver.status(run.now).public is PublicState.FINISHED


def test_a_left_out_voter_is_left_out_by_this_leader_only() -> None:
    """The next one is asked again: what nobody hears of may be back by then."""
    run = Run(ZkMigrationState.MIGRATION, enabled=False)
    silent = FinishInputs({3001: False, 3002: None}, ())
    asked = run.asked(ef.AskVoters)
    run(ev.OperatorForce(Force.FINISH, frozenset({3002})))
    run(ev.VotersAsked(asked.ticket, silent))
    assert run.state() is State.FINISHING, "an answer from before the order"
    run(ev.LostLeadership(5))(ev.BecameLeader(6, ZkMigrationState.MIGRATION, enabled=False))
    run(ev.VotersAsked(run.asked(ef.AskVoters).ticket, silent))
    assert run.state() is State.FINISHING
    assert "--without 3002" in str(run.driver.status(run.now).situation)
    run(ev.OperatorForce(Force.FINISH, frozenset({3002})))
    run(ev.VotersAsked(run.asked(ef.AskVoters).ticket, FinishInputs({3001: False, 3002: True}, ())))
    assert run.state() is State.FINISHING, "it has come back with the migration on"
    run(ev.VotersAsked(run.wait_for(ef.AskVoters).ticket, silent))
    assert run.state() is State.COMPLETING


def test_an_order_to_finish_moves_nothing_while_it_dual_writes() -> None:
    run = Run(ZkMigrationState.MIGRATION)
    run(ev.OperatorForce(Force.FINISH, frozenset({3002})))
    assert run.state() is State.EXAMINING


def test_finish_hands_over_while_zookeeper_brokers_are_registered() -> None:
    run = Run(ZkMigrationState.MIGRATION, enabled=False)
    inputs = FinishInputs({3001: False, 3002: True}, (0, 1), caught_up=(3002,))
    run(ev.VotersAsked(run.asked(ef.AskVoters).ticket, inputs))
    assert run.asked(ef.TransferLeadership).successor == 3002


def test_a_finished_cluster_does_nothing_and_cannot_go_back() -> None:
    run = Run(ZkMigrationState.POST_MIGRATION)
    assert run.state() is State.FINISHED
    assert run.timer is None


def test_a_cluster_of_kraft_has_nothing_to_migrate_and_its_leader_says_so() -> None:
    run = Run(ZkMigrationState.NONE, enabled=False)
    assert run.state() is State.NOTHING_TO_MIGRATE
    assert run.why == State.NOTHING_TO_MIGRATE.properties.sentence
    assert run.timer is None


def test_a_leader_without_the_flag_says_so_before_the_copy_and_lets_one_lead_that_has_it() -> None:
    run = Run(ZkMigrationState.PRE_MIGRATION, enabled=False)
    assert run.driver.status(run.now).public is PublicState.MIGRATION_INELIGIBLE
    run(ev.VotersAsked(run.asked(ef.AskVoters).ticket, FinishInputs({3001: False, 3002: None}, ())))
    assert (run.state(), "controller 3001" in run.why) == (State.TURNED_OFF, True)
    asked = run.wait_for(ef.AskVoters)
    run(ev.VotersAsked(asked.ticket, FinishInputs({3001: False, 3002: True}, (), caught_up=(3002,))))
    assert run.asked(ef.TransferLeadership).successor == 3002
    run.wait_for(ef.AskVoters)
    assert run.state() is State.TURNED_OFF, "3002 did not take over"


@pytest.mark.parametrize("record", [ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION])
def test_a_leader_without_the_flag_never_needs_zookeeper(record: ZkMigrationState) -> None:
    """Without a session: every answer of the voters leads to a state that needs none."""
    run = Run(record, enabled=False)
    reached = {run.state()}
    while grown := {after for state in reached - {State.FINISHED} for after in successors(state)} - reached:
        reached |= (
            grown  # it reopens nothing, see `test_only_a_leader_with_the_flag_on_reopens_and_only_what_is_finished`
        )
    assert not any(state.properties.needs_zookeeper for state in reached)
    assert State.EXAMINING.properties.needs_zookeeper
    assert State.DUAL_WRITING.properties.needs_zookeeper


REOPENING = MigrationReopening(3001, 1_700_000_000_000, "the auditors want it")


def test_a_reopened_migration_claims_reconciles_and_admits_brokers_in_zookeeper_mode_last() -> None:
    run = Run(ZkMigrationState.POST_MIGRATION)(ev.OperatorReopen(REOPENING))
    asked = run.asked(ef.AppendReopened)
    assert (run.state(), asked.order) == (State.REOPENING, REOPENING)
    run(ev.Committed(asked.ticket, EpochOffset(5, 2000)))
    left = standing(controller=ControllerClaim(3002, 0, 4), mark=COPIED, mark_in_log=4)
    run.examined(left)(ev.ClaimResult(run.asked(ef.TakeClaim).ticket, KEPT))
    run(ev.ReconcileDone(run.asked(ef.Reconcile).ticket, 3))
    assert run.state() is State.ADMITTING
    run(ev.Committed(run.asked(ef.AppendAdmitted).ticket, EpochOffset(5, 2001)))
    assert run.state() is State.INFORMING_BROKERS


@pytest.mark.parametrize(
    ("record", "enabled"), [(ZkMigrationState.POST_MIGRATION, False), (ZkMigrationState.MIGRATION, True)]
)
def test_only_a_leader_with_the_flag_on_reopens_and_only_what_is_finished(
    record: ZkMigrationState, *, enabled: bool
) -> None:
    run = Run(record, enabled=enabled)
    before = run.state()
    assert run(ev.OperatorReopen(REOPENING)).state() is before
    assert run.asked_nothing_of(ef.AppendReopened)
