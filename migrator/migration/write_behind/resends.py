"""Decides when a multi is sent again after a lost connection. Pure.

`core` counts losses here. The first repetition is sent at once, later ones after a growing wait. From the second loss
in a row on, the operator is told. After `LOSSES_MAX` losses `core` sets a large operation aside: ZooKeeper may close
the connection because of its size.
"""

from __future__ import annotations

from migrator.migration.machine.volatile_state import backoff_ms
from migrator.migration.write_behind.messages import Unanswered, WakeAt
from migrator.migration.write_behind.multis import Flight

RESEND_MIN_MS = 100
RESEND_MAX_MS = 10_000
"""The longest wait before a further repetition; the first repetition is sent at once."""
LOSSES_MAX = 5
"""The number of lost connections in a row after which a large operation is set aside."""
EXAMPLES = 3


class Losses:
    """How often in a row the connection was lost when one multi was sent."""

    def __init__(self) -> None:
        self.times = 0
        self._due_ms = 0

    def add(self, now_ms: int, flight: Flight) -> Unanswered | None:
        """Count one more loss; return what the operator has to know."""
        self.times += 1
        if self.times > 1:
            self._due_ms = now_ms + backoff_ms(self.times - 2, RESEND_MIN_MS, RESEND_MAX_MS)
        return self.told(flight)

    def is_due(self, now_ms: int) -> bool:
        """Whether the multi may be sent now."""
        return now_ms >= self._due_ms

    def wake(self, now_ms: int) -> list[WakeAt]:
        """The effect that wakes the write-behind when the multi is due again; none if it is due now."""
        return [] if self.is_due(now_ms) else [WakeAt(self._due_ms)]

    def told(self, flight: Flight | None) -> Unanswered | None:
        """The message for the operator; none after a single loss."""
        if flight is None or self.times < 2:
            return None
        entities = () if flight.has_only_guards else flight.entities[:EXAMPLES]
        return Unanswered(self.times, flight.bytes, tuple(write.entity for write in entities))
