"""The image of a running quorum's committed metadata, read by an `Observer`, once or again and again."""

from __future__ import annotations

import asyncio

from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.image.replay import replay, replay_snapshot
from migrator.raft.messages import EpochOffset
from migrator.records.batch import iter_batches
from migrator.wire.observer import NoAnswerError, Observer


async def read_remote_image(observer: Observer) -> MetadataImage:
    """The published image at the leader's high watermark; `Observer.leader` says whose.

    :raises NoAnswerError: as `Observer.fetch`, or the leader does not send what it has committed.
    """
    return await RemoteImage().advance(observer)


class RemoteImage:
    """An image that follows the quorum: each reading goes on where the one before it ended, also where that was cut
    off."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._loader = ImageLoader()
        self._offset, self._epoch = 0, 0

    async def advance(self, observer: Observer) -> MetadataImage:
        """What `read_remote_image` gives, and raises."""
        deadline = observer.deadline()
        while True:
            response = await observer.fetch(self._offset, self._epoch)
            if response.snapshot_id is not None:
                self._loader = await _snapshot(observer, response.snapshot_id)
                self._offset, self._epoch = response.snapshot_id.offset, response.snapshot_id.epoch
                continue
            if response.diverging is not None:  # another leader, without what the one before had not committed
                self._begin()
                continue
            read_before = self._offset
            for batch in iter_batches(response.records, partial_tail=True):
                if batch.header.next_offset > response.high_watermark:  # not committed yet: it may be undone
                    break
                self._offset, self._epoch = batch.header.next_offset, batch.header.leader_epoch
                replay(self._loader, batch)
                if not batch.header.is_control:
                    self._loader.commit(self._offset)  # or it keeps what it would need to go back, for a while
                await asyncio.sleep(0)
            if response.high_watermark <= self._offset:
                return self._loader.published
            if self._offset == read_before:
                why = f"controller {observer.leader} leads, but does not send what it has committed"
                await observer.rest(why, deadline)


async def _snapshot(observer: Observer, snapshot_id: EpochOffset) -> ImageLoader:
    data = bytearray()
    async for part in observer.snapshot(snapshot_id):
        data += part
    for image in replay_snapshot(snapshot_id.offset, snapshot_id.epoch, iter_batches(data)):
        if image is not None:
            return ImageLoader(image)
        await asyncio.sleep(0)
    raise NoAnswerError("the leader's snapshot is empty")
