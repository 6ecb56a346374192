"""Deciding to claim and to release ZooKeeper's controllership for a KRaft controller.

Pure functions of what was read (`ClaimView`); `claim` does the reading and writing. Source: KIP-866,
``KafkaZkClient.tryRegisterKRaftControllerAsActiveController``. Otherwise than there, one multi does everything,
``/migration`` included: its version is known afterwards, and it cannot move backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from migrator.errors import OperatorError
from migrator.raft.messages import EpochOffset
from migrator.values import value
from migrator.zookeeper.ops import (
    FORBIDDEN_REMEDY,
    Applied,
    Check,
    Create,
    Delete,
    Failed,
    MultiOutcome,
    Op,
    SetData,
    Stat,
    Unknown,
    ZkError,
    Znode,
    denied,
)
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import (
    NOBODY,
    ControllerClaim,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
    encode_controller_epoch,
)
from migrator.zookeeper.znodes.migration import INITIAL_STATE, MigrationState, decode_migration, encode_migration

CrcAt = Callable[[int], int | None]
"""CRC of the batch of our log that holds an offset; None when our log does not hold it."""


def holds_nothing(_: int) -> None:
    """The `CrcAt` of nobody's log."""


@value
class ClaimView:
    """The three znodes that controllership consists of, with their data versions; None for what is missing."""

    epoch: int | None
    epoch_version: int
    controller: ControllerClaim | None
    controller_version: int
    migration: MigrationState | None
    """None also for a znode without data."""
    migration_version: int | None
    """None when the znode is missing."""
    epoch_mzxid: int = -1
    """The transaction that wrote ``/controller_epoch`` last."""


@value
class Claim:
    """What a held claim is: every later write checks ``epoch_version`` and sets ``/migration`` at its version.
    ``zxid``: the transaction that made it; whoever held the claim before wrote earlier."""

    zk_epoch: int
    epoch_version: int
    controller_version: int
    migration: MigrationState
    migration_version: int
    zxid: int = -1


@value
class ClaimPlan:
    """One multi and what holds when it is applied."""

    ops: tuple[Op, ...]
    zk_epoch: int
    migration: MigrationState


@value
class Superseded:
    """A KRaft controller of the same or a newer epoch holds the claim: this one must not touch ZooKeeper."""

    broker_id: int
    kraft_epoch: int


@value
class LostRace:
    """Something changed between reading and writing, or the outcome is unknown: read again and decide anew."""

    reason: str


@value
class Released:
    """``/controller`` is gone, or was never a KRaft controller's."""

    by_us: bool


def read_view(read: Callable[[list[str]], Iterator[Znode | None]]) -> ClaimView:
    """Read and decode.

    :raises ZnodeError: when one of the three does not decode: then nothing may be claimed.
    """
    epoch, controller, migration = read([paths.CONTROLLER_EPOCH, paths.CONTROLLER, paths.MIGRATION])
    return ClaimView(
        epoch=decode_controller_epoch(epoch.path, epoch.data) if epoch else None,
        epoch_version=epoch.stat.version if epoch else -1,
        controller=decode_controller(controller.path, controller.data) if controller else None,
        controller_version=controller.stat.version if controller else -1,
        migration=decode_migration(migration.path, migration.data) if migration else None,
        migration_version=migration.stat.version if migration else None,
        epoch_mzxid=epoch.stat.mzxid if epoch else -1,
    )


def plan_claim(
    view: ClaimView,
    *,
    controller_id: int,
    kraft_epoch: int,
    now_ms: int,
    heal_to: EpochOffset | None = None,
    crc_at: CrcAt = holds_nothing,
) -> ClaimPlan | Claim | Superseded:
    """Decide on a claim: what to write, or that it is ours already, or somebody else's.

    The second set of ``/controller`` gives it a version other than the 0 of ZooKeeper controllers' znodes, which
    brokers from 3.7 tell a change of controller by.

    :param heal_to: what ``/migration`` is set to: that of the End record, where a crash kept it from there. Only if our
        log still holds it; else the end of the reconcile sets it.
    :raises OperatorError: without ``/controller_epoch``, which only brokers create.
    """
    held = view.controller
    if held is not None and held.kraft_epoch >= kraft_epoch:
        if held.kraft_epoch == kraft_epoch and held.broker_id == controller_id:
            ours = _already_ours(view, controller_id, kraft_epoch)
            if ours is not None:
                return ours
        return Superseded(held.broker_id, held.kraft_epoch)
    if view.epoch is None:
        raise OperatorError(
            "there is no /controller_epoch: no broker was ever the controller of this cluster",
            where=paths.CONTROLLER_EPOCH,
            remedy="Check the chroot in zookeeper.connect, and that a broker of this cluster runs in ZooKeeper mode",
        )
    migration = _mark(view.migration or INITIAL_STATE, controller_id, kraft_epoch, heal_to, crc_at)
    controller = encode_controller(ControllerClaim(controller_id, now_ms, kraft_epoch))
    ops: list[Op] = [SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(view.epoch + 1), view.epoch_version)]
    if held is not None:
        ops.append(Delete(paths.CONTROLLER, view.controller_version))
    ops += [Create(paths.CONTROLLER, controller), SetData(paths.CONTROLLER, controller, 0)]
    if view.migration_version is None:
        ops.append(Create(paths.MIGRATION, encode_migration(migration)))
    else:
        ops.append(SetData(paths.MIGRATION, encode_migration(migration), view.migration_version))
    return ClaimPlan(tuple(ops), view.epoch + 1, migration)


