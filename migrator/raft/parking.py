"""Fetches that found nothing new and wait for it (KIP-595's long poll).

A leader parks a fetch, takes all when there are new records or a new high watermark, and takes the due ones at their
deadline. Each fetch is taken once.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from migrator.raft.messages import FetchRequest
from migrator.values import value


@value
class ParkedFetch:
    """A fetch, and the time in milliseconds at which it has to be answered."""

    context: Hashable
    request: FetchRequest
    deadline: int


@dataclass(slots=True)
class Parking:
    """The fetches that wait at a leader, in the order of their arrival."""

    waiting: list[ParkedFetch] = field(default_factory=list)

    def park(self, fetch: ParkedFetch) -> None:
        """Let a fetch wait."""
        self.waiting.append(fetch)

    def take_all(self) -> list[ParkedFetch]:
        """Remove and return every waiting fetch."""
        taken, self.waiting = self.waiting, []
        return taken

    def take_due(self, now: int) -> list[ParkedFetch]:
        """Remove and return the fetches whose time has come."""
        due = [fetch for fetch in self.waiting if fetch.deadline <= now]
        if due:
            self.waiting = [fetch for fetch in self.waiting if fetch.deadline > now]
        return due
