"""What the driver makes of an event: it is absorbed into the soft state and judged.

`judge` returns (trigger, finding), the key of the transition table, or None for an event that moves nothing. It emits
no effects and moves no state, so that everything that decides about a transition is in two places: here and in the
table.
"""

from __future__ import annotations

from typing import assert_never

from migrator.migration.machine import events as ev
from migrator.migration.machine import finish, guards, readiness, who_runs
from migrator.migration.machine.states import State
from migrator.migration.machine.strays import in_words
from migrator.migration.machine.transitions import Finding, Trigger
from migrator.migration.machine.volatile_state import (
    COPY_RETRY_MAX_MS,
    COPY_RETRY_MIN_MS,
    ELECTION_WAIT_MS,
    NOT_LEADING,
    SETTLE_MS,
    STALL_MS,
    TELL_MS,
    Situation,
    SoftState,
    Term,
    backoff_ms,
    held,
    present,
)
from migrator.observe.status import Force
from migrator.records.metadata import ZkMigrationState

Judgement = tuple[Trigger, Finding] | None


def judge(soft: SoftState, event: ev.Event) -> Judgement:  # noqa: C901, PLR0912 - one line for each kind of event
    """Absorb and judge one event that is not stale."""
    match event:
        case ev.BecameLeader():
            return _elected(soft, event)
        case ev.LostLeadership():
            return _deposed(soft)
        case ev.ImagePublished():
            return _image(soft, event)
        case ev.ZooKeeperConnected():
            return _connected(soft)
        case ev.ZooKeeperLost():
            return _disconnected(soft, event)
        case ev.Examined():
            return _examined(soft, event)
        case ev.ReadinessInputs():
            return _readiness(soft, event)
        case ev.DecodeResult():
            return _decoded(soft, event)
        case ev.ClaimResult():
            return _claimed(soft, event)
        case ev.ReleaseResult():
            return _released(soft, event)
        case ev.Progress():
            return _progress(soft, event)
        case ev.CopyDone():
            return _copied(soft, event)
        case ev.CopyFailed():
            return _copy_failed(soft, event)
        case ev.Committed():
            return _committed(soft, event)
        case ev.ReconcileDone():
            return _reconciled(soft, event)
        case ev.ReconcileHeld():
            return _held(soft, event)
        case ev.ReconcileFailed():
            return _reconcile_failed(soft, event)
        case ev.RpcsQueued():
            return _rpcs_queued(soft)
        case ev.WriteBehindFailed():
            return _write_failed(soft, event)
        case ev.AuditResult():
            return _audited(soft, event)
        case ev.VotersAsked():
            return _voters(soft, event)
        case ev.Timer():
            return _timer(soft)
        case ev.OperatorForce():
            return _forced(soft, event)
        case ev.OperatorPause():
            return _paused(soft, event)
        case ev.OperatorResume():
            return _resumed(soft)
        case never:
            assert_never(never)


def _elected(soft: SoftState, event: ev.BecameLeader) -> Judgement:
    soft.term = Term(event.epoch, event.record, event.base)
    soft.hold = event.hold
    if event.record is ZkMigrationState.POST_MIGRATION:
        soft.situation = Situation("the migration is finished")
        return Trigger.ELECTED, Finding.ENDED
    if event.record is ZkMigrationState.NONE:
        soft.situation = Situation("this cluster has nothing to migrate")
        return Trigger.ELECTED, Finding.NOTHING
    return Trigger.ELECTED, Finding.MIGRATE if event.enabled else _turned_off(soft)


def _turned_off(soft: SoftState) -> Finding:
    """What a leader whose flag is off has to do."""
    return Finding.FINISH if soft.term.record is ZkMigrationState.MIGRATION else Finding.OFF


def _deposed(soft: SoftState) -> Judgement:
    soft.situation = NOT_LEADING
    return Trigger.DEPOSED, Finding.ANY


def _image(soft: SoftState, event: ev.ImagePublished) -> Judgement:
    return (Trigger.REGISTRATIONS, Finding.ANY) if event.cluster_changed and not soft.outstanding else None


def _connected(soft: SoftState) -> Judgement:
    was_away, soft.zookeeper_connected = not soft.zookeeper_connected, True
    if was_away and soft.state is State.DUAL_WRITING:
        soft.situation = Situation(State.DUAL_WRITING.properties.sentence)
    return None if soft.outstanding else (Trigger.ZOOKEEPER_CONNECTED, Finding.ANY)


