"""The true history, as an observer outside of all nodes sees it; the invariants compare the nodes with it."""

from __future__ import annotations

from migrator.raft.messages import EpochOffset
from migrator.raft.voter_set import ReplicaKey
from migrator.records.control import DynamicVoter, KRaftVoters
from migrator.records.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from migrator.values import value
from tests.simulation.batches import Batch, Target


@value
class Point:
    """The state of the world after a committed batch: its epoch, a digest of the visible writes, whether a
    transaction is open, and the voters that are wanted."""

    epoch: int
    digest: int
    in_transaction: bool
    target: tuple[int, ...] | None = None
    voters: tuple[DynamicVoter, ...] | None = None


class History:
    """Elections, votes, writes and commits since the beginning, across restarts."""

    def __init__(self) -> None:
        self.leaders: dict[int, ReplicaKey] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.written: dict[tuple[int, int], tuple[int, int]] = {}
        self.committed: dict[int, Batch] = {}
        self.end = EpochOffset(0, 0)
        self.points: dict[int, Point] = {0: Point(0, 0, False)}
        self.acknowledged: set[int] = set()
        self.visible: set[int] = set()
        self._open: list[int] = []
        self._ends: dict[int, EpochOffset] = {}
        self.changes: list[tuple[int, int]] = []
        """The epochs in which each committed set of voters was written and committed."""
        self.target_epoch = 0
        """In which the target was set that is in force."""

    def leader_of(self, epoch: int, node: ReplicaKey) -> ReplicaKey:
        """The first leader of an epoch, ``node`` if there was none."""
        return self.leaders.setdefault(epoch, node)

    def vote_of(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey) -> ReplicaKey:
        """Whom a voter voted for first in an epoch, ``candidate`` if nobody."""
        return self.votes.setdefault((voter, epoch), candidate)

    def forget_votes(self, voter: ReplicaKey) -> None:
        """A voter begins anew, in a quorum that is new."""
        self.votes = {key: candidate for key, candidate in self.votes.items() if key[0] != voter}

    def writing_of(self, batch: Batch, previous_epoch: int) -> tuple[int, int]:
        """The first write at this offset in this epoch: the batch's key, and the epoch of the record before."""
        return self.written.setdefault((batch.base_offset, batch.epoch), (batch.key, previous_epoch))

    def committed_before(self, epoch: int) -> EpochOffset:
        """The end of what leaders of earlier epochs have committed: the leader of ``epoch`` must have all of it."""
        ends = (end for committing_epoch, end in self._ends.items() if committing_epoch < epoch)
        return max(ends, key=lambda end: end.offset, default=EpochOffset(0, 0))

    def has_committed_in(self, epoch: int) -> bool:
        """Whether the leader of an epoch has committed anything of its own."""
        return epoch in self._ends

    def commit(self, batch: Batch, epoch: int) -> Batch | None:
        """The committed batch at this place; this one, committed in ``epoch``, if it is the next. None if neither."""
        known = self.committed.get(batch.base_offset)
        if known is None and batch.base_offset == self.end.offset:
            self.committed[batch.base_offset] = known = batch
            self._extend(batch)
            self._ends[epoch] = self.end
            self.changes += [(batch.epoch, epoch) for record in batch.records if isinstance(record, KRaftVoters)]
        return known

    def _extend(self, batch: Batch) -> None:
        before = self.points[batch.base_offset]
        digest, is_open, target = before.digest, before.in_transaction, before.target
        voters = before.voters
        for record in batch.records:
            if isinstance(record, BeginTransactionRecord):
                self._open, is_open = [], True
            elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
                shown = self._open if isinstance(record, EndTransactionRecord) else []
                for write in shown:
                    digest = hash((digest, write))
                self.visible.update(shown)
                is_open = False
            elif isinstance(record, KRaftVoters):
                voters = tuple(record.voters)
            elif isinstance(record, Target):
                target, self.target_epoch = record.nodes, batch.epoch
            elif isinstance(record, int):
                if is_open:
                    self._open.append(record)
                else:
                    digest = hash((digest, record))
                    self.visible.add(record)
        self.end = EpochOffset(batch.epoch, batch.end_offset)
        self.points[batch.end_offset] = Point(batch.epoch, digest, is_open, target, voters)
