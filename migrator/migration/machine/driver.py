"""The migration driver: `step(event, now) -> effects`, pure.

It runs on the active controller only. Each step drops what is stale, interprets the rest (`interpret`), looks up the
transition (`transitions`), and returns the effects of entering the next state. The executor answers with events;
nothing here waits. Entering the same state again repeats its work, with a new ticket, under a growing back-off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from migrator.errors import require
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine import guards
from migrator.migration.machine.interpret import interpret
from migrator.migration.machine.progress import Course
from migrator.migration.machine.states import POLL_MS, PaceRule, State, Writes, public_state
from migrator.migration.machine.transitions import next_state
from migrator.migration.machine.volatile_state import (
    ELECTION_WAIT_MS,
    REPLICAS_MS,
    TELL_MS,
    DriverStatus,
    Identity,
    Situation,
    VolatileState,
    backoff_ms,
    present,
)
from migrator.records.metadata import ZkMigrationState


class MigrationDriver:
    """The state machine of the migration. One per process; not thread-safe: the node's event loop owns it."""

    def __init__(self, identity: Identity) -> None:
        self._memory = VolatileState(identity)

    @property
    def state(self) -> State:
        return self._memory.state

    def status(self, now_ms: int) -> DriverStatus:
        """State, age, and the situation: why, who is concerned, and what to do."""
        return self._memory.status(now_ms)

    def step(self, event: ev.Event, now_ms: int) -> list[ef.Effect]:
        """Take one event; return the effects to perform, in order.

        :raises InvariantViolation: when a transition would break a safety rule.
        """
        memory = self._memory
        memory.now_ms = now_ms
        effects: list[ef.Effect] = []
        if isinstance(event, ev.BecameLeader) and event.epoch > memory.term.epoch:
            effects += self.step(ev.LostLeadership(memory.term.epoch), now_ms)
        if self._stale(event):
            return effects
        said, due = memory.situation, memory.due_ms
        working = memory.outstanding
        interpretation = interpret(memory, event)
        after = None if interpretation is None else next_state(memory.state, *interpretation)
        if after is not None:
            if memory.situation == said and after is not memory.state:
                memory.situation = Situation(after.properties.sentence)
            effects += self._enter(after, cancel=working and memory.outstanding)
        elif isinstance(event, ev.Timer):
            effects.append(self._timer())
        elif working and not memory.outstanding:
            memory.due_ms = max(due, now_ms + self._pace_ms())
        if memory.situation != said and not self._was_just_told(event):
            memory.told_ms = now_ms
            effects.append(ef.ReportSituation(str(memory.situation), for_journal=isinstance(event, ev.AuditResult)))
        return effects

    def _was_just_told(self, event: ev.Event) -> bool:
        """Whether the log of the process had this progress a moment ago. `DriverStatus` always has the newest figures,
        and the log must not grow with each of them."""
        return isinstance(event, ev.WorkProgressed) and self._memory.now_ms - self._memory.told_ms < TELL_MS

    def _stale(self, event: ev.Event) -> bool:
        """Whether the event is out of date: from another leader epoch, or for work that was begun anew since."""
        memory = self._memory
        ticket = getattr(event, "ticket", None)
        if ticket is not None:
            return bool(ticket != memory.ticket or memory.state.properties.at_rest)
        match event:
            case ev.BecameLeader(epoch):
                return epoch <= memory.term.epoch
            case ev.LostLeadership(epoch):
                return memory.state is State.INACTIVE or epoch < memory.term.epoch
            case ev.ImagePublished(epoch) | ev.WriteBehindFailed(epoch):
                return epoch != memory.term.epoch or memory.state.properties.at_rest
        return False

    def _enter(self, after: State, *, cancel: bool) -> list[ef.Effect]:
        memory = self._memory
        memory.before, memory.state = memory.state, after
        again = memory.before is after
        effects: list[ef.Effect] = [ef.CancelWork()] if cancel else []
        if memory.before.properties.writes_behind and not after.properties.writes_behind:
            memory.term.claim = None
            effects.append(ef.StopDualWrite())
        memory.tickets += 1
        memory.outstanding = False
        memory.progress_ms, memory.course = memory.now_ms, Course()
        memory.attempt = memory.attempt + 1 if again else 0
        if not again:
            memory.entered_ms = memory.now_ms
            public = public_state(memory.term.record, after)
            effects.append(ef.JournalTransition(memory.term.epoch, memory.before, after, public, str(memory.situation)))
        asked = self._ENTRIES[after](self) if after in self._ENTRIES else []
        require(all(_may(after, effect) for effect in asked), f"{after.value} asked for a write that it may not make")
        effects += asked
        memory.due_ms = memory.now_ms + self._pace_ms()
        if not after.properties.at_rest:
            effects.append(self._timer())
        return effects

    def _pace_ms(self) -> int:
        """Milliseconds until the state's work is done again, unless an event comes first."""
        memory = self._memory
        match memory.state.properties.pace:
            case PaceRule.AUDIT:
                return memory.identity.audit_interval_ms
            case PaceRule.BACK_OFF:
                return backoff_ms(max(memory.attempt, memory.term.failures))
            case milliseconds:
                return milliseconds

    def _timer(self) -> ef.Effect:
        memory = self._memory
        delay = POLL_MS if memory.outstanding else max(1, memory.due_ms - memory.now_ms)
        return ef.ScheduleTimer(memory.ticket, delay)

    def _ask(self) -> ev.Ticket:
        """A new ticket, for an effect that gets an answer."""
        self._memory.outstanding = True
        return self._memory.ticket

    # The effects of entering each state. `before` is the state itself when it is entered again; a state without effects
    # at first has them when its timer enters it again.

    def _examine(self) -> list[ef.Effect]:
        memory = self._memory
        back_off = memory.state is not State.EXAMINING or memory.term.failures > 0
        return [] if back_off and memory.before is not memory.state else [ef.Examine(self._ask(), memory.may_copy)]

    def _release(self) -> list[ef.Effect]:
        term = self._memory.term
        if term.claim is not None:
            return [ef.ReleaseClaim(self._ask(), term.claim.epoch_version, term.claim.controller_version)]
        view = present(term.standing, "released without an examination").view
        return [ef.ReleaseClaim(self._ask(), view.epoch_version, view.controller_version)]

    def _await_election(self) -> list[ef.Effect]:
        memory = self._memory
        standing = memory.term.standing
        held = None if standing is None else standing.view.controller
        vacant = standing is not None and (held is None or held.is_nobody)
        absent = memory.before is memory.state and vacant
        if absent and memory.now_ms - memory.nudged_ms >= ELECTION_WAIT_MS:
            memory.nudged_ms = memory.now_ms
            return [ef.NudgeElection(), ef.Examine(self._ask())]
        if not absent:
            memory.nudged_ms = memory.now_ms
        return [ef.Examine(self._ask())]

    def _read_readiness(self) -> list[ef.Effect]:
        memory = self._memory
        if memory.now_ms - memory.term.replicas_ms >= REPLICAS_MS:
            memory.term.replicas = None
        if memory.term.replicas is None:
            memory.term.replicas_ms = memory.now_ms
        return [ef.ReadReadiness(self._ask(), memory.term.replicas)]

    def _decode(self) -> list[ef.Effect]:
        return [ef.DecodeAll(self._ask())]

    def _claim(self) -> list[ef.Effect]:
        memory = self._memory
        migrated = memory.term.record is ZkMigrationState.MIGRATION
        require(memory.term.decoded or migrated, "claimed before everything was decoded")
        memory.term.has_claimed = True
        standing = present(memory.term.standing, "claimed without an examination")
        return [ef.TakeClaim(self._ask(), standing.view, guards.heal_to(standing, memory.claimant()))]

    def _copy(self) -> list[ef.Effect]:
        memory = self._memory
        require(memory.term.decoded, "copied before everything was decoded")
        if memory.before is State.COPYING:
            return [ef.LookAgain(self._ask(), memory.term.copied)]
        return [ef.StartCopy(self._ask())]

    def _commit(self) -> list[ef.Effect]:
        claim = present(self._memory.term.claim, "completed a copy without a claim")
        return [ef.CompleteTransaction(self._ask(), claim.migration.copied_as)]

    def _abort(self) -> list[ef.Effect]:
        return [ef.AbortTransaction(self._ask(), str(self._memory.situation))]

    def _reconcile(self) -> list[ef.Effect]:
        memory = self._memory
        term = memory.term
        require(term.record is ZkMigrationState.MIGRATION, "dual-writing before the copy is committed")
        if memory.before.properties.writes is Writes.CHANGES and term.failures > 1:
            return []
        opened = [] if memory.before.properties.writes_behind else self._open()
        return [*opened, ef.Reconcile(self._ask(), term.deletes_allowed)]

    def _compare(self) -> list[ef.Effect]:
        return [*self._open(), ef.Resume(self._ask())]

    def _open(self) -> list[ef.Effect]:
        """The effects that begin a claim once the copy is committed."""
        term = self._memory.term
        claim = present(term.claim, "dual-writing without a claim")
        at = guards.reached(claim.migration) if claim.migration.copied else term.base
        return [ef.OpenWriteBehind(claim, at), ef.SendTakeoverRpcs(claim.zk_epoch)]

    def _inform(self) -> list[ef.Effect]:
        claim = present(self._memory.term.claim, "informing brokers without a claim")
        return [ef.SendFullRpcs(self._ask(), claim.zk_epoch, again=self._memory.before is State.INFORMING_BROKERS)]

    def _dual_write(self) -> list[ef.Effect]:
        return [ef.AuditZooKeeper(self._ask())] if self._memory.before is State.DUAL_WRITING else []

    def _ask_voters(self) -> list[ef.Effect]:
        return [ef.AskVoters(self._ask())]

    def _hand_over(self) -> list[ef.Effect]:
        decision = present(self._memory.term.decision, "stepped down without a decision")
        require(decision.successor >= 0, "stepped down for nobody")
        return [ef.TransferLeadership(decision.successor)]

    def _complete(self) -> list[ef.Effect]:
        return [ef.AppendFinished(self._ask())]

    def _reopen(self) -> list[ef.Effect]:
        order = present(self._memory.term.reopening, "reopened without an order")
        return [ef.AppendReopened(self._ask(), order)]

    def _admit(self) -> list[ef.Effect]:
        require(self._memory.before is State.RECONCILING, "brokers admitted before all of ZooKeeper was compared")
        return [ef.AppendAdmitted(self._ask())]

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
        State.COMPARING: _compare,
        State.INFORMING_BROKERS: _inform,
        State.DUAL_WRITING: _dual_write,
        State.TURNED_OFF: _ask_voters,
        State.FINISHING: _ask_voters,
        State.STEPPING_DOWN: _hand_over,
        State.COMPLETING: _complete,
        State.REOPENING: _reopen,
        State.ADMITTING: _admit,
    }


def _may(state: State, effect: ef.Effect) -> bool:
    """Whether the state allows the writes to ZooKeeper that the effect makes."""
    match effect:
        case ef.TakeClaim() | ef.ReleaseClaim() | ef.NudgeElection():
            return state.properties.writes is Writes.CLAIM
        case ef.OpenWriteBehind():
            return state.properties.writes_behind
        case ef.Reconcile():
            return state.properties.writes is Writes.DIFFERENCES
        case ef.Resume():
            return state.properties.writes is Writes.CHANGES
    return True
