"""What a load balancer hears of a controller: one line, and whether it is alive and ready."""

from __future__ import annotations

from migrator.observe.printable import json_text
from migrator.values import value

STALL_MS_MAX = 10_000
"""For how long the event loop may not turn before the process no longer counts as alive."""


@value
class NodeHealth:
    """One controller at one moment.

    ``role``: of the consensus. ``leader_id``: None while no leader is known here. ``lag``: records that the leader has
    committed and this node has not applied. ``is_caught_up``: since this process started, it has applied all that the
    quorum had committed when it first heard of it. ``stall_ms``: since when the event loop does not turn.
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
        """Whether this node serves as a voter or an observer that knows what the quorum knows."""
        return self.is_alive and self.is_caught_up and self.leader_id is not None

    def as_json(self) -> bytes:
        """One line."""
        line = {
            "role": self.role,
            "epoch": self.epoch,
            "leader": self.leader_id,
            "lag": self.lag,
            "caught_up": self.is_caught_up,
            "ready": self.is_ready,
        }
        return json_text(line).encode() + b"\n"
