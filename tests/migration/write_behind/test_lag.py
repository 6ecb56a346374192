"""The lag: from the copy's End on, from the mark on, from the leader's own epoch on; and its age."""

from __future__ import annotations

from dataclasses import replace

from migrator.migration.write_behind import messages
from migrator.migration.write_behind.core import WriteBehind
from migrator.migration.write_behind.lag import REST_MS, Backlog, Lag, RestingClock
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import ZkMigrationState
from tests.migration.model.images import compare, crc_at, delta, derive, image_of
from tests.migration.write_behind.support.rig import EPOCH, HELD, Rig

END = 110


def finish_copy(rig: Rig, *, behind_end: int = 0) -> Rig:
    """The copy is published as one delta, with what was committed in the same step behind its End."""
    before = replace(rig.image, features=replace(rig.image.features, zk_migration_state=ZkMigrationState.PRE_MIGRATION))
    rig.image = image_of({"a": "1", "b": "2"}, END + behind_end, EPOCH)
    return rig(messages.Published(delta(before, rig.image, rig.image.provenance.offset - before.provenance.offset)))


def reconcile(rig: Rig) -> Rig:
    rig(messages.ReconcileBegun(rig.image))
    return rig(messages.ReconcileWrites(tuple(compare(rig.zookeeper, rig.image)), last=True))


def test_the_copy_itself_is_no_lag() -> None:
    """At End ZooKeeper is the source; what is written since counts, while all is compared for the first time too."""
    rig = finish_copy(Rig({"a": "1", "b": "2"}))
    assert rig.lag == 0
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, END)))
    assert rig.lag == 0
    rig(messages.ReconcileBegun(rig.image))
    assert rig.lag == 0
    rig.publish({"a": "1", "b": "2", "c": "3"})
    assert rig.lag == 1
    rig(messages.ReconcileWrites(tuple(compare(rig.zookeeper, image_of({"a": "1", "b": "2"}, END, EPOCH))), last=True))
    assert rig.lag == 0
    assert rig.equal()


def test_what_was_committed_together_with_the_end_counts_from_the_end_on() -> None:
    rig = finish_copy(Rig({"a": "1", "b": "2"}), behind_end=3)
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, END)))
    assert rig.lag == 3


def test_a_new_leader_does_not_know_the_lag_until_it_knows_the_mark() -> None:
    rig = Rig({"a": "1"})
    assert rig.core.lag(0) == Lag(None, 0, 0)
    assert not rig.core.drained
    rig.now = 40_000
    rig.publish({"a": "2"}, by=7)
    assert rig.core.lag(50_000) == Lag(None, 7, 50_000), "counted from the leader's own epoch on"
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, 90)))
    assert rig.lag == 10 + 7, "offsets of the predecessor, an upper bound, and our own records"
    assert not rig.core.drained
    reconcile(rig)
    assert rig.core.lag(60_000) == Lag(0, 0, 0)
    assert rig.core.drained


def test_a_new_leader_whose_predecessor_was_drained_has_nothing_to_wait_for() -> None:
    """NoOps and registrations lie behind the mark; the comparison of everything may take minutes, a stop need not."""
    rig = Rig({"a": "1"})
    rig.core = WriteBehind(rig.image, derive, crc_at, lag=Backlog(90, 0))
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, 90)))
    rig(messages.ReconcileBegun(rig.image))
    assert rig.core.lag(60_000) == Lag(0, 0, 0)
    assert rig.core.drained


def test_the_age_is_that_of_the_oldest_change_that_waits() -> None:
    rig = Rig({"a": "1"}).open()
    rig.fault = lambda _rig, _ops: None
    rig.now = 1_000
    assert rig.core.lag(1_000).age_ms == 0
    rig.core.step(messages.Published(delta(rig.image, image_of({"a": "2"}, 101, EPOCH))), 2_000)
    rig.core.step(messages.Published(delta(image_of({"a": "2"}, 101, EPOCH), image_of({"a": "3"}, 102, EPOCH))), 5_000)
    assert rig.core.lag(12_000) == Lag(2, 2, 10_000)
    flight = rig.core._flight
    assert flight is not None
    rig.core.step(messages.MultiEnded(rig.core._number, rig.zookeeper.multi(flight.ops)), 12_000)
    assert rig.core.lag(12_000) == Lag(1, 1, 7_000)


def test_held_deletes_are_lag() -> None:
    rig = Rig({"a": "1"})
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, 90)))
    rig.publish({"b": "1"})
    rig(messages.ReconcileBegun(rig.image))
    writes = tuple(write for write in compare(rig.zookeeper, rig.image) if write.entity != "a")
    rig(messages.ReconcileWrites(writes, last=True, held=HELD))
    assert rig.lag == 10 + 1
    assert not rig.core.drained


def test_a_clock_rests_while_work_goes_on_and_no_longer() -> None:
    clock = RestingClock(1_000)
    assert clock.read(3_000) == 2_000
    clock.rest(3_000)
    assert clock.read(3_000 + REST_MS) == 2_000
    clock.rest(3_000 + REST_MS)
    silent_from = 3_000 + 2 * REST_MS
    assert clock.read(silent_from) == 2_000
    assert clock.read(silent_from + 500) == 2_500


def test_whoever_asks_for_the_lag_changes_nothing() -> None:
    """A status that is asked for early, late, or out of order must not move what the bound is held against."""
    asked, silent = Rig({"a": "1"}), Rig({"a": "1"})
    for rig in (asked, silent):
        rig.publish({"a": "2"})
    for time_ms in (90_000, 10_000, 200_000):
        asked.core.lag(time_ms)
    assert asked.core.lag(30_000) == silent.core.lag(30_000)


def test_a_reconcile_that_makes_progress_does_not_age_what_waits() -> None:
    rig = Rig({"a": "1"})
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, 90)))
    for now in range(0, 10 * REST_MS, REST_MS // 2):
        rig.core.progressed(now)
    assert rig.core.lag(10 * REST_MS).age_ms == 0
    assert rig.core.lag(20 * REST_MS).age_ms > 8 * REST_MS
