"""What a consensus core is told once, when it is made."""

from __future__ import annotations

from collections.abc import Callable

from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.values import value

EPOCH_LIMIT = 2**30
EPOCH_STEP = 2**16
EPOCH_END = 2**31 - 1


def may_follow(own: int, epoch: int) -> bool:
    """Whether a message may carry a node from its own epoch to that one.

    Epochs are 32 bits on the wire and on the disk. A message with the last of them would leave none for the next
    election, for ever. Up to `EPOCH_LIMIT`, which elections do not reach in decades, a jump may be of any size: a voter
    may have been away for long. From there on `EPOCH_STEP` at a time is enough for a voter that stood alone for hours.
    So whatever one message says, elections go on.
    """
    return epoch < EPOCH_LIMIT or (epoch - own <= EPOCH_STEP and epoch < EPOCH_END)


def grant_to_anybody(_candidate_id: int) -> bool:
    """The default rule: only the log decides who may get our vote."""
    return True


@value
class RaftConfig:
    """Names and defaults of the time-outs are those of ``controller.quorum.*`` in Kafka 3.9, in milliseconds.

    ``voters`` are the ids of ``controller.quorum.voters``; a node that is not among them is an observer.
    ``may_grant_vote`` is asked with the candidate's id before this node says that it votes for it, each time; a
    refusal looks to the candidate like a vote for somebody else. It also sorts the successors of a leader that hands
    over.
    """

    node_id: int
    cluster_id: str
    voters: frozenset[int]
    directory_id: Uuid = ZERO_UUID
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024
    max_parked_fetches: int = 10_000
    may_grant_vote: Callable[[int], bool] = grant_to_anybody

    def is_voter(self, node_id: int) -> bool:
        """Whether a node's vote and log count."""
        return node_id in self.voters
