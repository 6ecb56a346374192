"""The rollback: a cluster returns to its ZooKeeper brokers. Every controller of the quorum must have stopped before.

Kafka's own guide only deletes ``/controller`` and ``/migration``; the other steps here keep partitions online
afterwards. Sources: Kafka's migration guide, KAFKA-20488, ``Partition.makeLeader``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeGuard

from migrator.errors import OperatorError
from migrator.image.model import MetadataImage
from migrator.migration.old_orders import NO_ORDERS, OldOrders, read_old_orders
from migrator.migration.translate.entity import EntityWrite, parse_entity
from migrator.migration.translate.reconcile import Parents, reconcile, reconcile_topics
from migrator.migration.translate.source import names_below
from migrator.migration.translate.target import Target
from migrator.records.metadata import ZkMigrationState
from migrator.values import value
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.leadership import ClaimView, CrcAt, holds_nothing, read_view
from migrator.zookeeper.ops import Applied, Check, Create, Delete, Failed, MultiOutcome, Op, SetData, ZkError
from migrator.zookeeper.request_size import op_bytes
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter, split_ops
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.controller import encode_controller_epoch
from migrator.zookeeper.znodes.partition_state import decode_partition_state
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from migrator.zookeeper.znodes.topics import decode_topic

EXAMPLES = 5
SETS_AT_ONCE = 100_000
"""About so many sets of partition states are in memory: all of a large cluster would take gigabytes."""
_OTHER_LOG = (
    "Name the property file of a controller of the quorum that controls the cluster now, and the log of the controller "
    "that led last, or those of a majority, with --log. If they are lost for good, add --accept-loss"
)


@value
class RolledBack:
    """``raised_states``: partition states whose version was behind the partition epoch that brokers know.
    ``raised_epoch``: the value to which ``/controller_epoch`` was raised. ``released``: a KRaft claim was deleted.
    ``old_orders``: which orders for a ZooKeeper controller were removed."""

    raised_states: int = 0
    raised_epoch: int | None = None
    released: bool = False
    old_orders: tuple[str, ...] = ()


def roll_back(
    session: ZooKeeperSession,
    image: MetadataImage,
    passwords: PasswordEncoder,
    *,
    crc_at: CrcAt = holds_nothing,
    accept_loss: bool = False,
    shown: OldOrders | None = None,
) -> RolledBack:
    """Delete the quorum's claim, so that brokers elect a controller. Can be repeated.

    :param image: the metadata at the end of the quorum's log.
    :param crc_at: checksums of that log; the default cannot detect another quorum's log.
    :param accept_loss: no newer log exists, so ZooKeeper stays as it is wherever it differs.
    :param shown: the `old_orders` that the operator was shown; None for those that are there now.
    :raises OperatorError: the migration is finished; brokers are in KRaft mode; the log is not of the quorum that holds
        the claim, or not its newest; or ZooKeeper lacks changes that are in the log. After an error nothing is written.
        Or ZooKeeper was changed meanwhile: then the claim is still there.
    """
    reader = BulkReader(session)
    view = look(session, image, crc_at=crc_at, accept_loss=accept_loss)
    orders = old_orders(session, view, image) if shown is None else shown
    states, epoch = 0, None
    claim = view.controller
    if claim is not None and claim.is_kraft:
        if image.features.zk_migration_state is ZkMigrationState.MIGRATION:
            target = Target(image, passwords=passwords, controller_epoch=view.epoch or 0)
            guard = Check(paths.CONTROLLER_EPOCH, view.epoch_version)
            states = _raise_versions(session, target, guard, accept_loss=accept_loss)
        epoch = epoch_to_raise(view, max(state_epochs(reader), default=0))
    release(session, view, epoch, orders)
    return RolledBack(states, epoch, released=claim is not None and claim.is_kraft, old_orders=orders.told)


def old_orders(session: ZooKeeperSession, view: ClaimView, image: MetadataImage) -> OldOrders:
    """The orders for a ZooKeeper controller that go before the claim does. Before the copy they are the cluster's own,
    and so they are where a broker is the controller: then there are none."""
    rules = view.controller is not None and view.controller.is_kraft
    copied = image.features.zk_migration_state is ZkMigrationState.MIGRATION
    return read_old_orders(BulkReader(session)) if rules and copied else NO_ORDERS


def release(session: ZooKeeperSession, view: ClaimView, epoch: int | None, orders: OldOrders) -> None:
    """Remove the old orders, then the claim and ``/migration`` (`end_ops`).

    :raises OperatorError: as `apply`; also when an order has changed, or was added, since it was read.
    """
    guard: list[Op] = [] if view.epoch is None else [Check(paths.CONTROLLER_EPOCH, view.epoch_version)]
    for part in split_ops(orders.removals, reserved_bytes=sum(map(op_bytes, guard))):
        apply(session, [*guard, *part])
    ops = end_ops(view, epoch)
    if not ops:
        return
    outcome = ConditionalWriter(session).write([*ops, *orders.last])
    if (
        isinstance(outcome, Failed)
        and outcome.error is ZkError.NO_AUTH
        and outcome.index >= len(ops)
        and not orders.told
        and not read_old_orders(BulkReader(session)).told
    ):  # we may not delete below /admin, so the last look is not in one request with the release
        outcome = ConditionalWriter(session).write(ops)
    _check_applied(session, outcome)


def look(
    session: ZooKeeperSession, image: MetadataImage, *, crc_at: CrcAt = holds_nothing, accept_loss: bool = False
) -> ClaimView:
    """Check what `roll_back` checks first; the operator is asked only after this. Parameters and errors as there,
    except for changes that ZooKeeper lacks."""
    session.sync()
    view = read_view(BulkReader(session).read)
    check_way_back(image)
    _check_mark(view, image, crc_at, accept_loss=accept_loss)
    return view


def check_way_back(image: MetadataImage) -> None:
    """Check what the log alone says against a rollback. This works while the controllers run.

    :raises OperatorError: the migration is finished, or brokers are in KRaft mode.
    """
    if image.features.zk_migration_state is ZkMigrationState.POST_MIGRATION:
        raise OperatorError(
            "the migration is finished: ZooKeeper has not been written since, and there is no way back before it "
            "is reopened",
            where=f"offset {image.provenance.offset} of the log",
            remedy="Leave the controllers running. 'migrator gates reopen' says what stands against reopening the "
            "migration, which leads back to dual-writing",
        )
    if image.features.migration_reopening is not None:
        raise OperatorError(
            "the migration was reopened, and ZooKeeper does not hold everything yet that has changed since it was "
            "finished",
            where=f"offset {image.provenance.offset} of the log",
            remedy="Start the controllers, a majority is enough, with the migration on, and wait until 'migrator "
            "status' says dual-writing",
        )
    kraft = sorted(each.broker_id for each in image.cluster.brokers.values() if not each.is_migrating_zk_broker)
    if kraft:
        raise OperatorError(
            f"brokers {', '.join(map(str, kraft))} are in KRaft mode: a ZooKeeper controller cannot lead them",
            where=f"offset {image.provenance.offset} of the log",
            remedy="While the controllers run, roll these brokers into ZooKeeper mode with the migration on; "
            "'migrator quorum unregister' those that are gone for good",
        )


def _check_mark(view: ClaimView, image: MetadataImage, crc_at: CrcAt, *, accept_loss: bool) -> None:
    """Check that the log is the one that ``/migration`` names."""
    mark = view.migration
    if mark is None or not mark.copied:
        return
    if image.features.zk_migration_state is not ZkMigrationState.MIGRATION:
        raise OperatorError(
            "ZooKeeper says that the cluster was migrated, and this log does not",
            where=paths.MIGRATION,
            remedy="Name the property file of a controller of the quorum that migrated it",
        )
    unfit = tuple(log_unfit(view, image, crc_at))
    if unfit and not accept_loss:
        raise OperatorError("; ".join(unfit), where=paths.MIGRATION, remedy=_OTHER_LOG)


def log_unfit(view: ClaimView, image: MetadataImage, crc_at: CrcAt) -> Iterator[str]:
    """All reasons not to roll back with this log. An operator who accepts the loss accepts each of them."""
    mark = view.migration
    if mark is None or not mark.copied:
        return
    crc = crc_at(mark.kraft_metadata_offset)
    if crc is not None and mark.batch_crc is not None and crc != mark.batch_crc:
        yield (
            f"/migration holds offset {mark.kraft_metadata_offset} of another log: the batch there has checksum "
            f"{mark.batch_crc}, in this log {crc}. This log is of another quorum, or was left behind by its own"
        )
    if mark.kraft_metadata_offset > image.provenance.offset:
        yield (
            f"ZooKeeper holds changes up to offset {mark.kraft_metadata_offset}, this log ends at "
            f"{image.provenance.offset}: what was confirmed later and is not in ZooKeeper yet would be missing, and "
            "partitions that changed since may stay without a leader"
        )


def _raise_versions(session: ZooKeeperSession, target: Target, guard: Check, *, accept_loss: bool = False) -> int:
    """Raise versions of partition states to the partition epochs. Brokers ignore a LeaderAndIsr whose partition epoch
    is older than the one they know, so a partition whose state lags would have no leader after the next election. Stock
    leaders leave such states behind; ours do not.

    :param guard: the check, part of every write, that no other controller has been elected since.
    :param accept_loss: leave a state alone that differs in more than its version; ZooKeeper may be newer.
    :returns: the number of these states.
    """
    reader = BulkReader(session)
    target.behind = behind = dict[str, int]()
    for write in _repeating(session, list(reconcile(reader, target)), accept_loss=accept_loss):
        if any(map(_is_state, write.ops)):
            behind.setdefault(write.entity, len(write.ops))
    target.behind = None
    raised = 0
    for topics in _parts(behind):
        found = reconcile_topics(reader, target, Parents(reader), only=topics, left=())  # configs were compared above
        writes = _repeating(session, list(found), accept_loss=accept_loss)
        ops = [op for write in writes for op in write.ops if not _is_marker(op)]
        for part in split_ops(ops, reserved_bytes=op_bytes(guard)):
            apply(session, [guard, *part])
        raised += len({op.path for op in ops})
    return raised


def _parts(sets: Mapping[str, int]) -> Iterator[list[str]]:
    """The names of topics, by the number of sets of each entity; each list has about `SETS_AT_ONCE` sets."""
    part, size = list[str](), 0
    for entity, count in sets.items():
        part.append(parse_entity(entity)[1])
        size += count
        if size >= SETS_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _repeating(session: ZooKeeperSession, writes: list[EntityWrite], *, accept_loss: bool) -> list[EntityWrite]:
    """The writes that only repeat what ZooKeeper holds.

    :raises OperatorError: there are others, and their loss is not accepted.
    """
    wanted = {op.path for write in writes for op in write.ops if _is_state(op)}
    held = {znode.path: znode.data for znode in BulkReader(session).read(wanted) if znode is not None}
    missing = [write.entity for write in writes if not _only_versions(write, held)]
    if missing and not accept_loss:
        more = f" (and {len(missing) - EXAMPLES} more)" if len(missing) > EXAMPLES else ""
        raise OperatorError(
            f"ZooKeeper lacks what the metadata log holds: {', '.join(missing[:EXAMPLES])}{more}",
            where=session.options.hosts,
            remedy="Start the controllers again, a majority is enough, wait until nothing waits to be written to "
            "ZooKeeper, and stop them with SIGTERM",
        )
    return [write for write in writes if _only_versions(write, held)] if missing else writes


def _is_state(op: Op) -> TypeGuard[SetData]:
    return isinstance(op, SetData) and op.path.endswith("/state")


def _is_marker(op: Op) -> bool:
    """Whether an operation removes an order to delete a topic, which `release` does."""
    return isinstance(op, Delete) and op.path.startswith(f"{paths.DELETE_TOPICS}/")


def _only_versions(write: EntityWrite, held: Mapping[str, bytes | None]) -> bool:
    """Whether a write only repeats the content of the partition states in ZooKeeper."""
    return all(
        _is_marker(op) or (_is_state(op) and op.path in held and _same_state(op, held[op.path]))
        for op in dict.fromkeys(write.ops)
    )


def _same_state(op: SetData, data: bytes | None) -> bool:
    held, new = (decode_partition_state(op.path, each) for each in (data, op.data))
    return (held.leader, held.leader_epoch, held.isr) == (new.leader, new.leader_epoch, new.isr)


def epoch_to_raise(view: ClaimView, highest: int) -> int | None:
    """The value that ``/controller_epoch`` needs; None when it is high enough.

    :param highest: the highest controller epoch in the partition states.
    """
    return highest if view.epoch is None or highest > view.epoch else None


def end_ops(view: ClaimView, epoch: int | None) -> list[Op]:
    """The one multi that ends a KRaft claim and deletes ``/migration``, each at the version that was read.

    The same multi raises the epoch: if it were written after the delete, the electing brokers would give up. When it is
    not raised, it is checked: a znode that another controller has created since may have the same version, but its
    creator has taken the next epoch.
    """
    ops: list[Op] = []
    if view.controller is not None and view.controller.is_kraft:
        ops.append(Delete(paths.CONTROLLER, view.controller_version))
    if view.migration_version is not None:
        ops.append(Delete(paths.MIGRATION, view.migration_version))
    if epoch is None:
        guard: list[Op] = [Check(paths.CONTROLLER_EPOCH, view.epoch_version)] if view.epoch is not None else []
    elif view.epoch is None:
        guard = [Create(paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch))]
    else:
        guard = [SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch), view.epoch_version)]
    return [*guard, *ops] if ops else []


def state_epochs(reader: BulkReader) -> Iterator[int]:
    """Read the controller epochs of all partition states. A ZooKeeper controller refuses states with an epoch above its
    own (KAFKA-20488). They are read from ZooKeeper, which may have topics that the log lacks."""
    topics = reader.read(map(paths.topic, names_below(reader, paths.TOPICS)))
    states = (
        paths.partition_state(znode.path.rpartition("/")[2], number)
        for znode in topics
        if znode is not None
        for number in decode_topic(znode.path, znode.data).partitions
    )
    for znode in reader.read(states):
        if znode is not None:
            yield decode_partition_state(znode.path, znode.data).controller_epoch


def apply(session: ZooKeeperSession, ops: list[Op]) -> None:
    """Write a multi, or nothing.

    :raises OperatorError: ZooKeeper has changed since it was read; nothing was written.
    """
    if not ops:
        return
    _check_applied(session, ConditionalWriter(session).write(ops))


def _check_applied(session: ZooKeeperSession, outcome: MultiOutcome) -> None:
    if not isinstance(outcome, Applied):
        raise OperatorError(
            f"ZooKeeper changed meanwhile: {outcome}",
            where=session.options.hosts,
            remedy="Make sure that no controller of the quorum and no tool writes to ZooKeeper, and try again",
        )
