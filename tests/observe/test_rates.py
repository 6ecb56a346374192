"""Rates from statuses: what is shown is what was committed, and a change of the leader shows nothing false."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from migrator.observe.status import Status, WriteBehindStatus
from migrator.observe.top_page import HISTORY, RateMeter
from tests.observe.support.statuses import a_status


def at(seconds: float, committed: int, *, written: int | None = None, node: int = 3001) -> Status:
    status = a_status(node=node, leader=node)
    behind = None if written is None else WriteBehindStatus(committed - written, 0, 0, written)
    quorum = replace(status.quorum, high_watermark=committed)
    return replace(status, time_ms=status.time_ms + round(seconds * 1000), quorum=quorum, write_behind=behind)


def test_one_status_has_no_rate() -> None:
    assert RateMeter().look(at(0, 500)).committed is None


def test_a_rate_is_that_of_the_last_seconds() -> None:
    meter = RateMeter()
    for second in range(21):
        rates = meter.look(at(second, 1000 * second if second <= 10 else 10_000, written=200 * second))
    assert (rates.committed, rates.written) == (0, 200)
    assert rates.history == (0, *[1000] * 10, *[0] * 10)


def test_without_a_write_behind_nothing_follows() -> None:
    meter = RateMeter()
    meter.look(at(0, 0))
    assert meter.look(at(1, 10)).written is None
    assert meter.look(at(2, 20, written=20)).written is None


def test_another_leader_begins_anew() -> None:
    meter = RateMeter()
    meter.look(at(0, 0))
    meter.look(at(1, 1000))
    assert meter.look(at(2, 5000, node=3002)).committed is None
    assert meter.look(at(3, 5010, node=3002)).committed == 10


def test_a_new_leader_that_does_not_know_what_is_committed_makes_no_jump() -> None:
    meter = RateMeter()
    meter.look(at(0, 500))
    assert meter.look(at(1, -1)).committed is None
    assert meter.look(at(2, 600)).committed is None
    assert meter.look(at(3, 610)).committed == 10


def test_clocks_and_offsets_that_go_back_begin_anew() -> None:
    for seconds, committed in ((0.5, 2000), (2, 100)):
        meter = RateMeter()
        meter.look(at(0, 0))
        meter.look(at(1, 1000))
        assert meter.look(at(seconds, committed)).committed is None


@given(st.lists(st.tuples(st.integers(1, 90_000), st.integers(0, 10_000)), min_size=1, max_size=40))
def test_the_history_has_every_record_of_the_last_minute_and_no_other(steps: list[tuple[int, int]]) -> None:
    meter, ms, committed = RateMeter(), 0, 0
    meter.look(at(0, 0))
    seen = [(0, 0)]
    for step, records in steps:
        ms, committed = ms + step, committed + records
        rates = meter.look(at(ms / 1000, committed))
        seen.append((ms, committed))
    first = next(count for time, count in seen if time >= ms - HISTORY * 1000)
    assert sum(rates.history) == committed - first
    assert len(rates.history) <= HISTORY
