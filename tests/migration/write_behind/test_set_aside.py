"""A write that ZooKeeper cannot take: it rests between repetitions, it is named, and the rest goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.migration.translate.entity import EntityWrite
from migrator.migration.write_behind import messages
from migrator.migration.write_behind.multis import GUARDS, Limits, limits_of
from migrator.migration.write_behind.resends import LOSSES_MAX, RESEND_MAX_MS, RESEND_MIN_MS
from migrator.migration.write_behind.set_aside import TooLarge
from migrator.raft.messages import EpochOffset
from migrator.zookeeper.ops import Create, Delete, MultiOutcome, Op, SetData, Unknown
from migrator.zookeeper.request_size import BYTES_MAX, op_bytes
from tests.migration.model.images import compare, image_of, path_of, stored
from tests.migration.write_behind.support.rig import EPOCH, Fault, Rig, lost_before, no_fault

LIMITS = Limits(max_bytes=500, jute_maxbuffer=4_000)
LARGE = "x" * 2_000
TOO_LARGE = "x" * 4_000


def closes_above(size: int) -> Fault:
    """As a server that closes the connection at a request of that size."""

    def fault(rig: Rig, ops: tuple[Op, ...]) -> MultiOutcome | None:
        return Unknown("ConnectionLoss") if sum(map(op_bytes, ops)) > size else None

    return fault


def reconcile(rig: Rig) -> Rig:
    rig(messages.ReconcileBegun(rig.image))
    return rig(messages.ReconcileWrites(tuple(compare(rig.zookeeper, rig.image)), last=True)).wait()


def named(rig: Rig) -> list[str]:
    return [item.path for item in rig.core.set_aside]


def test_equal_unknown_outcomes_back_off_and_are_reported() -> None:
    """The connection goes each time; nothing is sent between two times that were asked for."""
    rig = Rig({"a": "1"}).open()
    rig.fault = lost_before
    sent = len(rig.multis)
    rig.publish({"a": "2"})
    assert len(rig.multis) - sent == 2, "the first repetition needs no rest"
    for _ in range(100):
        rig.publish(rig_content(rig), by=1)
    assert len(rig.multis) - sent == 2
    waits = []
    for _ in range(10):
        wake = [effect for effect in rig.effects if isinstance(effect, messages.WakeAt)][-1]
        waits.append(wake.time_ms - rig.now)
        rig.now = wake.time_ms
        rig(messages.TimerExpired())
    assert len(rig.multis) - sent == 2 + len(waits)
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (RESEND_MIN_MS, RESEND_MAX_MS)
    told = rig.core.unanswered
    assert told is not None
    assert told.times == 2 + len(waits)
    assert told.entities == ("a",)
    assert "the connection was lost 12 times in a row" in str(told)
    rig.fault = lambda _rig, _ops: None
    assert rig.wait().equal()
    assert rig.core.unanswered is None


def rig_content(rig: Rig) -> dict[str, str]:
    return {config.name: values["v"] for config, values in rig.image.configs.items()}


def test_what_is_above_the_limit_is_set_aside_and_the_rest_goes_on() -> None:
    rig = Rig({"a": "1", "z": "1"}, LIMITS).open().publish({"a": TOO_LARGE, "z": "2"})
    assert stored(rig.zookeeper) == {"a": "1", "z": "2"}
    assert named(rig) == [path_of("a")]
    assert rig.mark.kraft_metadata_offset == rig.offset, "new topics of others must not wait for it"
    assert rig.core.drained
    (news,) = [effect for effect in rig.effects if isinstance(effect, messages.SetAside)]
    assert (news.entity, news.limit) == ("a", LIMITS.jute_maxbuffer)
    assert news.bytes > len(TOO_LARGE)


def test_it_is_taken_in_when_it_fits_again() -> None:
    rig = Rig({"a": "1"}, LIMITS).open().publish({"a": TOO_LARGE}).publish({"a": "3"})
    assert rig.equal()
    assert named(rig) == []
    assert messages.TakenIn("a", path_of("a")) in rig.effects


def test_what_was_never_created_is_created_when_it_fits() -> None:
    rig = Rig({"a": "1"}, LIMITS).open().publish({"a": "1", "b": TOO_LARGE}).publish({"a": "1", "b": "3"})
    assert rig.equal()
    assert named(rig) == []


def test_it_leaves_the_list_with_the_entity() -> None:
    rig = Rig({"a": "1"}, LIMITS).open().publish({"a": TOO_LARGE}).publish({})
    assert rig.equal()
    assert named(rig) == []


def test_every_comparison_finds_it_again_so_a_takeover_does() -> None:
    rig = Rig({"a": "1"}, LIMITS).open().publish({"a": TOO_LARGE})
    assert named(reconcile(rig)) == [path_of("a")]
    assert len([effect for effect in rig.effects if isinstance(effect, messages.SetAside)]) == 1, "told once"
    successor = Rig({"a": "1"}, LIMITS)
    successor.image = image_of({"a": TOO_LARGE}, 100, EPOCH)
    successor(messages.Opened(successor.claim, EpochOffset(EPOCH, 100)))
    assert named(reconcile(successor)) == [path_of("a")]
    assert successor.core.drained


def test_a_comparison_that_does_not_miss_it_takes_it_off_the_list() -> None:
    rig = Rig({"a": "1"}, LIMITS).open().publish({"a": TOO_LARGE})
    rig.zookeeper.set(path_of("a"), TOO_LARGE.encode())
    assert named(reconcile(rig)) == []
    assert rig.equal()


def test_a_large_operation_travels_alone() -> None:
    """Above the size of a multi of several, and below what a server takes: as znodes of large topics have it."""
    rig = Rig({"a": "1", "z": "1"}, LIMITS).open()
    rig.fault = closes_above(LIMITS.jute_maxbuffer)
    rig.publish({"a": LARGE, "z": "2"})
    assert rig.equal()
    assert not rig.core.set_aside


def test_a_large_operation_that_the_server_does_not_take_is_set_aside_after_some_tries() -> None:
    """The servers have a smaller jute.maxbuffer than we were told."""
    rig = Rig({"a": "1", "z": "1"}, LIMITS).open()
    rig.fault = closes_above(1_500)
    sent = len(rig.multis)
    rig.publish({"a": LARGE, "z": "2"}).wait()
    assert stored(rig.zookeeper) == {"a": "1", "z": "2"}
    assert rig.mark.kraft_metadata_offset == rig.offset
    (item,) = rig.core.set_aside
    assert item.times == LOSSES_MAX
    assert (
        sum(LARGE.encode() in (getattr(op, "data", None) or b"") for ops in rig.multis[sent:] for op in ops)
        == item.times
    )
    assert not rig.stops()


@pytest.mark.parametrize("late", [True, False])
def test_a_large_operation_that_is_late_cannot_be_taken_for_what_follows(late: bool) -> None:
    """The operation was set aside and arrives late, before or after the guards that replace it."""
    rig = Rig({"a": "1", "z": "1"}, LIMITS).open()
    flights: list[tuple[Op, ...]] = []

    def fault(rig: Rig, ops: tuple[Op, ...]) -> MultiOutcome | None:
        if sum(map(op_bytes, ops)) > 1_500:
            flights.append(ops)
            return Unknown("ConnectionLoss")
        if len(ops) == GUARDS and flights and late:
            rig.zookeeper.multi(flights.pop())
            flights.clear()
        return None

    rig.fault = fault
    rig.publish({"a": LARGE, "z": "2"}).wait()
    assert rig.mark.kraft_metadata_offset == rig.offset
    assert stored(rig.zookeeper) == {"a": LARGE if late else "1", "z": "2"}
    assert not rig.stops()


def test_a_large_operation_that_lands_behind_the_look_of_a_reconcile_is_taken_back() -> None:
    rig = Rig({"a": "1"}, LIMITS).open()
    sent: list[tuple[Op, ...]] = []

    def lose(_rig: Rig, ops: tuple[Op, ...]) -> MultiOutcome:
        sent.append(ops)
        return Unknown("ConnectionLoss")

    rig.fault = lose
    rig.publish({"a": LARGE})
    while not rig.core.set_aside:
        rig.now += RESEND_MAX_MS
        rig(messages.TimerExpired())
    rig.publish({"a": "1"})
    rig(messages.ReconcileBegun(rig.image))(messages.ReconcileWrites((), last=True))
    rig.zookeeper.multi(sent[0])
    rig.fault = no_fault
    assert rig.wait().equal()


def test_a_small_write_is_never_set_aside() -> None:
    rig = Rig({"a": "1"}, LIMITS).open()
    rig.fault = lost_before
    rig.publish({"a": "2"})
    for _ in range(3 * LOSSES_MAX):
        rig.now += RESEND_MAX_MS
        rig(messages.TimerExpired())
    assert not rig.core.set_aside
    assert len(set(rig.multis[-LOSSES_MAX:])) == 1, "only the very same multi is ever sent again"


def test_what_is_below_a_znode_that_cannot_be_created_is_left_out_with_it() -> None:
    large = TooLarge(LIMITS)
    parent, other = Create("/t", TOO_LARGE.encode()), Create("/tt", b"")
    write = EntityWrite("t", (parent, Create("/t/partitions", None), other), (Create("/n", b"", sequential=True),))
    assert large.sift(write) == replace(write, ops=(other,))
    assert large.sift(EntityWrite("t", (SetData("/t/partitions/0/state", b""),))) is None
    fits = EntityWrite("t", (Create("/t", b""), Create("/t/partitions", None)))
    assert large.sift(fits) is fits
    large.written(fits.ops)
    assert large.items == ()
    assert large.sift(EntityWrite("t", (Delete("/t"),))) is not None


def test_the_bounds_follow_the_setting() -> None:
    assert limits_of(Limits().jute_maxbuffer) == Limits()
    raised, lowered = limits_of(8 * 1024 * 1024), limits_of(200_000)
    assert (raised.max_bytes, lowered.max_bytes) == (BYTES_MAX, 100_000)
    assert raised.max_op_bytes > 8 * 1024 * 1024 - 10_000
