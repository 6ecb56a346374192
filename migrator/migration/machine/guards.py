"""May this leader claim the ZooKeeper cluster? Every refusal that protects a cluster from us is decided here.

Pure: what ZooKeeper shows (`Standing`) and what we know of ourselves (`Claimant`) in, a `GuardAnswer` out. The claim
multi is conditional on the versions of that same reading, so a verdict holds at the moment at which it is used.
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
    """What our log tells of the offset in ``/migration``, and of whoever wrote it there.

    ``epoch`` and ``crc``: of the batch that holds the offset; None when the log holds no such offset. ``compacted``:
    the offset lies below the log's start, where nothing can be looked up any more. ``stock_wrote``: the controller
    that wrote it led our log in the epoch in which it did, and was one of stock Kafka, which writes no CRC.
    ``same_copy``: it has the name that our log has for the copy.
    """

    epoch: int | None = None
    crc: int | None = None
    compacted: bool = False
    stock_wrote: bool = False
    same_copy: bool = False


@value
class Standing:
    """One reading of what decides who controls the cluster. A ``/migration`` without data is as good as none
    (zookeeper-security-migration leaves such, KAFKA-19480)."""

    cluster_id: str | None
    view: ClaimView
    evidence: MarkEvidence = MarkEvidence()
    fault: OperatorError | None = None
    """One of these znodes does not decode, or there is no cluster; the other fields then say nothing."""

    @property
    def mark(self) -> MigrationState:
        """The content of ``/migration``."""
        return self.view.migration or INITIAL_STATE


UNREADABLE = ClaimView(None, -1, None, -1, None, None)
"""The view of a standing that has a fault."""


@value
class Claimant:
    """What a leader knows of itself. ``decoded``: everything in ZooKeeper was read once, without a fault.
    ``overridden``: the facts that an operator was shown and has overridden, in the words of `GuardAnswer.overridable`.
    ``has_claimed``: it has sent a claim in this epoch, whatever became of it.
    ``base`` is the record that made the copy complete (End), or the oldest that we know to be later. ``reopened``: the
    migration was finished, and ZooKeeper does not hold everything yet that has changed since."""

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
    """What follows from an examination; the sentences are for the operator. ``overridable``: every fact that a refusal
    rests on, if an order can override them all."""

    finding: Finding
    reason: str = ""
    remedy: str = ""
    overridable: tuple[str, ...] = ()


class Ownership(Enum):
    """Whose offset ``/migration`` holds."""

    OURS = "ours"
    NOT_COPIED = "not copied"
    FOREIGN = "foreign"
    UNPROVED = "unproved"


def ownership(standing: Standing) -> Ownership:
    """Whether our log holds the offset of ``/migration`` with its epoch and in that very batch.

    Offset and epoch alone prove nothing: every young quorum has an offset 100 of epoch 1. The CRC of the batch does: it
    covers the records and the millisecond of their append. Where the log has dropped the batch, the name of the copy
    does, which is random.
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
    """Whether ZooKeeper is what the last leader of this quorum made of it: that leader still holds the claim, the
    checksum proves its mark, and no order overrides a doubt. The claim is conditional on the version of that mark. So
    what ZooKeeper may lack is what the log has changed since. Of a reopened migration everything is compared: nobody
    wrote to ZooKeeper for as long as it was finished, or anybody did."""
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
    """What a leader may do, given what ZooKeeper shows."""
    if standing.fault is not None:
        return GuardAnswer(Finding.REFUSE, f"{standing.fault.where}: {standing.fault.what}", standing.fault.remedy)
    return _wrong_cluster(standing, us) or _history(standing, us) or _newer(standing, us) or _step(standing, us)


def reached(mark: MigrationState) -> EpochOffset:
    """Up to which record ZooKeeper holds our metadata."""
    return EpochOffset(epoch=mark.kraft_metadata_epoch, offset=mark.kraft_metadata_offset)


def heal_to(standing: Standing, us: Claimant) -> EpochOffset | None:
    """End's own offset, when a crash between End and the first write of ``/migration`` kept it from there; None:
    the offset that is there stays."""
    healing = us.record is ZkMigrationState.MIGRATION and not standing.mark.copied
    return us.base if healing else None


def adopt(view: ClaimView, us: Claimant) -> Claim | None:
    """The claim that a reading shows to be ours although its outcome was unknown."""
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
    """Refuse where the log and ``/migration`` tell different stories; stock Kafka erases the cluster here."""
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
        pass  # somebody has tidied up, or ZooKeeper is a new one: there is nobody to take the cluster from
    elif controller is None or not controller.is_kraft:
        found.append(_rolled_back(controller))
    facts = tuple(each.reason for each in found)
    if us.overridden.issuperset(facts):
        return None
    return GuardAnswer(Finding.REFUSE, "; ".join(facts), " ".join(each.remedy for each in found), facts)


def _rolled_back(controller: ControllerClaim | None) -> GuardAnswer:
    """A fact that an order can override."""
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
    """Ours perhaps, perhaps another quorum's: an operator has to know."""
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
    """A claim with our id and epoch is ours only if we have made one: every young quorum has a leader in epoch 1."""
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
