"""Takes an event into the volatile state, and finds out what it means there.

`interpret` returns (trigger, finding), the key of the transition table, or None for an event that moves nothing. It
emits no effects and moves no state, so two places decide about a transition: this module and the table.
"""

from __future__ import annotations

from typing import assert_never

from migrator.migration.machine import events as ev
from migrator.migration.machine import finish, guards, readiness, who_runs
from migrator.migration.machine.states import OVERRIDES, State
from migrator.migration.machine.strays import in_words
from migrator.migration.machine.transitions import Finding, Trigger
from migrator.migration.machine.volatile_state import (
    COMPARE_MAX_MS,
    COPY_RETRY_MAX_MS,
    COPY_RETRY_MIN_MS,
    ELECTION_WAIT_MS,
    NOT_LEADING,
    SETTLE_MS,
    STALL_MS,
    TELL_MS,
    Situation,
    Term,
    VolatileState,
    backoff_ms,
    held,
    present,
)
from migrator.observe.status import FOREIGN_WRITES, Force
from migrator.records.metadata import ZkMigrationState

Interpretation = tuple[Trigger, Finding] | None


def interpret(memory: VolatileState, event: ev.Event) -> Interpretation:  # noqa: C901, PLR0912 - one line for each kind of event
    """Take in and interpret one event that is not stale."""
    match event:
        case ev.BecameLeader():
            return _elected(memory, event)
        case ev.LostLeadership():
            return _deposed(memory)
        case ev.ImagePublished():
            return _image(memory, event)
        case ev.ZooKeeperConnected():
            return _connected(memory)
        case ev.ZooKeeperLost():
            return _disconnected(memory, event)
        case ev.Examined():
            return _examined(memory, event)
        case ev.ReadinessInputs():
            return _readiness(memory, event)
        case ev.DecodeResult():
            return _decoded(memory, event)
        case ev.ClaimResult():
            return _claimed(memory, event)
        case ev.ReleaseResult():
            return _released(memory, event)
        case ev.WorkProgressed():
            return _progress(memory, event)
        case ev.CopyDone():
            return _copied(memory, event)
        case ev.CopyFailed():
            return _copy_failed(memory, event)
        case ev.Committed():
            return _committed(memory, event)
        case ev.ReconcileDone():
            return _reconciled(memory, event)
        case ev.ReconcileHeld():
            return _held(memory, event)
        case ev.ReconcileFailed():
            return _reconcile_failed(memory, event)
        case ev.RpcsQueued():
            return _rpcs_queued(memory)
        case ev.WriteBehindFailed():
            return _write_failed(memory, event)
        case ev.AuditResult():
            return _audited(memory, event)
        case ev.VotersAsked():
            return _voters(memory, event)
        case ev.Timer():
            return _timer(memory)
        case ev.OperatorForce():
            return _forced(memory, event)
        case ev.OperatorPause():
            return _paused(memory, event)
        case ev.OperatorResume():
            return _resumed(memory)
        case ev.OperatorReopen():
            return _reopened(memory, event)
        case never:
            assert_never(never)


def _elected(memory: VolatileState, event: ev.BecameLeader) -> Interpretation:
    memory.term = Term(event.epoch, event.record, event.base, event.enabled, event.reopened)
    memory.hold = event.hold
    if event.record is ZkMigrationState.POST_MIGRATION:
        memory.situation = Situation("the migration is finished")
        return Trigger.ELECTED, Finding.ENDED
    if event.record is ZkMigrationState.NONE:
        memory.situation = Situation(State.NOTHING_TO_MIGRATE.properties.sentence)
        return Trigger.ELECTED, Finding.NOTHING
    return Trigger.ELECTED, Finding.MIGRATE if event.enabled else _turned_off(memory)


def _turned_off(memory: VolatileState) -> Finding:
    """Interpret an event for a leader whose flag is off."""
    return Finding.FINISH if memory.term.record is ZkMigrationState.MIGRATION else Finding.OFF


def _deposed(memory: VolatileState) -> Interpretation:
    memory.situation = NOT_LEADING
    return Trigger.DEPOSED, Finding.ANY


