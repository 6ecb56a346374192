"""Decides whether this leader may claim the ZooKeeper cluster. Every refusal that protects a cluster from us is here.

Pure: from what ZooKeeper shows (`Standing`) and what the leader knows of itself (`Claimant`) follows a `GuardAnswer`.
The claim multi is conditional on the versions of the same reading, so the answer still holds when it is used.
"""

from __future__ import annotations

from enum import Enum

from migrator.errors import OperatorError
from migrator.migration.machine.transitions import Finding
from migrator.observe.printable import utc
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import ZkMigrationState
from migrator.values import value
from migrator.zookeeper.leadership import Claim, ClaimView, plan_claim
from migrator.zookeeper.znodes.controller import ControllerClaim
from migrator.zookeeper.znodes.migration import INITIAL_STATE, MigrationState


@value
class MarkEvidence:
    """Our log's evidence about the offset in ``/migration``, and about the controller that wrote it.

    ``epoch`` and ``crc``: of the batch that holds the offset; None when the log holds no such offset. ``compacted``:
    the offset lies below the log's start, where nothing can be looked up. ``stock_wrote``: the controller that wrote
    the offset led our log in that epoch, and was one of stock Kafka, which writes no CRC. ``same_copy``: ``/migration``
    has the name that our log has for the copy.
    """

    epoch: int | None = None
    crc: int | None = None
    compacted: bool = False
    stock_wrote: bool = False
    same_copy: bool = False


@value
class Standing:
    """One reading of the znodes that decide who controls the cluster. A ``/migration`` without data counts as missing
    (zookeeper-security-migration leaves one, KAFKA-19480)."""

    cluster_id: str | None
    view: ClaimView
    evidence: MarkEvidence = MarkEvidence()
    fault: OperatorError | None = None
    """One of these znodes does not decode, or there is no cluster; then the other fields have no meaning."""

    @property
    def mark(self) -> MigrationState:
        """The content of ``/migration``."""
        return self.view.migration or INITIAL_STATE


UNREADABLE = ClaimView(None, -1, None, -1, None, None)
"""The view of a standing that has a fault."""


@value
class Claimant:
    """The facts about the leader itself. ``decoded``: it has read everything in ZooKeeper once, without a fault.
    ``overridden``: the facts that an operator was shown and has overridden, in the words of `GuardAnswer.overridable`.
    ``has_claimed``: it has sent a claim in this epoch; the outcome may be unknown. ``base``: the record that made the
    copy complete (EndTransaction), or the oldest known record after it. ``reopened``: the migration was finished, and
    ZooKeeper still lacks changes since then."""

    node_id: int
    epoch: int
    cluster_id: str
    record: ZkMigrationState
    decoded: bool = False
    overridden: frozenset[str] = frozenset()
    has_claimed: bool = False
    base: EpochOffset = EpochOffset(-1, -1)
    reopened: bool = False


@value
class GuardAnswer:
    """The answer to an examination; its sentences are for the operator. ``overridable``: all facts behind a refusal, if
    an order can override all of them."""

    finding: Finding
    reason: str = ""
    remedy: str = ""
    overridable: tuple[str, ...] = ()


class Ownership(Enum):
    """The log to which the offset in ``/migration`` belongs."""

    OURS = "ours"
    NOT_COPIED = "not copied"
    FOREIGN = "foreign"
    UNPROVED = "unproved"


def ownership(standing: Standing) -> Ownership:
    """Decide whether our log holds the offset of ``/migration``, with the same epoch and in the same batch.

    Offset and epoch alone prove nothing: every young quorum has an offset 100 of epoch 1. The CRC of the batch is a
    proof: it covers the records and the millisecond of their append. When the log has dropped the batch, the name of
    the copy is the proof, because it is random.
    """
    mark, evidence = standing.mark, standing.evidence
    if not mark.copied:
        return Ownership.NOT_COPIED
    if evidence.compacted:
        return Ownership.OURS if evidence.same_copy else Ownership.UNPROVED
    if evidence.epoch is None or evidence.epoch != mark.kraft_metadata_epoch:
        return Ownership.FOREIGN
    if mark.batch_crc is None:
        return Ownership.OURS if evidence.stock_wrote else Ownership.UNPROVED
    return Ownership.OURS if mark.batch_crc == evidence.crc else Ownership.FOREIGN


