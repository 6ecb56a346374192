"""The arithmetic of majorities and of log comparison; pure functions, tested on their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet

from migrator.raft.messages import EpochOffset

RETRIES_MAX = 20
"""From so many lost elections on the back-off is drawn from the same range."""


def majority(voters: int) -> int:
    """The smallest number of voters of which any two sets share one."""
    return voters // 2 + 1


def is_won(voters: AbstractSet[int], granted: AbstractSet[int]) -> bool:
    """Whether a majority of the voters granted their vote."""
    return len(voters & granted) >= majority(len(voters))


def is_lost(voters: AbstractSet[int], rejected: AbstractSet[int]) -> bool:
    """Whether so many voters refused that no majority is left."""
    return len(voters - rejected) < majority(len(voters))


def committed_offset(ends: Collection[int | None]) -> int | None:
    """The largest offset that a majority of voters has reached; None while a majority has told nothing.

    :param ends: one end offset (exclusive) per voter, None where it is unknown.
    """
    known = sorted((end for end in ends if end is not None), reverse=True)
    needed = majority(len(ends))
    return known[needed - 1] if len(known) >= needed else None


def is_up_to_date(candidate: EpochOffset, ours: EpochOffset) -> bool:
    """Raft section 5.4.1: the later last epoch wins, the longer log among equals."""
    return (candidate.epoch, candidate.offset) >= (ours.epoch, ours.offset)


def by_preference(ends: Iterable[tuple[int, int]], eligible: AbstractSet[int]) -> tuple[int, ...]:
    """Successors of a leader, the best first: those who may lead, then the most caught-up, then the lowest id.

    :param ends: (voter id, end offset) of each other voter; -1 where the end is unknown.
    """
    ordered = sorted(ends, key=lambda entry: (entry[0] not in eligible, -entry[1], entry[0]))
    return tuple(voter for voter, _ in ordered)


def election_backoff_limit_ms(lost: int, backoff_max_ms: int) -> int:
    """The longest wait after so many lost elections in a row; it doubles each time. The wait is drawn below that, to
    the millisecond: candidates that all wait for the maximum, as those of Kafka 3.9, stand together again and again."""
    return min(100 << min(RETRIES_MAX, lost), backoff_max_ms)


def successor_backoff_ms(position: int, successors: int, backoff_max_ms: int) -> int:
    """How long the successor at ``position`` of an EndQuorumEpoch waits before it stands for election.

    The first does not wait, each later one twice as long as the one before it, those not listed the longest.
    """
    if position == 0:
        return 0
    if position >= successors:
        return backoff_max_ms
    return min(backoff_max_ms, (backoff_max_ms >> (successors - 1)) << (position - 1))
