"""The status of a controller for an operator: one value, which the node fills and `migrator status` shows.

Times are milliseconds since 1970, ages and durations milliseconds, offsets record offsets; -1 is unknown.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from migrator.observe.printable import duration, number_ranges
from migrator.values import value


class NodeRole(StrEnum):
    """The role of a node in its quorum."""

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
    """The goals of an operator."""

    FINISH = "finish"
    ROLLBACK = "rollback"
    REOPEN = "reopen"


class Force(StrEnum):
    """The actions of the migration that need an operator's order."""

    RECLAIM = "reclaim"
    """Take over again a cluster that was rolled back to ZooKeeper, or whose ``/migration`` is not proven to be ours."""
    DELETES = "deletes"
    """Let a reconcile delete more entities than its limit."""
    RECONCILE = "reconcile"
    """Compare all of ZooKeeper with the log again, and write the differences."""
    FINISH = "finish"
    """Finish without a node that is gone for good."""


@value
class VoterStatus:
    """``zk_migration_ready``: None when this node does not know. ``heard_ms_ago``: since its last fetch from this
    leader; 0 for the leader itself. ``silent_ms``: for how long this leader has heard nothing of it, since the election
    if it never did. ``answers``: whether it answered the last question; None when it was not asked: voters are asked
    only while no controller leads."""

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
    """Whether this node knows that the leader is one of Kafka's controllers."""


@value
class MigrationStatus:
    """States of the migration's state table: ``public_state`` is MigrationIneligible, MigrateZkData, DualWrite or
    Finished, ``internal_state`` the row of the table. ``active``: whether this node acts. Other nodes report from their
    image, and do not know the age (-1); the same holds for a view from outside. ``overridable``: the facts that
    'migrator force' would override now. ``reopened``: when and why the migration was reopened after its end; "" if it
    was not."""

    public_state: str
    internal_state: str
    internal_state_age_ms: int
    active: bool
    paused: bool = False
    overridable: tuple[str, ...] = ()
    reopened: str = ""


@value
class BrokerStatus:
    """``silent_ms``: as a voter's; known also when this leader has had no heartbeat yet, and so no age. ``graced``: it
    sends this new leader no heartbeats, but is not fenced because it answers requests."""

    broker_id: int
    state: BrokerState
    epoch: int
    in_zookeeper_mode: bool
    heartbeat_age_ms: int = -1
    silent_ms: int = -1
    graced: bool = False


@value
class Problem:
    """Why the migration does not continue; a warning does not block it."""

    who: str
    what: str
    remedy: str
    warning: bool = False


FOREIGN_WRITES = "somebody else wrote to ZooKeeper during dual-write: "
"""How the problem about foreign writes begins; their paths follow, separated by commas."""
UNKNOWN_LAG = -1


@value
class WriteBehindStatus:
    """``lag_records``: `UNKNOWN_LAG` while the changes that the earlier leader left unwritten are unknown. ``lag_ms``:
    how long the oldest record has waited, without the time in which a comparison made progress. ``blocked_ms``: how
    long writes have waited for ZooKeeper in total. ``versions_missing``: how many sets of partition states are still
    to be made, which only raise their versions; ``versions_seconds``: about how long they take. -1: not known yet."""

    lag_records: int
    lag_ms: int
    blocked_ms: int
    written_offset: int
    versions_missing: int = 0
    versions_seconds: int = 0


def versions_said(behind: WriteBehindStatus) -> str:
    """That versions of partition states are not raised yet, and how long that takes; "" when all are."""
    if behind.versions_missing == UNKNOWN_LAG:
        return "how many versions of partition states are to be raised is not known yet"
    if not behind.versions_missing:
        return ""
    about = f", about {duration(behind.versions_seconds * 1000)}" if behind.versions_seconds != UNKNOWN_LAG else ""
    return f"versions of partition states are being raised: {behind.versions_missing:,} sets are left{about}"


@value
class ClaimStatus:
    """Our claim of ``/controller``: the controller epoch, and the znode versions on which our writes are
    conditional."""

    controller_epoch: int
    controller_epoch_version: int
    migration_version: int


@value
class JournalEvent:
    """One entry of the journal. Sequence numbers rise by one; 0: not on disk yet."""

    sequence: int
    time_ms: int
    kind: str
    text: str
    details: tuple[tuple[str, str], ...] = ()

    @property
    def by(self) -> str:
        """The giver of the event's order; "" for an event without an order, and in older journals."""
        found = dict(self.details)
        return f"{found['by']}, {found['address']}" if {"by", "address"} <= found.keys() else ""


@value
class Orderer:
    """The giver of an order: a certificate's principal or a local user, and the address that it came from."""

    name: str
    address: str

    @property
    def details(self) -> dict[str, str]:
        """The fields of the journal's event about the order."""
        return {"by": self.name, "address": self.address}


@value
class VerdictReport:
    """The result of `migrator verify`: whether ZooKeeper, up to transaction ``zxid``, equals the log up to ``offset``.
    ``offset_epoch``: the epoch of the record at that offset. ``leader_epoch``: the quorum's when the comparison began.
    """

    cluster_id: str
    leader_epoch: int
    offset: int
    offset_epoch: int
    zxid: int
    equal: bool
    differences: int


@value
class VerdictAnswer:
    """Whether a verdict is good enough to end the migration, and why not."""

    counts: bool
    sentence: str


@value
class LockAnswer:
    """``held``: the text of a rollout's lock now; "" without one. ``moved``: whether the caller's write was made."""

    held: str
    moved: bool


@value
class ImagesStatus:
    """The leader's comparison of all controllers' metadata at one offset. ``different``: controllers with other
    metadata than the leader; ``unknown``: controllers that did not tell, such as Kafka's."""

    offset: int
    time_ms: int
    equal: tuple[int, ...] = ()
    different: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()

    def without(self, voters: Collection[int]) -> ImagesStatus:
        """The answers without these controllers, as if nobody had asked them."""
        groups = (self.equal, self.different, self.unknown)
        return ImagesStatus(
            self.offset, self.time_ms, *(tuple(i for i in group if i not in voters) for group in groups)
        )

    @property
    def disagreement(self) -> str:
        """The difference as a clause; "" without one."""
        if not self.different:
            return ""
        has = "has" if len(self.different) == 1 else "have"
        who = number_ranges("controller", self.different)
        return f"the controllers disagree at offset {self.offset}: {who} {has} other metadata than the leader"


@value
class Gate:
    """A condition on the way to a `Goal`. ``what`` describes the progress."""

    name: str
    open: bool
    what: str
    remedy: str = ""


SILENT_MS = 3_000
"""A voter that is silent for less than this counts as there: an idle follower fetches twice a second."""


@value
class Status:
    """Everything at one moment. ``formatted_version``: the metadata.version with which this node's directory was
    formatted. ``is_blank``: this node has no metadata yet, and knows nothing of the cluster."""

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
        """Whether this node knows of no leader that was ever elected. A log that is still being loaded may name one."""
        return self.is_blank and self.quorum.log_end_offset <= 0


def silent_voters(status: Status) -> tuple[VoterStatus, ...]:
    """Voters from which the leader, if this is its status, hears nothing; or that did not answer while no controller
    led."""
    leads = status.quorum.leader_id == status.node_id
    return tuple(
        voter
        for voter in status.quorum.voters
        if voter.answers is False or (leads and voter.node_id != status.node_id and voter.silent_ms >= SILENT_MS)
    )
