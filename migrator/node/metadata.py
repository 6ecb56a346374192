"""The images of one node, kept in step with its log: applies in slices, publishes to subscribers, wakes who waits.

Everything that the log appends passes through one queue in order, so that a big copy, or a snapshot that takes the
log's place, is applied a few milliseconds at a time while heartbeats go on.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from migrator.errors import MigratorError
from migrator.image.changes import compare_images
from migrator.image.loader import ImageLoader, Step
from migrator.image.model import Changes, ImageDelta, MetadataImage, Provenance
from migrator.image.snapshot import load_snapshot
from migrator.node.loop_health import freeze_live_objects
from migrator.raft.messages import EpochOffset
from migrator.records.batch import Batch, iter_batches
from migrator.records.metadata import MetadataRecord, ZkMigrationState

SLICE_SECONDS = 0.01
"""How long one turn of the event loop applies records."""
SLICE_RECORDS = 500
FREEZE_RECORDS = 20_000
"""After so many records the garbage collector is told that what there is now stays."""

NOWHERE = EpochOffset(-1, -1)

Subscriber = Callable[[ImageDelta], None]
Snapshot = Callable[[EpochOffset], tuple[Provenance, Iterable[Batch]]]
Replay = Callable[[int], Iterable[Batch]]


class NotLeadingError(MigratorError):
    """What was appended may be lost or may be committed by another leader: this node can't tell any more."""


class OffsetWaiters:
    """Who waits for an offset to be reached."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()

    async def wait(self, offset: int) -> None:
        """Until `reached` names this offset or a later one.

        :raises NotLeadingError: `fail` came first.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._heap, (offset, next(self._tickets), future))
        await future

    def reached(self, offset: int) -> None:
        """Wake everybody who waits for this offset or an earlier one."""
        while self._heap and self._heap[0][0] <= offset:
            future = heapq.heappop(self._heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self) -> None:
        """Leadership is lost: nobody can say here what becomes of uncommitted records."""
        for _, _, future in self._heap:
            if not future.done():
                future.set_exception(NotLeadingError("leadership was lost before the records were committed"))
        self._heap.clear()


