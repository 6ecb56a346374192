"""A disk that keeps what was synced and, after a crash, a random part of the rest."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from random import Random

from migrator.raft.messages import EpochOffset
from migrator.raft.states import NEVER_ELECTED, ElectionState
from migrator.raft.voter_set import NO_MEMBERSHIP, Membership, VoterHistory, VoterSet
from migrator.records.control import KRaftVersion, KRaftVoters
from tests.simulation.batches import KEY_BYTES, Batch


class SimulatedLog:
    """The metadata log of one node (`LogView`), and what of it would survive a power cut."""

    def __init__(self, bootstrap: Membership = NO_MEMBERSHIP) -> None:
        self.bootstrap = bootstrap
        """What the directory was formatted with."""
        self.batches: list[Batch] = []
        self.synced_end = 0
        self.has_torn_tail = False
        self._start = EpochOffset(0, 0)
        self._snapshots: list[EpochOffset] = []
        self._epochs: list[tuple[int, int]] = []
        self._memberships: dict[EpochOffset, Membership] = {}
        self._voters = VoterHistory(bootstrap)

    # LogView

    def start_offset(self) -> int:
        return self._start.offset

    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else self._start.offset

    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else self._start.epoch

    def end_of_epoch(self, epoch: int) -> EpochOffset:
        index = bisect_right(self._epochs, (epoch, self.end_offset() + 1)) - 1
        if index < 0:
            return EpochOffset(epoch, self.start_offset())
        is_last = index + 1 == len(self._epochs)
        return EpochOffset(self._epochs[index][0], self.end_offset() if is_last else self._epochs[index + 1][1])

    def epoch_at(self, offset: int) -> int | None:
        batch = self.batch_at(offset)
        return None if batch is None else batch.epoch

    def batch_start(self, offset: int) -> int:
        batch = self.batch_at(offset)
        return offset if batch is None else batch.base_offset

    def epoch_before(self, offset: int) -> int | None:
        """Of the record that a log of ``offset`` records ends with, None if that is not here."""
        return self._start.epoch if offset == self._start.offset else self.epoch_at(offset - 1)

    def snapshots(self) -> Sequence[EpochOffset]:
        return self._snapshots

    def membership(self) -> Membership:
        return self._voters.latest

    # What only the node does

    def membership_at(self, end_offset: int) -> Membership:
        """The voters in force with everything before ``end_offset`` in the log."""
        return self._voters.at(end_offset)

    def scanned_membership(self) -> Membership:
        """The last voters that snapshot and log name, found without their history: what a boot would find."""
        found = self._memberships.get(self._start, self.bootstrap)
        version, voters, offset = found.kraft_version, found.voters, found.offset
        for batch in self.batches:
            for position, record in enumerate(batch.records):
                if isinstance(record, KRaftVersion):
                    version = record.k_raft_version
                elif isinstance(record, KRaftVoters):
                    voters, offset = VoterSet(record.voters), batch.base_offset + position
        return Membership(version, voters, offset)

    def batch_at(self, offset: int) -> Batch | None:
        """The batch that holds the record at ``offset``."""
        index = self._index(offset)
        return self.batches[index] if offset >= self._start.offset and index < len(self.batches) else None

    def _index(self, offset: int) -> int:
        """The index of the first batch that ends beyond ``offset``."""
        return bisect_right(self.batches, offset, key=lambda batch: batch.end_offset)

    def read(self, offset: int, max_bytes: int) -> list[Batch]:
        """Batches from ``offset`` on, at least one if there is any."""
        first = self._index(offset)
        return self.batches[first : first + max(1, max_bytes // KEY_BYTES)]

    def batches_from(self, offset: int) -> list[Batch]:
        """All batches from ``offset`` on."""
        return self.batches[self._index(offset) :]

    def fits(self, batch: Batch) -> bool:
        """Whether a batch continues the log."""
        return batch.base_offset == self.end_offset() and batch.epoch >= self.last_epoch()

    def append(self, batch: Batch) -> None:
        """Write without fsync."""
        if not self._epochs or batch.epoch > self._epochs[-1][0]:
            self._epochs.append((batch.epoch, batch.base_offset))
        self.batches.append(batch)
        self._note(batch)

    def _note(self, batch: Batch) -> None:
        for position, record in enumerate(batch.records):
            if isinstance(record, KRaftVersion | KRaftVoters):
                self._voters.note(batch.base_offset + position, record)

    def truncate_to(self, offset: int) -> list[Batch]:
        """Remove what is at ``offset`` and above; returns it."""
        keep = self._index(offset)
        removed = self.batches[keep:]
        del self.batches[keep:]
        self.synced_end = min(self.synced_end, self.end_offset())
        self._voters.truncate_to(self.end_offset())
        self._index_epochs()
        return removed

    def restart_at(self, snapshot_id: EpochOffset) -> None:
        """Empty the log; it begins and ends at a snapshot."""
        self.batches.clear()
        self._start = snapshot_id
        self.synced_end = snapshot_id.offset
        self._voters.begin_at(snapshot_id.offset, self._memberships[snapshot_id])
        self._index_epochs()

    def delete_before(self, snapshot_id: EpochOffset) -> None:
        """Retention: begin at a snapshot."""
        del self.batches[: self._index(snapshot_id.offset)]
        self._start = snapshot_id
        self._snapshots = [known for known in self._snapshots if known.offset >= snapshot_id.offset]
        self._voters.forget_before(snapshot_id.offset)
        self._index_epochs()

    def add_snapshot(self, snapshot_id: EpochOffset, membership: Membership | None = None) -> None:
        """A complete snapshot is on disk, with the voters that it names; one of this very log has those of the log."""
        if snapshot_id not in self._snapshots:
            self._memberships[snapshot_id] = (
                self.membership_at(snapshot_id.offset) if membership is None else membership
            )
            self._snapshots.append(snapshot_id)
            self._snapshots.sort(key=lambda known: (known.offset, known.epoch))

    def _index_epochs(self) -> None:
        self._epochs = [(self._start.epoch, self._start.offset)] if self._start.offset else []
        for batch in self.batches:
            if not self._epochs or batch.epoch > self._epochs[-1][0]:
                self._epochs.append((batch.epoch, batch.base_offset))

    def lose_unsynced(self, random: Random) -> int:
        """A power cut: of what is not synced a random part is left, in order. Returns the number of lost batches.

        The first lost one may be there in part; `SimulatedDisk.recover` cuts it.
        """
        first_unsynced = self._index(self.synced_end)
        keep = (
            random.randint(first_unsynced, len(self.batches)) if first_unsynced < len(self.batches) else first_unsynced
        )
        lost = len(self.batches) - keep
        self.has_torn_tail = lost > 0 and random.random() < 0.5
        del self.batches[keep + self.has_torn_tail :]
        self._index_epochs()
        return lost

    def cut_torn_tail(self) -> None:
        """Recovery: a batch whose checksum is wrong ends the log."""
        if self.has_torn_tail:
            del self.batches[-1]
            self.has_torn_tail = False
            self._index_epochs()

    def read_voters(self) -> None:
        """Boot: find in snapshot and log who votes."""
        self._voters = VoterHistory(self.bootstrap)
        if self._start.offset:
            self._voters.begin_at(self._start.offset, self._memberships[self._start])
        for batch in self.batches:
            self._note(batch)


class SimulatedDisk:
    """Everything of one node that survives its process."""

    def __init__(self, bootstrap: Membership = NO_MEMBERSHIP) -> None:
        self.log = SimulatedLog(bootstrap)
        self.snapshots: dict[EpochOffset, bytes] = {}
        self.election = NEVER_ELECTED
        self.unsynced_election: ElectionState | None = None
        """Written but not fsynced, which only a planted bug does."""
        self.must_fetch_first: bool | None = None
        """The mark of a disk that began empty, durable at once; False: with the quorum. None: there is no mark."""

    def recover(self) -> None:
        """What a node does at boot: fsync what is there, and let a snapshot beyond the log replace it."""
        self.log.cut_torn_tail()
        self.log.read_voters()
        snapshots = self.log.snapshots()
        if snapshots and snapshots[-1].offset > self.log.end_offset():
            self.log.restart_at(snapshots[-1])
        self.log.synced_end = self.log.end_offset()
        if self.unsynced_election is not None:
            self.election, self.unsynced_election = self.unsynced_election, None

    def mark_if_empty(self) -> bool:
        """What a node does before it says anything: it never forgets that its disk began empty."""
        if self.must_fetch_first is None and not self.log.end_offset() and not self.log.snapshots():
            self.must_fetch_first = True
        return bool(self.must_fetch_first)

    def lose_power(self, random: Random) -> int:
        """Forget what was not synced; returns the number of lost batches."""
        if self.unsynced_election is not None and random.random() < 0.5:
            self.unsynced_election = None
        return self.log.lose_unsynced(random)

    def has_durably(self, end: EpochOffset) -> bool:
        """Whether it holds everything up to a committed end, also after a power cut."""
        snapshots = self.log.snapshots()
        if snapshots and snapshots[-1].offset >= end.offset:
            return True
        return self.log.synced_end >= end.offset and self.log.epoch_at(end.offset - 1) == end.epoch