def _image(memory: VolatileState, event: ev.ImagePublished) -> Interpretation:
    return (Trigger.REGISTRATIONS, Finding.ANY) if event.cluster_changed and not memory.outstanding else None


def _connected(memory: VolatileState) -> Interpretation:
    was_away, memory.zookeeper_connected = not memory.zookeeper_connected, True
    if was_away and memory.state is State.DUAL_WRITING:
        memory.situation = Situation(State.DUAL_WRITING.properties.sentence)
    return None if memory.outstanding else (Trigger.ZOOKEEPER_CONNECTED, Finding.ANY)


def _disconnected(memory: VolatileState, event: ev.ZooKeeperLost) -> Interpretation:
    memory.zookeeper_connected = False
    if memory.state is State.DUAL_WRITING:
        memory.situation = Situation(
            f"ZooKeeper is out of reach ({event.reason}): changes wait in the log, elections go on",
            "Bring ZooKeeper back; what waits is then written.",
        )
    return None


def _examined(memory: VolatileState, event: ev.Examined) -> Interpretation:
    memory.outstanding = False
    memory.term.standing = event.standing
    if event.standing is None:
        memory.situation = _unreachable(event.reason)
        return Trigger.EXAMINED, Finding.ELSEWHERE
    if memory.state is State.AWAITING_ELECTION:
        return Trigger.EXAMINED, _election_finding(memory, event.standing)
    verdict = guards.examine(event.standing, memory.claimant())
    if verdict.reason:
        memory.situation = Situation(verdict.reason, verdict.remedy, verdict.overridable)
    if verdict.finding is Finding.REFUSE:
        memory.term.overridden = frozenset()  # the override was not needed
    if memory.hold is not None and verdict.finding in {Finding.MAY_CLAIM, Finding.OWN_CLAIM_COPY}:
        memory.term.decoded = False
        memory.situation = held(memory.hold)
        return Trigger.EXAMINED, Finding.ON_HOLD
    if verdict.finding in {Finding.MAY_CLAIM, Finding.OWN_CLAIM_COPY} and memory.may_copy:
        missing = who_runs.missing_before_claim(
            memory, present(event.surroundings, "about to claim without a look at who runs")
        )
        if missing is not None:
            return Trigger.EXAMINED, missing if verdict.finding is Finding.MAY_CLAIM else Finding.STRAY_CLAIM
    if verdict.finding in {Finding.OWN_CLAIM_COPY, Finding.OWN_CLAIM_KEEP}:
        memory.term.claim = guards.adopt(event.standing.view, memory.claimant())
    return Trigger.EXAMINED, verdict.finding


def _election_finding(memory: VolatileState, standing: guards.Standing) -> Finding:
    controller = standing.view.controller
    if standing.fault is not None or (controller is not None and controller.is_kraft):
        return _stray(memory)
    if controller is not None and controller.is_broker:
        memory.term.failures = 0
        return Finding.ZK_CONTROLLER
    memory.situation = Situation(
        "nobody holds /controller, no ZooKeeper broker has taken it yet",
        "Wait a few seconds. If it persists, check that a broker runs in ZooKeeper mode.",
    )
    waited = memory.now_ms - memory.entered_ms
    return Finding.WAIT if waited >= 2 * ELECTION_WAIT_MS else Finding.NO_CONTROLLER


def _stray(memory: VolatileState) -> Finding:
    """Count a claim that another controller made meanwhile. After repeated claims, the examinations back off."""
    memory.term.failures += 1
    return Finding.STRAY_CLAIM


def _readiness(memory: VolatileState, event: ev.ReadinessInputs) -> Interpretation:
    memory.outstanding = False
    known, memory.term.replicas = memory.term.replicas, None
    if event.brokers is None:
        memory.situation = _unreachable(event.reason)
        return Trigger.READINESS, Finding.ELSEWHERE
    if event.holder is not None and event.holder.is_kraft:
        return Trigger.READINESS, _stray(memory)
    around = readiness.Surroundings(event.brokers, event.signals, event.cluster, event.metadata_version)
    found = who_runs.assess(memory, around)
    backs_off = found.ready and memory.now_ms < memory.term.retry_copy_at_ms
    if not backs_off:
        memory.situation = Situation(found.sentence())
    is_new = found.ready and memory.term.ready_ms == memory.now_ms
    if known is None or not is_new:  # once all nodes are ready, all is read again: replicas may have moved
        memory.term.replicas = event.brokers.replicas or None
    if not found.ready:
        return Trigger.READINESS, who_runs.missing(found)
    if backs_off or memory.now_ms - (memory.term.ready_ms or 0) < SETTLE_MS:
        return Trigger.READINESS, Finding.WAIT
    memory.term.replicas = None
    return Trigger.READINESS, Finding.READY


