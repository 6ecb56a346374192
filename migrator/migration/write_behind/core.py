"""Writes the committed image into ZooKeeper, behind the log. Pure: `step(event, now) -> effects`.

Waiting changes are merged: the operations are derived from two images, the one that ZooKeeper holds and the newest, so
after an outage only real differences are written. Many entities share one multi: check ``/controller_epoch`` at the
claim's version, set ``/migration`` at its version to the offset that is reached, then the operations. One multi is
under way at a time; with hundreds of operations in each, this does not limit the rate.

A multi can end in three ways. *Applied*: the next one follows. *Failed*: the failing operation shows whether we are
fenced, the mark was moved, or an entity is not as expected; such an entity is read again and repaired. *Unknown*: the
mark is read again, and its version shows whether the multi was applied; only the same multi is ever sent again, under a
growing back-off. ZooKeeper answers a request that is too large by closing the connection: a large operation that keeps
ending so is set aside (`set_aside`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from migrator.image.changes import join_changes
from migrator.image.model import Changes, ImageDelta, MetadataImage
from migrator.migration.machine.guards import reached
from migrator.migration.machine.progress import Working, WorkPhase
from migrator.migration.translate.entity import EntityWrite
from migrator.migration.write_behind.comparison import TOO_MANY, TakeoverComparison, are_too_many, differing
from migrator.migration.write_behind.lag import Backlog, Lag, at_of
from migrator.migration.write_behind.messages import (
    Advanced,
    Closed,
    MarkRead,
    MultiEnded,
    MultiRefused,
    Opened,
    Published,
    ReadAgain,
    ReadMark,
    ReconcileBegun,
    Reconciled,
    ReconcileWrites,
    Repaired,
    Resumed,
    SendMulti,
    SetAside,
    Stopped,
    TimerExpired,
    Unanswered,
    WakeAt,
    WriteEffect,
    WriteEvent,
)
from migrator.migration.write_behind.multis import GUARDS, Derive, EntityBatch, Flight, Limits, derived, pack
from migrator.migration.write_behind.resends import LOSSES_MAX, Losses
from migrator.migration.write_behind.set_aside import TooLarge
from migrator.migration.write_behind.versions import Versions, VersionsMissing
from migrator.raft.messages import EpochOffset
from migrator.zookeeper.leadership import Claim, CrcAt
from migrator.zookeeper.ops import (
    FORBIDDEN_REMEDY,
    Applied,
    Failed,
    MultiOutcome,
    Stat,
    Unknown,
    ZkError,
    denied,
)
from migrator.zookeeper.znodes.migration import MigrationState

CHECKPOINT_INTERVAL_MS = 1_000
"""The least time between two writes that only move the mark, for records without an effect in ZooKeeper."""
MAX_REPAIRS = 3
"""How often an entity is read again within one batch before the whole of ZooKeeper is compared instead."""
LIMITS = Limits()


class WriteBehind:
    """Writes committed changes to ZooKeeper; one object for each leadership. Not thread-safe."""

    def __init__(
        self, image: MetadataImage, derive: Derive, crc_at: CrcAt, limits: Limits = LIMITS, lag: Backlog | None = None
    ) -> None:
        self._derive = derive
        self._crc_at = crc_at
        self._limits = limits
        self._now_ms = 0
        self._backlog = lag or Backlog(image.provenance.offset, 0)
        self._too_large = TooLarge(self._limits)
        self._claim: Claim | None = None
        self._mark_version = -1
        self._mark: MigrationState | None = None
        self._written = image
        """The image that ZooKeeper will equal once all batches are done."""
        self._newest = image
        self._changes: list[Changes] = []
        self._in_sync = False
        """Whether ZooKeeper equals an image, so that changes can be derived from it."""
        self._comparison: TakeoverComparison | None = None
        """The comparison of all of ZooKeeper that runs beside the writes."""
        self._versions = Versions()
        self._raised = False
        """Whether the last batch raised versions, so that changes come next."""
        self._checkpoint: EntityBatch | None = None
        self._batch: EntityBatch | None = None
        self._rests = False
        """Whether the batch goes on with the next timer, because a turn of the event loop was over."""
        self._flight: Flight | None = None
        self._flight_batch: EntityBatch | None = None
        self._losses = Losses()
        self._number = 0
        self._awaited: int | None = None
        """The number of the one effect whose answer is expected."""
        self._next_checkpoint_ms = 0
        self._stopped = ""

    # Figures for callers

    def lag(self, now_ms: int) -> Lag:
        """Records that are committed, have an effect in ZooKeeper, and are not there yet (ZooKeeperWriteBehindLag)."""
        return self._backlog.lag(now_ms)

    @property
    def set_aside(self) -> tuple[SetAside, ...]:
        """Entities that are too large for ZooKeeper, and therefore missing there."""
        return self._too_large.items

    @property
    def unanswered(self) -> Unanswered | None:
        """The multi with which the connection was lost more than once, if there is one."""
        return self._losses.told(self._flight)

    @property
    def claim(self) -> Claim | None:
        """The claim under which the writes are made."""
        return self._claim

    @property
    def sending(self) -> bool:
        """Whether a multi is under way."""
        return self._flight is not None

    @property
    def queued(self) -> int:
        """The number of waiting entities of a reconcile; the executor pushes no more while this is large."""
        return len(self._batch.queue) if self._batch is not None else 0

    @property
    def writing(self) -> Working:
        """The progress of the batch under way."""
        batch = self._batch
        if batch is None:
            return Working(WorkPhase.WRITE)
        return Working(WorkPhase.WRITE, batch.entities, batch.entities + len(batch.queue) if batch.exhausted else 0)

    @property
    def reached(self) -> EpochOffset:
        """The offset and epoch up to which ZooKeeper holds everything; (-1, -1) while they are unknown."""
        return EpochOffset(-1, -1) if self._mark is None else reached(self._mark)

    @property
    def compares(self) -> bool:
        """Whether a worker compares all of ZooKeeper beside the writes. Removals cannot be undone, so they wait until
        the comparison has ended."""
        return self._comparison is not None and not self._comparison.ended

    @property
    def compared(self) -> bool:
        """Whether all of ZooKeeper was compared with the log under this claim, and every change was derived since."""
        return self._in_sync and self._comparison is None

    @property
    def drained(self) -> bool:
        """Whether no change is under way, and ZooKeeper is known to hold everything except what is set aside. Versions
        of partition states may be missing: the next leader finds them."""
        raises = self._flight_batch is not None and self._flight_batch.raises
        return self._backlog.is_empty and (self._flight is None or raises)

    def versions_missing(self, now_ms: int) -> VersionsMissing:
        """How far versions of partition states are below their partition epochs. Known once `compared`."""
        return self._versions.missing(now_ms)

    # Events

    def step(self, event: WriteEvent, now_ms: int) -> list[WriteEffect]:
        """Take one event; return the effects to perform, in order."""
        self._now_ms = now_ms
        self._rests &= not isinstance(event, TimerExpired)
        effects: list[WriteEffect] = []
        match event:
            case MultiEnded() | MultiRefused() | MarkRead() | Repaired():
                effects += self._answered(event)
            case Opened():
                self._open(event)
            case Closed():
                self._close()
            case Published(delta):
                self._publish(delta)
            case ReconcileBegun(image, number):
                self._begin_reconcile(image, number)
            case Resumed():
                self._resume(event)
            case ReconcileWrites() if self._comparison is not None:
                effects += self._doubt(self._comparison, event)
            case ReconcileWrites():
                self._push(event)
            case TimerExpired() if self._flight is not None:
                effects += self._losses.wake(now_ms)
        return [*effects, *self._advance(now_ms), *self._too_large.news()]

    def progressed(self, now_ms: int) -> None:
        """A reconcile has made progress: its time does not count against the bound."""
        self._backlog.clock.rest(now_ms)

    def _answered(self, event: MultiEnded | MultiRefused | MarkRead | Repaired) -> list[WriteEffect]:
        if event.number != self._awaited:
            return []
        self._awaited = None
        match event:
            case MultiEnded(_, outcome):
                return self._ended(outcome)
            case MultiRefused(_, reason):
                return self._stop(fenced=False, reason=reason)
            case MarkRead():
                return self._mark_read(event)
            case Repaired():
                return self._repaired(event)

    def _open(self, event: Opened) -> None:
        self._close()
        self._backlog.opened(event.at, self._now_ms)
        self._claim, self._stopped = event.claim, ""
        self._mark, self._mark_version = event.claim.migration, event.claim.migration_version
        if reached(event.claim.migration) != event.at:
            self._checkpoint = EntityBatch(event.at)

    def _close(self) -> None:
        self._backlog.requeued()
        self._claim = self._mark = self._checkpoint = self._batch = self._flight = self._flight_batch = None
        self._awaited = self._comparison = None
        self._in_sync = self._rests = False

    def _publish(self, delta: ImageDelta) -> None:
        self._newest = delta.after
        join_changes(self._changes, (delta.changes,))
        self._backlog.published(delta, self._now_ms)

    def _begin_reconcile(self, image: MetadataImage, number: int) -> None:
        """Begin a reconcile. A multi under way may write something older than the image, after the worker has read it,
        so its entities are read again."""
        self._in_sync, self._comparison = False, None
        if self._flight is None:
            self._awaited = None  # it was a repair of the batch that this one replaces
        under_way = () if self._flight is None else self._flight.entities
        unread = tuple(dict.fromkeys(write.entity for write in under_way))
        batch = EntityBatch(at_of(image), image, unread=unread, complete=False, reconcile=True, number=number)
        self._begin(batch, image)
        self._too_large.compare()

    def _resume(self, event: Resumed) -> None:
        self._in_sync, self._comparison = True, TakeoverComparison(event.number)
        self._begin(EntityBatch(at_of(event.image), event.image, unread=event.entities), event.image)

    def _begin(self, batch: EntityBatch, image: MetadataImage) -> None:
        """Begin the first batch under a claim, or after the write-behind stopped."""
        self._stopped, self._rests = "", False
        self._batch, self._versions = batch, Versions()
        self._written = self._newest = image
        self._changes = []
        self._backlog.taken()

    def _doubt(self, comparison: TakeoverComparison, event: ReconcileWrites) -> list[WriteEffect]:
        """Take findings of the comparison. They may come from changes since it began, so they are read again at its
        end."""
        differs = comparison.heard(event)
        if event.number == comparison.number:
            self._versions.found(event.behind)
        return self._stop(fenced=False, reason=differs) if differs else []

    def _push(self, event: ReconcileWrites) -> None:
        batch = self._batch
        if batch is None or not batch.reconcile or batch.number != event.number:
            return
        batch.queue.extend(self._sifted(event.writes))
        batch.complete, batch.held = event.last, event.held
        self._versions.found(event.behind)

    def _sifted(self, writes: Iterable[EntityWrite]) -> list[EntityWrite]:
        return [sifted for write in writes if (sifted := self._too_large.sift(write)) is not None]

    # One multi after the other

    def _advance(self, now_ms: int) -> list[WriteEffect]:
        """Send the next multi, if there is one and none is under way."""
        if self._claim is None or self._awaited is not None or self._stopped:
            return []
        if self._flight is not None:
            return self._send(self._flight) if self._losses.is_due(now_ms) else []
        if self._checkpoint is not None:
            return self._send_next(self._checkpoint)
        if self._batch is None and self._comparison is not None and self._comparison.ended:
            return self._conclude(self._comparison, now_ms)
        wake = self._next(now_ms) if self._batch is None and self._in_sync else []
        return wake if self._batch is None or self._rests else [*wake, *self._go_on(self._batch, now_ms)]

    def _go_on(self, batch: EntityBatch, now_ms: int) -> list[WriteEffect]:
        """Go on with the batch under way."""
        if batch.unread and batch.image is not None:
            return [ReadAgain(self._ask(), batch.unread, batch.image, batch.sets)]
        if batch.fill(self._limits, self._too_large.sift):
            self._rests = True
            return [WakeAt(now_ms)]
        if batch.queue:
            # A removal cannot be undone, so it waits for the end of the comparison; later writes wait with it (ADR 48).
            return [] if batch.queue[0].removes and self.compares else self._send_next(batch)
        if not batch.exhausted:
            return []
        if batch.held is not None or batch.target == self.reached:
            return [*self._end(batch), *self._advance(now_ms)]
        return self._send_next(batch)

    def _conclude(self, comparison: TakeoverComparison, now_ms: int) -> list[WriteEffect]:
        """Everything was compared, and no batch is under way: read the doubts again."""
        if are_too_many(self._written, comparison.doubts):
            return self._stop(fenced=False, reason=TOO_MANY)
        if comparison.doubts:
            return [ReadAgain(self._ask(), tuple(sorted(comparison.doubts)), self._written)]
        self._comparison = None
        return [Reconciled(0, None), *self._advance(now_ms)]

    def _next(self, now_ms: int) -> list[WriteEffect]:
        """Make the next batch: changes, and in turns with them versions of partition states, once all is compared."""
        raises = bool(self._versions) and self._comparison is None
        wake = [] if raises and not self._raised else self._next_batch(now_ms)
        self._raised = raises and self._batch is None
        if self._raised:
            unread = self._versions.begin(now_ms, self._written)
            self._batch = EntityBatch(at_of(self._written), self._written, unread=unread, raises=True)
        return wake

    def _next_batch(self, now_ms: int) -> list[WriteEffect]:
        """Make one batch of everything that waits. A batch that only moves the mark is made no more often than
        `CHECKPOINT_INTERVAL_MS`."""
        if at_of(self._newest) == at_of(self._written):
            return []
        waits = self._backlog.waiting > 0
        if not waits and now_ms < self._next_checkpoint_ms:
            return [WakeAt(self._next_checkpoint_ms)]
        self._next_checkpoint_ms = now_ms + CHECKPOINT_INTERVAL_MS
        source = derived(self._derive, self._written, self._newest, self._changes) if waits else None
        self._batch = EntityBatch(at_of(self._newest), self._newest, source)
        self._written, self._changes = self._newest, []
        self._backlog.taken()
        return []

    def _send_next(self, batch: EntityBatch) -> list[WriteEffect]:
        claim, mark = self._claim, self._mark
        if claim is None or mark is None:
            return []
        target = batch.target if batch.exhausted and batch.held is None else None
        self._flight = pack(
            batch.queue,
            claim=claim,
            mark=mark,
            mark_version=self._mark_version,
            target=target,
            target_crc=None if target is None else self._crc_at(target.offset),
            limits=self._limits,
            removals=not self.compares,
        )
        self._flight_batch = batch
        self._losses = Losses()
        return self._send(self._flight)

    def _send(self, flight: Flight) -> list[WriteEffect]:
        return [SendMulti(self._ask(), flight.ops)]

    def _ask(self) -> int:
        """The number of an effect whose answer is expected from now on."""
        self._number += 1
        self._awaited = self._number
        return self._number

    # How a multi ended

    def _ended(self, outcome: MultiOutcome) -> list[WriteEffect]:
        flight = self._flight
        if flight is None:
            return []
        match outcome:
            case Applied(results):
                stat = results[1]
                version = stat.version if isinstance(stat, Stat) else self._mark_version + 1
                return self._applied(flight, version)
            case Unknown():
                return [ReadMark(self._ask())]
            case Failed(index, ZkError.NO_AUTH, identity):
                return self._stop(fenced=False, reason=f"{denied(flight.ops[index], identity)}. {FORBIDDEN_REMEDY}")
            case Failed(0):
                return self._stop(fenced=True, reason="/controller_epoch has changed: another controller took over")
            case Failed(1):
                return [ReadMark(self._ask())]
            case Failed(index, error):
                return self._failed(flight, index, error)

    def _applied(self, flight: Flight, mark_version: int) -> list[WriteEffect]:
        batch = self._flight_batch
        self._mark, self._mark_version = flight.mark_after, mark_version
        self._flight = self._flight_batch = None
        self._too_large.written(flight.ops[GUARDS:])
        if batch is None:
            return []
        if batch is self._checkpoint:
            self._checkpoint = None
            return [Advanced(self.reached)]
        if batch is not self._batch:
            return []
        batch.entities += len({*flight.owners})
        if self._comparison is not None:
            self._comparison.wrote(flight.entities)
        return self._end(batch) if flight.last or (batch.held and batch.exhausted and not batch.queue) else []

    def _end(self, batch: EntityBatch) -> list[WriteEffect]:
        self._batch = None
        if batch.raises:
            self._versions.ended()
            return [Advanced(self.reached)]
        if batch.reconcile:
            self._in_sync = batch.held is None
            if self._in_sync:
                self._backlog.written()
                self._too_large.compared()
            else:
                self._backlog.requeued()
            reconciled = Reconciled(batch.entities, batch.held)
            return [Advanced(self.reached), reconciled] if self._in_sync else [reconciled]
        self._backlog.written()
        return [Advanced(self.reached)]

    def _failed(self, flight: Flight, index: int, error: ZkError) -> list[WriteEffect]:
        """Operation ``index`` was refused, so none was applied: put the entities back, and repair the entity of that
        operation. If the entity was cut, its rest is still queued, and all of it is read again."""
        batch = self._flight_batch
        self._flight = self._flight_batch = None
        if batch is None or batch is not self._batch or batch.image is None:
            return []
        position = flight.owner_of(index)
        batch.queue.extendleft(reversed(flight.entities))
        broken = flight.entities[position].entity
        batch.repairs[broken] = batch.repairs.get(broken, 0) + 1
        if batch.repairs[broken] > MAX_REPAIRS:
            return self._stop(
                fenced=False,
                reason=f"{broken} keeps changing while it is written ({error.name} on {flight.ops[index].path})",
            )
        return [ReadAgain(self._ask(), (broken,), batch.image, batch.sets)]

    def _repaired(self, event: Repaired) -> list[WriteEffect]:
        batch, writes = self._batch, self._sifted(event.writes)
        self._versions.found(event.behind, writes if batch is not None and batch.raises and batch.unread else None)
        if batch is not None:
            kept = [write for write in batch.queue if write.entity not in event.entities]
            batch.queue, batch.unread = deque([*writes, *kept]), ()
        elif self._comparison is not None:
            if writes:
                return self._stop(fenced=False, reason=differing(write.entity for write in writes))
            self._comparison.doubts.clear()
        return []

    def _mark_read(self, seen: MarkRead) -> list[WriteEffect]:
        """Decide from the mark whether the multi under way was applied."""
        flight, claim = self._flight, self._claim
        if flight is None or claim is None:
            return []
        if seen.epoch_version != claim.epoch_version:
            return self._stop(fenced=True, reason="/controller_epoch has changed: another controller took over")
        if seen.mark_version == self._mark_version and seen.mark == self._mark:
            return self._lost(flight)
        if seen.mark_version == self._mark_version + 1 and seen.mark == flight.mark_after:
            return self._applied(flight, seen.mark_version)
        return self._stop(fenced=True, reason="somebody else wrote /migration")

    def _lost(self, flight: Flight) -> list[WriteEffect]:
        """The multi under way was not applied so far, but may still arrive. Nothing else is sent until the multi, or
        one with only its guards, is applied."""
        losses = self._losses
        told = losses.add(self._now_ms, flight)
        if losses.times >= LOSSES_MAX and flight.is_large(self._limits):
            self._too_large.leave_out(flight.entities[0].entity, flight.ops[GUARDS], losses.times)
            if self._batch is not None:
                self._batch.queue = deque(self._sifted(self._batch.queue))
            self._flight, self._losses = flight.guards_only(), Losses()
        return [*([told] if told is not None else []), *self._losses.wake(self._now_ms)]

    def _stop(self, *, fenced: bool, reason: str) -> list[WriteEffect]:
        self._backlog.requeued()
        if self._comparison is not None:
            self._backlog.doubted()
        self._batch = self._flight = self._flight_batch = self._comparison = None
        self._in_sync = False
        self._stopped = reason
        return [Stopped(fenced, reason)]
