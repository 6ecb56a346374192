"""Which voters were in force at which offset of a log (``VoterSetHistory``, ``KRaftControlRecordStateMachine`` of 3.9).

A set is in force from the moment that its record is appended, committed or not; cutting the record brings back the set
before it. So the history belongs to the log, changes with each append and each cut, and nobody else keeps a copy.
"""

from __future__ import annotations

from dataclasses import replace

from migrator.raft.voter_set import NO_MEMBERSHIP, Membership, VoterSet
from migrator.records.control import ControlRecord, KRaftVersion, KRaftVoters


class VoterHistory:
    """As many entries as a log has records about voters.

    :param bootstrap: what the file of offset 0 says that a new quorum is formatted with; in force as long as neither
        snapshot nor log name voters.
    """

    def __init__(self, bootstrap: Membership = NO_MEMBERSHIP) -> None:
        self._bootstrap = bootstrap
        self._entries: list[tuple[int, Membership]] = []
        """By offset, what is in force from there on."""

    @property
    def latest(self) -> Membership:
        """What is in force at the log's end."""
        return self._entries[-1][1] if self._entries else self._bootstrap

    def at(self, end_offset: int) -> Membership:
        """What was in force with everything before ``end_offset`` in the log; for a snapshot there."""
        entry = next((entry for entry in reversed(self._entries) if entry[0] < end_offset), None)
        return self._bootstrap if entry is None else entry[1]

    def note(self, offset: int, record: ControlRecord) -> None:
        """A control record has been appended at ``offset``; any but the two kinds about voters says nothing here."""
        if isinstance(record, KRaftVersion):
            self._entries.append((offset, replace(self.latest, kraft_version=record.k_raft_version)))
        elif isinstance(record, KRaftVoters):
            voters = VoterSet.of(record.voters)
            self._entries.append((offset, replace(self.latest, voters=voters, offset=offset)))

    def truncate_to(self, end_offset: int) -> None:
        """The log has been cut to ``end_offset``."""
        while self._entries and self._entries[-1][0] >= end_offset:
            self._entries.pop()

    def begin_at(self, end_offset: int, membership: Membership) -> None:
        """A snapshot of ``end_offset`` has taken the place of the whole log."""
        self._entries = [(end_offset - 1, membership)]

    def forget_before(self, start_offset: int) -> None:
        """The log begins at ``start_offset`` now; what was in force there stays known."""
        while len(self._entries) > 1 and self._entries[1][0] < start_offset:
            self._entries.pop(0)
