"""The events of the migration driver: all that it learns of the log, ZooKeeper, the brokers, the clock and operators.

The coordinator feeds them to `driver.MigrationDriver`, one at a time. An event that answers work carries the `Ticket`
of that work. The driver drops a result whose ticket is not the current one, so work of an earlier leadership or of a
work that was given up changes nothing.
"""

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

    The driver waits for the current ticket only, and drops a result with any other."""

    epoch: int
    number: int


@value
class BecameLeader:
    """This node leads, and its log is applied. ``base``: offset and epoch of the record that made the copy complete (or
    of the oldest record that the log still knows after it); it matters only when the record is MIGRATION. ``hold``: the
    operator's order to pause the migration, from the log. ``reopened``: the log says that a finished migration was
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
    """The answer to `Examine`. ``standing`` is None when ZooKeeper could not be read, for ``reason``. ``surroundings``
    were read after the standing; None unless they were asked for."""

    ticket: Ticket
    standing: Standing | None
    reason: str = ""
    surroundings: Surroundings | None = None


@value
class ReadinessInputs:
    """The answer to `ReadReadiness`. ``brokers`` is None when ZooKeeper could not be read, for ``reason``. ``holder``:
    who holds /controller; a deposed leader may still have claimed it."""

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
    """``claim`` is None when the claim was not won, or its outcome is unknown, for ``reason``."""

    ticket: Ticket
    claim: Claim | None
    reason: str = ""


@value
class ReleaseResult:
    """``released`` is False when the release was refused or its outcome is unknown, for ``reason``."""

    ticket: Ticket
    released: bool
    reason: str = ""


@value
class WorkProgressed:
    """The work under that ticket makes progress."""

    ticket: Ticket
    working: Working


@value
class CopyDone:
    """Everything is appended, the second look included. The two versions were read last of all and show whether the
    claim held until then; ``surroundings`` were read after them."""

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
    """The record that the driver appended under that ticket is committed; ``at`` is its offset and epoch."""

    ticket: Ticket
    at: EpochOffset


@value
class ReconcileDone:
    """ZooKeeper equals the image; ``written`` counts the entities written, removed ones included."""

    ticket: Ticket
    written: int


@value
class ReconcileHeld:
    """Everything but the deletes is written: there are ``deletes`` of them, more than the bound."""

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
    """The write-behind stopped. ``fenced``: another controller holds the cluster; otherwise a reconcile is needed."""

    epoch: int
    fenced: bool
    reason: str


@value
class AuditResult:
    """``foreign``: znodes that another client wrote while we dual-write; ``strays``: the brokers in ZooKeeper that do
    not obey the quorum; ``running``: all brokers with a znode in ``/brokers/ids``. With ``failure`` these are
    unknown."""

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
    """The voters that `Force.FINISH` leaves out."""
    overrides: frozenset[str] = frozenset()
    """The facts that were shown to the operator (`Situation.overridable`), when the order overrides facts."""


@value
class OperatorPause:
    """The operator's order to pause; ``hold`` says by whom and when."""

    hold: MigrationHold


@value
class OperatorResume:
    """The end of a pause is committed."""


@value
class OperatorReopen:
    """The operator's order that a finished migration goes on; ``order`` is kept in the log."""

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
