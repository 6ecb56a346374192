"""Mistakes to plant into the code that the check runs: it must find each of them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from migrator.image.model import MetadataImage
from migrator.migration.coordinator import Coordinator
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine import finish, guards, interpret, sightings, transitions
from migrator.migration.machine.driver import MigrationDriver
from migrator.migration.machine.states import State
from migrator.migration.machine.transitions import Finding, Trigger
from migrator.migration.machine.volatile_state import VolatileState
from migrator.migration.write_behind import core as write_behind
from migrator.migration.write_behind import messages, multis
from migrator.migration.write_behind.comparison import TakeoverComparison
from migrator.migration.write_behind.core import WriteBehind
from migrator.migration.write_behind.lag import at_of
from migrator.migration.write_behind.multis import Flight
from migrator.migration.write_behind.recent import RecentChanges
from migrator.migration.write_behind.versions import Versions
from migrator.zookeeper import leadership
from migrator.zookeeper.ops import ANY_VERSION, Applied, Check, MultiOutcome, Op, SetData, Unknown
from migrator.zookeeper.znodes.controller import ControllerClaim
from migrator.zookeeper.znodes.migration import encode_migration
from migrator.zookeeper.znodes.paths import CONTROLLER_EPOCH, MIGRATION
from tests.migration.model import cluster as model_cluster


def set_the_mark_unconditionally_in_the_claim(patch: pytest.MonkeyPatch) -> None:
    real = leadership.plan_claim

    def plan(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        if isinstance(found, leadership.ClaimPlan):
            return replace(found, ops=tuple(map(_unconditional_mark, found.ops)))
        return found

    patch.setattr(leadership, "plan_claim", plan)


def set_the_mark_unconditionally_in_every_multi(patch: pytest.MonkeyPatch) -> None:
    _change_flights(patch, lambda flight: replace(flight, ops=tuple(map(_unconditional_mark, flight.ops))))


def forget_both_conditions(patch: pytest.MonkeyPatch) -> None:
    def change(flight: Flight) -> Flight:
        ops = tuple(map(_unconditional_mark, flight.ops))
        return replace(flight, ops=(Check(CONTROLLER_EPOCH, ANY_VERSION), *ops[1:]))

    _change_flights(patch, change)


def claim_before_everything_is_decoded(patch: pytest.MonkeyPatch) -> None:
    real = guards.examine
    patch.setattr(guards, "examine", lambda shown, us: real(shown, replace(us, decoded=True)))


def take_an_unknown_outcome_for_applied(patch: pytest.MonkeyPatch) -> None:
    real = WriteBehind._ended

    def ended(self: WriteBehind, outcome: MultiOutcome) -> Any:
        return real(self, Applied((None, None)) if isinstance(outcome, Unknown) else outcome)

    patch.setattr(WriteBehind, "_ended", ended)


def send_again_after_an_unknown_outcome_without_reading(patch: pytest.MonkeyPatch) -> None:
    """As stock Kafka: conditional on nothing that the first attempt has changed."""
    set_the_mark_unconditionally_in_every_multi(patch)
    real = WriteBehind._ended

    def ended(self: WriteBehind, outcome: MultiOutcome) -> Any:
        return [] if isinstance(outcome, Unknown) else real(self, outcome)

    patch.setattr(WriteBehind, "_ended", ended)


def ignore_the_guard_of_histories(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(guards, "_history", lambda *_: None)


def take_an_offset_and_an_epoch_for_a_proof(patch: pytest.MonkeyPatch) -> None:
    real = guards.ownership

    def ownership(standing: guards.Standing) -> guards.Ownership:
        found = real(standing)
        same = standing.evidence.epoch == standing.mark.kraft_metadata_epoch
        return guards.Ownership.OURS if found is guards.Ownership.FOREIGN and same else found

    patch.setattr(guards, "ownership", ownership)


def move_the_mark_with_the_first_part(patch: pytest.MonkeyPatch) -> None:
    real = multis.pack

    def pack(queue: Any, **given: Any) -> Flight:
        flight = real(queue, **given)
        target = given["target"]
        if target is None:
            return flight
        after = multis._moved(given["mark"], target, given["target_crc"])
        op = SetData(MIGRATION, encode_migration(after), given["mark_version"])
        return replace(flight, ops=(flight.ops[0], op, *flight.ops[2:]), mark_after=after)

    patch.setattr(write_behind, "pack", pack)


def reconcile_with_whatever_image_is_at_hand(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Coordinator, "_fit_to_reconcile", lambda _: True)


def overlook_what_is_under_way_when_a_reconcile_begins(patch: pytest.MonkeyPatch) -> None:
    """The mistake that this check found in the write-behind itself: what the worker has read, a late multi changes."""
    real = WriteBehind._begin_reconcile

    def begin(self: WriteBehind, image: MetadataImage, number: int) -> None:
        real(self, image, number)
        if self._batch is not None:
            self._batch.unread = ()

    patch.setattr(WriteBehind, "_begin_reconcile", begin)


def skip_the_reconcile_at_the_takeover(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_cluster, "compare", lambda *_: [])


def resume_from_the_end_of_the_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecentChanges, "since", lambda *_: ())


def take_what_is_remembered_for_everything(patch: pytest.MonkeyPatch) -> None:
    real = RecentChanges.since
    patch.setattr(RecentChanges, "since", lambda self, offset: real(self, max(offset, self._known_from)))


def remove_before_everything_was_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteBehind, "compares", False)


def take_every_difference_for_a_change_meanwhile(patch: pytest.MonkeyPatch) -> None:
    real = TakeoverComparison.heard
    patch.setattr(TakeoverComparison, "heard", lambda self, event: real(self, replace(event, writes=())))


def open_the_gates_before_everything_was_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WriteBehind, "compared", property(lambda self: self._in_sync))


def resume_from_a_mark_without_a_checksum(patch: pytest.MonkeyPatch) -> None:
    real = guards.continues

    def continues(standing: guards.Standing, us: guards.Claimant) -> bool:
        mark = replace(standing.mark, batch_crc=standing.evidence.crc)
        return real(replace(standing, view=replace(standing.view, migration=mark)), us)

    patch.setattr(guards, "continues", continues)


def resume_although_another_has_claimed_since(patch: pytest.MonkeyPatch) -> None:
    real = guards.continues

    def continues(standing: guards.Standing, us: guards.Claimant) -> bool:
        mark = standing.mark
        writer = ControllerClaim(mark.kraft_controller_id, 0, mark.kraft_controller_epoch)
        return real(replace(standing, view=replace(standing.view, controller=writer)), us)

    patch.setattr(guards, "continues", continues)


def inform_before_everything_was_compared(patch: pytest.MonkeyPatch) -> None:
    ways: Any = transitions.TRANSITIONS[State.CLAIMING]
    patch.setitem(ways, (Trigger.CLAIM, Finding.WON_RESUME), State.INFORMING_BROKERS)


def forget_that_the_migration_was_reopened(patch: pytest.MonkeyPatch) -> None:
    """As a release would that does not know the field of the record."""
    real = interpret._elected
    patch.setattr(interpret, "_elected", lambda memory, event: real(memory, replace(event, reopened=False)))


def admit_brokers_before_the_reconcile(patch: pytest.MonkeyPatch) -> None:
    ways: Any = transitions.TRANSITIONS[State.CLAIMING]
    patch.setitem(ways, (Trigger.CLAIM, Finding.WON_KEEP), State.ADMITTING)
    patch.setitem(MigrationDriver._ENTRIES, State.ADMITTING, lambda driver: [ef.AppendAdmitted(driver._ask())])


def take_a_reopened_migration_for_any_other_after_the_reconcile(patch: pytest.MonkeyPatch) -> None:
    ways: Any = transitions.TRANSITIONS[State.RECONCILING]
    patch.setitem(ways, (Trigger.RECONCILED, Finding.DONE_REOPENED), State.INFORMING_BROKERS)


def raise_versions_up_to_what_is_not_written(patch: pytest.MonkeyPatch) -> None:
    """The mark would name changes that still wait."""
    real = WriteBehind._next

    def batch(self: WriteBehind, now_ms: int) -> Any:
        wake = real(self, now_ms)
        if self._batch is not None and self._batch.raises:
            self._batch.target = at_of(self._newest)
        return wake

    patch.setattr(WriteBehind, "_next", batch)


def forget_versions_when_a_change_comes(patch: pytest.MonkeyPatch) -> None:
    real = WriteBehind._publish

    def publish(self: WriteBehind, delta: Any) -> None:
        real(self, delta)
        self._versions = Versions()

    patch.setattr(WriteBehind, "_publish", publish)


def overlook_a_claim_that_was_lost_during_the_copy(patch: pytest.MonkeyPatch) -> None:
    real = interpret._copied

    def copied(memory: VolatileState, event: ev.CopyDone) -> Any:
        claim = memory.term.claim
        assert claim is not None
        return real(
            memory, replace(event, epoch_version=claim.epoch_version, controller_version=claim.controller_version)
        )

    patch.setattr(interpret, "_copied", copied)


def take_another_znode_for_another_process_for_ever(patch: pytest.MonkeyPatch) -> None:
    real = sightings.sighted

    def sighted(before: Any, brokers: Any, now_ms: int) -> Any:
        found = real(before, brokers, now_ms)
        kept = {key: replace(seen, read_ms=sys.maxsize) for key, seen in found.items() if key in before}
        return {**found, **{key: seen for key, seen in kept.items() if seen.born != before[key].born}}

    patch.setattr(sightings, "sighted", sighted)


def release_whoever_holds_the_claim(patch: pytest.MonkeyPatch) -> None:
    entries = dict(MigrationDriver._ENTRIES)
    entries[State.RELEASING] = lambda self: [ef.ReleaseClaim(self._ask(), ANY_VERSION, ANY_VERSION)]
    patch.setattr(MigrationDriver, "_ENTRIES", entries)


def wait_on_a_claim_without_releasing_it(patch: pytest.MonkeyPatch) -> None:
    for trigger in (Trigger.EXAMINED, Trigger.READINESS):
        for state in (State.EXAMINING, State.WAITING_FOR_BROKERS, State.WAITING_FOR_CONTROLLERS):
            ways: Any = transitions.TRANSITIONS[state]
            if (trigger, Finding.STRAY_CLAIM) in ways:
                patch.setitem(ways, (trigger, Finding.STRAY_CLAIM), State.WAITING_FOR_BROKERS)


def finish_without_asking_everybody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(finish, "decide", lambda *_, **__: finish.FinishDecision(Finding.MAY_FINISH, ""))


def go_on_after_a_batch_only_when_something_happens(patch: pytest.MonkeyPatch) -> None:
    """The mistake that this check found in the write-behind itself."""
    real = WriteBehind._advance

    def advance(self: WriteBehind, now_ms: int) -> Any:
        effects = real(self, now_ms)
        ended = [effect for effect in effects if isinstance(effect, messages.Reconciled)]
        if ended and any(isinstance(effect, messages.SendMulti) for effect in effects):
            self._awaited = None
            self._flight, batch = None, self._batch
            if batch is not None:
                self._changes, self._batch = [], None
                self._backlog.written()
            return [effect for effect in effects if not isinstance(effect, messages.SendMulti)]
        return effects

    patch.setattr(WriteBehind, "_advance", advance)


def _unconditional_mark(op: Op) -> Op:
    return replace(op, version=ANY_VERSION) if isinstance(op, SetData) and op.path == MIGRATION else op


def _change_flights(patch: pytest.MonkeyPatch, change: Callable[[Flight], Flight]) -> None:
    real = multis.pack
    patch.setattr(write_behind, "pack", lambda queue, **given: change(real(queue, **given)))
