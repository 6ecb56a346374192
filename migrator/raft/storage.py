"""The part of the log that the consensus core reads. `migrator.log` implements it on disk, the simulator in memory.

There are only reads here. Every write is an effect, so that the caller decides when it is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from migrator.raft.messages import EpochOffset
from migrator.raft.voter_set import Membership


class LogView(Protocol):
    """Offsets and epochs of a log, answered from memory. They include records that are appended and not yet synced."""

    def start_offset(self) -> int:
        """The first offset that the log still holds; everything before it is in a snapshot."""

    def end_offset(self) -> int:
        """The offset that the next record will get."""

    def last_epoch(self) -> int:
        """The leader epoch of the last record, or of the latest snapshot when the log is empty; 0 for neither."""

    def end_of_epoch(self, epoch: int) -> EpochOffset:
        """The largest epoch <= ``epoch`` that the log knows, and its end offset (exclusive).

        When the log knows only larger epochs: ``epoch``, or the epoch of the snapshot at the log's start, and the
        offset of that start.
        """

    def epoch_at(self, offset: int) -> int | None:
        """The leader epoch of the record at ``offset``, None outside the log."""

    def batch_start(self, offset: int) -> int:
        """The first offset of the batch that holds ``offset``: a truncation to ``offset`` removes the whole batch, and
        the log ends there. Outside the log ``offset`` itself. May read from the disk, unlike the others."""

    def snapshots(self) -> Sequence[EpochOffset]:
        """Ids of the complete snapshots on disk, oldest first; (0, 0) is not among them."""

    def membership(self) -> Membership:
        """The voters in force at the log's end, as snapshot and log name them; the same object until they change."""

    def membership_at(self, end_offset: int) -> Membership:
        """The voters in force at ``end_offset``, which must not be below the latest snapshot."""