def _decoded(memory: VolatileState, event: ev.DecodeResult) -> Interpretation:
    memory.outstanding = False
    if event.faults or event.failure:
        memory.term.had_faults = True
        listed = "; ".join(str(fault) for fault in event.faults[:5])
        more = f" (and {len(event.faults) - 5} more)" if len(event.faults) > 5 else ""
        memory.situation = Situation(
            event.failure or f"ZooKeeper contains znodes that cannot be migrated: {listed}{more}"
        )
        stray = event.holder is not None and event.holder.is_kraft
        return Trigger.DECODED, _stray(memory) if stray else Finding.FAULTS
    if memory.hold is not None:
        memory.situation = held(memory.hold)
        return Trigger.DECODED, Finding.ON_HOLD
    if memory.term.had_faults:
        memory.term.had_faults = False
        return Trigger.DECODED, Finding.CLEAN_AGAIN
    memory.term.decoded = True
    memory.situation = Situation("everything in ZooKeeper decodes; the claim comes next")
    return Trigger.DECODED, Finding.CLEAN


def _claimed(memory: VolatileState, event: ev.ClaimResult) -> Interpretation:
    memory.outstanding = False
    memory.term.claim = event.claim
    if event.claim is None:
        memory.term.failures += 1
        memory.situation = Situation(f"the claim was not won: {event.reason}")
        return Trigger.CLAIM, Finding.LOST
    standing = present(memory.term.standing, "a claim was won without an examination")
    resumes, memory.term.overridden = guards.continues(standing, memory.claimant()), frozenset()
    if resumes:
        return Trigger.CLAIM, Finding.WON_RESUME
    migrated = memory.term.record is ZkMigrationState.MIGRATION
    return Trigger.CLAIM, Finding.WON_KEEP if migrated else Finding.WON_COPY


def _progress(memory: VolatileState, event: ev.WorkProgressed) -> Interpretation:
    """Take progress. Progress of work that has already ended does not replace the reason of its end."""
    if not memory.outstanding:
        return None
    memory.progress_ms = memory.now_ms
    before, memory.course = memory.course, memory.course.heard(event.working, memory.now_ms)
    if memory.course.phases != before.phases:
        memory.told_ms = memory.now_ms - TELL_MS
    shown = memory.state.properties.has_worker
    if shown and not (
        memory.state is State.DECODING and memory.term.had_faults
    ):  # the finding stays until the next result
        memory.situation = Situation(memory.course.sentence(memory.now_ms))
    return None


def _copied(memory: VolatileState, event: ev.CopyDone) -> Interpretation:
    memory.outstanding = False
    claim = memory.term.claim
    if claim is None or (event.epoch_version, event.controller_version) != (
        claim.epoch_version,
        claim.controller_version,
    ):
        return _copy_lost(memory, "another controller took ZooKeeper over during the copy")
    strangers, unknown = who_runs.about_to_count(memory, event.surroundings)
    if strangers:
        return _copy_lost(memory, f"brokers that do not follow this quorum started meanwhile: {strangers}")
    if unknown:
        memory.term.copied = event.records
        memory.situation = Situation(f"{event.records} records copied, and not yet committed: {unknown}")
        return Trigger.COPY, Finding.WAIT
    memory.situation = Situation(f"{event.records} records copied")
    return Trigger.COPY, Finding.DONE


def _copy_failed(memory: VolatileState, event: ev.CopyFailed) -> Interpretation:
    memory.outstanding = False
    return _copy_lost(memory, event.reason)


