"""Batches of entities on their way to one offset, and packing them into conditional multis. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from migrator.image.model import MetadataImage
from migrator.migration.translate.entity import EntityWrite
from migrator.migration.write_messages import HeldDeletes
from migrator.raft.messages import EpochOffset
from migrator.values import value
from migrator.zookeeper.leadership import Claim
from migrator.zookeeper.ops import Check, Create, Op, SetData
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.migration import MigrationState, encode_migration

GUARDS = 2
"""Each multi starts with a check of /controller_epoch and a set of /migration."""
_OP_OVERHEAD_BYTES = 64


@value
class Limits:
    """Bounds of one multi. ZooKeeper refuses requests above ``jute.maxbuffer``, 1 MiB by default."""

    max_ops: int = 1_000
    max_bytes: int = 512 * 1024


@value
class Flight:
    """A multi under way. ``owners``: for each operation after the guards, which of ``entities`` it is of;
    ``last``: it completes its batch, and the mark moves to the batch's offset."""

    ops: tuple[Op, ...]
    entities: tuple[EntityWrite, ...]
    owners: tuple[int, ...]
    mark_after: MigrationState
    last: bool
    rest: EntityWrite | None = None
    """What of the only entity did not fit, when that entity is larger than a multi."""

    def owner_of(self, index: int) -> int:
        """Which entity operation ``index`` of the multi belongs to."""
        return self.owners[index - GUARDS]

    def give_back(self) -> tuple[EntityWrite, ...]:
        """The entities, to be packed again. What did not fit of a large one is still queued; all of it is read again
        anyhow, if it is the one that failed."""
        return self.entities


@dataclass(slots=True)
class Batch:
    """Entities on their way to one offset. ``source`` None: they are pushed, until ``complete``."""

    target: EpochOffset
    image: MetadataImage | None = None
    source: Iterator[EntityWrite] | None = None
    complete: bool = True
    reconcile: bool = False
    held: HeldDeletes | None = None
    number: int = 0
    """Of the comparison that pushes."""
    records: int = 0
    entities: int = 0
    queue: deque[EntityWrite] = field(default_factory=deque)
    repairs: dict[str, int] = field(default_factory=dict)

    def fill(self, limits: Limits) -> None:
        """Pull from the source until a multi can be filled, and one entity more, to know which multi is the last."""
        pulled = sum(len(write.ops) + len(write.notices) for write in self.queue)
        while self.source is not None and pulled <= limits.max_ops:
            write = next(self.source, None)
            if write is None:
                self.source = None
                return
            pulled += len(write.ops) + len(write.notices)
            self.queue.append(write)

    @property
    def exhausted(self) -> bool:
        """Whether the queue is all that is left."""
        return self.source is None and self.complete


def pack(
    queue: deque[EntityWrite],
    *,
    claim: Claim,
    mark: MigrationState,
    mark_version: int,
    target: EpochOffset | None,
    target_crc: int | None,
    limits: Limits,
) -> Flight:
    """Take entities off the queue, as many as fit; a large one is cut, and its rest put back.

    :param target: the offset of the batch if the queue holds all that is left of it, else None.
    :param target_crc: what proves that offset ours; without it ``/migration`` stays where it is: a mark that no later
        leader can prove is worse than an old one.
    """
    taken: list[EntityWrite] = []
    ops: list[Op] = []
    owners: list[int] = []
    room_ops, room_bytes = limits.max_ops - GUARDS, limits.max_bytes
    while queue:
        write = queue[0]
        cost = [_size(op) for op in (*write.ops, *write.notices)]
        if len(cost) > room_ops or sum(cost) > room_bytes:
            if taken:
                break
            write, rest = _cut(write, cost, room_ops, room_bytes)
            queue[0] = rest
            cost = cost[: len(write.ops)]
        else:
            queue.popleft()
        room_ops -= len(cost)
        room_bytes -= sum(cost)
        owners += [len(taken)] * len(cost)
        ops += (*write.ops, *write.notices)
        taken.append(write)
    last = target is not None and not queue
    after = mark if target is None or target_crc is None or queue else _moved(mark, target, target_crc)
    guards: tuple[Op, ...] = (
        Check(paths.CONTROLLER_EPOCH, claim.epoch_version),
        SetData(paths.MIGRATION, encode_migration(after), mark_version),
    )
    return Flight((*guards, *ops), tuple(taken), tuple(owners), after, last)


def _moved(mark: MigrationState, target: EpochOffset, crc: int) -> MigrationState:
    return MigrationState(
        kraft_controller_id=mark.kraft_controller_id,
        kraft_controller_epoch=mark.kraft_controller_epoch,
        kraft_metadata_offset=target.offset,
        kraft_metadata_epoch=target.epoch,
        batch_crc=crc,
    )


def _cut(write: EntityWrite, cost: list[int], room_ops: int, room_bytes: int) -> tuple[EntityWrite, EntityWrite]:
    """Cut after as many operations as fit, at least one. Notices stay with the rest, after every operation."""
    count = 0
    while count < min(len(write.ops), room_ops) and (count == 0 or cost[count] <= room_bytes):
        room_bytes -= cost[count]
        count += 1
    return (
        EntityWrite(write.entity, write.ops[:count], (), write.effect),
        EntityWrite(write.entity, write.ops[count:], write.notices, write.effect),
    )


def _size(op: Op) -> int:
    data = op.data if isinstance(op, Create | SetData) else None
    return len(op.path) + len(data or b"") + _OP_OVERHEAD_BYTES