def continues(standing: Standing, us: Claimant) -> bool:
    """Whether ZooKeeper is as the last leader of this quorum left it: that leader still holds the claim, the checksum
    proves its mark, and no order overrides a doubt. The claim is conditional on the version of that mark. So ZooKeeper
    can lack only what the log has changed since. After a reopening everything is compared: while the migration was
    finished, this quorum wrote nothing, and other clients may have written."""
    holder, mark = standing.view.controller, standing.mark
    return (
        us.record is ZkMigrationState.MIGRATION
        and ownership(standing) is Ownership.OURS
        and mark.batch_crc is not None
        and holder is not None
        and (holder.broker_id, holder.kraft_epoch) == (mark.kraft_controller_id, mark.kraft_controller_epoch)
        and not us.overridden
        and not us.reopened
    )


def examine(standing: Standing, us: Claimant) -> GuardAnswer:
    """Decide what a leader may do, given what ZooKeeper shows."""
    if standing.fault is not None:
        return GuardAnswer(Finding.REFUSE, f"{standing.fault.where}: {standing.fault.what}", standing.fault.remedy)
    return _wrong_cluster(standing, us) or _history(standing, us) or _newer(standing, us) or _step(standing, us)


def reached(mark: MigrationState) -> EpochOffset:
    """The record up to which ZooKeeper holds our metadata."""
    return EpochOffset(epoch=mark.kraft_metadata_epoch, offset=mark.kraft_metadata_offset)


def heal_to(standing: Standing, us: Claimant) -> EpochOffset | None:
    """The offset of EndTransaction, when a crash after it prevented the first write of ``/migration``; None to keep the
    offset in ``/migration``."""
    healing = us.record is ZkMigrationState.MIGRATION and not standing.mark.copied
    return us.base if healing else None


def adopt(view: ClaimView, us: Claimant) -> Claim | None:
    """The claim, if this reading shows that ours succeeded although its outcome was unknown."""
    plan = plan_claim(view, controller_id=us.node_id, kraft_epoch=us.epoch, now_ms=0)
    return plan if isinstance(plan, Claim) else None


def _wrong_cluster(standing: Standing, us: Claimant) -> GuardAnswer | None:
    if standing.cluster_id != us.cluster_id:
        return GuardAnswer(
            Finding.REFUSE,
            f"/cluster/id is {standing.cluster_id}, but this quorum was formatted for cluster {us.cluster_id}",
            "Correct zookeeper.connect if it names another cluster than yours. If the quorum is new and was formatted "
            f"with a wrong id, stop its controllers, empty their directories, and format them with --cluster-id "
            f"{standing.cluster_id}.",
        )
    if standing.view.epoch is None:
        return GuardAnswer(
            Finding.REFUSE,
            "/controller_epoch is missing: no ZooKeeper controller was ever elected here",
            "Start the brokers of the cluster in ZooKeeper mode first.",
        )
    return None


def _history(standing: Standing, us: Claimant) -> GuardAnswer | None:
    """Refuse when log and ``/migration`` contradict each other. Stock Kafka erases the cluster in this case."""
    mark = standing.mark
    if mark.copied and us.record is not ZkMigrationState.MIGRATION:
        return GuardAnswer(
            Finding.REFUSE,
            f"/migration says that {_place(mark)} was copied by controller {mark.kraft_controller_id}, but the log of "
            "this quorum holds no copy: the znode is left from another quorum",
            "Make sure that no other quorum runs for this cluster and that the cluster is back under a ZooKeeper "
            "controller, then delete /migration.",
        )
    if us.record is not ZkMigrationState.MIGRATION:
        return None
    owner = ownership(standing)
    if owner is Ownership.FOREIGN:
        return GuardAnswer(
            Finding.REFUSE,
            f"/migration holds {_place(mark)}, which the log of this quorum does not: another quorum migrated this "
            "cluster",
            "Stop whichever quorum should not control this cluster; do not delete /migration before you know which.",
        )
    found = [_unproved(standing)] if owner is Ownership.UNPROVED else []
    controller = standing.view.controller
    if us.reopened and (controller is None or controller.is_nobody):
        pass  # znodes were cleaned up, or ZooKeeper is new: there is no controller to take the cluster from
    elif controller is None or not controller.is_kraft:
        found.append(_rolled_back(controller))
    facts = tuple(each.reason for each in found)
    if us.overridden.issuperset(facts):
        return None
    return GuardAnswer(Finding.REFUSE, "; ".join(facts), " ".join(each.remedy for each in found), facts)


