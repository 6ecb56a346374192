"""What must go on all the time, and its longest pause in any stretch of time."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise


class Pulse:
    """Beats, written by one thread and read by others. Times are those of the clock."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: list[float] = []

    def beat(self) -> None:
        """It went on, now."""
        self._times.append(self._clock())

    @property
    def count(self) -> int:
        return len(self._times)

    def count_between(self, since: float, until: float) -> int:
        """How many beats there were then."""
        times = self._times[:]
        return bisect_right(times, until) - bisect_left(times, since)

    def goes_on(self, within_seconds: float) -> bool:
        """Whether there was a beat just now."""
        return bool(self._times) and self._clock() - self._times[-1] < within_seconds

    def longest_pause(self, since: float = 0.0, until: float | None = None) -> float:
        """Seconds without a beat. A pause that began before ``since`` counts from its beginning: it is noticed where it
        ends; one that is not over at ``until`` (None: now) counts up to then. Infinite when there never was a beat."""
        end = self._clock() if until is None else until
        times = self._times[:]
        first = max(bisect_left(times, since) - 1, 0)
        inside = times[first : bisect_right(times, end)]
        return max((later - earlier for earlier, later in pairwise([*inside, end])), default=float("inf"))
