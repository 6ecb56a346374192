"""The migration driver: `step(event, now) -> effects`, pure.

It runs on the active controller only. Each step drops what is stale, judges the rest (`judge`), looks the transition
up (`transitions`), and returns the effects of entering the next state. Whoever performs the effects answers with
events; nothing here waits. Entering the same state again repeats its work, with a new ticket, under a growing back-off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from migrator.errors import require
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine import guards
from migrator.migration.machine.interpret import judge
from migrator.migration.machine.progress import Course
from migrator.migration.machine.states import POLL_MS, Pace, State, Writes, public_state
from migrator.migration.machine.transitions import next_state
from migrator.migration.machine.volatile_state import (
    ELECTION_WAIT_MS,
    TELL_MS,
    Identity,
    Situation,
    SoftState,
    Status,
    backoff_ms,
    present,
)
from migrator.records.metadata import ZkMigrationState


class MigrationDriver:
    """One per process, for its whole life. Not thread-safe: the node's event loop owns it."""

    def __init__(self, identity: Identity) -> None:
        self._soft = SoftState(identity)

    @property
    def state(self) -> State:
        """The internal state."""
        return self._soft.state

    def status(self, now_ms: int) -> Status:
        """State, age, and the sentence that says why, who and what to do."""
        return self._soft.status(now_ms)

    def step(self, event: ev.Event, now_ms: int) -> list[ef.Effect]:
        """Take one event in; return what has to be done, in order.

        :raises InvariantViolation: when a transition would break a safety rule.
        """
        soft = self._soft
        soft.now_ms = now_ms
        effects: list[ef.Effect] = []
        if isinstance(event, ev.BecameLeader) and event.epoch > soft.term.epoch:
            effects += self.step(ev.LostLeadership(soft.term.epoch), now_ms)
        if self._stale(event):
            return effects
        said, due = soft.situation, soft.due_ms
        working = soft.outstanding
        judgement = judge(soft, event)
        after = None if judgement is None else next_state(soft.state, *judgement)
        if after is not None:
            if soft.situation == said and after is not soft.state:
                soft.situation = Situation(after.properties.sentence)
            effects += self._enter(after, cancel=working and soft.outstanding)
        elif isinstance(event, ev.Timer):
            effects.append(self._timer())
        elif working and not soft.outstanding:
            soft.due_ms = max(due, now_ms + self._pace_ms())
        if soft.situation != said and not self._was_just_told(event):
            soft.told_ms = now_ms
            effects.append(ef.Report(str(soft.situation), for_journal=isinstance(event, ev.AuditResult)))
        return effects

    def _was_just_told(self, event: ev.Event) -> bool:
        """Status always has the newest figures; a log that grows with each of them helps nobody."""
        return isinstance(event, ev.Progress) and self._soft.now_ms - self._soft.told_ms < TELL_MS

    def _stale(self, event: ev.Event) -> bool:
        """Whether nobody waits for it any more: of another leader epoch, or of work that was done again since."""
        soft = self._soft
        ticket = getattr(event, "ticket", None)
        if ticket is not None:
            return bool(ticket != soft.ticket or soft.state.properties.at_rest)
        match event:
            case ev.BecameLeader(epoch):
                return epoch <= soft.term.epoch
            case ev.LostLeadership(epoch):
                return soft.state is State.INACTIVE or epoch < soft.term.epoch
            case ev.ImagePublished(epoch) | ev.WriteBehindFailed(epoch):
                return epoch != soft.term.epoch or soft.state.properties.at_rest
        return False

    def _enter(self, after: State, *, cancel: bool) -> list[ef.Effect]:
        soft = self._soft
        soft.before, soft.state = soft.state, after
        again = soft.before is after
        effects: list[ef.Effect] = [ef.CancelWork()] if cancel else []
        if soft.before.properties.writes_behind and not after.properties.writes_behind:
            soft.term.claim = None
            effects.append(ef.StopDualWrite())
        soft.tickets += 1
        soft.outstanding = False
        soft.progress_ms, soft.course = soft.now_ms, Course()
        soft.attempt = soft.attempt + 1 if again else 0
        if not again:
            soft.entered_ms = soft.now_ms
            public = public_state(soft.term.record, after)
            effects.append(ef.JournalTransition(soft.term.epoch, soft.before, after, public, str(soft.situation)))
        asked = self._ENTRIES[after](self) if after in self._ENTRIES else []
        require(all(_may(after, effect) for effect in asked), f"{after.value} asked for a write that it may not make")
        effects += asked
        soft.due_ms = soft.now_ms + self._pace_ms()
        if not after.properties.at_rest:
            effects.append(self._timer())
        return effects

    def _pace_ms(self) -> int:
        """How long until the state's work is done again, unless an event comes first."""
        soft = self._soft
        match soft.state.properties.pace:
            case Pace.AUDIT:
                return soft.identity.audit_interval_ms
            case Pace.BACK_OFF:
                return backoff_ms(max(soft.attempt, soft.term.failures))
            case milliseconds:
                return milliseconds

    def _timer(self) -> ef.Effect:
        soft = self._soft
        delay = POLL_MS if soft.outstanding else max(1, soft.due_ms - soft.now_ms)
        return ef.ScheduleTimer(soft.ticket, delay)

    def _ask(self) -> ev.Ticket:
        """The ticket for work that will be answered."""
        self._soft.outstanding = True
        return self._soft.ticket

    # What entering each state asks for. `before` is the state itself when it is entered again; a state that asks for
    # nothing at first does so when its timer enters it again.

    def _examine(self) -> list[ef.Effect]:
        soft = self._soft
        back_off = soft.state is not State.EXAMINING or soft.term.failures > 0
        return [] if back_off and soft.before is not soft.state else [ef.Examine(self._ask(), soft.may_copy)]

    def _release(self) -> list[ef.Effect]:
        term = self._soft.term
        if term.claim is not None:
            return [ef.ReleaseClaim(self._ask(), term.claim.epoch_version, term.claim.controller_version)]
        view = present(term.standing, "released without an examination").view
        return [ef.ReleaseClaim(self._ask(), view.epoch_version, view.controller_version)]

    def _await_election(self) -> list[ef.Effect]:
        soft = self._soft
        standing = soft.term.standing
        absent = soft.before is soft.state and standing is not None and standing.view.controller is None
        if absent and soft.now_ms - soft.nudged_ms >= ELECTION_WAIT_MS:
            soft.nudged_ms = soft.now_ms
            return [ef.NudgeElection(), ef.Examine(self._ask())]
        if not absent:
            soft.nudged_ms = soft.now_ms
        return [ef.Examine(self._ask())]

    def _read_readiness(self) -> list[ef.Effect]:
        return [ef.ReadReadiness(self._ask())]

    def _decode(self) -> list[ef.Effect]:
        return [ef.DecodeAll(self._ask())]

    def _claim(self) -> list[ef.Effect]:
        soft = self._soft
        migrated = soft.term.record is ZkMigrationState.MIGRATION
        require(soft.term.decoded or migrated, "claimed before everything was decoded")
        standing = present(soft.term.standing, "claimed without an examination")
        return [ef.TakeClaim(self._ask(), standing.view, guards.heal_to(standing, soft.claimant()))]

    def _copy(self) -> list[ef.Effect]:
        require(self._soft.term.decoded, "copied before everything was decoded")
        return [ef.StartCopy(self._ask())]

    def _commit(self) -> list[ef.Effect]:
        return [ef.CompleteTransaction(self._ask())]

    def _abort(self) -> list[ef.Effect]:
        return [ef.AbortTransaction(self._ask(), str(self._soft.situation))]

    def _reconcile(self) -> list[ef.Effect]:
        soft = self._soft
        term = soft.term
        require(term.record is ZkMigrationState.MIGRATION, "dual-writing before the copy is committed")
        if soft.before.properties.writes is Writes.CHANGES and term.failures > 1:
            return []
        effects: list[ef.Effect] = []
        if not soft.before.properties.writes_behind:
            claim = present(term.claim, "dual-writing without a claim")
            at = guards.reached(claim.migration) if claim.migration.copied else term.base
            effects += [ef.OpenWriteBehind(claim, at), ef.SendTakeoverRpcs(claim.zk_epoch)]
        return [*effects, ef.Reconcile(self._ask(), term.deletes_forced)]

    def _inform(self) -> list[ef.Effect]:
        claim = present(self._soft.term.claim, "informing brokers without a claim")
        return [ef.SendFullRpcs(self._ask(), claim.zk_epoch, again=self._soft.before is State.INFORMING_BROKERS)]

    def _dual_write(self) -> list[ef.Effect]:
        return [ef.Audit(self._ask())] if self._soft.before is State.DUAL_WRITING else []

    def _ask_voters(self) -> list[ef.Effect]:
        return [ef.AskVoters(self._ask())]

    def _hand_over(self) -> list[ef.Effect]:
        decision = present(self._soft.term.decision, "stepped down without a decision")
        require(decision.successor >= 0, "stepped down for nobody")
        return [ef.HandOver(decision.successor)]

    def _complete(self) -> list[ef.Effect]:
        return [ef.AppendFinished(self._ask())]

    _ENTRIES: ClassVar[dict[State, Callable[[MigrationDriver], list[ef.Effect]]]] = {
        State.EXAMINING: _examine,
        State.REFUSED: _examine,
        State.RELEASING: _release,
        State.AWAITING_ELECTION: _await_election,
        State.WAITING_FOR_CONTROLLERS: _read_readiness,
        State.WAITING_FOR_BROKERS: _read_readiness,
        State.DECODING: _decode,
        State.PAUSED: _examine,
        State.CLAIMING: _claim,
        State.COPYING: _copy,
        State.COMMITTING: _commit,
        State.ABORTING: _abort,
        State.RECONCILING: _reconcile,
        State.INFORMING_BROKERS: _inform,
        State.DUAL_WRITING: _dual_write,
        State.TURNED_OFF: _ask_voters,
        State.FINISHING: _ask_voters,
        State.STEPPING_DOWN: _hand_over,
        State.COMPLETING: _complete,
    }


def _may(state: State, effect: ef.Effect) -> bool:
    """Whether what an effect writes to ZooKeeper is what the state may write."""
    match effect:
        case ef.TakeClaim() | ef.ReleaseClaim() | ef.NudgeElection():
            return state.properties.writes is Writes.CLAIM
        case ef.OpenWriteBehind() | ef.Reconcile():
            return state.properties.writes is Writes.DIFFERENCES
    return True
