"""What the migration driver remembers in memory: its state, its claim, its running work and its back-offs.

Only the driver, and its helpers `interpret` and `who_runs`, change it; metrics and `status` read `DriverStatus`. A
crash loses all of it, and each leadership begins with a new `Term`: the next examination of log and ZooKeeper finds
everything again. Times are milliseconds of the caller's monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from migrator.errors import InvariantViolation
from migrator.migration.machine.events import Ticket
from migrator.migration.machine.finish import FinishDecision
from migrator.migration.machine.guards import Claimant, Standing
from migrator.migration.machine.progress import Course
from migrator.migration.machine.readiness import Gap, Readiness
from migrator.migration.machine.sightings import Sighting
from migrator.migration.machine.states import POLL_MS, PublicState, State, public_state
from migrator.observe.printable import utc
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import MigrationHold, MigrationReopening, ZkMigrationState
from migrator.values import value
from migrator.zookeeper.leadership import Claim

BACKOFF_MIN_MS = 100
BACKOFF_MAX_MS = 10_000
COPY_RETRY_MIN_MS = 1_000
COPY_RETRY_MAX_MS = 60_000
STALL_MS = 30_000
"""Work without progress for that long is given up: a worker that hangs is treated as crashed. A slow worker is not
given up, because it reports all work that it does (`progress`)."""
COMPARE_MAX_MS = 5 * 60_000
"""The longest comparison beside the writes, because removals wait for it. After that time a reconcile takes its
place."""
TELL_MS = 10_000
"""How often progress goes to the log of the process."""
ELECTION_WAIT_MS = 5_000
SETTLE_MS = POLL_MS
"""The least time between the last broker's registration and the way to the claim: a broker in ZooKeeper mode that has
just started knows no topic until the ZooKeeper controller has sent them, and some clients fail when they send to such a
broker."""
REPLICAS_MS = 15_000
"""The longest time without a reading of all assignments, which takes seconds at the largest clusters."""
AUDIT_INTERVAL_MS = 30_000


T = TypeVar("T")


def present(found: T | None, message: str) -> T:
    """Return what was found.

    :raises InvariantViolation: it is None.
    """
    if found is None:
        raise InvariantViolation(message)
    return found


@value
class Situation:
    """The reason of the driver's state, who is concerned, and what to do about it. ``overridable``: the facts that an
    order overrides; the order names them as they were shown."""

    why: str = ""
    remedy: str = ""
    overridable: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.why}. {self.remedy}" if self.remedy else self.why


def held(hold: MigrationHold) -> Situation:
    """The situation of a paused migration: the order's reason, controller and time."""
    return Situation(
        f"the operator has paused the migration before the copy: {hold.reason} (ordered at controller {hold.node_id}, "
        f"{utc(hold.time_ms)})",
        "Continue it with 'migrator resume'.",
    )


NOT_LEADING = Situation(State.INACTIVE.properties.sentence)
NOWHERE = EpochOffset(-1, -1)


@value
class Identity:
    """Constants of the process. ``inter_broker_listener``: the listener on which brokers get their
    RPCs; ``audit_interval_ms``: the time between two audits of foreign writes."""

    node_id: int
    cluster_id: str
    inter_broker_listener: str = ""
    audit_interval_ms: int = AUDIT_INTERVAL_MS
    voters: frozenset[int] = frozenset()


@value
class DriverStatus:
    """The driver's state for metrics, ``status`` and the journal. ``age_ms``: since the state was entered. ``running``:
    the brokers that have a znode in ``/brokers/ids``, None when unknown."""

    state: State
    public: PublicState
    epoch: int
    age_ms: int
    situation: Situation
    zookeeper_connected: bool
    paused: bool
    readiness: Readiness | None
    strays: tuple[Gap, ...] = ()
    running: frozenset[int] | None = None


