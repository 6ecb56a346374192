"""Decides how to claim and release ZooKeeper's controllership for a KRaft controller.

These are pure functions of a `ClaimView`; `claim` reads and writes. Source: KIP-866,
``KafkaZkClient.tryRegisterKRaftControllerAsActiveController``. Unlike Kafka, one multi writes everything, including
``/migration``: so its version is known afterwards, and its offset cannot go backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

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
"""Returns the CRC of the batch of this node's log that holds an offset; None when the log does not hold it."""


def holds_nothing(_: int) -> None:
    """The `CrcAt` of an empty log."""


@value
class ClaimView:
    """The three znodes of controllership with their data versions; None for a missing one."""

    epoch: int | None
    epoch_version: int
    controller: ControllerClaim | None
    controller_version: int
    migration: MigrationState | None
    """The contents of /migration; None if it does not exist or is empty."""
    migration_version: int | None
    """None when the znode is missing."""
    epoch_mzxid: int = -1
    """The last transaction that wrote ``/controller_epoch``."""


@value
class Claim:
    """A held claim: every later write checks ``epoch_version`` and sets ``/migration`` at its version. ``zxid``: the
    transaction that made the claim. All writes of earlier holders have lower ones."""

    zk_epoch: int
    epoch_version: int
    controller_version: int
    migration: MigrationState
    migration_version: int
    zxid: int = -1


@value
class ClaimPlan:
    """One multi, and the claim that holds after it is applied."""

    ops: tuple[Op, ...]
    zk_epoch: int
    migration: MigrationState


@value
class Superseded:
    """A KRaft controller of the same or a newer epoch holds the claim. This controller must not write to ZooKeeper."""

    broker_id: int
    kraft_epoch: int


@value
class LostRace:
    """A znode changed between reading and writing, or the outcome is unknown: read again and decide anew."""

    reason: str


@value
class Released:
    """``/controller`` does not exist, or is not a KRaft controller's."""

    by_us: bool


def read_view(read: Callable[[list[str]], Iterator[Znode | None]]) -> ClaimView:
    """Read and decode the three znodes.

    :raises ZnodeError: one of them does not decode; then nothing may be claimed.
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
    copied_as: str | None = None,
) -> ClaimPlan | Claim | Superseded:
    """Decide on a claim: the multi to write, or the claim that this controller has already, or that another one has it.

    The second set of ``/controller`` gives the znode a version other than 0, which ZooKeeper controllers' znodes have.
    Brokers from 3.7 on notice a change of controller by that.

    :param heal_to: the offset for ``/migration`` when a crash kept the End record's offset from being written. It is
        used only if this node's log still holds it; otherwise the end of the reconcile sets ``/migration``.
    :param copied_as: the name of the copy; None for a copy that has none.
    :raises OperatorError: ``/controller_epoch`` is missing; only brokers create it.
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
    marked = _mark(view.migration or INITIAL_STATE, controller_id, kraft_epoch, heal_to, crc_at)
    migration = replace(marked, copied_as=copied_as)
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
    """The result of a claim, from the outcome of its multi.

    BADVERSION, NONODE and NODEEXISTS mean that another controller was faster. After an unknown outcome the next view
    shows what happened.

    :raises OperatorError: this session may not write.
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
    """Decide how to release a KRaft controller's claim of this epoch or an earlier one.

    ``/controller_epoch`` is only checked, not written: brokers give up when it changes after ``/controller`` was
    deleted.
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
    """The result of a release, from the outcome of its multi; errors as `conclude_claim`."""
    match outcome:
        case Applied():
            return Released(by_us=True)
        case Failed(index, error, identity):
            return _lost(ops, index, error, identity)
        case Unknown(reason):
            return LostRace(f"the outcome is unknown ({reason})")


def plan_wake(view: ClaimView, now_ms: int) -> tuple[Op, ...] | None:
    """The multi that creates ``/controller`` without a controller; () if such a znode is left from before; None while
    there is a controller.

    Every operation checks the version of ``/controller_epoch``: a new controller, broker or quorum, writes that znode
    in the multi of its claim. The version of ``/controller`` does not help, because each new one begins at 0.
    """
    held = view.controller
    if view.epoch is None or (held is not None and not held.is_nobody):
        return None
    create = Create(paths.CONTROLLER, encode_controller(ControllerClaim(NOBODY, now_ms)), ephemeral=True)
    return () if held is not None else (Check(paths.CONTROLLER_EPOCH, view.epoch_version), create)


def _mark(
    before: MigrationState, controller_id: int, kraft_epoch: int, heal_to: EpochOffset | None, crc_at: CrcAt
) -> MigrationState:
    """The state that a claim writes into ``/migration``: the offset that is there, and the batch's CRC if it is
    known."""
    crc = None if heal_to is None else crc_at(heal_to.offset)
    if heal_to is not None and crc is not None:
        return MigrationState(controller_id, kraft_epoch, heal_to.offset, heal_to.epoch, crc)
    offset, epoch = before.kraft_metadata_offset, before.kraft_metadata_epoch
    crc = crc_at(offset) if before.copied else None
    return MigrationState(controller_id, kraft_epoch, offset, epoch, before.batch_crc if crc is None else crc)


def _already_ours(view: ClaimView, controller_id: int, kraft_epoch: int) -> Claim | None:
    """This controller's own claim of this epoch, if the answer to its multi was lost."""
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