def _copy_lost(memory: VolatileState, reason: str) -> tuple[Trigger, Finding]:
    delay = backoff_ms(memory.term.copy_failures, COPY_RETRY_MIN_MS, COPY_RETRY_MAX_MS)
    memory.term.copy_failures += 1
    memory.term.retry_copy_at_ms = memory.now_ms + delay
    memory.term.decoded = False
    memory.situation = Situation(
        f"the copy failed: {reason}; nothing of it is kept",
        f"ZooKeeper gets its own controller back, and the copy is tried again in {delay / 1000:g} s.",
    )
    return Trigger.COPY, Finding.FAILED


def _committed(memory: VolatileState, event: ev.Committed) -> Interpretation:
    memory.outstanding = False
    if memory.state is State.COMMITTING:
        memory.term.record, memory.term.base = ZkMigrationState.MIGRATION, event.at
        memory.situation = Situation(f"the copy is committed at offset {event.at.offset}")
    elif memory.state is State.COMPLETING:
        memory.term.record, memory.term.reopened = ZkMigrationState.POST_MIGRATION, False
        memory.situation = Situation("the migration is finished")
    elif memory.state is State.REOPENING:
        memory.term.record, memory.term.base, memory.term.reopened = ZkMigrationState.MIGRATION, event.at, True
        memory.situation = Situation(f"the migration goes on from offset {event.at.offset}")
    elif memory.state is State.ADMITTING:
        memory.term.reopened = False
        memory.situation = Situation("ZooKeeper holds everything again: brokers in ZooKeeper mode may register")
    return Trigger.COMMITTED, Finding.ANY


def _released(memory: VolatileState, event: ev.ReleaseResult) -> Interpretation:
    memory.outstanding = False
    memory.term.claim = None
    if event.released:
        return Trigger.RELEASED, Finding.DONE
    memory.term.failures += 1
    memory.situation = Situation(f"the claim was not released: {event.reason}")
    return Trigger.RELEASED, Finding.FAILED


def _reconciled(memory: VolatileState, event: ev.ReconcileDone) -> Interpretation:
    memory.outstanding, memory.term.deletes_allowed = False, ""
    memory.situation = Situation(f"ZooKeeper equals the log, {event.written} entities had to be written")
    return Trigger.RECONCILED, Finding.DONE_REOPENED if memory.term.reopened else Finding.DONE


def _held(memory: VolatileState, event: ev.ReconcileHeld) -> Interpretation:
    memory.outstanding, memory.term.deletes_allowed = False, ""
    memory.term.held_deletes = event.digest
    more = ", ..." if event.deletes > len(event.examples) else ""
    found = (
        f"ZooKeeper holds {event.deletes} entities that the log does not ({', '.join(event.examples)}{more}; digest of "
        f"all their names: {event.digest})"
    )
    memory.situation = Situation(
        f"{found}; more than migrator.reconcile.max.deletes={event.bound} are removed only after an order of the "
        "operator",
        "Compare with 'migrator verify'. If the log is right, force it with 'migrator force deletes'.",
        (found,),
    )
    return Trigger.RECONCILED, Finding.HELD


def _reconcile_failed(memory: VolatileState, event: ev.ReconcileFailed) -> Interpretation:
    memory.outstanding = False
    memory.situation = Situation(f"the reconcile failed: {event.reason}", "The reconcile is tried again.")
    return Trigger.RECONCILED, Finding.FAILED


def _rpcs_queued(memory: VolatileState) -> Interpretation:
    memory.outstanding = False
    memory.situation = Situation(State.DUAL_WRITING.properties.sentence)
    return Trigger.RPCS_SENT, Finding.ANY


def _write_failed(memory: VolatileState, event: ev.WriteBehindFailed) -> Interpretation:
    memory.term.failures += 1
    memory.situation = Situation(event.reason)
    return Trigger.WRITE, Finding.FENCED if event.fenced else Finding.FAILED


def _audited(memory: VolatileState, event: ev.AuditResult) -> Interpretation:
    memory.outstanding = False
    memory.term.failures = 0
    if event.foreign:
        names = ", ".join(event.foreign[:5]) + (", ..." if len(event.foreign) > 5 else "")
        memory.situation = Situation(
            f"{FOREIGN_WRITES}{names}",
            "Find out who, and repair with 'migrator verify --repair'; the next takeover repairs it too.",
        )
    elif event.failure:
        memory.situation = Situation(f"the audit of foreign writes failed: {event.failure}")
    if not event.failure:
        memory.term.running = event.running
        before, memory.term.strays = memory.term.strays, event.strays
        if event.strays != before and not event.foreign:
            memory.situation = Situation(in_words(event.strays) or State.DUAL_WRITING.properties.sentence)
    return None


