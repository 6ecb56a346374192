"""Whether this node's log takes what it is to append, and if not, why: a voter that does not follow has to say so."""

from __future__ import annotations

import logging

from migrator.observe.status import Problem

log = logging.getLogger(__name__)


class Refusals:
    """Appends that the log refused one after the other."""

    def __init__(self) -> None:
        self.count = 0
        """In a row until now; 0 once something was appended."""
        self._reason = ""

    def refused(self, reason: str) -> None:
        """The log took nothing. Said once: a follower tries again every moment."""
        self.count += 1
        if reason != self._reason:
            self._reason = reason
            log.warning("Nothing is appended to the log: %s", reason)

    def accepted(self) -> None:
        """The log took what it was given."""
        if self.count:
            log.info("Records can be appended again, after %d attempts that were refused", self.count)
        self.count, self._reason = 0, ""

    def problem(self, node_id: int, leader_id: int | None) -> Problem | None:
        """For the status; None when there is none."""
        if not self.count:
            return None
        leader = "the leader" if leader_id is None else f"controller {leader_id}"
        return Problem(
            who=f"controller {node_id}",
            what=f"its log does not grow: {self._reason} (refused {self.count} times in a row)",
            remedy=f"Free space if the disk is full. Otherwise look at the log of {leader}: what it sends is damaged, "
            "and another voter has to lead",
            warning=True,
        )
