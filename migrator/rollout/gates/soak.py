"""How long both sides were watched while they were written: a fold over looks. Pure."""

from __future__ import annotations

from dataclasses import replace

from migrator.values import value

APART_MS = 10_000
"""Time between two looks that are further apart was not watched."""


@value
class Soak:
    """``watched_ms``: the time between two looks that both saw all well. ``well_ms``: when the last look was, if it
    did; None if it did not, or there was none. ``outage_ms``: since when each look has seen something wrong."""

    watched_ms: int = 0
    well_ms: int | None = None
    outage_ms: int | None = None

    def saw_well(self, now_ms: int) -> Soak:
        """One more look."""
        apart = now_ms - self.well_ms if self.well_ms is not None else 0
        return Soak(self.watched_ms + (apart if 0 <= apart <= APART_MS else 0), now_ms)

    def saw_trouble(self, now_ms: int) -> Soak:
        """One more look. The time since the look before does not count: nobody knows when it began."""
        return replace(self, well_ms=None, outage_ms=now_ms if self.outage_ms is None else self.outage_ms)
