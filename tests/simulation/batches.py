"""Record batches as the simulated disks hold them, and the bytes that stand for them in messages."""

from __future__ import annotations

from migrator.raft.voter_set import Membership
from migrator.records.control import KRaftVersion, KRaftVoters
from migrator.records.metadata import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from migrator.values import value

KEY_BYTES = 4


@value
class LeaderChange:
    """The control record that opens an epoch."""

    leader_id: int


@value
class Target:
    """The voters that a plan leads to, as node ids; None: there is no plan."""

    nodes: tuple[int, ...] | None


ControlRecord = LeaderChange | KRaftVersion | KRaftVoters
Record = int | ControlRecord | Target | BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord
"""An int is a write of the client, its own number."""


@value
class Batch:
    """Records at ``base_offset`` and on, written in ``epoch``; ``key`` is its number in the world."""

    key: int
    base_offset: int
    epoch: int
    records: tuple[Record, ...]

    @property
    def end_offset(self) -> int:
        """The offset that follows its last record."""
        return self.base_offset + len(self.records)


class BatchStore:
    """Every batch of a world by its key, so that a key can travel in the place of bytes."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self._memberships: list[Membership] = []

    def make(self, base_offset: int, epoch: int, records: tuple[Record, ...]) -> Batch:
        batch = Batch(len(self._batches), base_offset, epoch, records)
        self._batches.append(batch)
        return batch

    @staticmethod
    def encode(batches: list[Batch]) -> bytes:
        """What a fetch response carries."""
        return b"".join(batch.key.to_bytes(KEY_BYTES, "big") for batch in batches)

    def decode(self, data: bytes) -> list[Batch]:
        """The batches of `encode`."""
        keys = (int.from_bytes(data[at : at + KEY_BYTES], "big") for at in range(0, len(data), KEY_BYTES))
        return [self._batches[key] for key in keys]

    def encode_membership(self, membership: Membership) -> bytes:
        """What a snapshot carries of the voters, in `KEY_BYTES`."""
        if membership not in self._memberships:
            self._memberships.append(membership)
        return self._memberships.index(membership).to_bytes(KEY_BYTES, "big")

    def decode_membership(self, data: bytes) -> Membership:
        """What `encode_membership` was given."""
        return self._memberships[int.from_bytes(data, "big")]


def opening(leader_id: int, bootstrap: Membership | None) -> tuple[Record, ...]:
    """The control batch of a new epoch; with the voters that a directory was formatted with if no log has them."""
    if bootstrap is None or bootstrap.voters is None:
        return (LeaderChange(leader_id),)
    return LeaderChange(leader_id), KRaftVersion(bootstrap.kraft_version), KRaftVoters(bootstrap.voters.voters)
