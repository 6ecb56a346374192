"""The interface for events of the quorum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from migrator.raft.messages import EpochOffset
from migrator.raft.states import Role
from migrator.raft.voter_set import Membership
from migrator.records.contents import Decoded
from migrator.records.metadata import MetadataRecord


class QuorumObserver(Protocol):
    """Listeners that are told the acts of the quorum, in order."""

    def appended(self, size: int, decoded: Sequence[Decoded] = ()) -> None:
        """The log has grown by so many bytes. ``decoded`` may hold the first of the new batches."""

    def appended_own(self, batches: bytes, records: Sequence[MetadataRecord]) -> None:
        """The log has appended one batch that `QuorumRunner.append` made of these records."""

    def truncated(self, offset: int) -> None:
        """The log ends at ``offset`` now."""

    def installed(self, snapshot: EpochOffset) -> None:
        """A snapshot has taken the place of the whole log."""

    def committed(self, high_watermark: int) -> None:
        """Everything below this offset is committed."""

    def role_changed(self, role: Role, epoch: int, leader_id: int | None) -> None:
        """This node's role, epoch or leader is another."""

    def addresses_missing(self, voters: Sequence[int], wait_ms: int) -> None:
        """This node would stand for election, and waits for the addresses of these voters."""

    def membership_changed(self, membership: Membership) -> None:
        """Other voters are in force."""
