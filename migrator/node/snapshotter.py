"""Makes snapshots of the published image, by bytes and by time as in Kafka, and removes old ones.

The image is immutable, so a snapshot need not be quick: it is made and read back over many turns of the event loop,
with pauses, and fsynced in a thread. All controllers make theirs at about the same record, often in the middle of a
lot of work, for example a broker's shutdown. Kafka's ``SnapshotGenerator`` has a thread for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from migrator.clock import wall_ms
from migrator.config.settings import Settings
from migrator.image.digest import read_back
from migrator.image.model import MetadataImage
from migrator.image.release import release
from migrator.image.replay import sized_records
from migrator.log.errors import StorageError
from migrator.log.image_snapshot import write_snapshot
from migrator.log.retention import HELD_BACK, Retention
from migrator.log.snapshots import iter_snapshot
from migrator.node.metadata import MetadataRuntime
from migrator.node.quorum.storage import NodeStorage
from migrator.raft.messages import EpochOffset
from migrator.turns import in_turns

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
CLEAN_SECONDS = 60.0
SHARE = 0.1
"""The largest share of the time that a snapshot may take. One of 2,000,000 partitions needs half a minute."""


class Snapshotter:
    """Makes the snapshots of this node, leader or not; one object per node.

    :ivar needed_from: gives the offset that the log has to hold in spite of its retention, see `MetadataLog.clean`;
        called before anything is dropped.
    """

    def __init__(self, settings: Settings, storage: NodeStorage, metadata: MetadataRuntime) -> None:
        self._max_bytes = settings.metadata_log_max_record_bytes_between_snapshots
        self._max_interval_ms = settings.metadata_log_max_snapshot_interval_ms
        self._retention = Retention(settings.metadata_max_retention_bytes, settings.metadata_max_retention_ms)
        self._storage = storage
        self._metadata = metadata
        self._appended_bytes = 0
        self._last_ms = wall_ms()
        self._held_back = False
        self.needed_from: Callable[[], Awaitable[int | None]] | None = None

    def appended(self, size: int) -> None:
        """Count the bytes by which the log has grown."""
        self._appended_bytes += size

    async def run(self) -> None:
        """Make snapshots until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if self._is_due():
                await self._try_snapshot()

    async def keep_clean(self) -> None:
        """Remove what is older than the retention until cancelled, also while a snapshot is made, which takes minutes.

        :raises StorageError: the disk fails in a way that makes the log unusable.
        """
        await asyncio.sleep(CHECK_SECONDS)
        while True:
            await self._clean()
            await asyncio.sleep(CLEAN_SECONDS)

    def _is_due(self) -> bool:
        if self._appended_bytes >= self._max_bytes:
            return True
        return self._max_interval_ms > 0 and wall_ms() - self._last_ms >= self._max_interval_ms

    async def _try_snapshot(self) -> None:
        image = self._metadata.snapshot_image
        latest = self._storage.log.store.latest()
        if image is None or image.provenance.offset < 0:
            return
        self._appended_bytes, self._last_ms = 0, wall_ms()  # what comes from now on is not in the snapshot
        if latest is not None and latest.offset > image.provenance.offset:
            return
        try:
            await self.write(image)
        except StorageError as error:
            log.warning("The snapshot could not be written, so the log is kept: %s", error)
        images = [image]
        del image
        async for _ in in_turns(release(images, self._metadata.published), SHARE):
            pass

    async def write(self, image: MetadataImage) -> EpochOffset:
        """Write a snapshot of a published image, and read it back before it is used.

        :raises StorageError: the disk failed; then there is no new snapshot, and the log is unchanged.
        :raises InvariantViolation: the snapshot gives another image, or none; then there is no new snapshot.
        """
        membership_at, check = self._storage.log.membership_at, partial(self._read_back, image)
        snapshot_id = await write_snapshot(self._storage.directory, image, membership_at, share=SHARE, check=check)
        self._storage.log.store.add(snapshot_id)
        log.info("Snapshot %020d-%010d is written", snapshot_id.offset, snapshot_id.epoch)
        return snapshot_id

    async def _read_back(self, image: MetadataImage, path: Path) -> None:
        async for _ in in_turns(read_back(image, sized_records(iter_snapshot(path))), SHARE):
            pass

    async def _clean(self) -> None:
        metadata_log = self._storage.log
        needed = None
        if self.needed_from is not None and metadata_log.is_due(self._retention, wall_ms()):
            needed = await self.needed_from()
        async for dropped in in_turns(metadata_log.clean(self._retention, wall_ms(), needed)):
            log.info("Snapshot %020d-%010d is older than the retention and is deleted", dropped.offset, dropped.epoch)
        self._tell_held_back(needed, held_back=metadata_log.is_due(self._retention, wall_ms()))
        await asyncio.get_running_loop().run_in_executor(None, self._storage.log.remove_deleted, wall_ms())

    def _tell_held_back(self, needed: int | None, *, held_back: bool) -> None:
        if held_back and not self._held_back:
            log.warning(
                "The log is kept longer than its retention, up to %d times metadata.max.retention.bytes, because "
                "/migration in ZooKeeper may still name offset %s. Make ZooKeeper available again",
                HELD_BACK,
                needed,
            )
        self._held_back = held_back
