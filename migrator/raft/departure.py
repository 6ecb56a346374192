"""Lets a follower notice that the leader's process has died, without waiting for the fetch time-out.

When a process ends, its kernel breaks its connections and refuses new ones. A follower needs to see both. A live
leader closes connections, too: one of too many, an idle one, one with an old certificate. And a port may be closed to
this node alone (a firewall, kube-proxy), or for a moment (a listener that is opened anew).

A machine that died and a process that hangs refuse nothing. For them the fetch time-out passes, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

SPACING_MS = 50
"""The least time between two refused connections that both count, in milliseconds."""
REFUSALS_MIN = 2
QUESTIONS_MAX = 3
"""A follower asks for pre-votes this many times in one early election: the others may notice later than this node."""


@dataclass(slots=True)
class Departure:
    """The signs of the end of the leader's process since that leader answered last. `Quorum` replaces it at each new
    epoch and leader.

    ``questions``: how often the node has asked for pre-votes because of it."""

    is_connection_lost: bool = False
    refusals: int = 0
    refused_at: int = 0
    questions: int = 0

    @property
    def is_evident(self) -> bool:
        """Whether an established connection to the leader broke, and new ones were refused often enough since then."""
        return self.refusals >= REFUSALS_MIN

    def connection_lost(self) -> None:
        """An established connection to the leader broke. It proves that the leader was alive until then, so earlier
        refusals no longer count."""
        self.is_connection_lost, self.refusals = True, 0

    def refused(self, now: int) -> bool:
        """Note a refused connection; returns whether it counts."""
        if not self.is_connection_lost or (self.refusals and now < self.refused_at + SPACING_MS):
            return False
        self.refusals += 1
        self.refused_at = now
        return True

    def least_wait_ms(self) -> int:
        """The shortest wait in milliseconds until the leader is asked again; it doubles with each refusal. The caller
        adds a random part, so that two followers that notice at the same time seldom stand at the same time."""
        return SPACING_MS << min(self.refusals - 1, QUESTIONS_MAX)
