"""Keeps the images of one node in step with its log: it applies records, publishes images, and wakes waiting requests.

The log itself is the queue: appended records are read from it in order, one `Turn` at a time. So a big copy, a follower
that is far behind, or a snapshot that replaces the log delays no heartbeats, and its backlog takes no memory.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from migrator.errors import MigratorError, require
from migrator.image.changes import compare_images
from migrator.image.loader import ImageLoader, Leap
from migrator.image.model import Changes, ImageDelta, MetadataImage
from migrator.image.release import release
from migrator.image.replay import append_records, replay_snapshot
from migrator.node.following import Follow, Following
from migrator.node.loading import Decoding, Loading
from migrator.observe.loop_health import LoopWork, TurnGauge, freeze_live_objects
from migrator.raft.messages import EpochOffset
from migrator.records.batch import Batch, BatchHeader, read_header
from migrator.records.contents import Decoded
from migrator.records.metadata import MetadataRecord, ZkMigrationState
from migrator.supervision import OnError, Supervisor, TaskKind
from migrator.turns import TURN_RECORDS, Turn, give_back

FREEZE_RECORDS = 4 * TURN_RECORDS
"""After so many records the present objects are frozen for the garbage collector, which has not begun by then."""

BACKLOG_RECORDS = 10 * TURN_RECORDS
"""If this many records wait to be applied, new ones stay in the log."""

APPLYING = TaskKind("metadata-applier", OnError.STOP)
"""An image that lacks a batch must not be published."""

NOWHERE = EpochOffset(-1, -1)
_DONE: Final = object()

Subscriber = Callable[[ImageDelta], None]
ReadSnapshot = Callable[[EpochOffset], Iterable[Batch]]
ReadLog = Callable[[int], Iterable[Batch]]


class NotLeadingError(MigratorError):
    """This node no longer leads. It cannot tell whether its uncommitted records are lost or will be committed."""


class OffsetWaiters:
    """The tasks that wait for an offset."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()

    async def wait(self, offset: int) -> None:
        """Wait until `reached` names this offset or a later one.

        :raises NotLeadingError: `fail` came first.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._heap, (offset, next(self._tickets), future))
        await future

    def reached(self, offset: int) -> None:
        """Wake all tasks that wait for this offset or an earlier one."""
        while self._heap and self._heap[0][0] <= offset:
            future = heapq.heappop(self._heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self) -> None:
        """Leadership is lost: this node cannot tell whether uncommitted records will be committed."""
        for _, _, future in self._heap:
            if not future.done():
                future.set_exception(NotLeadingError("leadership was lost before the records were committed"))
        self._heap.clear()


class MetadataRuntime:
    """The images of this node's metadata.

    :param read_snapshot: gives the batches of a snapshot on disk, by its id.
    :param read_log: gives some batches of the log, beginning with the one that holds an offset; none at its end.
    :param log_end: gives the offset at which the log ends.
    :param on_step: called with each change of the image at the log's end.
    :param on_leap: called instead with each change that is too long to be followed, see `ImageLoader`.
    :param on_replace: called with an image without a known predecessor: at the start, of a snapshot, and after a leap;
        yields where a turn is over.
    :param on_failure: called when a record does not fit the image; this node has to stop.
    :param gauge: gets the number of records that each turn of the event loop handles.
    """

    def __init__(
        self,
        read_snapshot: ReadSnapshot,
        read_log: ReadLog,
        log_end: Callable[[], int],
        *,
        on_step: Follow,
        on_leap: Leap = lambda _before, _after: None,
        on_replace: Callable[[MetadataImage], Iterator[None]] = lambda _image: iter(()),
        on_failure: Callable[[BaseException], None],
        gauge: TurnGauge,
    ) -> None:
        self._read_snapshot = read_snapshot
        self._read_log = read_log
        self._log_end = log_end
        self._gauge = gauge
        self._supervisor = Supervisor(on_failure)
        self._following = Following(on_step)
        self._on_leap = on_leap
        self._on_replace = on_replace
        self._loader = ImageLoader(on_step=self._stepped, on_leap=self._leapt)
        self._publishing = self._loader.publish(self._stop_at)
        self.migration_base = NOWHERE
        """Epoch and offset of the record that completed the copy, or of the oldest known record after it."""
        self._taken = 0
        """The offset up to which the loader has the log; control records count as loaded."""
        self._read: Iterator[Batch] = iter(())
        """The batches that were read of the log after `_taken`."""
        self._decoding: Decoding | None = None
        self._work: Iterator[None] | None = None
        """Work to do, in turns, before the next records of the log: load a snapshot, or call `_on_replace`."""
        self._is_followed = False
        """Whether `_on_replace` got the image, and `_following` every later change."""
        self._load_end = 0
        """The offset up to which the log was on disk when loading began: at the start, or in a snapshot."""
        self._loading = Loading()
        self._high_watermark = 0
        self.leader_high_watermark: Callable[[], int | None] = lambda: self._high_watermark
        self._first_told: int | None = None
        """The high watermark of the first leader that this node heard of: more than this node has, if it was down."""
        self._has_reached_high_watermark = False
        self._unfrozen = 0
        self._drainer: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._stable, self._committed = OffsetWaiters(), OffsetWaiters()
        self._replaced: list[MetadataImage] = []  # by snapshots; to be freed
        self._mark: tuple[int, Callable[[MetadataImage], None]] | None = None
        self.subscribers: list[Subscriber] = []
        self.on_known: Callable[[], None] = lambda: None
        """Called when `loading` ends: from then on the voter may stand for election, which the quorum may need."""

    @property
    def image(self) -> MetadataImage:
        """The image at the end of the log, with an open transaction: an active controller decides on it."""
        return self._loader.speculative

    @property
    def published(self) -> MetadataImage:
        """The committed image outside of transactions, which all other readers see."""
        return self._loader.published

    @property
    def end_offset(self) -> int:
        """The offset after the last metadata record that was applied; control records may follow in the log."""
        return self._loader.end_offset

    @property
    def transaction_start(self) -> int | None:
        """Offset of the BeginTransaction of the open transaction; None when none is open."""
        return self._loader.transaction_start

    @property
    def snapshot_image(self) -> MetadataImage | None:
        """The image of which a snapshot may be made; None while there is none."""
        return self._loader.snapshot_image if self._work is None else None

    @property
    def _in_image(self) -> int:
        """The offset up to which the log is in the image at its end.

        Control records may lie between waiting records.
        """
        waits_from = self._loader.waits_from
        return self._taken if waits_from is None else waits_from

    @property
    def _applied(self) -> int:
        """Like `_in_image`; -1 while the images belong to a log that a snapshot has replaced, or have no index yet."""
        return self._in_image if self._work is None and self._is_followed else -1

    @property
    def loading(self) -> Loading | None:
        """The progress of loading the disk at the start, or a snapshot; None once it is loaded."""
        return self._loading if self._applied < self._load_end or not self._is_followed else None

    @property
    def is_caught_up(self) -> bool:
        """Whether the whole log is applied, and all records that may be published are published."""
        return self._is_applied and not self._loader.has_unpublished

    @property
    def _is_applied(self) -> bool:
        return self._applied >= self._log_end() and not self._following.lags

    def covers(self, offset: int) -> bool:
        """Whether everything below an offset is committed and in the images, control records included."""
        return min(self._settled_end, self._applied) >= offset

    @property
    def _settled_end(self) -> int:
        """The offset below which all is committed, and published unless not applied or in an open transaction."""
        is_published = not self._loader.has_unpublished
        return self._high_watermark if is_published else self._loader.published.provenance.offset + 1

    @property
    def has_reached_high_watermark(self) -> bool:
        """Whether everything is published that was committed when this node first heard of a leader; stays true."""
        return self._has_reached_high_watermark

    async def caught_up(self) -> None:
        """Wait until `is_caught_up`."""
        while not self.is_caught_up:
            await self._idle.wait()

    async def loaded(self) -> None:
        """Wait until `loading` is None."""
        while self.loading is not None:
            await self._idle.wait()

    def boot(self, snapshot: EpochOffset | None, log_start: int, size: int) -> None:
        """Begin to load the disk, one turn's work at a time.

        :param log_start: where the log begins; records before the end of the snapshot are not read.
        :param size: the bytes of both that will be read.
        """
        self._loading = Loading(size)
        self._load(snapshot, log_start, self._log_end())

    def _load(self, snapshot: EpochOffset | None, start: int, end: int) -> None:
        self._load_end, self._is_followed = end, False
        self._go_on_from(start)
        self._work = None if snapshot is None else self._install(snapshot)
        self._wake()

    def appended(self, decoded: Sequence[Decoded] = ()) -> None:
        """The log has grown; new records are applied in slices. Those in ``decoded`` need not be read again."""
        for header, records in decoded:
            is_next = header.base_offset == self._taken and self._work is None
            if not is_next or self._loader.backlog >= BACKLOG_RECORDS:
                break
            self._go_on_from(header.next_offset)
            self._hand_over(header, records)
        self._wake()

    def appended_own(self, batches: bytes, records: Sequence[MetadataRecord]) -> None:
        """The log has appended one batch of these records, decided on `image`; it is applied at once."""
        header = read_header(batches)
        while self._applied < header.base_offset:  # the record that opened the epoch
            self._advance(Turn())
        append_records(self._loader, header, records)
        self._loader.apply()
        self._go_on_from(header.next_offset)
        if not self._is_followed or self._following.lags:
            self._wake()

    def truncated(self, offset: int) -> None:
        """The log now ends at ``offset``."""
        is_ahead = self._loader.end_offset > offset
        if is_ahead:
            self._work = None  # it was derived from the image before; `_advance` begins anew with the present one
        self._load_end = min(self._load_end, offset)
        self._go_on_from(self._loader.truncate(offset) if is_ahead else min(self._taken, offset))
        self._wake()

    def installed(self, snapshot: EpochOffset) -> None:
        """A snapshot has replaced the whole log. Until its image is built, the published image stays; unpublished parts
        of the old log are dropped."""
        require(
            snapshot.offset >= self._high_watermark,
            f"a snapshot up to {snapshot.offset} is older than the high watermark {self._high_watermark}",
        )
        self._leapt(self.image, self._loader.published)
        self._reset(self._loader.published)
        self._load(snapshot, snapshot.offset, snapshot.offset)

    def committed(self, high_watermark: int) -> None:
        """Take the new high watermark: everything below this offset is committed."""
        self._high_watermark = high_watermark
        self._publish()
        if self._loader.has_unpublished:
            self._wake()

    async def stable(self, offset: int) -> None:
        """Wait until the record at ``offset`` is committed and not part of an open transaction.

        :raises NotLeadingError: leadership was lost first.
        """
        if self._loader.last_stable_offset < offset:
            await self._stable.wait(offset)

    async def committed_up_to(self, offset: int) -> None:
        """Wait until the record at ``offset`` is committed, also in an open transaction, and everything up to it that
        may be published is published; errors as in `stable`."""
        if self._settled_end <= offset:
            await self._committed.wait(offset)

    def hand_over_at(self, offset: int, reached: Callable[[MetadataImage], None]) -> None:
        """Hand over, once, the first published image that ends at this offset or after it. It is the same on every
        node, unless a node was further already, or took a snapshot; the image's provenance shows that.

        It replaces an earlier call.
        """
        self._mark = (offset, reached)
        self._pass_mark()

    def abandon_waiters(self) -> None:
        """Leadership is lost: all waiting tasks get an error."""
        self._stable.fail()
        self._committed.fail()

    async def close(self) -> None:
        """Stop applying."""
        self.abandon_waiters()
        if self._drainer is not None:
            self._drainer.cancel()
            await asyncio.gather(self._drainer, return_exceptions=True)

    def _stepped(self, before: MetadataImage, after: MetadataImage, changes: Changes) -> None:
        if changes.zk_migration_state:
            self._follow_migration(before, after)
        self._following.step(before, after, changes)

    def _leapt(self, before: MetadataImage, after: MetadataImage) -> None:
        self._is_followed = False
        self._following.drop()
        self._follow_migration(before, after)
        self._on_leap(before, after)

    def _follow_migration(self, before: MetadataImage | None, after: MetadataImage) -> None:
        if after.features.zk_migration_state is not ZkMigrationState.MIGRATION:
            self.migration_base = NOWHERE
        elif before is None or before.features.zk_migration_state is not ZkMigrationState.MIGRATION:
            self.migration_base = EpochOffset(after.provenance.epoch, after.provenance.offset)

    def _reset(self, image: MetadataImage) -> None:
        self._follow_migration(None, image)
        self._loader.reset(image)
        self._publishing = self._loader.publish(self._stop_at)

    def _wake(self) -> None:
        self._idle.clear()
        if self._drainer is None or self._drainer.done():
            self._drainer = self._supervisor.spawn(APPLYING, self._drain())

    async def _drain(self) -> None:
        """Apply until nothing is left. An error stops the process, so waiting tasks are not woken then."""
        while not self.is_caught_up:
            turn = Turn()
            while not (self._advance(turn) or self._is_applied):
                pass
            self._publish()
            if not self.is_caught_up:
                await give_back()
        self._idle.set()

    def _advance(self, turn: Turn) -> bool:
        """Do one piece of work, at most as much as the turn has left. Returns whether the turn is over."""
        if self._work is None and not self._is_followed and self._in_image >= self._load_end:
            self._work = self._make_known()
        if self._work is not None:
            self._gauge.count(LoopWork.RECORDS, TURN_RECORDS)
            if next(self._work, _DONE) is _DONE:
                self._work = None
                if self._is_followed:
                    self.on_known()
            self._settle(TURN_RECORDS)
            return True
        if self._following.lags:
            self._gauge.count(LoopWork.RECORDS, TURN_RECORDS)
            self._following.go_on()
            return True
        if self._loader.backlog:
            self._loader.apply(turn.records_left)
            self._gauge.count(LoopWork.RECORDS, self._loader.last_applied)
            return turn.is_over(self._loader.last_applied)
        return self._decode_on(turn)

    def _make_known(self) -> Iterator[None]:
        yield from self._on_replace(self.image)
        yield from release(self._replaced, self.image)
        self._is_followed = True
        if self._load_end:
            self._loading.ended(self.image.topics.counts.all)

    def _decode_on(self, turn: Turn) -> bool:
        """Decode the next records of the log. Returns whether the turn is over."""
        decoding = self._decoding
        if decoding is None:
            batch = self._next_batch()
            if batch is None or batch.header.is_control:
                return turn.is_over()
            decoding = self._decoding = Decoding(batch)
        before = len(decoding.records)
        is_over = decoding.go_on(turn)
        self._gauge.count(LoopWork.RECORDS, len(decoding.records) - before)
        if len(decoding.records) == decoding.header.count:
            self._decoding = None
            self._taken = decoding.header.next_offset
            self._hand_over(decoding.header, decoding.records)
        return is_over

    def _hand_over(self, header: BatchHeader, records: Sequence[MetadataRecord]) -> None:
        """Give the records of a batch to the loader."""
        append_records(self._loader, header, records)
        if self._loader.transaction_start is not None or not self._is_followed:
            self._settle(header.count)

    def _next_batch(self) -> Batch | None:
        """The next batch of the log. Control batches have nothing for the image and are skipped."""
        batch = next(self._read, None)
        if batch is None:
            self._read = iter(self._read_log(self._taken))
            batch = next(self._read, None)
        if batch is not None and batch.header.is_control:
            self._taken = batch.header.next_offset
        if batch is not None and not self._is_followed:
            self._loading.read(batch.header.size)
        return batch

    def _go_on_from(self, offset: int) -> None:
        """Let the loader go on with the log at ``offset``."""
        self._taken, self._read, self._decoding = offset, iter(()), None

    def _settle(self, records: int) -> None:
        """Freeze the objects of a copy or a snapshot: a million objects live for hours, and the garbage collector need
        not visit them. In daily use nothing is frozen: connections and tasks are cycles, and must be freed when they
        end."""
        self._unfrozen += records
        if self._unfrozen >= FREEZE_RECORDS:
            self._unfrozen = 0
            freeze_live_objects()

    def _publish(self) -> None:
        """Publish the records that may be published, at most one turn's work."""
        if self._work is not None:
            return
        self._loader.committed(max(self._high_watermark, self._loader.published.provenance.offset + 1))
        delta = next(self._publishing) if self._loader.has_unpublished else None
        if delta is not None:
            self._tell(delta)
        if not self._has_reached_high_watermark and self._high_watermark > 0:
            self._look_whether_all_is_published()
        self._committed.reached(self._settled_end - 1)
        self._stable.reached(self._loader.last_stable_offset)

    def _look_whether_all_is_published(self) -> None:
        if self._first_told is None:
            self._first_told = self.leader_high_watermark()
        is_told = self._first_told is not None and self._first_told <= self._high_watermark
        if is_told and self._high_watermark <= self._applied and not self._loader.has_unpublished:
            self._has_reached_high_watermark = True

    def _stop_at(self) -> int | None:
        return self._mark and self._mark[0]

    def _tell(self, delta: ImageDelta) -> None:
        for subscriber in self.subscribers:
            subscriber(delta)
        self._pass_mark()

    def _pass_mark(self) -> None:
        image = self.published
        if self._mark is not None and self._work is None and image.provenance.offset + 1 >= self._mark[0]:
            (_, reached), self._mark = self._mark, None
            reached(image)

    def _install(self, snapshot: EpochOffset) -> Iterator[None]:
        """Load the image of a snapshot, while the published image stays as it is."""
        image, batches = None, self._counted(self._read_snapshot(snapshot))
        for image in replay_snapshot(snapshot.offset, snapshot.epoch, batches):  # noqa: B007 - the last one counts
            yield
        before = self._loader.published
        for changes in compare_images(before, image or before):
            if changes is None:
                yield
            elif image is not None:
                self._work = None
                self._reset(image)
                self._tell(ImageDelta(before, image, changes))
                self._replaced.append(before)

    def _counted(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        for batch in batches:
            self._loading.read(batch.header.size)
            yield batch
