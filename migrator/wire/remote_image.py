"""The image of a running quorum's committed metadata, read through an `Observer`, once or repeatedly.

The start check of a controller, `migrator.seeing` and the drill use it; it needs no vote and writes nothing. An image
holds only committed records of closed transactions. A reading that is interrupted goes on where it stopped, also in the
middle of a snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.errors import MigratorError
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.image.replay import append_records, replay_snapshot
from migrator.raft.messages import EpochOffset, FetchResponse
from migrator.records.batch import Batch, iter_batches
from migrator.records.metadata import MetadataRecord
from migrator.turns import TURN_RECORDS, Turn, give_back, in_turns
from migrator.wire.observer import UNKNOWN_SIZE, NoAnswerError, Observer, SnapshotGoneError

BEGINNINGS_MAX = 5
"""The number of times that one reading may begin again at another snapshot. The bound stops a leader that always names
a new one."""


async def read_remote_image(observer: Observer) -> MetadataImage:
    """The image at the high watermark of the leader, which is then `Observer.leader`.

    :raises NoAnswerError: as in `Observer.fetch`, or the leader does not send its committed records.
    """
    return await RemoteImage().advance(observer)


class RemoteImage:
    """An image that follows the quorum. Each reading continues where the one before ended, also in the middle of the
    log or of a snapshot."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._loader = ImageLoader()
        self._offset, self._epoch, self._end = 0, 0, 0
        self._snapshot: _Snapshot | None = None

    @property
    def progress(self) -> str:
        """The progress of a reading, as text for operators."""
        return f"record {self._offset} of {self._end}" if self._snapshot is None else self._snapshot.progress

    async def advance(self, observer: Observer) -> MetadataImage:
        """Like `read_remote_image`. After a `NoAnswerError` the part that was read is kept; damaged data is read
        again."""
        try:
            return await self._advance(observer)
        except NoAnswerError:
            raise
        except MigratorError:
            self._begin()
            raise

    async def _advance(self, observer: Observer) -> MetadataImage:
        await self._apply()  # finish the work that the previous reading has left
        deadline = observer.deadline()
        beginnings = 0
        while True:
            response = await observer.fetch(self._offset, self._epoch)
            if response.snapshot_id is not None or response.diverging is not None:
                beginnings += 1
                if beginnings > BEGINNINGS_MAX:
                    raise NoAnswerError(f"controller {observer.leader} leads, but lets nobody read its log to the end")
            if response.snapshot_id is not None:
                await self._take_snapshot(observer, response.snapshot_id)
                continue
            if response.diverging is not None:  # a new leader, without uncommitted records of the one before
                self._begin()
                continue
            read_before = self._offset
            await self._take_records(response)
            if response.high_watermark <= self._offset:
                return self._loader.published
            if self._offset == read_before:
                why = f"controller {observer.leader} leads, but does not send what it has committed"
                await observer.rest(why, deadline)

    async def _take_records(self, response: FetchResponse) -> None:
        self._snapshot, self._end = None, response.high_watermark
        for batch in iter_batches(response.records, partial_tail=True):
            if batch.header.next_offset > response.high_watermark:  # not committed yet: it may be truncated
                break
            if not batch.header.is_control:
                append_records(self._loader, batch.header, await _decoded(batch))
            self._offset, self._epoch = batch.header.next_offset, batch.header.leader_epoch
            await self._apply()

    async def _apply(self) -> None:
        """Apply the loaded records to the image, in turns of the event loop. They are committed, so no older image is
        kept."""
        while self._loader.apply(TURN_RECORDS):
            await give_back()
        self._loader.committed(self._offset)
        async for _ in in_turns(self._loader.publish()):
            pass

    async def _take_snapshot(self, observer: Observer, newest: EpochOffset) -> None:
        """Read a snapshot and replace the image. Continue with the snapshot that was begun, if its leader still has it:
        otherwise a leader with frequent snapshots could never be read to the end. If it is gone, read the newest."""
        if self._snapshot is None or self._snapshot.leader != observer.leader:
            self._snapshot = _Snapshot(newest, observer.leader)
        taken = self._snapshot
        try:
            self._loader = ImageLoader(await taken.read(observer))
        except SnapshotGoneError:
            self._snapshot = None
            return
        self._offset, self._epoch = taken.snapshot_id.offset, taken.snapshot_id.epoch
        self._snapshot = None


async def _decoded(batch: Batch) -> list[MetadataRecord]:
    """The records of a batch, decoded in turns of the event loop: a stock leader's batch may have many thousands."""
    records, turn = [], Turn()
    for record, size in batch.sized_records():
        records.append(record)
        if turn.is_over(size=size):
            await give_back()
    return records


class _Snapshot:
    """One leader's snapshot. It is fetched and then applied; both continue where they were interrupted."""

    def __init__(self, snapshot_id: EpochOffset, leader: int) -> None:
        self.snapshot_id = snapshot_id
        self.leader = leader
        self._data = bytearray()
        self._size = UNKNOWN_SIZE
        self._applied = 0
        self._slices: Iterator[MetadataImage | None] | None = None

    @property
    def progress(self) -> str:
        if self._size == UNKNOWN_SIZE:
            return "the leader's snapshot has not begun to come"
        done, what = (len(self._data), "have come") if self._slices is None else (self._applied, "are applied")
        return f"{done / 1e6:.1f} of {self._size / 1e6:.1f} MB of the leader's snapshot {what}"

    async def read(self, observer: Observer) -> MetadataImage:
        """
        Read the snapshot to its end.

        :raises SnapshotGoneError, NoAnswerError: as in `Observer.snapshot`.
        :raises MigratorError: the snapshot is damaged.
        """
        if len(self._data) != self._size:
            async for part in observer.snapshot(self.snapshot_id, len(self._data), self._size):
                self._size = part.size
                self._data += part.data
        if self._slices is None:
            self._slices = replay_snapshot(self.snapshot_id.offset, self.snapshot_id.epoch, self._batches())
        for image in self._slices:
            if image is not None:
                return image
            await give_back()
        raise SnapshotGoneError("the leader's snapshot is empty")

    def _batches(self) -> Iterator[Batch]:
        for batch in iter_batches(self._data):
            yield batch
            self._applied += batch.header.size