def _disconnected(soft: SoftState, event: ev.ZooKeeperLost) -> Judgement:
    soft.zookeeper_connected = False
    if soft.state is State.DUAL_WRITING:
        soft.situation = Situation(
            f"ZooKeeper is out of reach ({event.reason}): changes wait in the log, elections go on",
            "Bring ZooKeeper back; what waits is then written.",
        )
    return None


def _examined(soft: SoftState, event: ev.Examined) -> Judgement:
    soft.outstanding = False
    soft.term.standing = event.standing
    if event.standing is None:
        soft.situation = _unreachable(event.reason)
        return Trigger.EXAMINED, Finding.ELSEWHERE
    if soft.state is State.AWAITING_ELECTION:
        return Trigger.EXAMINED, _election_finding(soft, event.standing)
    verdict = guards.examine(event.standing, soft.claimant())
    if verdict.reason:
        soft.situation = Situation(verdict.reason, verdict.remedy)
    if verdict.finding is Finding.REFUSE:
        soft.term.reclaim_forced = False  # it was not what stood in the way
    if soft.hold is not None and verdict.finding in {Finding.MAY_CLAIM, Finding.OWN_CLAIM_COPY}:
        soft.term.decoded = False
        soft.situation = held(soft.hold)
        return Trigger.EXAMINED, Finding.ON_HOLD
    if verdict.finding in {Finding.MAY_CLAIM, Finding.OWN_CLAIM_COPY} and soft.may_copy:
        missing = who_runs.missing_before_claim(
            soft, present(event.surroundings, "about to claim without a look at who runs")
        )
        if missing is not None:
            return Trigger.EXAMINED, missing if verdict.finding is Finding.MAY_CLAIM else Finding.STRAY_CLAIM
    if verdict.finding in {Finding.OWN_CLAIM_COPY, Finding.OWN_CLAIM_KEEP}:
        soft.term.claim = guards.adopt(event.standing.view, soft.claimant())
    return Trigger.EXAMINED, verdict.finding


def _election_finding(soft: SoftState, standing: guards.Standing) -> Finding:
    controller = standing.view.controller
    if standing.fault is not None or (controller is not None and controller.is_kraft):
        return _stray(soft)
    if controller is not None and controller.broker_id >= 0:
        soft.term.failures = 0
        return Finding.ZK_CONTROLLER
    soft.situation = Situation(
        "nobody holds /controller, no ZooKeeper broker has taken it yet",
        "Nothing for some seconds. If it lasts, look whether any broker runs in ZooKeeper mode.",
    )
    waited = soft.now_ms - soft.entered_ms
    return Finding.WAIT if waited >= 2 * ELECTION_WAIT_MS else Finding.NO_CONTROLLER


def _stray(soft: SoftState) -> Finding:
    """Somebody else claims meanwhile; should that be so again and again, the examinations rest in between."""
    soft.term.failures += 1
    return Finding.STRAY_CLAIM


def _readiness(soft: SoftState, event: ev.ReadinessInputs) -> Judgement:
    soft.outstanding = False
    if event.brokers is None:
        soft.situation = _unreachable(event.reason)
        return Trigger.READINESS, Finding.ELSEWHERE
    if event.holder is not None and event.holder.is_kraft:
        return Trigger.READINESS, _stray(soft)
    around = readiness.Surroundings(event.brokers, event.signals, event.cluster, event.metadata_version)
    found = who_runs.assess(soft, around)
    if found.ready and soft.now_ms < soft.term.retry_copy_at_ms:
        return Trigger.READINESS, Finding.WAIT
    soft.situation = Situation(found.sentence())
    if soft.term.ready_ms is not None and soft.now_ms - soft.term.ready_ms < SETTLE_MS:
        return Trigger.READINESS, Finding.WAIT
    return Trigger.READINESS, Finding.READY if found.ready else who_runs.missing(found)


