"""A controller's answer to a load balancer: one line, and whether it is alive and ready. Pure.

The metrics endpoint asks for a `NodeHealth`. Alive means that the event loop turns; ready means that the node has
caught up with the quorum.
"""

from __future__ import annotations

from migrator.observe.printable import json_text
from migrator.values import value

STALL_MS_MAX = 10_000
"""If the event loop does not turn for this many milliseconds, the process does not count as alive."""


@value
class NodeHealth:
    """One controller at one moment.

    ``role``: in the quorum. ``leader_id``: None while this node knows no leader. ``lag``: committed records that this
    node has not applied. ``is_caught_up``: since its start, this node has applied everything that was committed when it
    first heard of the quorum. ``stall_ms``: for how long the event loop has not turned.
    """

    role: str
    epoch: int
    leader_id: int | None
    lag: int
    is_caught_up: bool
    stall_ms: int

    @property
    def is_alive(self) -> bool:
        """Whether the event loop turns."""
        return self.stall_ms < STALL_MS_MAX

    @property
    def is_ready(self) -> bool:
        """Whether this node is a voter or observer that has caught up with the quorum."""
        return self.is_alive and self.is_caught_up and self.leader_id is not None

    def as_json(self) -> bytes:
        line = {
            "role": self.role,
            "epoch": self.epoch,
            "leader": self.leader_id,
            "lag": self.lag,
            "caught_up": self.is_caught_up,
            "ready": self.is_ready,
        }
        return json_text(line).encode() + b"\n"
