"""The effects of the migration driver. Each docstring ends with the events that answer it.

The executor performs those of `Performed`, in order, and answers each effect that has a ticket. The coordinator hands
those of `ForWriteBehind` to the write-behind; they never reach the executor.
"""

from __future__ import annotations

from migrator.image.model import MetadataImage
from migrator.migration.machine.events import Ticket
from migrator.migration.machine.states import PublicState, State
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import MigrationReopening
from migrator.values import value
from migrator.zookeeper.leadership import Claim, ClaimView


@value
class Examine:
    """Read /cluster/id, /controller_epoch, /controller and /migration, and look up the offset of /migration in the log:
    `Examined`. ``brokers``: a claim may follow at once, so read who runs, too."""

    ticket: Ticket
    brokers: bool = False


@value
class ReadReadiness:
    """Read what `readiness` judges: `ReadinessInputs`. ``replicas``: the broker ids that an earlier reading found in
    the assignments, which then are not read again."""

    ticket: Ticket
    replicas: frozenset[int] | None = None


@value
class DecodeAll:
    """Read and decode everything in a worker, write nothing: `DecodeResult`."""

    ticket: Ticket


@value
class TakeClaim:
    """Send one multi, conditional on the versions of ``view`` as the guards saw them: `ClaimResult`. ``heal_to``: the
    offset that /migration is set to; None leaves its offset."""

    ticket: Ticket
    view: ClaimView
    heal_to: EpochOffset | None


@value
class ReleaseClaim:
    """Send one multi that checks /controller_epoch and deletes /controller, both at these versions: `ReleaseResult`."""

    ticket: Ticket
    epoch_version: int
    controller_version: int


@value
class NudgeElection:
    """Create /controller with broker id -1, then delete it, so that brokers which missed the release elect. No
    answer."""


@value
class StartCopy:
    """Append Begin, read everything again in a worker, append its batches: `WorkProgressed`, then `CopyDone` or
    `CopyFailed`."""

    ticket: Ticket


@value
class LookAgain:
    """A copy of ``records`` records is complete, and may not be committed yet: read again who runs, and the versions of
    the claim: `CopyDone` or `CopyFailed`."""

    ticket: Ticket
    records: int


@value
class CompleteTransaction:
    """Append ZkMigrationState MIGRATION, with the name that the claim gave the copy, and EndTransaction, as one batch:
    `Committed`."""

    ticket: Ticket
    copied_as: str | None = None


@value
class AbortTransaction:
    """Append AbortTransaction if a transaction is open: `Committed` (at once when none is open)."""

    ticket: Ticket
    reason: str


@value
class CancelWork:
    """Stop the worker processes; their results are no longer wanted."""


@value
class OpenWriteBehind:
    """Begin to write ZooKeeper under this claim; /migration first moves to ``at`` if it is not there."""

    claim: Claim
    at: EpochOffset


@value
class StopDualWrite:
    """Stop writing to ZooKeeper and sending to its brokers; queued work is dropped, too."""


@value
class SendTakeoverRpcs:
    """Send UpdateMetadata of type 0 for all topics, and LeaderAndIsr of type 1 where it is safe. No answer."""

    zk_epoch: int


@value
class Reconcile:
    """Compare all of ZooKeeper with the image, and write the differences: `WorkProgressed`, `ReconcileDone`,
    `ReconcileHeld`, `ReconcileFailed`. The coordinator turns it into `CompareAll`. ``deletes_allowed``: the digest of
    the deletes that an operator has allowed, "" for none."""

    ticket: Ticket
    deletes_allowed: str


@value
class Resume:
    """Write the changes since the mark, then every change, and compare all of ZooKeeper with the image beside it:
    `WorkProgressed`, `ReconcileDone`, `ReconcileFailed`, `WriteBehindFailed`. The coordinator turns it into
    `CompareAll`."""

    ticket: Ticket


@value
class CompareAll:
    """Compare all of ZooKeeper with this image in a worker, and feed the writes to the write-behind
    (`ReconcileWrites`), or `ReconcileFailed` when the worker fails."""

    ticket: Ticket
    image: MetadataImage
    deletes_allowed: str


@value
class SendFullRpcs:
    """Send LeaderAndIsr of type 2, then the closing UpdateMetadata: `RpcsQueued`. ``again``: it was asked for before; a
    plan that is still under way is waited for, and not begun twice."""

    ticket: Ticket
    zk_epoch: int
    again: bool = False


@value
class AuditZooKeeper:
    """Look for znodes that another client wrote: `AuditResult`."""

    ticket: Ticket


@value
class AskVoters:
    """Ask the voters what the rules of the end need: `VotersAsked`."""

    ticket: Ticket


@value
class AppendFinished:
    """Append ZkMigrationState POST_MIGRATION: `Committed`."""

    ticket: Ticket


@value
class AppendReopened:
    """Append ZkMigrationState MIGRATION with this order: `Committed`."""

    ticket: Ticket
    order: MigrationReopening


@value
class AppendAdmitted:
    """Append ZkMigrationState MIGRATION without an order: brokers in ZooKeeper mode may register: `Committed`."""

    ticket: Ticket


@value
class TransferLeadership:
    """Resign the leadership in favour of that voter. No answer."""

    successor: int


@value
class ScheduleTimer:
    """Feed one `Timer` with that ticket at that time."""

    ticket: Ticket
    delay_ms: int


@value
class JournalTransition:
    """Write a transition to the durable journal and to the log of the process."""

    epoch: int
    before: State
    after: State
    public: PublicState
    sentence: str


@value
class ReportSituation:
    """Show a new sentence in status and log. ``for_journal``: write it to the journal, too."""

    sentence: str
    for_journal: bool = False


Performed = (
    Examine
    | ReadReadiness
    | DecodeAll
    | TakeClaim
    | ReleaseClaim
    | NudgeElection
    | StartCopy
    | LookAgain
    | CompleteTransaction
    | AbortTransaction
    | CancelWork
    | StopDualWrite
    | SendTakeoverRpcs
    | CompareAll
    | SendFullRpcs
    | AuditZooKeeper
    | AskVoters
    | AppendFinished
    | AppendReopened
    | AppendAdmitted
    | TransferLeadership
    | ScheduleTimer
    | JournalTransition
    | ReportSituation
)
"""The effects that the executor performs."""

ForWriteBehind = OpenWriteBehind | Reconcile | Resume
"""The effects that the coordinator hands to the write-behind."""

Effect = Performed | ForWriteBehind
