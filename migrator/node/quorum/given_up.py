"""Reports replicas that were given up when the majority was lost, and run nevertheless.

Such replicas may have their own leader, and brokers that follow it. The log reports each once, the status as long as
the replica sends messages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from migrator.clock import monotonic_seconds
from migrator.observe.printable import number_ranges
from migrator.observe.status import Problem
from migrator.raft.messages import RaftRequest, RaftResponse
from migrator.raft.telling import GIVEN_UP, asker_of
from migrator.raft.voter_set import ReplicaKey

log = logging.getLogger(__name__)

REMEDY = "Stop that controller, empty its metadata directory, and format it again: with a new directory id it can join"
LASTS_SECONDS = 60.0
"""So long after the last message of such a replica, the status no longer names it."""


class GivenUpNotes:
    """The replicas that were reported so far; at most one entry for each replica that was given up."""

    def __init__(self, now: Callable[[], float] = monotonic_seconds) -> None:
        self._now = now
        self._said: set[ReplicaKey] = set()
        self._asked: dict[int, float] = {}
        """The time of each replica's last request."""
        self._told_by: dict[int, float] = {}
        """The time of each node's last answer that this node was given up."""

    def refused(self, request: RaftRequest, response: RaftResponse) -> None:
        """Log that a replica which was given up has sent a request, if this answer refuses it."""
        if response.error is not GIVEN_UP:
            return
        asker = asker_of(request)
        key = ReplicaKey(asker.node_id, asker.directory_id)
        self._asked[asker.node_id] = self._now()
        if key not in self._said:
            self._said.add(key)
            log.warning(
                "Controller %s was given up when the majority of the voters was lost, and is refused. %s", key, REMEDY
            )

    def told(self, peer: int, response: RaftResponse) -> None:
        """Log that this node was given up, if this answer of a peer says so."""
        if response.error is not GIVEN_UP:
            return
        if peer not in self._told_by:
            log.error(
                "Node %d refuses this controller: its directory was given up when the majority of the voters was "
                "lost. %s",
                peer,
                REMEDY,
            )
        self._told_by[peer] = self._now()

    def problem(self, node_id: int) -> Problem | None:
        """The problem for the status; None when there is none."""
        since = self._now() - LASTS_SECONDS
        by = sorted(peer for peer, at in self._told_by.items() if at >= since)
        lost = sorted(peer for peer, at in self._asked.items() if at >= since)
        if by:
            return Problem(
                f"controller {node_id}",
                f"{number_ranges('controller', by)} refused this controller: its directory was given up when the "
                "majority of the voters was lost, and there is another quorum now",
                "Stop this controller, empty its metadata directory, and format it again. No broker may follow it",
            )
        if lost:
            return Problem(
                number_ranges("controller", lost),
                "it was given up when the majority of the voters was lost, and runs with its old directory: it may "
                "lead a quorum of its own, and brokers may follow it",
                REMEDY,
            )
        return None