def _voters(memory: VolatileState, event: ev.VotersAsked) -> Interpretation:
    memory.outstanding = False
    if memory.state is State.TURNED_OFF:
        decision = finish.decide_before_copy(event.inputs)
    else:
        decision = finish.decide(event.inputs, memory.term.left_out, reopened=memory.term.reopened)
    memory.term.decision = decision
    memory.situation = Situation(decision.reason, decision.remedy)
    return Trigger.VOTERS, decision.finding


def _timer(memory: VolatileState) -> Interpretation:
    """Wait for work that is under way, up to a bound. Work that is not under way is done again."""
    if memory.state is State.COMPARING and memory.now_ms >= memory.entered_ms + COMPARE_MAX_MS:
        minutes = COMPARE_MAX_MS // 60_000
        memory.situation = Situation(f"the comparison beside the writes has not ended within {minutes} minutes")
        return Trigger.TIMER, Finding.STALLED
    if memory.now_ms < (memory.progress_ms + STALL_MS if memory.outstanding else memory.due_ms):
        return None
    at = memory.course.sentence(memory.now_ms) or "at its start"
    silent = f"the worker has done nothing for {STALL_MS // 1000} s ({at})"
    if memory.state is State.COPYING:
        if not memory.outstanding:
            return Trigger.TIMER, Finding.WAIT
        _copy_lost(memory, silent)
        return Trigger.TIMER, Finding.STALLED
    if memory.state.properties.has_worker:
        if memory.outstanding and not memory.term.had_faults:
            memory.situation = Situation(
                silent, "The worker is ended, and another one starts. No action is needed unless this repeats."
            )
        answered = Finding.FAULTS if memory.state is State.DECODING else Finding.FAILED
        return Trigger.TIMER, Finding.STALLED if memory.outstanding else answered
    if memory.state is State.STEPPING_DOWN:
        return Trigger.TIMER, _turned_off(memory)
    return Trigger.TIMER, Finding.ANY


def _forced(memory: VolatileState, event: ev.OperatorForce) -> Interpretation:
    """Take an order of the operator. It can force only what the state waits for now: a permission is not kept for
    later."""
    if event.what not in memory.state.properties.forceable:
        return None
    if event.what is Force.FINISH:
        if memory.state is not State.FINISHING:
            return None  # only silent voters are left out; to unregister a broker needs no order to the driver
        memory.term.left_out |= event.without
        return Trigger.FORCED, Finding.ANY
    if event.what in OVERRIDES and (not event.overrides or event.overrides != set(memory.situation.overridable)):
        return None
    memory.term.failures = 0  # an order is carried out without a back-off
    memory.term.overridden = event.overrides if event.what is Force.RECLAIM else frozenset()
    memory.term.deletes_allowed = memory.term.held_deletes if event.what is Force.DELETES else ""
    return Trigger.FORCED, Finding.ANY


def _paused(memory: VolatileState, event: ev.OperatorPause) -> Interpretation:
    memory.hold = event.hold
    return None


def _resumed(memory: VolatileState) -> Interpretation:
    memory.hold = None
    return Trigger.RESUMED, Finding.ANY


def _reopened(memory: VolatileState, event: ev.OperatorReopen) -> Interpretation:
    """Take the order to reopen. A leader whose flag is off refuses it, because it would only finish again."""
    if memory.state is not State.FINISHED or not memory.term.enabled:
        return None
    memory.term.reopening = event.order
    return Trigger.REOPENED, Finding.ANY


UNREACHABLE = "ZooKeeper is out of reach"
"""The beginning of the reason of such a situation."""


def _unreachable(reason: str) -> Situation:
    return Situation(
        f"{UNREACHABLE}: {reason}",
        "Bring ZooKeeper back, or correct zookeeper.connect; the controller tries again.",
    )
