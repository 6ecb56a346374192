"""The configuration of a consensus core, and the highest epoch and offset that it accepts.

`migrator.node.core.raft_config` and the simulation make a `RaftConfig`; `core.RaftNode` keeps it for life. Its
callables (``may_grant_vote``, ``may_stand``, ``has_address``) let the node refuse a vote or an election. They may only
refuse: the rules of Raft hold whatever they answer. Limits exist because epochs have 32 bits and offsets 64 on the
wire.
"""

from __future__ import annotations

from collections.abc import Callable

from migrator.raft.refused import Recovered, nothing_recovered
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.values import value

EPOCH_LIMIT = 2**31 - 2**16
"""This node accepts only leader epochs below this one from messages, and stands for election only below it. Epochs
have 32 bits on the wire and on disk: stock Kafka counts beyond the last to a negative one and never starts again."""
OFFSET_LIMIT = 2**62
"""No log gets that long. A snapshot at a higher offset would leave no offset for the next record."""
EPOCHS_USED_UP = (
    "Epoch %d is the last one: some voter has named an epoch that elections never reach, and this controller stands "
    "for no further one. Find out which program did that, and keep it out. Then stop all controllers, remove the file "
    "__cluster_metadata-0/quorum-state from the metadata directory of each of them, and start them again: they go on "
    "from the epoch of their logs. Never remove the file while any controller runs"
)


def may_follow(own: int, epoch: int) -> bool:
    """Whether a message may carry a node from its own epoch to that one.

    The limit is absolute, and jumps are allowed: a voter may have been away or alone for long, and stock voters accept
    any epoch. A node whose own disk has an epoch beyond the limit stays there and follows the leader there.
    """
    return epoch <= own or epoch < EPOCH_LIMIT


def grant_to_anybody(_candidate_id: int) -> bool:
    """The default of ``may_grant_vote``: only the log decides who gets this node's vote."""
    return True


def always_stands() -> bool:
    """The default of ``may_stand``."""
    return True


def has_every_address(_node_id: int) -> bool:
    """The default of ``has_address``."""
    return True


@value
class RaftConfig:
    """Names and defaults of the time-outs are those of ``controller.quorum.*`` in Kafka 3.9, in milliseconds.

    ``voters`` are the ids of ``controller.quorum.voters``; they vote for as long as the log names no others.
    ``bootstrap`` has a negative id for each of ``controller.quorum.bootstrap.servers`` (Kafka's are -2, -3, ...).
    ``may_grant_vote`` is called with the candidate's id each time before this node grants a vote or a pre-vote; the
    candidate sees a refusal as a vote for another node. It also filters the successors of a leader that resigns.
    ``asks_for_pre_votes``: whether an election begins with pre-votes (KIP-996);
    ``asks_for_pre_votes_once_dynamic``: the same, from kraft.version 1 on only.
    ``must_fetch_first``: the disk began empty, and has not yet held everything that a leader had committed. Such a node
    takes part in elections only if every other voter's disk began empty, too, or if ``takes_part_empty`` is set, by the
    operator or because the node works as in Kafka.
    ``may_stand`` is called before this node begins an election. It returns False while the node could not lead although
    its log is good enough. The node has to step a `Tick` when the answer changes.
    ``has_address`` is called from kraft.version 1 on, before this node stands for election: whether the address of the
    voter with that id is known.
    ``recovered`` is called each time, and returns the traces of recoveries of a lost majority in the log.
    """

    node_id: int
    cluster_id: str
    voters: frozenset[int]
    directory_id: Uuid = ZERO_UUID
    bootstrap: tuple[int, ...] = ()
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024
    max_parked_fetches: int = 10_000
    asks_for_pre_votes: bool = False
    asks_for_pre_votes_once_dynamic: bool = False
    must_fetch_first: bool = False
    takes_part_empty: bool = False
    may_grant_vote: Callable[[int], bool] = grant_to_anybody
    may_stand: Callable[[], bool] = always_stands
    has_address: Callable[[int], bool] = has_every_address
    recovered: Callable[[], Recovered] = nothing_recovered
