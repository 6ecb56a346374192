"""Says once who was given up when the majority was lost and asks all the same; nobody else would tell the operator."""

from __future__ import annotations

import logging

from migrator.raft.messages import RaftRequest, RaftResponse
from migrator.raft.telling import GIVEN_UP, asker_of
from migrator.raft.voter_set import ReplicaKey

log = logging.getLogger(__name__)

REMEDY = "Stop that controller, empty its metadata directory, and format it again: with a new directory id it can join"


class GivenUpNotes:
    """What was said so far; as many entries as replicas were given up."""

    def __init__(self) -> None:
        self._asked: set[ReplicaKey] = set()
        self._told_by: set[int] = set()

    def refused(self, request: RaftRequest, response: RaftResponse) -> None:
        """This node has answered a request."""
        if response.error is not GIVEN_UP:
            return
        asker = asker_of(request)
        key = ReplicaKey(asker.node_id, asker.directory_id)
        if key not in self._asked:
            self._asked.add(key)
            log.warning(
                "Controller %s was given up when the majority of the voters was lost, and is refused. %s", key, REMEDY
            )

    def told(self, peer: int, response: RaftResponse) -> None:
        """A peer has answered this node."""
        if response.error is GIVEN_UP and peer not in self._told_by:
            self._told_by.add(peer)
            log.error(
                "Node %d refuses this controller: its directory was given up when the majority of the voters was "
                "lost. %s",
                peer,
                REMEDY,
            )
