"""Voter sets as immutable values: who votes, with which directory, and since which offset (KIP-853; Kafka's
``VoterSet``).

The log decodes them from control records, and the core asks them who votes. At kraft.version 0 the voters are those of
``controller.quorum.voters``, without directories; from 1 on they are in the log, and a voter with another directory is
another replica, which has no vote. An id is in a set once at most.

`VoterHistory` tells which voters were in force at which offset of a log (``VoterSetHistory``,
``KRaftControlRecordStateMachine`` of 3.9).

A voter set is in force from the append of its record on, committed or not. When the record is truncated, the set before
it is in force again. So the history belongs to the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from migrator.records.control import ControlRecord, DynamicVoter, KRaftVersion, KRaftVersionRange, KRaftVoters
from migrator.records.uuid import ZERO_UUID, Uuid, uuid_to_text
from migrator.values import value

STATIC_RANGE = KRaftVersionRange(0, 0)
DYNAMIC_VERSION = 1
"""The first kraft.version that has the voters in the log, where they can change."""


@value
class ReplicaKey:
    """A replica: a node id and the id of its metadata directory. A node with a new, empty disk is another replica."""

    node_id: int
    directory_id: Uuid = ZERO_UUID

    def __str__(self) -> str:
        return (
            f"{self.node_id}" if self.directory_id == ZERO_UUID else f"{self.node_id}@{uuid_to_text(self.directory_id)}"
        )


@value
class VoterSet:
    """Voters in the order of their ids, each id once. ``ids`` is derived from them."""

    voters: tuple[DynamicVoter, ...]
    ids: frozenset[int] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", frozenset(voter.voter_id for voter in self.voters))

    @classmethod
    def of(cls, voters: Iterable[DynamicVoter]) -> VoterSet:
        """Make a set of voters in any order.

        :raises ValueError: two voters have the same id.
        """
        found = cls(tuple(sorted(voters, key=lambda voter: voter.voter_id)))
        if len(found.ids) != len(found.voters):
            raise ValueError(f"a voter is listed twice in {[voter.voter_id for voter in found.voters]}")
        return found

    @classmethod
    def static(cls, ids: Iterable[int]) -> VoterSet:
        """The voters of ``controller.quorum.voters`` (kraft.version 0): ids without directories."""
        return cls.of(DynamicVoter(voter_id, ZERO_UUID, (), STATIC_RANGE) for voter_id in ids)

    def __len__(self) -> int:
        return len(self.voters)

    def find(self, voter_id: int) -> DynamicVoter | None:
        for voter in self.voters:  # a loop is fast enough for a few voters, and is called several times a message
            if voter.voter_id == voter_id:
                return voter
        return None

    def key(self, voter_id: int) -> ReplicaKey:
        """The voter's id, with its directory if the set has one."""
        voter = self.find(voter_id)
        return ReplicaKey(voter_id, ZERO_UUID if voter is None else voter.voter_directory_id)

    def has(self, node_id: int, directory_id: Uuid) -> bool:
        """Whether a replica votes. A voter with a directory votes only with that one (``VoterSet.isVoter``)."""
        voter = self.find(node_id)
        return voter is not None and voter.voter_directory_id in (ZERO_UUID, directory_id)

    def with_voter(self, voter: DynamicVoter) -> VoterSet:
        """The set with one more voter, or with a changed entry for a voter that it has."""
        return self.of((*(other for other in self.voters if other.voter_id != voter.voter_id), voter))

    def without(self, voter_id: int) -> VoterSet:
        return self.of(other for other in self.voters if other.voter_id != voter_id)


@value
class Membership:
    """The voters and kraft.version in the control records of snapshot and log, up to some offset.

    ``voters`` is None while the records name none: then the configured voters vote. ``offset`` is that of the record
    that names the voters. If that record is in a snapshot, it is the last offset that the snapshot covers. It is -1
    when neither snapshot nor log names voters.
    """

    kraft_version: int = 0
    voters: VoterSet | None = None
    offset: int = -1


NO_MEMBERSHIP = Membership()


class VoterHistory:
    """One entry for each record about voters.

    :param bootstrap: the voters of the snapshot at offset 0, which ``format`` writes. They are in force while neither a
        later snapshot nor the log names voters.
    """

    def __init__(self, bootstrap: Membership = NO_MEMBERSHIP) -> None:
        self._bootstrap = bootstrap
        self._entries: list[tuple[int, Membership]] = []
        """Each offset with the membership that is in force from there on, in the order of offsets."""

    @property
    def latest(self) -> Membership:
        """The membership at the log's end."""
        return self._entries[-1][1] if self._entries else self._bootstrap

    def at(self, end_offset: int) -> Membership:
        """The membership at ``end_offset``, as a snapshot of that offset names it."""
        entry = next((entry for entry in reversed(self._entries) if entry[0] < end_offset), None)
        return self._bootstrap if entry is None else entry[1]

    def note(self, offset: int, record: ControlRecord) -> None:
        """A control record has been appended at ``offset``. Only the two kinds about voters change the history."""
        if isinstance(record, KRaftVersion):
            self._entries.append((offset, replace(self.latest, kraft_version=record.k_raft_version)))
        elif isinstance(record, KRaftVoters):
            voters = VoterSet.of(record.voters)
            self._entries.append((offset, replace(self.latest, voters=voters, offset=offset)))

    def truncate_to(self, end_offset: int) -> None:
        """The log has been truncated to ``end_offset``."""
        while self._entries and self._entries[-1][0] >= end_offset:
            self._entries.pop()

    def begin_at(self, end_offset: int, membership: Membership) -> None:
        """A snapshot of ``end_offset`` has taken the place of the whole log."""
        self._entries = [(end_offset - 1, membership)]

    def forget_before(self, start_offset: int) -> None:
        """The log begins at ``start_offset`` now. The membership at that offset stays known."""
        while len(self._entries) > 1 and self._entries[1][0] < start_offset:
            self._entries.pop(0)