def _decoded(soft: SoftState, event: ev.DecodeResult) -> Judgement:
    soft.outstanding = False
    if event.faults or event.failure:
        soft.term.had_faults = True
        listed = "; ".join(str(fault) for fault in event.faults[:5])
        more = f" (and {len(event.faults) - 5} more)" if len(event.faults) > 5 else ""
        soft.situation = Situation(event.failure or f"ZooKeeper holds what cannot be migrated: {listed}{more}")
        stray = event.holder is not None and event.holder.is_kraft
        return Trigger.DECODED, _stray(soft) if stray else Finding.FAULTS
    if soft.hold is not None:
        soft.situation = held(soft.hold)
        return Trigger.DECODED, Finding.ON_HOLD
    if soft.term.had_faults:
        soft.term.had_faults = False
        return Trigger.DECODED, Finding.CLEAN_AGAIN
    soft.term.decoded = True
    soft.situation = Situation("everything in ZooKeeper decodes; the claim comes next")
    return Trigger.DECODED, Finding.CLEAN


def _claimed(soft: SoftState, event: ev.ClaimResult) -> Judgement:
    soft.outstanding = False
    soft.term.claim = event.claim
    if event.claim is None:
        soft.term.failures += 1
        soft.situation = Situation(f"the claim was not won: {event.reason}")
        return Trigger.CLAIM, Finding.LOST
    soft.term.reclaim_forced = False
    migrated = soft.term.record is ZkMigrationState.MIGRATION
    return Trigger.CLAIM, Finding.WON_KEEP if migrated else Finding.WON_COPY


def _progress(soft: SoftState, event: ev.Progress) -> Judgement:
    """News of work that has ended already hide nothing of why it ended."""
    if not soft.outstanding:
        return None
    soft.progress_ms = soft.now_ms
    before, soft.course = soft.course, soft.course.heard(event.working, soft.now_ms)
    if soft.course.phases != before.phases:
        soft.told_ms = soft.now_ms - TELL_MS
    shown = soft.state.properties.has_worker
    if shown and not (
        soft.state is State.DECODING and soft.term.had_faults
    ):  # what was found counts until the next result
        soft.situation = Situation(soft.course.sentence(soft.now_ms))
    return None


def _copied(soft: SoftState, event: ev.CopyDone) -> Judgement:
    soft.outstanding = False
    claim = soft.term.claim
    if claim is None or (event.epoch_version, event.controller_version) != (
        claim.epoch_version,
        claim.controller_version,
    ):
        return _copy_lost(soft, "another controller took ZooKeeper over during the copy")
    if strangers := who_runs.strangers(soft, event.surroundings):
        return _copy_lost(soft, f"brokers came up meanwhile that would not obey this quorum: {strangers}")
    soft.situation = Situation(f"{event.records} records copied")
    return Trigger.COPY, Finding.DONE


def _copy_failed(soft: SoftState, event: ev.CopyFailed) -> Judgement:
    soft.outstanding = False
    return _copy_lost(soft, event.reason)


def _copy_lost(soft: SoftState, reason: str) -> tuple[Trigger, Finding]:
    delay = backoff_ms(soft.term.copy_failures, COPY_RETRY_MIN_MS, COPY_RETRY_MAX_MS)
    soft.term.copy_failures += 1
    soft.term.retry_copy_at_ms = soft.now_ms + delay
    soft.term.decoded = False
    soft.situation = Situation(
        f"the copy failed: {reason}; nothing of it is kept",
        f"ZooKeeper gets its own controller back, and the copy is tried again in {delay / 1000:g} s.",
    )
    return Trigger.COPY, Finding.FAILED


def _committed(soft: SoftState, event: ev.Committed) -> Judgement:
    soft.outstanding = False
    if soft.state is State.COMMITTING:
        soft.term.record, soft.term.base = ZkMigrationState.MIGRATION, event.at
        soft.situation = Situation(f"the copy is committed at offset {event.at.offset}")
    elif soft.state is State.COMPLETING:
        soft.term.record = ZkMigrationState.POST_MIGRATION
        soft.situation = Situation("the migration is finished")
    return Trigger.COMMITTED, Finding.ANY


def _released(soft: SoftState, event: ev.ReleaseResult) -> Judgement:
    soft.outstanding = False
    soft.term.claim = None
    if event.released:
        return Trigger.RELEASED, Finding.DONE
    soft.term.failures += 1
    soft.situation = Situation(f"the claim was not released: {event.reason}")
    return Trigger.RELEASED, Finding.FAILED


def _reconciled(soft: SoftState, event: ev.ReconcileDone) -> Judgement:
    soft.outstanding = soft.term.deletes_forced = False
    soft.situation = Situation(f"ZooKeeper equals the log, {event.written} entities had to be written")
    return Trigger.RECONCILED, Finding.DONE


