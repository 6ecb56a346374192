"""Notes appends that this node's log has refused, so that log and status say why a voter does not follow.

The runner calls it for each append. A repetition of the same refusal is logged once.
"""

from __future__ import annotations

import logging

from migrator.observe.status import Problem

log = logging.getLogger(__name__)


class Refusals:
    """Counts appends that the log has refused in a row."""

    def __init__(self) -> None:
        self.count = 0
        """Refusals in a row; 0 after a successful append."""
        self._reason = ""

    def refused(self, reason: str) -> None:
        """Count an append that the log has refused. Each reason is logged once: a follower tries again at once."""
        self.count += 1
        if reason != self._reason:
            self._reason = reason
            log.warning("The log refuses new records: %s", reason)

    def accepted(self) -> None:
        """Note an append that the log has accepted."""
        if self.count:
            log.info("The log accepts records again, after %d refused attempts", self.count)
        self.count, self._reason = 0, ""

    def problem(self, node_id: int, leader_id: int | None) -> Problem | None:
        """The problem for the status; None when there is none."""
        if not self.count:
            return None
        leader = "the leader" if leader_id is None else f"controller {leader_id}"
        return Problem(
            who=f"controller {node_id}",
            what=f"its log refuses new records: {self._reason} ({self.count} times in a row)",
            remedy=f"If the disk is full, free space. Otherwise, the records that {leader} sends are damaged: "
            f"check its log, and let another voter lead",
            warning=True,
        )
