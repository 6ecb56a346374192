"""The longest pause in a stretch of time is the one that people would have waited through in it."""

from __future__ import annotations

import math

import pytest

from migrator.drill.kafka.clients import Activity

NOW = 30.0


def events_at(*times: float) -> Activity:
    found = Activity(iter([*times, NOW]).__next__)
    for _ in times:
        found.note()
    return found


@pytest.mark.parametrize(
    ("since", "until", "seconds"),
    [
        (0, 10, 5),  # from 2 to 7
        (3, 8, 5),  # it began before, and ended here
        (3, 6, 4),  # it is not over
        (7.5, 9, 1),
        (8.5, 8.75, 0.75),  # no event in it
    ],
)
def test_a_pause_counts_where_it_ends_and_where_it_goes_on(since: float, until: float, seconds: float) -> None:
    assert events_at(1, 2, 7, 8, 9, 10).longest_pause(since, until) == seconds


def test_without_an_event_nothing_ever_went_on() -> None:
    assert events_at().longest_pause(0, 10) == math.inf
    assert events_at(20).longest_pause(0, 10) == math.inf
    assert not events_at().goes_on(10)


def test_it_goes_on_while_the_last_event_is_recent() -> None:
    assert events_at(NOW - 1).goes_on(2)
    assert not events_at(NOW - 3).goes_on(2)
    assert events_at(NOW - 9, NOW - 4).longest_pause() == 5


def test_events_are_counted_where_they_are() -> None:
    found = events_at(1, 2, 2, 3, 5)
    assert (found.count, found.count_between(2, 3), found.count_between(3.5, 4.5)) == (5, 3, 0)