class MetadataRuntime:
    """Images of the metadata of this node.

    :param open_snapshot: what a snapshot on disk stands for and its batches, by its id.
    :param read_log: the batches of the log from an offset on, for a replay after a truncation.
    :param on_step: told of each move of the image at the log's end, see `ImageLoader`.
    :param on_failure: told when a record does not fit the image; this node has to stop.
    """

    def __init__(
        self,
        open_snapshot: Snapshot,
        read_log: Replay,
        *,
        on_step: Step,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._open_snapshot = open_snapshot
        self._read_log = read_log
        self._on_failure = on_failure
        self._on_step = on_step
        self._loader = ImageLoader(on_step=self._stepped)
        self.migration_base = NOWHERE
        """Epoch and offset of the record that completed the copy, or of the oldest known to be later."""
        self._queue: deque[Batch] = deque()
        self._installing: Iterator[ImageDelta | None] | None = None
        self._high_watermark = 0
        self._unfrozen = 0
        self._drainer: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._stable = OffsetWaiters()
        self._committed = OffsetWaiters()
        self.subscribers: list[Subscriber] = []

    @property
    def image(self) -> MetadataImage:
        """The image at the end of the log, open transaction included: what an active controller decides upon."""
        return self._loader.speculative

    @property
    def published(self) -> MetadataImage:
        """The committed image outside transactions: what everybody else sees."""
        return self._loader.published

    @property
    def end_offset(self) -> int:
        """The offset behind the last metadata record that was taken; control records may follow in the log."""
        return self._loader.end_offset

    @property
    def transaction_start(self) -> int | None:
        """Offset of the Begin of the open transaction; None outside."""
        return self._loader.transaction_start

    @property
    def snapshot_image(self) -> MetadataImage | None:
        """The image that a snapshot may be made of; None while there is none."""
        return self._loader.snapshot_image if self._installing is None else None

    @property
    def is_caught_up(self) -> bool:
        """Whether all that the log has appended is applied."""
        return not self._queue and not self._loader.backlog and self._installing is None

    async def caught_up(self) -> None:
        """Wait until all that the log has appended is applied."""
        while not self.is_caught_up:
            await self._idle.wait()

    def boot(self, snapshot: EpochOffset | None, batches: Iterable[Batch]) -> None:
        """Load everything that is on disk, at once: nobody waits for this node yet."""
        if snapshot is not None:
            image = None
            for image in self._load_snapshot(snapshot):  # noqa: B007 (the last one counts)
                pass
            if image is not None:
                self._reset(image)
        for batch in batches:
            self._take(batch)
            self._loader.apply()

    def appended(self, batches: bytes) -> None:
        """The log has appended these whole batches; they are applied in slices."""
        self._queue.extend(batch for batch in iter_batches(batches) if not batch.header.is_control)
        if self._queue:
            self._wake()

    def appended_own(self, batches: bytes, records: Sequence[MetadataRecord]) -> None:
        """The log has appended one batch of these records, decided on `image`; it is applied at once."""
        header = next(iter_batches(batches)).header
        self._loader.append(header.base_offset, header.leader_epoch, header.base_timestamp, records)
        self._loader.apply()

    def truncated(self, offset: int) -> None:
        """The log now ends at ``offset``."""
        while self._queue and self._queue[-1].header.next_offset > offset:
            self._queue.pop()
        if self._loader.end_offset > offset:
            resume = self._loader.truncate(offset)
            self._queue.extendleft(reversed([batch for batch in self._read_log(resume) if not batch.header.is_control]))
            self._wake()

    def installed(self, snapshot: EpochOffset) -> None:
        """A snapshot has taken the place of the whole log."""
        self._queue.clear()
        self._installing = self._install(snapshot)
        self._wake()

    def committed(self, high_watermark: int) -> None:
        """Everything below this offset is committed."""
        self._high_watermark = high_watermark
        self._publish()

    async def stable(self, offset: int) -> None:
        """Wait until the record at ``offset`` is committed and not part of an open transaction.

        :raises NotLeadingError: leadership was lost first.
        """
        if self._loader.last_stable_offset < offset:
            await self._stable.wait(offset)

    async def committed_up_to(self, offset: int) -> None:
        """Wait until the record at ``offset`` is committed, open transaction or not; errors as `stable`."""
        if self._high_watermark <= offset:
            await self._committed.wait(offset)

    def abandon_waiters(self) -> None:
        """Leadership is lost: whoever waits hears of it."""
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
        self._on_step(before, after, changes)

    def _follow_migration(self, before: MetadataImage | None, after: MetadataImage) -> None:
        if after.features.zk_migration_state is not ZkMigrationState.MIGRATION:
            self.migration_base = NOWHERE
        elif before is None or before.features.zk_migration_state is not ZkMigrationState.MIGRATION:
            self.migration_base = EpochOffset(after.provenance.epoch, after.provenance.offset)

    def _reset(self, image: MetadataImage) -> None:
        self._follow_migration(None, image)
        self._loader.reset(image)

    def _wake(self) -> None:
        self._idle.clear()
        if self._drainer is None or self._drainer.done():
            self._drainer = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while not self.is_caught_up:
                until = clock() + SLICE_SECONDS
                while clock() < until and self._advance():
                    pass
                self._publish()
                await asyncio.sleep(0)
        except Exception as error:  # noqa: BLE001 - an image that lacks a batch must not be published
            self._on_failure(error)
        finally:
            self._idle.set()

    def _advance(self) -> bool:
        """One small piece of work; False when there is none."""
        if self._installing is not None:
            delta = next(self._installing)
            if delta is not None:
                self._installing = None
                self._reset(delta.after)
                self._tell(delta)
            return True
        if not self._loader.backlog and self._queue:
            batch = self._queue.popleft()
            self._take(batch)
            self._settle(batch.header.count)
        return self._loader.apply(SLICE_RECORDS) > 0 or bool(self._queue)

    def _settle(self, records: int) -> None:
        """A copy makes a million objects that live for hours: none of them is worth a collector's look."""
        self._unfrozen += records
        if self._unfrozen >= FREEZE_RECORDS:
            self._unfrozen = 0
            freeze_live_objects()

    def _take(self, batch: Batch) -> None:
        header = batch.header
        if not header.is_control:
            records = [record for record, _ in batch.records()]
            self._loader.append(header.base_offset, header.leader_epoch, header.base_timestamp, records)

    def _publish(self) -> None:
        if self._installing is not None:
            return
        delta = self._loader.commit(max(self._high_watermark, self._loader.published.provenance.offset + 1))
        if delta is not None:
            self._tell(delta)
        self._committed.reached(self._high_watermark - 1)
        self._stable.reached(self._loader.last_stable_offset)

    def _tell(self, delta: ImageDelta) -> None:
        for subscriber in self.subscribers:
            subscriber(delta)

    def _install(self, snapshot: EpochOffset) -> Iterator[ImageDelta | None]:
        """From the published image, which stays as it is meanwhile, to that of a snapshot, in small steps; None until
        both are there and compared."""
        image = None
        for image in self._load_snapshot(snapshot):  # noqa: B007 (the last one counts)
            yield None
        if image is not None:
            before = self._loader.published
            for changes in compare_images(before, image):
                yield None if changes is None else ImageDelta(before, image, changes)

    def _load_snapshot(self, snapshot: EpochOffset) -> Iterator[MetadataImage | None]:
        """The image of a snapshot, built in small steps; None until it is whole."""
        provenance, batches = self._open_snapshot(snapshot)
        records = (record for batch in batches if not batch.header.is_control for record, _ in batch.records())
        return load_snapshot(records, provenance)
