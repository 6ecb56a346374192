"""Which voters were in force at which offset of a log (``VoterSetHistory``, ``KRaftControlRecordStateMachine`` of 3.9).

A voter set is in force from the append of its record on, committed or not. When the record is truncated, the set before
it is in force again. So the history belongs to the log, and no other object keeps a copy.
"""

from __future__ import annotations

from dataclasses import replace

from migrator.raft.voter_set import NO_MEMBERSHIP, Membership, VoterSet
from migrator.records.control import ControlRecord, KRaftVersion, KRaftVoters


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
