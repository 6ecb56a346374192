"""What the migration driver is told. Results of work that it asked for carry the ticket of that work."""

from __future__ import annotations

from migrator.image.model import ClusterImage
from migrator.migration.machine.finish import FinishInputs
from migrator.migration.machine.guards import Standing
from migrator.migration.machine.progress import Working
from migrator.migration.machine.readiness import ControllerSignals, Gap, Surroundings, ZooKeeperBrokers
from migrator.observe.status import Force
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import MigrationHold, MigrationReopening, ZkMigrationState
from migrator.values import value
from migrator.zookeeper.leadership import Claim
from migrator.zookeeper.znodes.controller import ControllerClaim


@value
class Ticket:
    """Names one piece of work: the leader epoch in which it was asked for, and a number that grows.

    A result whose ticket is not the current one is of work that nobody waits for any more, and is dropped."""

    epoch: int
    number: int


@value
class BecameLeader:
    """This node leads, and its log is applied. ``base``: offset and epoch of the record that made the copy complete
    (or of the oldest record that the log still knows after it); it only matters with the record MIGRATION. ``hold``:
    the log says that the operator has paused the migration. ``reopened``: the log says that a finished migration was
    reopened, and that ZooKeeper does not hold everything yet."""

    epoch: int
    record: ZkMigrationState
    enabled: bool
    base: EpochOffset = EpochOffset(-1, -1)
    hold: MigrationHold | None = None
    reopened: bool = False


@value
class LostLeadership:
    epoch: int


@value
class ImagePublished:
    """A committed image; ``cluster_changed`` when a broker or controller registration did."""

    epoch: int
    cluster_changed: bool


@value
class ZooKeeperConnected:
    pass


@value
class ZooKeeperLost:
    reason: str


@value
class Examined:
    """``standing`` None: ZooKeeper could not be read, for ``reason``. ``surroundings`` are from after the standing, and
    None unless they were asked for."""

    ticket: Ticket
    standing: Standing | None
    reason: str = ""
    surroundings: Surroundings | None = None


@value
class ReadinessInputs:
    """``brokers`` None: ZooKeeper could not be read, for ``reason``. ``holder``: who holds /controller; a deposed
    leader may still have claimed it."""

    ticket: Ticket
    brokers: ZooKeeperBrokers | None
    signals: ControllerSignals
    cluster: ClusterImage
    metadata_version: int
    reason: str = ""
    holder: ControllerClaim | None = None


@value
class DecodeResult:
    """The first reading. ``faults`` names each znode that does not decode; ``failure`` is set when it did not end;
    ``holder`` as in `ReadinessInputs`."""

    ticket: Ticket
    faults: tuple[Gap, ...] = ()
    records: int = 0
    failure: str = ""
    holder: ControllerClaim | None = None


@value
class ClaimResult:
    """``claim`` None: not won, or nobody knows, for ``reason``."""

    ticket: Ticket
    claim: Claim | None
    reason: str = ""


@value
class ReleaseResult:
    """``released`` False: refused or unknown, for ``reason``."""

    ticket: Ticket
    released: bool
    reason: str = ""


@value
class WorkProgressed:
    """The work under that ticket is alive, and has come so far."""

    ticket: Ticket
    working: Working


@value
class CopyDone:
    """Everything is appended, the second listing included. The two versions were read last of all: they show whether
    the claim stood until then; ``surroundings`` are from after that."""

    ticket: Ticket
    records: int
    epoch_version: int
    controller_version: int
    surroundings: Surroundings


@value
class CopyFailed:
    ticket: Ticket
    reason: str


@value
class Committed:
    """What the driver appended under that ticket is committed up to ``at``, the record's own offset and epoch."""

    ticket: Ticket
    at: EpochOffset


@value
class ReconcileDone:
    """ZooKeeper equals the image; ``written`` counts entities, removed ones included."""

    ticket: Ticket
    written: int


@value
class ReconcileHeld:
    """All but the deletes is written: there are ``deletes`` of them, more than the bound."""

    ticket: Ticket
    deletes: int
    bound: int
    examples: tuple[str, ...]
    digest: str = ""


@value
class ReconcileFailed:
    ticket: Ticket
    reason: str


@value
class RpcsQueued:
    """The full state is queued for every broker, in order, ahead of what follows."""

    ticket: Ticket


@value
class WriteBehindFailed:
    """The write-behind stopped. ``fenced``: another controller holds the cluster; else only a reconcile can help."""

    epoch: int
    fenced: bool
    reason: str


@value
class AuditResult:
    """``foreign`` names znodes that somebody else wrote while we dual-write; ``strays`` the brokers in ZooKeeper that
    do not obey the quorum; ``running`` all that have a znode in ``/brokers/ids``. With ``failure`` nobody knows."""

    ticket: Ticket
    foreign: tuple[str, ...]
    failure: str = ""
    strays: tuple[Gap, ...] = ()
    running: frozenset[int] = frozenset()


@value
class VotersAsked:
    ticket: Ticket
    inputs: FinishInputs


@value
class Timer:
    ticket: Ticket


@value
class OperatorForce:
    what: Force
    without: frozenset[int] = frozenset()
    """The voters that `Force.FINISH` does without."""
    overrides: frozenset[str] = frozenset()
    """The facts that were shown (`Situation.overridable`), of an order that overrides some."""


@value
class OperatorPause:
    """Given now, or committed; ``hold`` says by whom and when."""

    hold: MigrationHold


@value
class OperatorResume:
    """Committed: nothing holds the migration."""


@value
class OperatorReopen:
    """A finished migration shall go on; ``order`` is what the log keeps of that."""

    order: MigrationReopening


Event = (
    BecameLeader
    | LostLeadership
    | ImagePublished
    | ZooKeeperConnected
    | ZooKeeperLost
    | Examined
    | ReadinessInputs
    | DecodeResult
    | ClaimResult
    | ReleaseResult
    | WorkProgressed
    | CopyDone
    | CopyFailed
    | Committed
    | ReconcileDone
    | ReconcileHeld
    | ReconcileFailed
    | RpcsQueued
    | WriteBehindFailed
    | AuditResult
    | VotersAsked
    | Timer
    | OperatorForce
    | OperatorPause
    | OperatorResume
    | OperatorReopen
)
