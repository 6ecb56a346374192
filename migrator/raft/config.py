"""What a consensus core is told once, when it is made."""

from __future__ import annotations

from collections.abc import Callable

from migrator.raft.refused import Recovered, nothing_recovered
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.values import value

EPOCH_LIMIT = 2**31 - 2**16
"""Every leader epoch that this node takes from a message, or stands for election in, is below. Epochs are 32 bits on
the wire and on the disk; stock Kafka counts beyond the last one to a negative one and never starts again."""
OFFSET_LIMIT = 2**62
"""No log gets that long. A snapshot at a higher offset would leave none for the next record."""
EPOCHS_USED_UP = (
    "Epoch %d is the last one: some voter has named an epoch that elections never reach, and this controller stands "
    "for no further one. Find out which program did that, and keep it out. Then stop all controllers, remove the file "
    "__cluster_metadata-0/quorum-state from the metadata directory of each of them, and start them again: they go on "
    "from the epoch of their logs. Never remove the file while any controller runs"
)


def may_follow(own: int, epoch: int) -> bool:
    """Whether a message may carry a node from its own epoch to that one.

    An absolute limit, and none on jumps: a voter may have been away for long, or alone, and stock voters take whatever
    they are told. A node that its own disk has put beyond the limit stays there, and follows whoever leads there.
    """
    return epoch <= own or epoch < EPOCH_LIMIT


def grant_to_anybody(_candidate_id: int) -> bool:
    """The default rule: only the log decides who may get our vote."""
    return True


def always_stands() -> bool:
    """The default: nothing but its log keeps a voter from standing for election."""
    return True


def has_every_address(_node_id: int) -> bool:
    """The default: whoever votes can be reached, as far as is known."""
    return True


@value
class RaftConfig:
    """Names and defaults of the time-outs are those of ``controller.quorum.*`` in Kafka 3.9, in milliseconds.

    ``voters`` are the ids of ``controller.quorum.voters``; they vote for as long as the log names no others.
    ``bootstrap`` has a negative id for each of ``controller.quorum.bootstrap.servers`` (Kafka's are -2, -3, ...).
    ``may_grant_vote`` is asked with the candidate's id before this node says that it votes for it, each time; a
    refusal looks to the candidate like a vote for somebody else. It also sorts the successors of a leader that hands
    over. ``asks_for_pre_votes``: whether peers are asked whether they would vote, before they are asked to (KIP-996);
    ``asks_for_pre_votes_once_dynamic``: the same, but from kraft.version 1 on only.
    ``must_fetch_first``: whether the disk began empty, and has not yet had all that a leader had committed. Such a node
    takes part in elections only if every other voter says the same of its own disk, or if it ``takes_part_empty``: it
    was told to, or works as in Kafka.
    ``may_stand`` is asked before this node begins an election: False while it could not lead, although its log is good
    enough. `Tick` has to come when that changes.
    ``has_address`` is asked from kraft.version 1 on, before this node stands for election: whether it knows where the
    voter with that id is.
    ``recovered`` is asked anew each time for what recoveries of a lost majority have left behind.
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
