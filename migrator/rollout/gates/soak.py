"""How long both sides were watched while both were written: a fold over looks. Pure."""

from __future__ import annotations

from dataclasses import replace

from migrator.values import value

APART_MS = 10_000
"""The longest time from the end of a look to the beginning of the next one that still counts as watched."""
LOOK_MS = 60_000
"""The longest look: controllers that do not answer over gRPC time out, then a command runs over ssh. When a look takes
longer, the machine may have slept."""


@value
class Soak:
    """``watched_ms``: the sum of times that were watched. ``well_ms``: when the last look ended, if it was good, else
    None. ``outage_ms``: since when every look is bad; None after a good one."""

    watched_ms: int = 0
    well_ms: int | None = None
    outage_ms: int | None = None

    def saw_well(self, began_ms: int, now_ms: int) -> Soak:
        """Take in a good look, from ``began_ms`` to ``now_ms``."""
        counts = (
            self.well_ms is not None and 0 <= began_ms - self.well_ms <= APART_MS and 0 <= now_ms - began_ms <= LOOK_MS
        )
        return Soak(self.watched_ms + (now_ms - (self.well_ms or 0) if counts else 0), now_ms)

    def saw_trouble(self, now_ms: int) -> Soak:
        """Take in a bad look. The time since the look before does not count, because it is unknown when the outage
        began."""
        return replace(self, well_ms=None, outage_ms=now_ms if self.outage_ms is None else self.outage_ms)
