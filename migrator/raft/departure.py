"""A leader whose process has died: what a follower sees of it, and when that is enough to ask for an election.

The kernel of a process that ends breaks its connections, and refuses new ones from then on. One of the two alone proves
nothing. A leader that lives closes connections, too: one of too many, an idle one, one with an old certificate. And a
port may be closed to this node alone (a firewall, kube-proxy), or for a moment (a listener that is opened anew).

A machine that died, and a process that hangs, do not refuse: for them the fetch time-out passes, as in Kafka.
"""

from __future__ import annotations

from dataclasses import dataclass

SPACING_MS = 50
"""Between two refusals that both count, at least."""
REFUSALS_MIN = 2
QUESTIONS_MAX = 3
"""So often a follower asks for pre-votes in one early election: the others may notice later than this node."""


@dataclass(slots=True)
class Departure:
    """What a node has seen of the end of its leader's process since that leader answered last. It belongs to one leader
    in one epoch: `Quorum` begins anew with either.

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
        """The leader was at the other end of it a moment ago, so refusals before that count no more."""
        self.is_connection_lost, self.refusals = True, 0

    def refused(self, now: int) -> bool:
        """Returns whether this refusal counts."""
        if not self.is_connection_lost or (self.refusals and now < self.refused_at + SPACING_MS):
            return False
        self.refusals += 1
        self.refused_at = now
        return True

    def least_wait_ms(self) -> int:
        """Until the leader is asked again. It doubles, and is spread over as much again: two followers that notice at
        the same time then seldom stand for election at the same time."""
        return SPACING_MS << min(self.refusals - 1, QUESTIONS_MAX)
