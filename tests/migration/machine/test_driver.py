"""The pure driver, scenario by scenario. The model check (test_model_check) runs it against ZooKeeper's rules."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import pytest

from migrator.errors import InvariantViolation
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.driver import MigrationDriver
from migrator.migration.machine.guards import Standing
from migrator.migration.machine.progress import Working, WorkPhase
from migrator.migration.machine.readiness import ControllerSignals, Gap, Surroundings, ZooKeeperBrokers
from migrator.migration.machine.states import PublicState, State
from migrator.migration.machine.volatile_state import BACKOFF_MAX_MS, SETTLE_MS, STALL_MS, Identity
from migrator.observe.status import Force
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import MigrationHold, ZkMigrationState
from migrator.zookeeper.leadership import Claim
from migrator.zookeeper.znodes.controller import ControllerClaim
from migrator.zookeeper.znodes.migration import MigrationState
from tests.migration.support.builders import CLUSTER_ID, CRC, cluster, standing, surroundings

E = TypeVar("E")
CLAIM = Claim(
    zk_epoch=8, epoch_version=8, controller_version=1, migration_version=4, migration=MigrationState(3001, 5, -1, -1)
)
COPIED = MigrationState(3002, 4, 1000, 4, CRC)
KEPT = Claim(
    zk_epoch=8,
    epoch_version=8,
    controller_version=1,
    migration_version=4,
    migration=MigrationState(3001, 5, 1000, 4, CRC),
)


HOLD = MigrationHold(3002, 1_700_000_000_000, "maintenance")


class Run:
    """A driver with a clock; remembers the effects of the last step."""

    def __init__(
        self,
        record: ZkMigrationState = ZkMigrationState.PRE_MIGRATION,
        *,
        enabled: bool = True,
        hold: MigrationHold | None = None,
    ) -> None:
        self.driver = MigrationDriver(Identity(3001, CLUSTER_ID))
        self.now = 0
        self.effects: list[ef.Effect] = []
        self.timer: ef.ScheduleTimer | None = None
        self(ev.BecameLeader(5, record, enabled=enabled, base=EpochOffset(4, 900), hold=hold))

    def __call__(self, event: ev.Event) -> Run:
        self.effects = self.driver.step(event, self.now)
        self.timer = next((e for e in self.effects if isinstance(e, ef.ScheduleTimer)), self.timer)
        return self

    def asked(self, kind: type[E]) -> E:
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        assert len(found) == 1, f"{kind.__name__} expected once in {self.effects}"
        return found[0]

    def asked_nothing_of(self, *kinds: type) -> bool:
        return not any(isinstance(effect, kinds) for effect in self.effects)

    def wait(self) -> Run:
        """Let the last timer fire."""
        assert self.timer is not None
        self.now += self.timer.delay_ms
        return self(ev.Timer(self.timer.ticket))

    def wait_for(self, kind: type[E]) -> E:
        """Let timers fire until that effect is asked for."""
        for _ in range(1000):
            if not self.wait().asked_nothing_of(kind):
                return self.asked(kind)
        raise AssertionError(f"{kind.__name__} was never asked for in {self.state()}")

    def examined(self, shown: Standing | None, around: Surroundings | None = None) -> Run:
        asked = None if self.asked_nothing_of(ef.Examine) else self.asked(ef.Examine)
        ticket = (asked or self.wait_for(ef.Examine)).ticket
        return self(ev.Examined(ticket, shown, "connection refused", around or surroundings(0)))

    def ready(self) -> Run:
        """Everybody is, for long enough unless a failed copy is waited for, too."""
        if self.registered(0).state() is not State.DECODING:
            self.wait_for(ef.ReadReadiness)
            self.registered(0)
        return self

    def registered(self, *brokers: int) -> Run:
        """Which brokers are registered with the quorum, of one that ZooKeeper has."""
        return self.looked(surroundings(*brokers))

    def looked(self, around: Surroundings) -> Run:
        """The running brokers, while the driver waits for brokers."""
        ticket = self.asked(ef.ReadReadiness).ticket
        return self(ev.ReadinessInputs(ticket, around.brokers, around.signals, around.cluster, 19))

    def order(self, kind: Force) -> ev.OperatorForce:
        """An order that overrides the shown facts."""
        return ev.OperatorForce(kind, overrides=frozenset(self.driver.status(self.now).situation.overridable))

    def claimed(self) -> Run:
        self.examined(standing()).ready()(ev.DecodeResult(self.asked(ef.DecodeAll).ticket, records=10))
        return self.examined(standing())(ev.ClaimResult(self.asked(ef.TakeClaim).ticket, CLAIM))

    def copied(self) -> Run:
        self.claimed()(ev.CopyDone(self.asked(ef.StartCopy).ticket, 10, 8, 1, surroundings(0)))
        return self(ev.Committed(self.asked(ef.CompleteTransaction).ticket, EpochOffset(5, 77)))

    def dual_writing(self) -> Run:
        self.copied()(ev.ReconcileDone(self.asked(ef.Reconcile).ticket, 3))
        return self(ev.RpcsQueued(self.asked(ef.SendFullRpcs).ticket))

    def took_over(self, holder: int = 3003) -> Run:
        """From a leader that held the claim; the mark is that of 3002."""
        self.examined(standing(controller=ControllerClaim(holder, 0, 4), mark=COPIED, mark_in_log=4))
        return self(ev.ClaimResult(self.asked(ef.TakeClaim).ticket, KEPT))

    def state(self) -> State:
        return self.driver.state

    @property
    def why(self) -> str:
        return str(self.driver.status(self.now).situation)


def test_the_whole_road_from_the_first_reading_to_dual_writing() -> None:
    run = Run().copied()
    assert run.state() is State.RECONCILING
    assert run.asked(ef.OpenWriteBehind) == ef.OpenWriteBehind(CLAIM, EpochOffset(5, 77))
    order = [type(effect) for effect in run.effects]
    assert order.index(ef.OpenWriteBehind) < order.index(ef.SendTakeoverRpcs) < order.index(ef.Reconcile)
    run(ev.ReconcileDone(run.asked(ef.Reconcile).ticket, 3))
    run(ev.RpcsQueued(run.asked(ef.SendFullRpcs).ticket))
    assert run.driver.status(run.now).public is PublicState.DUAL_WRITE
    assert run.state() is State.DUAL_WRITING


def test_nothing_is_claimed_while_a_znode_does_not_decode() -> None:
    run = Run().examined(standing()).ready()
    fault = Gap("/config/topics/a", "not JSON", "Mend it.")
    run(ev.DecodeResult(run.asked(ef.DecodeAll).ticket, (fault,)))
    assert run.state() is State.DECODING
    assert "/config/topics/a: not JSON. Mend it." in run.why
    again = run.wait_for(ef.DecodeAll)
    run(ev.DecodeResult(again.ticket, records=10))
    assert run.state() is State.WAITING_FOR_CONTROLLERS, "who was ready then may have gone meanwhile"


def test_the_last_broker_has_a_moment_to_hear_of_the_topics_from_the_zookeeper_controller() -> None:
    run = Run().examined(standing()).registered(0)
    assert run.state() is State.WAITING_FOR_CONTROLLERS
    assert run.wait_for(ef.ReadReadiness).replicas == surroundings(0).brokers.replicas, "they were read already"
    assert run.registered().state() is State.WAITING_FOR_BROKERS, "it has left again"
    back = run.now
    run.registered(0)
    while run.state() is not State.DECODING:
        run.wait_for(ef.ReadReadiness)
        run.registered(0)
    assert run.now - back >= SETTLE_MS


def test_a_refusal_is_looked_at_again_with_growing_rests() -> None:
    run = Run().examined(None)
    looks: list[int] = []
    while run.now < 60_000:
        asked = run.wait_for(ef.Examine)
        looks.append(run.now)
        run(ev.Examined(asked.ticket, standing(cluster_id="another")))
        assert run.state() is State.REFUSED
        assert run.asked_nothing_of(ef.Examine)
    rests = [after - before for before, after in pairwise(looks)]
    assert rests == sorted(rests)
    assert rests[-1] == BACKOFF_MAX_MS


def test_results_of_an_earlier_leadership_are_dropped() -> None:
    run = Run().examined(standing()).ready()
    ticket = run.asked(ef.DecodeAll).ticket
    run(ev.LostLeadership(5))
    assert run.asked(ef.CancelWork)
    run(ev.BecameLeader(7, ZkMigrationState.PRE_MIGRATION, enabled=True))
    assert run(ev.DecodeResult(ticket, records=10)).effects == []
    assert run.state() is State.EXAMINING
    assert run(ev.BecameLeader(6, ZkMigrationState.MIGRATION, enabled=True)).effects == []
    assert run(ev.LostLeadership(5)).effects == []
    assert run.state() is State.EXAMINING


def test_a_failed_copy_is_aborted_then_released_then_an_election_is_seen() -> None:
    run = Run().claimed()
    run(ev.CopyFailed(run.asked(ef.StartCopy).ticket, "the worker was killed by signal 9"))
    assert run.asked_nothing_of(ef.ReleaseClaim), "not before the Abort is committed"
    run(ev.Committed(run.asked(ef.AbortTransaction).ticket, EpochOffset(5, 60)))
    release = run.asked(ef.ReleaseClaim)
    assert (release.epoch_version, release.controller_version) == (8, 1)
    run(ev.ReleaseResult(release.ticket, released=True))
    asked = run.examined(standing(controller=ControllerClaim(0, 0))).asked(ef.ReadReadiness)
    assert asked.replicas is None, "the assignments are read again"
    run.ready()
    assert run.state() is State.WAITING_FOR_CONTROLLERS, "the next attempt backs off"
    run.now += 2000
    run.wait_for(ef.ReadReadiness)
    assert run.ready().driver.state is State.DECODING


def test_an_election_that_does_not_come_is_nudged_after_five_seconds() -> None:
    run = Run().examined(standing(controller=ControllerClaim(3002, 0, 4)))
    run(ev.ReleaseResult(run.asked(ef.ReleaseClaim).ticket, released=True))
    start, nudges = run.now, 0
    while run.now < start + 5_000:
        run.examined(standing(controller=None)).wait()
        nudges += not run.asked_nothing_of(ef.NudgeElection)
    run.examined(standing(controller=None))
    while not nudges and run.now < start + 7_000:
        nudges += not run.wait().asked_nothing_of(ef.NudgeElection)
        run.examined(standing(controller=None))
    assert nudges == 1
    assert run.now - start >= 5_000


def test_a_copy_during_which_the_claim_was_lost_is_not_committed() -> None:
    run = Run().claimed()
    ticket = run.asked(ef.StartCopy).ticket
    run(ev.CopyDone(ticket, 10, epoch_version=9, controller_version=1, surroundings=surroundings(0)))
    assert run.state() is State.ABORTING


def test_a_copy_without_progress_is_given_up_and_one_with_progress_is_not() -> None:
    run = Run().claimed()
    ticket = run.asked(ef.StartCopy).ticket
    for step in range(1, 10):
        run.now += STALL_MS - 1000
        run(ev.WorkProgressed(ticket, Working(WorkPhase.COPY, step * 1000, 20_000))).wait()
        assert run.state() is State.COPYING
    assert run.wait_for(ef.AbortTransaction)
    assert run.state() is State.ABORTING


def test_takeover_sends_partial_state_before_the_reconcile_and_the_rest_after_it() -> None:
    run = Run(ZkMigrationState.MIGRATION).took_over()
    assert run.asked(ef.OpenWriteBehind).at == EpochOffset(4, 1000)
    assert run.asked(ef.SendTakeoverRpcs).zk_epoch == 8
    assert run.asked_nothing_of(ef.SendFullRpcs)


def test_a_takeover_from_who_wrote_the_mark_writes_and_compares_beside_it() -> None:
    run = Run(ZkMigrationState.MIGRATION).took_over(holder=3002)
    assert run.state() is State.COMPARING
    assert run.asked(ef.OpenWriteBehind).at == EpochOffset(4, 1000)
    assert run.asked(ef.SendTakeoverRpcs).zk_epoch == 8
    run(ev.ReconcileDone(run.asked(ef.Resume).ticket, 0))
    assert run.state() is State.INFORMING_BROKERS
    assert run.asked(ef.SendFullRpcs)


def test_what_cannot_be_decided_beside_the_writes_is_reconciled_at_once() -> None:
    run = Run(ZkMigrationState.MIGRATION).took_over(holder=3002)
    run(ev.WriteBehindFailed(5, fenced=False, reason="1 entity differs"))
    assert run.state() is State.RECONCILING
    assert run.asked(ef.CancelWork)
    assert run.asked(ef.Reconcile)
    assert run.asked_nothing_of(ef.OpenWriteBehind)


def test_deletes_above_the_bound_wait_for_the_operator() -> None:
    run = Run(ZkMigrationState.MIGRATION).took_over()
    asked = run.asked(ef.Reconcile)
    run(ev.OperatorForce(Force.DELETES))
    assert run.state() is State.RECONCILING, "a permission in advance is none"
    run(ev.ReconcileHeld(asked.ticket, 700, 50, ("topic a", "topic b"), "d1"))
    assert run.state() is State.HOLDING
    assert "700" in run.why
    assert "topic a" in run.why
    assert "max.deletes=50 are" in run.why
    for shown in (frozenset[str](), frozenset({"something else"})):
        run(ev.OperatorForce(Force.DELETES, overrides=shown))
        assert run.state() is State.HOLDING, "an order overrides what was shown, and nothing else"
    run(run.order(Force.DELETES))
    assert run.asked(ef.Reconcile).deletes_allowed == "d1"
    assert run.asked_nothing_of(ef.OpenWriteBehind, ef.SendTakeoverRpcs)
    run(ev.ReconcileDone(run.asked(ef.Reconcile).ticket, 0))
    run(ev.RpcsQueued(run.asked(ef.SendFullRpcs).ticket))
    run(ev.WriteBehindFailed(5, fenced=False, reason="NO_AUTH"))
    assert not run.asked(ef.Reconcile).deletes_allowed, "it is good for one reconcile"


def test_a_failed_write_leads_to_a_full_reconcile_and_full_rpcs() -> None:
    run = Run().dual_writing()
    run(ev.WriteBehindFailed(5, fenced=False, reason="NO_AUTH on /config/topics/a"))
    assert run.state() is State.RECONCILING
    run(ev.ReconcileDone(run.asked(ef.Reconcile).ticket, 1))
    assert run.asked(ef.SendFullRpcs)


def test_why_a_reconcile_failed_is_told_until_it_is_tried_again() -> None:
    """The write that ends it is also news of it."""
    run = Run().dual_writing()
    run(ev.WriteBehindFailed(5, fenced=False, reason="NO_AUTH on /config/topics/a"))
    failed = run.asked(ef.Reconcile).ticket
    run(ev.ReconcileFailed(failed, "NO_AUTH on /config/topics/a"))
    run(ev.WorkProgressed(failed, Working(WorkPhase.WRITE)))
    assert "NO_AUTH on /config/topics/a" in run.why


def test_an_outage_of_zookeeper_while_dual_writing_is_reported_until_it_ends() -> None:
    run = Run().dual_writing()
    calm = run.why
    run(ev.ZooKeeperLost("the connection is suspended"))
    assert "out of reach" in run.why
    run(ev.ZooKeeperConnected())
    assert (run.state(), run.why) == (State.DUAL_WRITING, calm)


def test_the_operator_can_order_a_reconcile_while_dual_writing() -> None:
    run = Run().dual_writing()
    run(ev.OperatorForce(Force.DELETES))(ev.OperatorForce(Force.RECLAIM))
    assert run.effects == [], "nothing of that is being asked for"
    run(ev.OperatorForce(Force.RECONCILE))
    assert run.state() is State.RECONCILING
    asked = run.asked(ef.Reconcile)
    assert not asked.deletes_allowed
    assert run.asked_nothing_of(ef.OpenWriteBehind, ef.SendTakeoverRpcs, ef.StopDualWrite)
    run(ev.OperatorForce(Force.RECONCILE))
    assert run.effects == [], "one at a time"
    run(ev.ReconcileDone(asked.ticket, 1))
    run(ev.RpcsQueued(run.asked(ef.SendFullRpcs).ticket))
    assert run.state() is State.DUAL_WRITING


def test_a_broker_that_does_not_obey_is_named_noted_and_forgotten_when_it_is_gone() -> None:
    run = Run().dual_writing()
    calm, stray = run.why, Gap("broker 7", "it is not registered", "Restart it.")

    def audited(*strays: Gap, failure: str = "") -> list[str]:
        """The entries for the journal."""
        run(ev.AuditResult(run.wait_for(ef.AuditZooKeeper).ticket, (), failure, strays))
        return [
            effect.sentence for effect in run.effects if isinstance(effect, ef.ReportSituation) and effect.for_journal
        ]

    assert audited(stray) == ["broker 7: it is not registered"]
    assert audited(stray) == [], "noted once"
    assert run.driver.status(run.now).strays == (stray,)
    audited(failure="connection lost")
    assert run.driver.status(run.now).strays == (stray,), "nobody knows better"
    audited()
    assert (run.driver.status(run.now).strays, run.why) == ((), calm)


def test_an_order_to_reconcile_ends_the_audit_under_way() -> None:
    run = Run().dual_writing()
    audit = run.wait_for(ef.AuditZooKeeper)
    run(ev.OperatorForce(Force.RECONCILE))
    assert run.asked(ef.CancelWork)
    assert run(ev.AuditResult(audit.ticket, ("/config/topics/a",))).effects == []


def test_held_deletes_can_be_compared_again_without_being_allowed() -> None:
    run = Run(ZkMigrationState.MIGRATION).took_over()
    run(ev.ReconcileHeld(run.asked(ef.Reconcile).ticket, 700, 50, ("topic a",)))
    run(ev.OperatorForce(Force.RECONCILE))
    assert not run.asked(ef.Reconcile).deletes_allowed


def test_a_reclaim_that_another_guard_refuses_is_not_kept() -> None:
    run = Run(ZkMigrationState.MIGRATION)
    rolled_back = standing(mark=MigrationState(3001, 4, 77, 4, CRC), mark_in_log=4)
    foreign = standing(mark=MigrationState(9, 1, 77, 1, CRC))
    run.examined(rolled_back)
    run(run.order(Force.RECLAIM)).examined(foreign)
    assert "another quorum" in run.why
    run(run.order(Force.RECLAIM))
    assert run.effects == [], "this can be overridden by nobody"
    run.examined(rolled_back)
    assert run.state() is State.REFUSED
    run(run.order(Force.RECLAIM)).examined(rolled_back)
    assert run.asked(ef.TakeClaim)


def test_a_reclaim_overrides_what_was_shown_and_is_refused_again_for_what_is_new() -> None:
    run = Run(ZkMigrationState.MIGRATION)
    mark = MigrationState(3001, 4, 77, 4)
    seen = standing(controller=ControllerClaim(3002, 0, 4), mark=mark, mark_in_log=4)
    run.examined(seen)
    order = run.order(Force.RECLAIM)
    assert len(order.overrides) == 1
    rolled_back = standing(controller=ControllerClaim(2, 0), mark=mark, mark_in_log=4)
    run(order).examined(rolled_back)
    assert run.state() is State.REFUSED
    assert run.asked_nothing_of(ef.TakeClaim)
    assert "held by ZooKeeper broker 2" in run.why
    run(order)
    assert run.effects == [], "it does not name all that is shown now"
    run(run.order(Force.RECLAIM)).examined(rolled_back)
    assert run.asked(ef.TakeClaim)


def test_a_rollback_during_dual_write_is_noticed_and_not_undone() -> None:
    run = Run().dual_writing()
    run(ev.WriteBehindFailed(5, fenced=True, reason="/controller_epoch has changed"))
    assert run.asked(ef.StopDualWrite)
    run.examined(standing(mark=MigrationState(3001, 5, 77, 5, CRC), mark_in_log=5))
    assert run.state() is State.REFUSED
    assert "rolled back" in run.why
    assert run.asked_nothing_of(ef.TakeClaim)
    run(run.order(Force.RECLAIM)).examined(standing(mark=MigrationState(3001, 5, 77, 5, CRC), mark_in_log=5))
    assert run.asked(ef.TakeClaim)


def test_without_zookeeper_a_new_leader_claims_nothing_sends_nothing_and_says_so() -> None:
    run = Run(ZkMigrationState.MIGRATION)
    for _ in range(20):
        run.examined(None)
        assert run.asked_nothing_of(ef.TakeClaim, ef.SendTakeoverRpcs, ef.SendFullRpcs)
    assert "out of reach" in run.why
    run.wait().examined(None)
    assert run(ev.ZooKeeperConnected()).asked(ef.Examine)


def test_an_unknown_outcome_of_the_claim_is_resolved_by_reading_again() -> None:
    run = Run(ZkMigrationState.MIGRATION)
    run.examined(standing(controller=ControllerClaim(3002, 0, 4), mark=COPIED, mark_in_log=4))
    run(ev.ClaimResult(run.asked(ef.TakeClaim).ticket, None, "connection lost"))
    run.examined(standing(controller=ControllerClaim(3001, 0, 5), mark=KEPT.migration, mark_in_log=4))
    assert run.state() is State.RECONCILING
    assert run.asked(ef.OpenWriteBehind).claim.migration_version == 3


def test_lost_claims_back_off() -> None:
    run = Run(ZkMigrationState.MIGRATION)
    shown = standing(controller=ControllerClaim(3002, 0, 4), mark=COPIED, mark_in_log=4)
    for _ in range(12):
        run.examined(shown)
        run(ev.ClaimResult(run.asked(ef.TakeClaim).ticket, None, "BAD_VERSION"))
    assert run.now > 10_000


def test_a_claim_that_a_deposed_leader_makes_while_we_wait_is_released() -> None:
    run = Run().examined(standing())
    late = ControllerClaim(3002, 0, 4)
    image = cluster([], [])
    ticket = run.asked(ef.ReadReadiness).ticket
    run(ev.ReadinessInputs(ticket, ZooKeeperBrokers({}, frozenset()), ControllerSignals({}), image, 19, holder=late))
    run.examined(standing(controller=late))
    assert run.asked(ef.ReleaseClaim)


@pytest.mark.parametrize(
    "write",
    [
        ef.ReleaseClaim(ev.Ticket(5, 1), 5, 6),
        ef.NudgeElection(),
        ef.Reconcile(ev.Ticket(5, 1), deletes_allowed=""),
    ],
)
def test_a_write_that_the_table_does_not_allow_is_an_invariant_violation(
    monkeypatch: pytest.MonkeyPatch, write: ef.Effect
) -> None:
    entries = dict(MigrationDriver._ENTRIES)
    entries[State.EXAMINING] = lambda _: [write]
    monkeypatch.setattr(MigrationDriver, "_ENTRIES", entries)
    with pytest.raises(InvariantViolation, match="examining ZooKeeper asked for a write"):
        Run()


def test_dual_writing_before_the_copy_is_committed_is_an_invariant_violation() -> None:
    run = Run().claimed()
    run.driver._memory.state = State.HOLDING
    with pytest.raises(InvariantViolation, match="before the copy is committed"):
        run(ev.OperatorForce(Force.RECONCILE))


@pytest.mark.parametrize("state", list(State))
def test_every_waiting_state_has_a_sentence_and_an_age(state: State) -> None:
    driver = MigrationDriver(Identity(3001, CLUSTER_ID))
    driver._memory.state = state
    assert state.properties.sentence
    assert driver.status(1500).age_ms == 1500
