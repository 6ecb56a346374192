"""What the migration driver asks for.

The executor performs what is `Performed`, in order; each effect that has a ticket is answered. What is `ForWriteBehind`
never comes to the executor: the coordinator hands it over.
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
    """Read /cluster/id, /controller_epoch, /controller and /migration, look its offset up in the log: `Examined`.
    ``brokers``: a claim may follow at once, so look who runs, too."""

    ticket: Ticket
    brokers: bool = False


@value
class ReadReadiness:
    """`ReadinessInputs`."""

    ticket: Ticket


@value
class DecodeAll:
    """Read and decode everything in a worker, write nothing: `DecodeResult`."""

    ticket: Ticket


@value
class TakeClaim:
    """One multi, conditional on the versions of ``view`` as the guards saw them: `ClaimResult`. ``heal_to``: what
    /migration is set to; None leaves its offset."""

    ticket: Ticket
    view: ClaimView
    heal_to: EpochOffset | None


@value
class ReleaseClaim:
    """One multi: check /controller_epoch, delete /controller, both at these versions: `ReleaseResult`."""

    ticket: Ticket
    epoch_version: int
    controller_version: int


@value
class NudgeElection:
    """Create /controller with broker id -1, then delete it: brokers that missed the release elect. No answer."""


@value
class StartCopy:
    """Append Begin, read everything again in a worker, append its batches: `WorkProgressed`, then `CopyDone` or
    `CopyFailed`."""

    ticket: Ticket


@value
class LookAgain:
    """The copy is complete, ``records`` of them, and whether it counts is not known yet: read who runs, and the
    versions of the claim: `CopyDone` or `CopyFailed`."""

    ticket: Ticket
    records: int


@value
class CompleteTransaction:
    """Append ZkMigrationState MIGRATION, with the name that the claim has given the copy, and End as one batch:
    `Committed`."""

    ticket: Ticket
    copied_as: str | None = None


@value
class AbortTransaction:
    """Append Abort if a transaction is open: `Committed` (at once when none is)."""

    ticket: Ticket
    reason: str


@value
class CancelWork:
    """Stop the worker processes; their results are not wanted any more."""


@value
class OpenWriteBehind:
    """From now on ZooKeeper is written under this claim; /migration first moves to ``at`` if it is not there."""

    claim: Claim
    at: EpochOffset


@value
class StopDualWrite:
    """Nothing is written to ZooKeeper and sent to its brokers any more, queued work included."""


@value
class SendTakeoverRpcs:
    """UpdateMetadata of type 0 for all topics, LeaderAndIsr of type 1 where it is safe. No answer."""

    zk_epoch: int


@value
class Reconcile:
    """Compare all of ZooKeeper with the image, write what differs: `WorkProgressed`, `ReconcileDone`, `ReconcileHeld`,
    `ReconcileFailed`. The coordinator turns it into `CompareAll`. ``deletes_allowed``: the digest of the deletes that
    an operator has allowed, "" for none."""

    ticket: Ticket
    deletes_allowed: str


@value
class Resume:
    """Write what has changed since the mark, then every change, and compare all of ZooKeeper with the image beside it:
    `WorkProgressed`, `ReconcileDone`, `ReconcileFailed`, `WriteBehindFailed`. The coordinator turns it into
    `CompareAll`."""

    ticket: Ticket


@value
class CompareAll:
    """Compare all of ZooKeeper with this image in a worker; the write-behind takes the writes (`ReconcileWrites`).
    Answered with `ReconcileFailed` when the worker fails."""

    ticket: Ticket
    image: MetadataImage
    deletes_allowed: str


@value
class SendFullRpcs:
    """LeaderAndIsr of type 2, then the closing UpdateMetadata: `RpcsQueued`. ``again``: it was asked for before; what
    is still being planned is waited for, and not planned twice."""

    ticket: Ticket
    zk_epoch: int
    again: bool = False


@value
class AuditZooKeeper:
    """Look for znodes that somebody else wrote: `AuditResult`."""

    ticket: Ticket


@value
class AskVoters:
    """`VotersAsked`."""

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
class HandOver:
    """Resign the leadership in favour of that voter."""

    successor: int


@value
class ScheduleTimer:
    """`Timer` with that ticket, once."""

    ticket: Ticket
    delay_ms: int


@value
class JournalTransition:
    """Goes into the durable journal, and the log."""

    epoch: int
    before: State
    after: State
    public: PublicState
    sentence: str


@value
class ReportSituation:
    """The sentence for status and log has changed. ``for_journal``: it is worth remembering, too."""

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
    | HandOver
    | ScheduleTimer
    | JournalTransition
    | ReportSituation
)
"""What the executor performs."""

ForWriteBehind = OpenWriteBehind | Reconcile | Resume
"""What the driver says to the write-behind; it never leaves the coordinator."""

Effect = Performed | ForWriteBehind
