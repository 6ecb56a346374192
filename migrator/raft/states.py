"""The roles of a node, the state of each role, and the transitions between them. All rules about that are here.

    Unattached --timeout--> Prospective --majority--> Candidate --majority--> Leader --resign, check quorum--> Resigned
      |  ^  ^                   |  ^ (again)              |                                                       |
      |  |  +------- lost ------+  +---- lost ------------+                                                       |
      |  |                      |  +------------------------------------ timeout ---------------------------------+
      |  | higher epoch (from any role)
      v  |
      Follower <---- a leader of this or a higher epoch is known (from any role but the leader's own epoch)

A prospective candidate asks for pre-votes before it raises the epoch (KIP-996). So a node that was cut off, or that was
removed and does not know it, unseats no leader.

Source: KafkaRaftClient and QuorumState of Kafka 3.9 and 4.1 (KIP-595, KIP-996).

`Parking` has the fetches that found nothing new and wait for it (KIP-595's long poll).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from migrator.raft.messages import EpochOffset, FetchRequest
from migrator.raft.progress import Replicas
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.values import value


@value
class ParkedFetch:
    """A fetch, and the time in milliseconds at which it has to be answered."""

    context: Hashable
    request: FetchRequest
    deadline: int


@dataclass(slots=True)
class Parking:
    """The fetches that wait at a leader, in the order of their arrival."""

    waiting: list[ParkedFetch] = field(default_factory=list)

    def park(self, fetch: ParkedFetch) -> None:
        """Let a fetch wait."""
        self.waiting.append(fetch)

    def take_all(self) -> list[ParkedFetch]:
        """Remove and return every waiting fetch."""
        taken, self.waiting = self.waiting, []
        return taken

    def take_due(self, now: int) -> list[ParkedFetch]:
        """Remove and return the fetches whose time has come."""
        due = [fetch for fetch in self.waiting if fetch.deadline <= now]
        if due:
            self.waiting = [fetch for fetch in self.waiting if fetch.deadline > now]
        return due


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
"""The roles that may follow each role."""

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
    """The content of ``quorum-state``: the epoch, and either its leader or this node's vote in it."""

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
    """Asks for pre-votes in the epoch that it has. ``leader_id``: that epoch's leader, which this node no longer hears.
    ``voted_id``: the vote that it gave in the epoch stays given. ``retries``: as in `Candidate`.

    ``early_of`` is set in an early election, which begins before the fetch time-out because the leader's process seems
    to have died. It is the state as a follower, to which the node returns if the others still hear the leader."""

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
    """``retries``: elections in a row without a winner; ``backoff_deadline`` is set once this one is lost."""

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
    """A snapshot that a follower downloads, and the number of bytes that it has."""

    snapshot_id: EpochOffset
    position: int = 0


@dataclass(slots=True)
class Follower:
    """``leader_ended``: the leader sent EndQuorumEpoch, so its later messages do not begin the fetch time-out anew.
    ``is_doubted``: this node has asked for pre-votes after a time-out, and not heard from the leader since then.
    ``refusals``: how often in a row the append of records at ``refused_end`` has failed."""

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
class LeadershipTransfer:
    """``preferred``: the voter that should lead next, None for the most caught-up voter that may. The leader waits
    until ``deadline`` for it to have the whole log."""

    preferred: int | None
    deadline: int


@dataclass(slots=True)
class Leader:
    """``start_offset``: the log's end at the election. Nothing counts as committed before a record there is (Raft
    5.4.2). ``handover`` is set when this leader is about to resign; it then appends nothing more."""

    role: ClassVar[Role] = Role.LEADER
    leader_id: int
    start_offset: int
    replicas: Replicas
    check_quorum_deadline: int
    begin_deadline: int
    high_watermark: int | None = None
    fetched: set[int] = field(default_factory=set)
    parking: Parking = field(default_factory=Parking)
    handover: LeadershipTransfer | None = None


@dataclass(slots=True)
class Resigned:
    """A former leader of this epoch, also after a restart. It appends no record and gives no vote in the epoch."""

    role: ClassVar[Role] = Role.RESIGNED
    leader_id: int
    election_deadline: int
    successors: tuple[int, ...]
    unacknowledged: set[int]


RoleState = Unattached | Prospective | Candidate | Follower | Leader | Resigned
