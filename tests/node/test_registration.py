"""When a controller registers: a voter that is far behind must not fill the log that it cannot read."""

from __future__ import annotations

from itertools import pairwise

from migrator.node.registration import ACKNOWLEDGED_SECONDS, FAILED_SECONDS, Pace

HOUR = 3600
TICKS = 10


def sent(pace: Pace, *, acknowledged: bool, covered: int, committed: int | None) -> list[float]:
    """When registrations go out within an hour, while the image does not show one."""
    times = []
    for tick in range(HOUR * TICKS):
        now = tick / TICKS
        if pace.is_due(now, committed, lambda offset: covered >= offset):
            times.append(now)
            (pace.acknowledged if acknowledged else pace.failed)(now)
    return times


def test_nothing_is_sent_before_the_image_covers_what_is_committed() -> None:
    assert sent(Pace(), acknowledged=True, covered=99, committed=100) == []
    assert sent(Pace(), acknowledged=True, covered=99, committed=None) == []


def test_what_is_committed_later_is_not_waited_for() -> None:
    pace = Pace()
    assert not pace.is_due(0.0, 100, lambda offset: offset <= 50)
    assert pace.is_due(1.0, 1_000_000, lambda offset: offset <= 100)


def test_an_acknowledged_registration_is_hardly_ever_repeated() -> None:
    times = sent(Pace(), acknowledged=True, covered=100, committed=100)
    waits = [after - before for before, after in pairwise(times)]
    assert waits[0] >= ACKNOWLEDGED_SECONDS[0]
    assert waits == sorted(waits)
    assert len(times) <= 7 + HOUR / ACKNOWLEDGED_SECONDS[1]


def test_a_failed_one_is_tried_again_soon_and_then_less_often() -> None:
    times = sent(Pace(), acknowledged=False, covered=100, committed=100)
    waits = [after - before for before, after in pairwise(times)]
    assert FAILED_SECONDS[0] <= waits[0] < 2 * FAILED_SECONDS[0]
    assert FAILED_SECONDS[1] <= waits[-1] < FAILED_SECONDS[1] + 2 / TICKS


def test_who_is_registered_begins_anew_when_that_is_lost() -> None:
    pace = Pace()
    assert pace.is_due(0.0, 100, lambda _offset: True)
    pace.acknowledged(0.0)
    assert not pace.is_due(1.0, 100, lambda _offset: True)
    pace.reset()
    assert pace.is_due(2.0, 100, lambda _offset: True)
