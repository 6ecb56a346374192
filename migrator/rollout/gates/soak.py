"""How long both sides were watched while both were written: a fold over looks. Pure."""

from __future__ import annotations

from dataclasses import replace

from migrator.values import value

APART_MS = 10_000
"""From the end of a look to the beginning of the next one. What lies between looks further apart was not watched."""
LOOK_MS = 60_000
"""A look may take so long: time-outs of controllers that do not answer by gRPC, then a command over ssh. In one that
takes longer, the machine may have slept."""


@value
class Soak:
    """``watched_ms``: the time between two looks that both saw all well. ``well_ms``: when the last look ended, if it
    did; None if it did not, or there was none. ``outage_ms``: since when each look has seen something wrong."""

    watched_ms: int = 0
    well_ms: int | None = None
    outage_ms: int | None = None

    def saw_well(self, began_ms: int, now_ms: int) -> Soak:
        """One more look, which began then and ends now."""
        counts = (
            self.well_ms is not None and 0 <= began_ms - self.well_ms <= APART_MS and 0 <= now_ms - began_ms <= LOOK_MS
        )
        return Soak(self.watched_ms + (now_ms - (self.well_ms or 0) if counts else 0), now_ms)

    def saw_trouble(self, now_ms: int) -> Soak:
        """Take in a bad look. The time since the look before does not count, because it is unknown when the outage
        began."""
        return replace(self, well_ms=None, outage_ms=now_ms if self.outage_ms is None else self.outage_ms)
