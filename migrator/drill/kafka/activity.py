"""Records the times of events that must go on, and finds the longest pause.

Clients of the drill note each acknowledged record or commit. A pause that lasts at the end counts, too.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise


class Activity:
    """The times of one kind of event, e.g. of acknowledged records. One thread notes them, others read them.

    :param clock: seconds; all times here are its times.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: list[float] = []

    def note(self) -> None:
        """The event happened, now."""
        self._times.append(self._clock())

    @property
    def count(self) -> int:
        return len(self._times)

    def count_between(self, since: float, until: float) -> int:
        """How often the event happened then."""
        times = self._times[:]
        return bisect_right(times, until) - bisect_left(times, since)

    def goes_on(self, within_seconds: float) -> bool:
        """Whether the event happened just now."""
        return bool(self._times) and self._clock() - self._times[-1] < within_seconds

    def longest_pause(self, since: float = 0.0, until: float | None = None) -> float:
        """Seconds without the event. A pause that began before ``since`` counts from its beginning, because clients
        notice a pause when it ends. A pause that is not over at ``until`` (None: now) counts up to then. Infinite when
        the event never happened."""
        end = self._clock() if until is None else until
        times = self._times[:]
        first = max(bisect_left(times, since) - 1, 0)
        inside = times[first : bisect_right(times, end)]
        return max((later - earlier for earlier, later in pairwise([*inside, end])), default=float("inf"))
