"""What a controller tells an operator about itself: one value, which the node fills and `migrator status` shows.

Times are milliseconds since 1970, ages and durations milliseconds, offsets record offsets; -1 stands for unknown.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from migrator.observe.names import number_ranges
from migrator.values import value


class NodeRole(StrEnum):
    """What a node is in its quorum."""

    LEADER = "Leader"
    FOLLOWER = "Follower"
    PROSPECTIVE = "Prospective"
    CANDIDATE = "Candidate"
    UNATTACHED = "Unattached"
    RESIGNED = "Resigned"


class BrokerState(StrEnum):
    """A broker as the leader sees it."""

    OFFLINE = "Offline"
    FENCED = "Fenced"
    RUNNING = "Running"
    STOPPING = "Stopping"


class Goal(StrEnum):
    """Where an operator may want to go."""

    FINISH = "finish"
    ROLLBACK = "rollback"
    REOPEN = "reopen"


class Force(StrEnum):
    """What an operator may make the migration do that it does not do unasked."""

    RECLAIM = "reclaim"
    """Take a cluster over again that was rolled back to ZooKeeper, or whose ``/migration`` nothing proves ours."""
    DELETES = "deletes"
    """Let a reconcile remove more entities than its bound."""
    RECONCILE = "reconcile"
    """Compare all of ZooKeeper with the log again, and write what differs."""
    FINISH = "finish"
    """Finish without a node that is gone for good."""


@value
class VoterStatus:
    """``zk_migration_ready`` is None when this node does not know. ``heard_ms_ago``: since its last fetch from
    the leader that tells this, 0 for the leader itself. ``silent_ms``: for how long this leader has heard nothing of
    it, counted from the election if it never did. ``answers``: whether it answered when it was asked last, None
    when it was not asked: voters are asked while no controller leads."""

    node_id: int
    host: str
    port: int
    log_end_offset: int = -1
    zk_migration_ready: bool | None = None
    heard_ms_ago: int = -1
    answers: bool | None = None
    silent_ms: int = -1


@value
class QuorumStatus:
    role: NodeRole
    leader_id: int
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    voters: tuple[VoterStatus, ...] = ()
    stock_leader: bool = False
    """Whether the leader is one of Kafka's own controllers, as far as this node knows."""


@value
class MigrationStatus:
    """Names are those of the migration's state table: MigrationIneligible, MigrateZkData, DualWrite or Finished, and
    the row behind it. ``active`` says whether this node is the one that acts; the others report from their image, and
    do not know an age (-1). Nor does who sees the active one only from outside. ``overridable``: the facts that
    'migrator force' would override now."""

    public_state: str
    internal_state: str
    internal_state_age_ms: int
    active: bool
    paused: bool = False
    overridable: tuple[str, ...] = ()


@value
class BrokerStatus:
    """``silent_ms`` as a voter's: it is there also when this leader has had no heartbeat yet, and so knows no age.
    ``graced``: it sends this new leader no heartbeats, and is not fenced because it answers to requests."""

    broker_id: int
    state: BrokerState
    epoch: int
    in_zookeeper_mode: bool
    heartbeat_age_ms: int = -1
    silent_ms: int = -1
    graced: bool = False


@value
class Problem:
    """Why the migration does not go on; a warning does not hold it up."""

    who: str
    what: str
    remedy: str
    warning: bool = False


FOREIGN_WRITES = "somebody else wrote to ZooKeeper during dual-write: "
"""So begins the problem that says it; paths follow, with commas between them."""
UNKNOWN_LAG = -1


@value
class WriteBehindStatus:
    """``lag_records`` is `UNKNOWN_LAG` while nobody knows what the leader's predecessor left behind. ``lag_ms``: how
    long the oldest has waited, without the time in which a comparison made progress. ``blocked_ms`` is the time that
    writes have waited for ZooKeeper so far."""

    lag_records: int
    lag_ms: int
    blocked_ms: int
    written_offset: int


@value
class ClaimStatus:
    """Our claim of ``/controller``: the controller epoch, and the versions that our writes are conditional on."""

    controller_epoch: int
    controller_epoch_version: int
    migration_version: int


