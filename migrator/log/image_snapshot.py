"""Writes the snapshot of an image, a part in each turn of the event loop.

The snapshotter and the rehearsal call `write_snapshot`. The file has its final name only once it is complete, durable
and, if the caller asks for that, checked, so a start after a crash never uses a part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from migrator.clock import wall_ms
from migrator.image.model import MetadataImage
from migrator.image.snapshot import snapshot_steps
from migrator.log.snapshots import SnapshotWriter
from migrator.raft.messages import EpochOffset
from migrator.raft.voter_set import NO_MEMBERSHIP, Membership
from migrator.records.codec import encoder
from migrator.turns import Turn, in_turns


async def write_snapshot(
    directory: Path,
    image: MetadataImage,
    membership_at: Callable[[int], Membership] = lambda _end_offset: NO_MEMBERSHIP,
    *,
    share: float = 1.0,
    check: Callable[[Path], Awaitable[None]] | None = None,
) -> EpochOffset:
    """Write the snapshot of an image to ``__cluster_metadata-0``; it is durable when this returns.

    :param membership_at: see `MetadataLog.membership_at`; it is called with the snapshot's end offset.
    :param share: see `in_turns`.
    :param check: is given the complete file before it has its final name, under which a start would use it. If it
        raises an error or is cancelled, the file is removed.
    :raises StorageError: the disk refuses.
    :raises InvariantViolation: the image holds something for which its metadata.version has no record.
    """
    provenance = image.provenance
    snapshot_id = EpochOffset(provenance.epoch, provenance.offset + 1)
    loop, now_ms = asyncio.get_running_loop(), wall_ms()
    with SnapshotWriter(
        directory,
        snapshot_id,
        last_contained_log_timestamp_ms=provenance.timestamp_ms,
        now_ms=now_ms,
        membership=membership_at(snapshot_id.offset),
    ) as writer:
        async for values in in_turns(_parts(image), share):
            writer.append(values, now_ms=now_ms)
        writer.end(now_ms=now_ms)
        if check is not None:
            await check(writer.path)
        await loop.run_in_executor(None, writer.publish)
    return snapshot_id


def _parts(image: MetadataImage) -> Iterator[list[bytes]]:
    """The encoded records, one turn's work at a time."""
    encode, turn = encoder(image.features.metadata_version), Turn()
    values: list[bytes] = []
    for record in snapshot_steps(image):
        if record is not None:
            values.append(encode(record))
        if record is None or turn.is_over(size=len(values[-1])):
            yield values
            values = []
    yield values
