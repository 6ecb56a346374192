"""The arithmetic of majorities and of log comparison: pure functions, tested on their own.

Elections, replication and recovery call them. An unknown end counts as nothing, so a missing answer never helps a
majority.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet

from migrator.raft.messages import EpochOffset

RETRIES_MAX = 20
"""The range of the back-off stops growing after this many lost elections in a row."""


def majority(voters: int) -> int:
    """The smallest number of voters for which any two groups of that size share a voter."""
    return voters // 2 + 1


def is_won(voters: AbstractSet[int], granted: AbstractSet[int]) -> bool:
    """Whether a majority of the voters granted their vote."""
    return len(voters & granted) >= majority(len(voters))


def is_lost(voters: AbstractSet[int], rejected: AbstractSet[int]) -> bool:
    """Whether the voters that have not refused are no majority."""
    return len(voters - rejected) < majority(len(voters))


def committed_offset(ends: Collection[int | None]) -> int | None:
    """The largest offset that a majority of the voters has reached; None while fewer voters' ends are known.

    :param ends: one end offset (exclusive) per voter, None where it is unknown.
    """
    known = sorted((end for end in ends if end is not None), reverse=True)
    needed = majority(len(ends))
    return known[needed - 1] if len(known) >= needed else None


def is_up_to_date(candidate: EpochOffset, ours: EpochOffset) -> bool:
    """Whether a candidate's log is at least as good as ours: the later last epoch wins, and between equal epochs the
    longer log (Raft section 5.4.1)."""
    return (candidate.epoch, candidate.offset) >= (ours.epoch, ours.offset)


def by_preference(ends: Iterable[tuple[int, int]], eligible: AbstractSet[int]) -> tuple[int, ...]:
    """Successors of a leader, the best first: those who may lead, then the most caught-up, then the lowest id.

    :param ends: (voter id, end offset) of each other voter; -1 where the end is unknown.
    """
    ordered = sorted(ends, key=lambda entry: (entry[0] not in eligible, -entry[1], entry[0]))
    return tuple(voter for voter, _ in ordered)


def election_backoff_limit_ms(lost: int, backoff_max_ms: int) -> int:
    """The longest wait in milliseconds after ``lost`` elections in a row; it doubles each time. The caller draws a wait
    below it. Candidates of Kafka 3.9 all wait for the maximum in the end, and stand together again and again."""
    return min(100 << min(RETRIES_MAX, lost), backoff_max_ms)


def successor_backoff_ms(position: int, successors: int, backoff_max_ms: int) -> int:
    """How many milliseconds the successor at ``position`` of an EndQuorumEpoch waits before it stands for election.

    The first does not wait. Each later one waits twice as long as the one before it, and a voter that is not listed
    waits longest.
    """
    if position == 0:
        return 0
    if position >= successors:
        return backoff_max_ms
    return min(backoff_max_ms, (backoff_max_ms >> (successors - 1)) << (position - 1))
