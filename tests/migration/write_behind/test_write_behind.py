"""The write-behind's core against the model ZooKeeper: every outcome of a multi, and what it does about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.image.model import Changes, MetadataImage
from migrator.migration.translate.entity import EntityWrite
from migrator.migration.write_behind import messages
from migrator.migration.write_behind.core import WriteBehind
from migrator.migration.write_behind.multis import Limits
from migrator.raft.messages import EpochOffset
from migrator.zookeeper.ops import Applied, Create, Failed, MultiOutcome, Op, SetData, Unknown, ZkError
from migrator.zookeeper.znodes.paths import MIGRATION
from tests.lanes import examples
from tests.migration.model.images import compare, crc_at, delta, image_of, path_of, stored
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.write_behind.support.rig import (
    EPOCH,
    HELD,
    Fault,
    Rig,
    always_missing,
    claim_of,
    lost_after,
    lost_before,
    no_fault,
    once,
)


def test_the_first_thing_written_is_the_offset_of_the_copy() -> None:
    rig = Rig({"a": "1"}).open()
    assert rig.equal()
    assert len(rig.multis) == 1, "the reconcile found nothing to write and its offset is there already"
    assert messages.Reconciled(0, None) in rig.effects


def test_changes_are_written_and_the_offset_with_them() -> None:
    rig = Rig({"a": "1", "b": "1"}).open().publish({"a": "2", "c": "3"})
    assert rig.equal()
    assert rig.core.drained
    assert len(rig.multis) == 2


def test_changes_that_wait_are_merged_into_what_is_left_of_them() -> None:
    rig = Rig({"a": "1"}).open()
    rig.core.step(messages.Published(delta(rig.image, image_of({"a": "2"}, 101, EPOCH))), 0)
    after = image_of({"a": "3", "b": "1"}, 102, EPOCH)
    rig.core.step(messages.Published(delta(image_of({"a": "2"}, 101, EPOCH), after)), 0)
    gone = image_of({"a": "3"}, 103, EPOCH)
    rig.core.step(messages.Published(delta(after, gone)), 0)
    rig.image = gone
    assert rig.lag == 3
    flight = rig.core._flight
    assert flight is not None
    rig(messages.MultiEnded(rig.core._number, rig.zookeeper.multi(flight.ops)))
    assert rig.equal()
    assert len(rig.multis) == 2, "the copy's offset, and one for the last two changes"


@pytest.mark.parametrize(("index", "path"), [(0, "/controller_epoch"), (1, "/migration"), (2, path_of("b"))])
def test_what_zookeeper_does_not_let_us_write_stops_it_with_the_path(index: int, path: str) -> None:
    rig = Rig({"a": "1"}).open()
    sent = len(rig.multis)
    rig.fault = lambda _rig, _ops: Failed(index, ZkError.NO_AUTH)
    rig.publish({"a": "1", "b": "2"})
    (stopped,) = [effect for effect in rig.effects if isinstance(effect, messages.Stopped)]
    assert f" {path} (NO_AUTH)" in stopped.reason
    assert not stopped.fenced, "nobody else has taken over"
    assert len(rig.multis) == sent + 1, "it is not tried again by itself"
    assert rig.lag == 1


@pytest.mark.parametrize("fault", [lost_after, lost_before])
def test_an_unknown_outcome_is_resolved_by_the_version_of_the_mark(fault: Fault) -> None:
    rig = Rig({"a": "1"}).open()
    rig.fault = once(fault)
    rig.publish({"b": "2"})
    assert rig.equal()
    assert not rig.stops()
    sent = rig.multis[1:]
    assert len(sent) == (1 if fault is lost_after else 2)
    assert len(set(sent)) == 1, "only the very same multi is ever sent again"


def test_a_late_multi_and_its_repetition_are_applied_once() -> None:
    """The connection goes, the mark does not show the multi yet, and it is applied just before its repetition."""
    rig = Rig({"a": "1"}).open()
    late: list[tuple[Op, ...]] = []

    def fault(rig: Rig, ops: tuple[Op, ...]) -> MultiOutcome | None:
        if not late:
            late.append(ops)
            return Unknown("ConnectionLoss")
        if len(late) == 1:
            late.append(ops)
            assert isinstance(rig.zookeeper.multi(late[0]), Applied)
        return None

    rig.fault = fault
    rig.publish({"a": "2", "b": "2"})
    assert rig.equal()
    assert not rig.stops()


def test_a_newer_claim_fences_and_nothing_more_is_sent() -> None:
    rig = Rig({"a": "1"}).open()
    claim_of(rig.zookeeper, EPOCH + 1)
    rig.publish({"a": "2"})
    assert [stop.fenced for stop in rig.stops()] == [True]
    sent = len(rig.multis)
    rig.publish({"a": "3"})
    assert len(rig.multis) == sent
    assert stored(rig.zookeeper) == {"a": "1"}
    assert rig.lag == 2


@pytest.mark.parametrize(
    ("meddle", "after"),
    [
        (lambda zookeeper: zookeeper.delete(path_of("a")), {"a": "2"}),
        (lambda zookeeper: zookeeper.create(path_of("b"), b"foreign"), {"a": "2", "b": "2"}),
        (lambda zookeeper: zookeeper.delete(path_of("a")), {}),
    ],
)
def test_an_entity_that_is_not_as_believed_is_read_again_and_repaired(
    meddle: Callable[[ModelZooKeeper], None], after: dict[str, str]
) -> None:
    rig = Rig({"a": "1", "z": "1"}).open()
    meddle(rig.zookeeper)
    rig.publish({**after, "z": "9"})
    assert rig.equal()
    assert [effect.entities for effect in rig.effects if isinstance(effect, messages.ReadAgain)]
    assert not rig.stops()


def test_an_entity_that_keeps_changing_ends_in_a_reconcile_not_in_a_loop() -> None:
    rig = Rig({"a": "1"}).open()
    rig.fault = always_missing
    rig.publish({"a": "2"})
    assert [stop.fenced for stop in rig.stops()] == [False]
    assert rig.lag == 1, "what was not written still counts"
    rig.fault = no_fault
    rig(messages.ReconcileBegun(rig.image))(
        messages.ReconcileWrites(tuple(compare(rig.zookeeper, rig.image)), last=True)
    )
    assert rig.equal()
    assert rig.core.drained


def test_no_permission_is_said_with_the_path() -> None:
    rig = Rig({"a": "1"}).open()
    rig.zookeeper.unauthorized.add(path_of("a"))
    rig.publish({"a": "2"})
    (stop,) = rig.stops()
    assert path_of("a") in stop.reason


def test_a_refusal_stops_until_the_next_reconcile() -> None:
    rig = Rig({"a": "1"}).open()
    rig.core.step(messages.Published(delta(rig.image, image_of({"a": "2"}, 101, EPOCH))), 0)
    (stop,) = rig.core.step(messages.MultiRefused(rig.core._number, "quota exceeded"), 0)
    assert stop == messages.Stopped(fenced=False, reason="quota exceeded")


def test_a_foreign_write_of_the_mark_stops_us() -> None:
    rig = Rig({"a": "1"}).open()
    rig.zookeeper.set(
        MIGRATION,
        b'{"version":0,"kraft_controller_id":9,"kraft_controller_epoch":9,'
        b'"kraft_metadata_offset":1,"kraft_metadata_epoch":1}',
    )
    rig.publish({"a": "2"})
    assert [stop.fenced for stop in rig.stops()] == [True]
    assert stored(rig.zookeeper) == {"a": "1"}


def test_a_change_too_big_for_one_multi_keeps_the_old_offset_until_its_last_part() -> None:
    rig = Rig({}, Limits(max_ops=6)).open()
    marks: list[int] = []

    def watch(rig: Rig, ops: tuple[Op, ...]) -> MultiOutcome | None:
        marks.append(rig.mark.kraft_metadata_offset)
        return None

    rig.fault = watch
    rig.publish({f"t{n:02}": "1" for n in range(10)})
    assert marks == [100, 100, 100]
    assert rig.equal()


def test_an_entity_larger_than_a_multi_is_cut_between_operations() -> None:
    names = [f"n{n}" for n in range(9)]

    def one_entity(before: MetadataImage, after: MetadataImage, changes: Changes) -> Iterator[EntityWrite]:
        ops = tuple(Create(path_of(name), b"1") for name in names)
        yield EntityWrite("big", ops, (Create("/notice_", b"big", sequential=True),))

    rig = Rig({}, Limits(max_ops=6))
    rig.core = WriteBehind(rig.image, one_entity, crc_at, Limits(max_ops=6))
    rig.open().publish(dict.fromkeys(names, "1"))
    assert rig.equal()
    assert all(len(ops) <= 6 for ops in rig.multis)
    assert rig.multis[-1][-1] == Create("/notice_", b"big", sequential=True), "notices come last"


def test_offsets_without_an_effect_are_checkpointed_once_a_second_and_are_no_lag() -> None:
    rig = Rig({"a": "1"}).open().publish({"a": "2"})
    sent = len(rig.multis)
    for step in range(30):
        rig.now = step * 100
        rig.publish({"a": "2"})
        assert rig.lag == 0
        rig(messages.TimerExpired())
    assert len(rig.multis) - sent == 2
    rig.now = 5_000
    assert rig(messages.TimerExpired()).equal()


def test_held_deletes_keep_the_offset_and_everything_that_follows() -> None:
    rig = Rig({"a": "1"})
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, 90)))
    rig.image = image_of({"b": "1"}, 120, EPOCH)
    rig(messages.ReconcileBegun(rig.image))
    writes = tuple(write for write in compare(rig.zookeeper, rig.image) if write.entity != "a")
    rig(messages.ReconcileWrites(writes, last=True, held=HELD))
    assert messages.Reconciled(1, HELD) in rig.effects
    rig.publish({"b": "2"})
    assert rig.mark.kraft_metadata_offset == 90
    assert stored(rig.zookeeper) == {"a": "1", "b": "1"}
    rig(messages.ReconcileBegun(rig.image))(
        messages.ReconcileWrites(tuple(compare(rig.zookeeper, rig.image)), last=True)
    )
    assert rig.equal()


def test_a_reconcile_streams_and_waits_for_more() -> None:
    rig = Rig({})
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, 100)))
    rig.image = image_of({"a": "1", "b": "1"}, 110, EPOCH)
    rig(messages.ReconcileBegun(rig.image))
    first, second = compare(rig.zookeeper, rig.image)
    rig(messages.ReconcileWrites((first,)))
    assert rig.mark.kraft_metadata_offset == 100
    rig(messages.ReconcileWrites((second,)))(messages.ReconcileWrites((), last=True))
    assert rig.equal()


def test_writes_of_an_earlier_comparison_are_dropped() -> None:
    rig = Rig({"a": "1"})
    rig(messages.Opened(rig.claim, EpochOffset(EPOCH, 90)))
    rig(messages.ReconcileBegun(rig.image, number=7))
    foreign = EntityWrite("b", (Create(path_of("b"), b"1"),))
    rig(messages.ReconcileWrites((foreign,), last=True, number=6))
    assert messages.Reconciled(1, None) not in rig.effects
    rig(messages.ReconcileWrites((), last=True, number=7))
    assert rig.equal()


def test_after_closing_nothing_is_sent_and_late_answers_are_ignored() -> None:
    rig = Rig({"a": "1"}).open()
    rig.core.step(messages.Published(delta(rig.image, image_of({"a": "2"}, 101, EPOCH))), 0)
    assert rig.core.step(messages.Closed(), 0) == []
    late = rig.core._number
    assert rig.core.step(messages.MultiEnded(late, Applied((None, None))), 0) == []
    assert rig.core.step(messages.Published(delta(rig.image, image_of({"a": "3"}, 102, EPOCH))), 0) == []
    assert rig.lag == 2


def test_the_answer_to_a_multi_of_an_earlier_claim_is_not_taken_for_that_of_a_later_one() -> None:
    rig = Rig({"a": "1"})
    rig.core.step(messages.Opened(rig.claim, EpochOffset(EPOCH, 90)), 0)
    early = rig.core._number
    rig.core.step(messages.Closed(), 0)
    rig.core.step(messages.Opened(claim_of(rig.zookeeper, EPOCH + 1), EpochOffset(EPOCH, 90)), 0)
    assert rig.core.step(messages.MultiEnded(early, Failed(0, ZkError.BAD_VERSION)), 0) == []
    assert rig.core._flight is not None


@settings(max_examples=examples(60))
@given(
    contents=st.lists(st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123")), min_size=1, max_size=6),
    faults=st.lists(st.sampled_from(["none", "before", "after", "meddle"]), max_size=12),
    max_ops=st.integers(3, 6),
)
def test_whatever_happens_to_the_connection_nothing_is_lost(
    contents: list[dict[str, str]], faults: list[str], max_ops: int
) -> None:
    rig = Rig({"a": "1"}, Limits(max_ops=max_ops)).open()
    script = iter(faults)

    def fault(rig: Rig, ops: tuple[Op, ...]) -> MultiOutcome | None:
        match next(script, "none"):
            case "before":
                return lost_before(rig, ops)
            case "after":
                return lost_after(rig, ops)
            case "meddle" if (
                (op := ops[-1]) and isinstance(op, SetData) and rig.zookeeper.get(op.path) and len(ops) > 2
            ):
                rig.zookeeper.delete(op.path)
        return None

    rig.fault = fault
    for content in contents:
        before = rig.mark.kraft_metadata_offset
        rig.now += 1000
        rig.publish(content).wait()
        assert rig.mark.kraft_metadata_offset >= before
        if rig.stops():
            rig.effects.clear()
            rig(messages.ReconcileBegun(rig.image))
            rig(messages.ReconcileWrites(tuple(compare(rig.zookeeper, rig.image)), last=True))
    rig.fault = no_fault
    rig.now += 1000
    rig(messages.TimerExpired())
    assert rig.equal()


def test_what_takes_many_turns_is_gone_on_with_once_in_each() -> None:
    rig = Rig({"a": "1"}).open()
    derive, sent = rig.core._derive, len(rig.multis)

    def in_turns(before: MetadataImage, after: MetadataImage, changes: Changes) -> Iterator[EntityWrite | None]:
        for write in derive(before, after, changes):
            yield None
            yield write
        yield None

    rig.core._derive = in_turns
    rig.publish({"a": "2", "b": "1"}).publish({"a": "3", "b": "1"})
    turns = 0
    while not rig.equal():
        asked = [effect for effect in rig.effects if isinstance(effect, messages.WakeAt)]
        assert len(asked) == turns + 1, "one time for each turn, whatever happens meanwhile"
        rig(messages.TimerExpired())
        turns += 1
    assert (turns, len(rig.multis) - sent) == (3 + 2, 2), "what came meanwhile is a batch of its own"
