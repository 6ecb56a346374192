"""The image of a running quorum's committed metadata, read by an `Observer`."""

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
    loader, deadline = ImageLoader(), observer.deadline()
    offset, epoch = 0, 0
    while True:
        response = await observer.fetch(offset, epoch)
        if response.snapshot_id is not None:
            loader = await _snapshot(observer, response.snapshot_id)
            offset, epoch = response.snapshot_id.offset, response.snapshot_id.epoch
            continue
        if response.diverging is not None:  # another leader, without what the one before had not committed
            loader = ImageLoader()
            offset, epoch = 0, 0
            continue
        read_before = offset
        for batch in iter_batches(response.records, partial_tail=True):
            if batch.header.next_offset > response.high_watermark:  # not committed yet: it may be undone
                break
            offset, epoch = batch.header.next_offset, batch.header.leader_epoch
            replay(loader, batch)
            if not batch.header.is_control:
                loader.commit(offset)  # or it keeps what it would need to go back, for a while
            await asyncio.sleep(0)
        if response.high_watermark <= offset:
            return loader.published
        if offset == read_before:
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