def conclude_claim(plan: ClaimPlan, outcome: MultiOutcome) -> Claim | LostRace:
    """What the outcome of a plan's multi means.

    BADVERSION, NONODE and NODEEXISTS: somebody else was faster; an unknown outcome: the next look will tell.

    :raises OperatorError: when this session may not write.
    """
    match outcome:
        case Applied(results):
            epoch, controller, migration = results[0], results[-2], results[-1]
            return Claim(
                zk_epoch=plan.zk_epoch,
                epoch_version=epoch.version if isinstance(epoch, Stat) else 0,
                controller_version=controller.version if isinstance(controller, Stat) else 0,
                migration=plan.migration,
                migration_version=migration.version if isinstance(migration, Stat) else 0,
                zxid=epoch.mzxid if isinstance(epoch, Stat) else -1,
            )
        case Failed(index, error, identity):
            return _lost(plan.ops, index, error, identity)
        case Unknown(reason):
            return LostRace(f"the outcome is unknown ({reason})")


def plan_release(view: ClaimView, *, kraft_epoch: int) -> tuple[Op, ...] | Released | Superseded:
    """Decide on releasing any KRaft controller's claim up to our epoch, our predecessors' included.

    ``/controller_epoch`` is only checked: brokers give up when it is written after ``/controller`` went.
    """
    held = view.controller
    if held is None or not held.is_kraft:
        return Released(by_us=False)
    if held.kraft_epoch > kraft_epoch:
        return Superseded(held.broker_id, held.kraft_epoch)
    return release_ops(view.epoch_version, view.controller_version)


def release_ops(epoch_version: int, controller_version: int) -> tuple[Op, ...]:
    """The multi of a release, at the versions of a claim or of a view."""
    return (Check(paths.CONTROLLER_EPOCH, epoch_version), Delete(paths.CONTROLLER, controller_version))


def conclude_release(ops: tuple[Op, ...], outcome: MultiOutcome) -> Released | LostRace:
    """What the outcome of a release means; errors as `conclude_claim`."""
    match outcome:
        case Applied():
            return Released(by_us=True)
        case Failed(index, error, identity):
            return _lost(ops, index, error, identity)
        case Unknown(reason):
            return LostRace(f"the outcome is unknown ({reason})")


def plan_wake(view: ClaimView, now_ms: int) -> tuple[Op, ...] | None:
    """What creates ``/controller`` for nobody, or () if a wake has left one; None while somebody is the controller.

    Every operation is under ``/controller_epoch`` as it was seen: whoever becomes the controller, a broker or a quorum,
    writes it in the same multi. The version of ``/controller`` tells nothing, each begins at 0.
    """
    held = view.controller
    if view.epoch is None or (held is not None and not held.is_nobody):
        return None
    create = Create(paths.CONTROLLER, encode_controller(ControllerClaim(NOBODY, now_ms)), ephemeral=True)
    return () if held is not None else (Check(paths.CONTROLLER_EPOCH, view.epoch_version), create)


def _mark(
    before: MigrationState, controller_id: int, kraft_epoch: int, heal_to: EpochOffset | None, crc_at: CrcAt
) -> MigrationState:
    """What a claim writes into ``/migration``: the offset that is there, with what proves it ours if that is known."""
    crc = None if heal_to is None else crc_at(heal_to.offset)
    if heal_to is not None and crc is not None:
        return MigrationState(controller_id, kraft_epoch, heal_to.offset, heal_to.epoch, crc)
    offset, epoch = before.kraft_metadata_offset, before.kraft_metadata_epoch
    crc = crc_at(offset) if before.copied else None
    return MigrationState(controller_id, kraft_epoch, offset, epoch, before.batch_crc if crc is None else crc)


def _already_ours(view: ClaimView, controller_id: int, kraft_epoch: int) -> Claim | None:
    """Our own claim of this epoch, whose answer got lost."""
    migration = view.migration
    if migration is None or view.migration_version is None or view.epoch is None:
        return None
    if (migration.kraft_controller_id, migration.kraft_controller_epoch) != (controller_id, kraft_epoch):
        return None
    return Claim(
        view.epoch,
        view.epoch_version,
        view.controller_version,
        migration,
        view.migration_version,
        view.epoch_mzxid,
    )


def _lost(ops: tuple[Op, ...], index: int, error: ZkError, identity: str) -> LostRace:
    path = ops[index].path
    if error is ZkError.NO_AUTH:
        raise OperatorError(denied(ops[index], identity), where=path, remedy=FORBIDDEN_REMEDY)
    return LostRace(f"{path} changed meanwhile ({error.name})")