@value
class JournalEvent:
    """One entry of the journal; sequence numbers rise by one; 0: the disk has not taken it yet."""

    sequence: int
    time_ms: int
    kind: str
    text: str
    details: tuple[tuple[str, str], ...] = ()

    @property
    def by(self) -> str:
        """Who gave the order that this is about; empty for what happened without one, and in journals of before."""
        found = dict(self.details)
        return f"{found['by']}, {found['address']}" if {"by", "address"} <= found.keys() else ""


@value
class Orderer:
    """Who gave an order: a certificate's principal or a local user, and the address that it came from."""

    name: str
    address: str

    @property
    def details(self) -> dict[str, str]:
        """For the journal's event about the order."""
        return {"by": self.name, "address": self.address}


@value
class VerdictReport:
    """What `migrator verify` found: whether ZooKeeper, up to transaction ``zxid``, equals the log up to ``offset``,
    which the log has with ``offset_epoch``. ``leader_epoch``: the quorum's when the comparison began."""

    cluster_id: str
    leader_epoch: int
    offset: int
    offset_epoch: int
    zxid: int
    equal: bool
    differences: int


@value
class VerdictAnswer:
    """Whether the end of the migration may rest on a verdict, and why not."""

    counts: bool
    sentence: str


@value
class LockAnswer:
    """``held``: the text of a rollout's lock now, "" without one. ``moved``: whether the caller has written it."""

    held: str
    moved: bool


@value
class ImagesStatus:
    """What the leader found when it compared the metadata of all controllers at one offset. ``different``: controllers
    whose metadata are not those of the leader; ``unknown``: those that did not say, as those of Kafka."""

    offset: int
    time_ms: int
    equal: tuple[int, ...] = ()
    different: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()

    def without(self, voters: Collection[int]) -> ImagesStatus:
        """As if these controllers had not been asked."""
        groups = (self.equal, self.different, self.unknown)
        return ImagesStatus(
            self.offset, self.time_ms, *(tuple(i for i in group if i not in voters) for group in groups)
        )

    @property
    def disagreement(self) -> str:
        """A clause; "" without one."""
        if not self.different:
            return ""
        has = "has" if len(self.different) == 1 else "have"
        who = number_ranges("controller", self.different)
        return f"the controllers disagree at offset {self.offset}: {who} {has} other metadata than the leader"


@value
class Gate:
    """A condition on the way to a `Goal`; ``what`` says how it stands."""

    name: str
    open: bool
    what: str
    remedy: str = ""


SILENT_MS = 3_000
"""A voter that has been silent for less than this is there: an idle follower fetches twice a second."""


@value
class Status:
    """Everything at one moment. ``formatted_version``: the metadata.version that the directory of this node was
    formatted with. ``is_blank``: this node holds no metadata yet, and knows nothing of the cluster."""

    cluster_id: str
    node_id: int
    version: str
    time_ms: int
    quorum: QuorumStatus
    migration: MigrationStatus
    brokers: tuple[BrokerStatus, ...] = ()
    problems: tuple[Problem, ...] = ()
    write_behind: WriteBehindStatus | None = None
    claim: ClaimStatus | None = None
    metadata_version: str = ""
    recent_events: tuple[JournalEvent, ...] = ()
    formatted_version: str = ""
    is_blank: bool = False
    images: ImagesStatus | None = None

    @property
    def is_new(self) -> bool:
        """Whether nobody was ever elected, as far as this node knows: a log that is still loaded says otherwise."""
        return self.is_blank and self.quorum.log_end_offset <= 0


def silent_voters(status: Status) -> tuple[VoterStatus, ...]:
    """Voters that the leader, if this is its status, hears nothing of, or that did not answer while nobody led."""
    leads = status.quorum.leader_id == status.node_id
    return tuple(
        voter
        for voter in status.quorum.voters
        if voter.answers is False or (leads and voter.node_id != status.node_id and voter.silent_ms >= SILENT_MS)
    )