def _held(soft: SoftState, event: ev.ReconcileHeld) -> Judgement:
    soft.outstanding = False
    soft.situation = Situation(
        f"ZooKeeper holds {event.deletes} entities that the log does not ({', '.join(event.examples)}); more than "
        f"migrator.reconcile.max.deletes={event.bound} are not removed unasked",
        "Compare with 'migrator verify'. If the log is right, force it with 'migrator force deletes'.",
    )
    return Trigger.RECONCILED, Finding.HELD


def _reconcile_failed(soft: SoftState, event: ev.ReconcileFailed) -> Judgement:
    soft.outstanding = False
    soft.situation = Situation(f"the reconcile failed: {event.reason}", "It is tried again.")
    return Trigger.RECONCILED, Finding.FAILED


def _rpcs_queued(soft: SoftState) -> Judgement:
    soft.outstanding = False
    soft.situation = Situation(State.DUAL_WRITING.properties.sentence)
    return Trigger.RPCS_SENT, Finding.ANY


def _write_failed(soft: SoftState, event: ev.WriteBehindFailed) -> Judgement:
    soft.term.failures += 1
    soft.situation = Situation(event.reason)
    return Trigger.WRITE, Finding.FENCED if event.fenced else Finding.FAILED


def _audited(soft: SoftState, event: ev.AuditResult) -> Judgement:
    soft.outstanding = False
    soft.term.failures = 0
    if event.foreign:
        names = ", ".join(event.foreign[:5]) + (", ..." if len(event.foreign) > 5 else "")
        soft.situation = Situation(
            f"somebody else wrote to ZooKeeper during dual-write: {names}",
            "Find out who, and repair with 'migrator verify --repair'; the next takeover repairs it too.",
        )
    elif event.failure:
        soft.situation = Situation(f"the audit of foreign writes failed: {event.failure}")
    if not event.failure:
        before, soft.term.strays = soft.term.strays, event.strays
        if event.strays != before and not event.foreign:
            soft.situation = Situation(in_words(event.strays) or State.DUAL_WRITING.properties.sentence)
    return None


def _voters(soft: SoftState, event: ev.VotersAsked) -> Judgement:
    soft.outstanding = False
    decide = finish.decide_before_copy if soft.state is State.TURNED_OFF else finish.decide
    decision = decide(event.inputs)
    soft.term.decision = decision
    soft.situation = Situation(decision.reason, decision.remedy)
    return Trigger.VOTERS, decision.finding


def _timer(soft: SoftState) -> Judgement:
    """Work that is under way is waited for, up to a bound; what is not is done again."""
    if soft.now_ms < (soft.progress_ms + STALL_MS if soft.outstanding else soft.due_ms):
        return None
    silent = (
        f"the worker has done nothing for {STALL_MS // 1000} s ({soft.course.sentence(soft.now_ms) or 'at its start'})"
    )
    if soft.state is State.COPYING:
        _copy_lost(soft, silent)
        return Trigger.TIMER, Finding.STALLED
    if soft.state.properties.has_worker:
        if soft.outstanding and not soft.term.had_faults:
            soft.situation = Situation(silent, "It is ended, and another one begins; nothing for you, unless it lasts.")
        answered = Finding.FAULTS if soft.state is State.DECODING else Finding.FAILED
        return Trigger.TIMER, Finding.STALLED if soft.outstanding else answered
    if soft.state is State.STEPPING_DOWN:
        return Trigger.TIMER, _turned_off(soft)
    return Trigger.TIMER, Finding.ANY


def _forced(soft: SoftState, event: ev.OperatorForce) -> Judgement:
    """Only what is being asked for right now can be forced: a permission is not kept for later."""
    if event.what not in soft.state.properties.forceable:
        return None
    soft.term.failures = 0  # an order does not wait for a back-off
    soft.term.reclaim_forced = event.what is Force.RECLAIM
    soft.term.deletes_forced = event.what is Force.DELETES
    return Trigger.FORCED, Finding.ANY


def _paused(soft: SoftState, event: ev.OperatorPause) -> Judgement:
    soft.hold = event.hold
    return None


def _resumed(soft: SoftState) -> Judgement:
    soft.hold = None
    return Trigger.RESUMED, Finding.ANY


def _unreachable(reason: str) -> Situation:
    return Situation(
        f"ZooKeeper is out of reach: {reason}", "Bring it back, or correct zookeeper.connect; it is tried again."
    )