@dataclass(slots=True)
class Term:
    """The state of one leadership; a new leadership starts with an empty one."""

    epoch: int = -1
    record: ZkMigrationState = ZkMigrationState.NONE
    base: EpochOffset = NOWHERE
    """Offset and epoch of the record that completed the copy."""
    enabled: bool = False
    """Whether the migration is turned on, on this controller."""
    reopened: bool = False
    """Whether the migration was finished, and ZooKeeper does not hold everything yet that has changed since."""
    reopening: MigrationReopening | None = None
    """The order to reopen that is being appended to the log."""
    standing: Standing | None = None
    claim: Claim | None = None
    decoded: bool = False
    had_faults: bool = False
    copied: int = 0
    """The number of records of a copy that is complete and not committed yet."""
    copy_failures: int = 0
    retry_copy_at_ms: int = 0
    overridden: frozenset[str] = frozenset()
    """The facts behind a refusal that an operator has overridden."""
    has_claimed: bool = False
    """Whether a claim was sent in this leadership."""
    held_deletes: str = ""
    """The digest of the deletes that are held."""
    deletes_allowed: str = ""
    """The digest of the deletes that an operator has allowed."""
    readiness: Readiness | None = None
    sightings: dict[int, Sighting] = field(default_factory=dict)
    """The znodes of the brokers, as last seen; the dictionary is replaced, never changed."""
    ready_ms: int | None = None
    """The time since which all nodes have been ready."""
    replicas: frozenset[int] | None = None
    """The brokers with replicas, as read at `replicas_ms`; None while they have to be read."""
    replicas_ms: int = 0
    decision: FinishDecision | None = None
    left_out: frozenset[int] = frozenset()
    """Voters that, as the operator says, are gone for good: the end does not wait for their answers."""
    running: frozenset[int] | None = None
    """The brokers that the last audit found in ZooKeeper; None before the first."""
    strays: tuple[Gap, ...] = ()
    """Brokers that the last audit found in ZooKeeper and that do not obey the quorum."""
    failures: int = 0
    """How many claims, releases and writes have failed, or met another controller's claim, since the last good state: a
    ZooKeeper broker elected, or dual-writing."""


@dataclass(slots=True)
class VolatileState:
    """Everything that the driver remembers. Mutable, owned by one `MigrationDriver`. Times are milliseconds of the
    caller's clock."""

    identity: Identity
    state: State = State.INACTIVE
    before: State = State.INACTIVE
    """The state from which ``state`` was entered; the same when it was entered again."""
    now_ms: int = 0
    entered_ms: int = 0
    situation: Situation = NOT_LEADING
    zookeeper_connected: bool = False
    hold: MigrationHold | None = None
    """The operator's order to pause, which the log keeps for the next leader."""

    tickets: int = 0
    outstanding: bool = False
    """Whether the work under the current ticket has not been answered yet."""
    progress_ms: int = 0
    course: Course = field(default_factory=Course)
    """The progress of the work under the current ticket."""
    told_ms: int = 0
    """When progress last went to the log of the process."""
    due_ms: int = 0
    """The time at which the state's work is repeated."""
    nudged_ms: int = 0
    attempt: int = 0
    """How often the state was entered again without leaving it; the back-off grows with it."""
    term: Term = field(default_factory=Term)

    @property
    def ticket(self) -> Ticket:
        return Ticket(self.term.epoch, self.tickets)

    @property
    def may_copy(self) -> bool:
        """Whether an examination that finds nothing in the way leads to a claim, and to the copy."""
        return self.term.decoded and self.term.record is not ZkMigrationState.MIGRATION

    def claimant(self) -> Claimant:
        """The facts about this leader that the guards need."""
        return Claimant(
            node_id=self.identity.node_id,
            epoch=self.term.epoch,
            cluster_id=self.identity.cluster_id,
            record=self.term.record,
            decoded=self.term.decoded,
            overridden=self.term.overridden,
            has_claimed=self.term.has_claimed,
            base=self.term.base,
            reopened=self.term.reopened,
        )

    def status(self, now_ms: int) -> DriverStatus:
        """The state in words and figures."""
        return DriverStatus(
            state=self.state,
            public=public_state(self.term.record, self.state),
            epoch=self.term.epoch,
            age_ms=now_ms - self.entered_ms,
            situation=self.situation,
            zookeeper_connected=self.zookeeper_connected,
            paused=self.hold is not None,
            readiness=self.term.readiness,
            strays=self.term.strays if self.state is State.DUAL_WRITING else (),
            running=self.term.running if self.state is State.DUAL_WRITING else None,
        )


def backoff_ms(attempt: int, least: int = BACKOFF_MIN_MS, most: int = BACKOFF_MAX_MS) -> int:
    """The back-off of an attempt (0, 1, ...): it doubles each time, from ``least`` up to ``most``."""
    return int(min(most, least << min(attempt, 20)))
