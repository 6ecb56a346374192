"""The roles of a node, what each of them remembers, and which may follow which. Everything about that is here.

    Unattached --timeout--> Prospective --majority--> Candidate --majority--> Leader --resign, check quorum--> Resigned
      |  ^  ^                   |  ^ (again)              |                                                       |
      |  |  +------- lost ------+  +---- lost ------------+                                                       |
      |  |                      |  +------------------------------------ timeout ---------------------------------+
      |  | higher epoch (from any role)
      v  |
      Follower <---- a leader of this or a higher epoch is known (from any role but the leader's own epoch)

A prospective candidate asks who would vote for it before it raises the epoch (KIP-996): a node that was cut off, or was
removed and does not know, then ends nobody's leadership.

Source: KafkaRaftClient and QuorumState of Kafka 3.9 and 4.1 (KIP-595, KIP-996).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from migrator.raft.messages import EpochOffset
from migrator.raft.parking import Parking
from migrator.raft.progress import Replicas
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.values import value

NEVER = 1 << 62
"""A deadline that does not come, in milliseconds."""


class Role(Enum):
    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    FOLLOWER = "follower"
    LEADER = "leader"
    RESIGNED = "resigned"


TRANSITIONS: dict[Role, frozenset[Role]] = {
    Role.UNATTACHED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER}),
    Role.PROSPECTIVE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER}),
    Role.CANDIDATE: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER, Role.LEADER}),
    Role.FOLLOWER: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER}),
    Role.LEADER: frozenset({Role.UNATTACHED, Role.FOLLOWER, Role.RESIGNED}),
    Role.RESIGNED: frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.FOLLOWER}),
}
"""From a role to those that may come next."""

SAME_EPOCH: frozenset[tuple[Role, Role]] = frozenset(
    {
        (Role.UNATTACHED, Role.UNATTACHED),  # gives its vote
        (Role.UNATTACHED, Role.FOLLOWER),
        (Role.UNATTACHED, Role.PROSPECTIVE),
        (Role.FOLLOWER, Role.PROSPECTIVE),
        (Role.CANDIDATE, Role.PROSPECTIVE),
        (Role.RESIGNED, Role.PROSPECTIVE),
        (Role.RESIGNED, Role.UNATTACHED),
        (Role.PROSPECTIVE, Role.PROSPECTIVE),  # asks again
        (Role.PROSPECTIVE, Role.UNATTACHED),
        (Role.PROSPECTIVE, Role.FOLLOWER),
        (Role.CANDIDATE, Role.FOLLOWER),
        (Role.CANDIDATE, Role.UNATTACHED),  # learns that it is removed
        (Role.CANDIDATE, Role.LEADER),
        (Role.LEADER, Role.RESIGNED),
    }
)
"""The transitions that keep the epoch; every other one raises it."""


@value
class ElectionState:
    """What ``quorum-state`` keeps: the epoch, and either the leader of it or this node's vote in it."""

    epoch: int
    leader_id: int | None = None
    voted_id: int | None = None
    voted_directory_id: Uuid = ZERO_UUID


NEVER_ELECTED = ElectionState(0)


@dataclass(slots=True)
class Unattached:
    """No leader to follow. ``leader_id`` is known only when it cannot be followed (not a voter, as far as our
    log says, or this very node)."""

    role: ClassVar[Role] = Role.UNATTACHED
    election_deadline: int
    leader_id: int | None = None
    voted_id: int | None = None
    voted_directory_id: Uuid = ZERO_UUID


@dataclass(slots=True)
class Prospective:
    """Asks for pre-votes in the epoch that it has. ``leader_id`` is that epoch's leader, which it does not hear any
    more, and the vote that it gave in the epoch stays given. ``retries`` as a candidate's.

    ``early_of`` is set in an early election, which comes before the fetch time-out because the leader's process seems
    to have died. It is the follower that this node was, and goes on as if the others hear the leader."""

    role: ClassVar[Role] = Role.PROSPECTIVE
    election_deadline: int
    retries: int
    granted: set[int]
    rejected: set[int] = field(default_factory=set)
    leader_id: int | None = None
    voted_id: int | None = None
    voted_directory_id: Uuid = ZERO_UUID
    early_of: Follower | None = None


@dataclass(slots=True)
class Candidate:
    """``retries`` counts elections without a winner in a row; ``backoff_deadline`` is set once this one is lost."""

    role: ClassVar[Role] = Role.CANDIDATE
    election_deadline: int
    retries: int
    granted: set[int]
    rejected: set[int] = field(default_factory=set)
    backoff_deadline: int | None = None

    @property
    def leader_id(self) -> None:
        """A candidate knows no leader of its epoch."""
        return


@dataclass(slots=True)
class Download:
    """A snapshot that a follower fetches, and the bytes that it has so far."""

    snapshot_id: EpochOffset
    position: int = 0


@dataclass(slots=True)
class Follower:
    """``leader_ended``: the leader said EndQuorumEpoch, so its term can't be prolonged by hearing from it.
    ``is_doubted``: since it heard from the leader last, this node has asked for pre-votes after a time-out.
    ``refusals`` counts how often in a row our log did not take what was fetched for ``refused_end``."""

    role: ClassVar[Role] = Role.FOLLOWER
    leader_id: int
    fetch_deadline: int
    leader_high_watermark: int = -1
    leader_ended: bool = False
    is_doubted: bool = False
    download: Download | None = None
    refused_end: int = -1
    refusals: int = 0


@dataclass(slots=True)
class Handover:
    """``preferred`` shall lead next, or whoever may and has most when None; the leader waits for that until
    ``deadline``, and no longer."""

    preferred: int | None
    deadline: int


@dataclass(slots=True)
class Leader:
    """``start_offset`` is the log's end at the election: nothing counts as committed before it is passed.
    ``handover`` is set once this leader will resign, and appends nothing more."""

    role: ClassVar[Role] = Role.LEADER
    leader_id: int
    start_offset: int
    replicas: Replicas
    check_quorum_deadline: int
    begin_deadline: int
    high_watermark: int | None = None
    fetched: set[int] = field(default_factory=set)
    parking: Parking = field(default_factory=Parking)
    handover: Handover | None = None


@dataclass(slots=True)
class Resigned:
    """A former leader of this epoch (also after a restart): it may write nothing more in it, nor vote."""

    role: ClassVar[Role] = Role.RESIGNED
    leader_id: int
    election_deadline: int
    successors: tuple[int, ...]
    unacknowledged: set[int]


RoleState = Unattached | Prospective | Candidate | Follower | Leader | Resigned
