"""A leader's knowledge of the other replicas: to which offset each has fetched, and when.

`replication` notes each fetch here, and computes the high watermark from it; DescribeQuorum (KIP-836), the checks and
the planner of voter changes read it. A replica is an id and a directory: the same id on another disk is another
replica. A new leader begins with empty knowledge, and only a valid fetch moves ``end_offset``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from migrator.raft.voter_set import VoterSet
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.values import value

OBSERVER_SESSION_MS = 300_000
"""An observer that has not been heard for this long is forgotten (LeaderState.OBSERVER_SESSION_TIMEOUT_MS)."""

OBSERVERS_MAX = 10_000
"""The leader lists this many observers. It serves more, but does not list them."""


@dataclass(slots=True)
class ReplicaState:
    """One replica. ``end_offset`` is the end of its log on disk, as its last valid fetch claimed; -1 is unknown.

    ``shown_end`` is the largest end that it has claimed, even of a log that differs from the leader's.
    ``shown_directory`` is the directory that its requests name; ``directory_id`` of a configured voter is zero.
    ``awaited_ms``: when the leader began to wait for it; ``heard_ms``: when it last fetched records or a snapshot.
    """

    replica_id: int
    directory_id: Uuid
    awaited_ms: int
    end_offset: int = -1
    heard_ms: int = -1
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    told_high_watermark: int = -1
    shown_end: int = -1
    shown_directory: Uuid = ZERO_UUID
    rounds: int = 0
    last_round_ms: int = -1
    round_began_ms: int = -1
    _round_end: int = -1
    _leader_end_at_last_fetch: int = -1

    @property
    def key(self) -> tuple[int, Uuid]:
        return self.replica_id, self.directory_id

    def is_silent(self, now: int) -> bool:
        """Whether its session as an observer is over, or has not begun."""
        return self.heard_ms < 0 or now - self.heard_ms >= OBSERVER_SESSION_MS

    def show(self, directory_id: Uuid, offset: int) -> None:
        """Note the offset and directory of a fetch, valid or not."""
        self.shown_directory = directory_id
        self.shown_end = max(self.shown_end, offset)

    def fetched(self, offset: int, leader_end: int, now: int) -> None:
        """Note a valid fetch. Offsets may fall: a replica may have been given an empty disk."""
        if offset >= leader_end:
            self.last_caught_up_ms = now
        elif 0 < self._leader_end_at_last_fetch <= offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self._leader_end_at_last_fetch = leader_end
        self.heard_ms = self.last_fetch_ms = now
        self.end_offset = offset
        self._count_round(offset, leader_end, now)

    def _count_round(self, offset: int, leader_end: int, now: int) -> None:
        """A round lasts until the replica has reached the end that the leader's log had at its beginning (Raft thesis
        4.2.1). There is no round while the replica has everything: a fetch that waits for news is not slow.
        """
        if self.round_began_ms < 0:
            self._round_end, self.round_began_ms = leader_end, now
        if offset >= self._round_end:
            self.rounds += 1
            self.last_round_ms = now - self.round_began_ms
            self._round_end, self.round_began_ms = leader_end, now if offset < leader_end else -1


@value
class ReplicaStatus:
    """A row of DescribeQuorum (KIP-836). Times are milliseconds on the clock of ``step``, -1 for never.

    ``shown_directory_id``: as in the replica's requests, also of configured voters, whose ``directory_id`` is zero.
    ``rounds``: how many rounds it has finished (`ReplicaState`); ``last_round_ms``: how long the last one took;
    ``round_began_ms``: when the present one began, -1 when the replica lacks nothing.
    ``heard_ms``: its last fetch of records or of a snapshot; ``awaited_ms``: when the leader began to wait for one,
    at its election or when the replica became a voter.
    """

    replica_id: int
    directory_id: Uuid
    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    rounds: int = 0
    last_round_ms: int = -1
    round_began_ms: int = -1
    shown_directory_id: Uuid = ZERO_UUID
    heard_ms: int = -1
    awaited_ms: int = -1


@dataclass(slots=True)
class Replicas:
    """Progress of each other voter, by id, and of each observer, by id and directory. A voter's entry has the directory
    that the voter set names; the same id on another disk is an observer."""

    voters: dict[int, ReplicaState]
    observers: dict[tuple[int, Uuid], ReplicaState] = field(default_factory=dict)

    def find(self, replica_id: int, directory_id: Uuid, now: int, end_offset: int) -> ReplicaState | None:
        """The entry of a replica, made when it is new; None for a client (-1) or one observer too many.

        :param end_offset: of the leader's log.
        """
        if replica_id < 0:
            return None
        known = self.voters.get(replica_id)
        if known is None or known.directory_id not in {ZERO_UUID, directory_id}:
            known = self.observers.get((replica_id, directory_id))
        if known is None:
            if len(self.observers) >= OBSERVERS_MAX:
                self.forget_silent(now, end_offset)
            if len(self.observers) < OBSERVERS_MAX:
                known = self.observers[replica_id, directory_id] = ReplicaState(replica_id, directory_id, now)
        return known

    def all(self) -> Iterator[ReplicaState]:
        yield from self.voters.values()
        yield from self.observers.values()

    def reconfigure(self, voters: VoterSet, own_id: int, now: int) -> None:
        """Follow a change of the voters: an observer that became a voter keeps its progress, and a voter that became an
        observer, too."""
        for entry in self.voters.values():
            if entry.directory_id == ZERO_UUID:
                entry.directory_id = entry.shown_directory  # was configured, without a directory (kraft.version 0)
            self.observers[entry.key] = entry
        keys = [(voter.voter_id, voter.voter_directory_id) for voter in voters.voters if voter.voter_id != own_id]
        self.voters = {key[0]: self._taken(*key, now) for key in keys}

    def _taken(self, replica_id: int, directory_id: Uuid, now: int) -> ReplicaState:
        known = self.observers.pop((replica_id, directory_id), None)
        return ReplicaState(replica_id, directory_id, now) if known is None else known

    def watching(self, now: int, end_offset: int) -> list[ReplicaState]:
        """The observers whose session is not over."""
        self.forget_silent(now, end_offset)
        return [entry for entry in self.observers.values() if not entry.is_silent(now)]

    def forget_silent(self, now: int, end_offset: int) -> None:
        """Drop the observers whose session is over, but keep one that has shown a longer log than the leader's: the
        rules for changes of voters need that, and such a fetch is invalid, so it begins no session."""
        self.observers = {
            key: entry
            for key, entry in self.observers.items()
            if entry.shown_end > end_offset or not entry.is_silent(now)
        }


def rows(entries: Collection[ReplicaState]) -> tuple[ReplicaStatus, ...]:
    """Statuses in the order of ids."""
    return tuple(
        ReplicaStatus(
            entry.replica_id,
            entry.directory_id,
            entry.end_offset,
            entry.last_fetch_ms,
            entry.last_caught_up_ms,
            entry.rounds,
            entry.last_round_ms,
            entry.round_began_ms,
            entry.shown_directory,
            entry.heard_ms,
            entry.awaited_ms,
        )
        for entry in sorted(entries, key=lambda entry: (entry.replica_id, entry.directory_id))
    )
