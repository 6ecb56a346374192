"""Packs the changes that lead ZooKeeper to one offset into conditional multis. Pure.

`core` fills an `EntityBatch` and calls `pack` for each multi. Each multi checks ``/controller_epoch`` and sets
``/migration`` with its expected version, so a deposed leader writes nothing. The mark in ``/migration`` moves to the
batch's offset only with the last multi of the batch. No multi is larger than ``jute.maxbuffer``, because ZooKeeper
would close the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from migrator.image.changes import merge_steps
from migrator.image.model import Changes, MetadataImage
from migrator.migration.translate.entity import EntityWrite
from migrator.migration.write_behind.messages import HeldDeletes
from migrator.migration.write_behind.versions import SETS_AT_ONCE
from migrator.raft.messages import EpochOffset
from migrator.values import value
from migrator.zookeeper.leadership import Claim
from migrator.zookeeper.ops import Check, Op, SetData
from migrator.zookeeper.request_size import BYTES_MAX, JUTE_MAXBUFFER, OPS_MAX, bytes_of_one, op_bytes
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.migration import MigrationState, encode_migration

GUARDS = 2
"""Each multi starts with a check of /controller_epoch and a set of /migration."""

Derive = Callable[[MetadataImage, MetadataImage, Changes], Iterator[EntityWrite | None]]
"""Yields the operations that lead ZooKeeper from the first image to the second, deletions first; None where a turn of
the event loop is over."""

Sift = Callable[[EntityWrite], EntityWrite | None]
"""Returns the part of an entity that can be written; None for nothing."""


@value
class Limits:
    """Bounds of one multi, in bytes. Several operations have at most ``max_bytes`` together. A larger operation is sent
    alone, up to ``jute_maxbuffer``; above that ZooKeeper closes the connection."""

    max_ops: int = OPS_MAX
    max_bytes: int = BYTES_MAX
    jute_maxbuffer: int = JUTE_MAXBUFFER

    @property
    def max_op_bytes(self) -> int:
        """The most bytes of one operation, without the guards."""
        return bytes_of_one(self.jute_maxbuffer)


def limits_of(jute_maxbuffer: int) -> Limits:
    """Bounds for servers with that ``jute.maxbuffer`` in bytes: several operations fill at most half of it."""
    return Limits(max_bytes=min(BYTES_MAX, (jute_maxbuffer + 1) // 2), jute_maxbuffer=jute_maxbuffer)


@value
class Flight:
    """A multi under way. ``owners``: for each operation after the guards, the index of its entity in ``entities``;
    ``last``: the multi completes its batch, and moves the mark to the batch's offset."""

    ops: tuple[Op, ...]
    entities: tuple[EntityWrite, ...]
    owners: tuple[int, ...]
    mark_after: MigrationState
    last: bool

    @property
    def bytes(self) -> int:
        """The approximate size of the multi on the wire."""
        return sum(map(op_bytes, self.ops))

    def is_large(self, limits: Limits) -> bool:
        """Whether the multi has one operation, and this is above the bound for several operations together."""
        return len(self.ops) == GUARDS + 1 and op_bytes(self.ops[GUARDS]) > limits.max_bytes

    @property
    def has_only_guards(self) -> bool:
        """Whether the multi changes nothing but, perhaps, the mark."""
        return len(self.ops) == GUARDS

    def guards_only(self) -> Flight:
        """The same multi without its operations. Once one of the two is applied, the other cannot be applied any more.
        The entities stay, because they may still be written."""
        return replace(self, ops=self.ops[:GUARDS], owners=())

    def owner_of(self, index: int) -> int:
        """The index, in ``entities``, of the entity of operation ``index`` of the multi."""
        return self.owners[index - GUARDS]


@dataclass(slots=True)
class EntityBatch:
    """Entities that lead to one offset. Without a ``source`` they are pushed, until ``complete``. ``unread``: the
    entities that have to be read before their writes are known. ``raises``: only versions of partition states are
    missing (`Versions`)."""

    target: EpochOffset
    image: MetadataImage | None = None
    source: Iterator[EntityWrite | None] | None = None
    """Yields None where a turn of the event loop is over."""
    unread: tuple[str, ...] = ()
    complete: bool = True
    reconcile: bool = False
    raises: bool = False
    held: HeldDeletes | None = None
    number: int = 0
    """The number of the comparison that pushes."""
    entities: int = 0
    queue: deque[EntityWrite] = field(default_factory=deque)
    repairs: dict[str, int] = field(default_factory=dict)

    def fill(self, limits: Limits, sift: Sift) -> bool:
        """Pull from the source until a multi can be filled, and one entity more, which shows whether the multi is the
        last. Returns whether the turn is over before that."""
        pulled = sum(len(write.ops) + len(write.notices) for write in self.queue)
        if self.source is None or pulled > limits.max_ops:
            return False
        for write in self.source:
            if write is None:
                return True
            sifted = sift(write)
            if sifted is not None:
                pulled += len(sifted.ops) + len(sifted.notices)
                self.queue.append(sifted)
            if pulled > limits.max_ops:
                return False
        self.source = None
        return False

    @property
    def sets(self) -> int:
        """The most sets that only raise versions, at each reading. Other batches leave them to `Versions`, because
        changes wait for a batch."""
        return SETS_AT_ONCE if self.raises else 0

    @property
    def exhausted(self) -> bool:
        """Whether no more entities follow those in the queue."""
        return self.source is None and self.complete and not self.unread


def derived(
    derive: Derive, before: MetadataImage, after: MetadataImage, parts: Sequence[Changes]
) -> Iterator[EntityWrite | None]:
    """The operations of changes that are still in parts."""
    changes = yield from merge_steps(parts)
    yield from derive(before, after, changes)


def pack(
    queue: deque[EntityWrite],
    *,
    claim: Claim,
    mark: MigrationState,
    mark_version: int,
    target: EpochOffset | None,
    target_crc: int | None,
    limits: Limits,
    removals: bool = True,
) -> Flight:
    """Take as many entities from the queue as fit; a large one is cut, and its rest is put back.

    :param removals: whether removing entities may be taken; if not, only the entities before the first of these are
        taken.
    :param target: the offset of the batch if the queue holds the whole rest of the batch, otherwise None.
    :param target_crc: the checksum that proves this offset ours. Without it ``/migration`` keeps its offset: a mark
        that no later leader can prove is worse than an old one.
    """
    taken: list[EntityWrite] = []
    ops: list[Op] = []
    owners: list[int] = []
    room_ops, room_bytes = limits.max_ops - GUARDS, limits.max_bytes
    while queue:
        write = queue[0]
        if write.removes and not removals:
            break
        cost = [op_bytes(op) for op in (*write.ops, *write.notices)]
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
        copied_as=mark.copied_as,
    )


def _cut(write: EntityWrite, cost: list[int], room_ops: int, room_bytes: int) -> tuple[EntityWrite, EntityWrite]:
    """Cut after as many operations as fit, but at least one. Notices go with the rest, after all operations."""
    count = 0
    while count < min(len(write.ops), room_ops) and (count == 0 or cost[count] <= room_bytes):
        room_bytes -= cost[count]
        count += 1
    return (
        EntityWrite(write.entity, write.ops[:count], (), write.effect),
        EntityWrite(write.entity, write.ops[count:], write.notices, write.effect),
    )