def _rolled_back(controller: ControllerClaim | None) -> GuardAnswer:
    """The fact, which an order can override, that brokers control the cluster again."""
    holder = "absent"
    if controller is not None:
        holder = f"held by ZooKeeper broker {controller.broker_id} since {utc(controller.timestamp_ms)}"
    fact = f"the log says that the cluster was migrated, but /controller is {holder}: it was rolled back to ZooKeeper"
    remedy = (
        "Stop this quorum if the rollback was meant. To take the cluster over again with the metadata of this log, "
        "which overwrites what changed in ZooKeeper since, force it with 'migrator force reclaim'."
    )
    return GuardAnswer(Finding.REFUSE, fact, remedy)


def _unproved(standing: Standing) -> GuardAnswer:
    """The mark may be ours or another quorum's: an operator has to decide."""
    mark = standing.mark
    if standing.evidence.compacted:
        why = "which is below the start of this controller's log: nothing here proves that this quorum wrote it"
        first = "A controller whose log reaches further back can prove it: restart this one, so that another leads. "
    else:
        writer = f"stock controller {mark.kraft_controller_id} as leader of epoch {mark.kraft_controller_epoch}"
        why = (
            f"but without the checksum that this program writes, and the log does not show {writer}: another quorum "
            "wrote it, or an old version of this program"
        )
        first = ""
    fact = (
        f"/migration (version {standing.view.migration_version} of the znode, written by controller "
        f"{mark.kraft_controller_id} in epoch {mark.kraft_controller_epoch}) holds {_place(mark)}, {why}"
    )
    remedy = (
        f"{first}If no other quorum has migrated this cluster since, force it with 'migrator force reclaim': what "
        "ZooKeeper holds is then overwritten with the metadata of this log. If another one has, stop this quorum."
    )
    return GuardAnswer(Finding.REFUSE, fact, remedy)


def _place(mark: MigrationState) -> str:
    return f"offset {mark.kraft_metadata_offset} of epoch {mark.kraft_metadata_epoch}"


def _newer(standing: Standing, us: Claimant) -> GuardAnswer | None:
    """Refuse a newer claim. One with our id and epoch is ours only if we have sent a claim: every young quorum has a
    leader in epoch 1."""
    newest = standing.mark.kraft_controller_epoch
    holder = standing.mark.kraft_controller_id
    controller = standing.view.controller
    if controller is not None and controller.kraft_epoch >= newest:
        newest, holder = controller.kraft_epoch, controller.broker_id
    if newest < us.epoch or (us.has_claimed and (newest, holder) == (us.epoch, us.node_id)):
        return None
    return GuardAnswer(
        Finding.ELSEWHERE,
        f"controller {holder} with epoch {newest} has claimed the cluster; ours is {us.epoch}",
        "Wait while the quorum elects. If the claim stays, it is of another quorum: roll back with that one's log. If "
        "that quorum and its logs are gone, 'migrator rollback --without-log' ends its claim.",
    )


def _step(standing: Standing, us: Claimant) -> GuardAnswer:
    controller = standing.view.controller
    migrated = us.record is ZkMigrationState.MIGRATION
    if not migrated and not us.decoded:
        if controller is None:
            return GuardAnswer(Finding.NO_CONTROLLER)
        if controller.is_kraft:
            return GuardAnswer(Finding.STRAY_CLAIM, f"controller {controller.broker_id} left its claim without a copy")
        return GuardAnswer(Finding.CLEAR)
    if controller is not None and (controller.broker_id, controller.kraft_epoch) == (us.node_id, us.epoch):
        if adopt(standing.view, us) is None:
            return GuardAnswer(
                Finding.REFUSE,
                "/controller is our claim, but /migration is not what we wrote with it",
                "Find out who wrote /migration. A new election of the quorum claims again.",
            )
        return GuardAnswer(Finding.OWN_CLAIM_KEEP if migrated else Finding.OWN_CLAIM_COPY)
    return GuardAnswer(Finding.MAY_CLAIM)
