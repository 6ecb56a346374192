"""The image at an offset, read from a log directory that its owner goes on writing: nothing is locked or repaired."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from migrator.errors import OperatorError
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage, Provenance
from migrator.image.snapshot import load_snapshot
from migrator.log.files import iter_file_batches
from migrator.log.snapshots import iter_snapshot, snapshot_id_of
from migrator.raft.messages import EpochOffset
from migrator.records.batch import Batch
from migrator.records.metadata import MetadataRecord

SEGMENT_GLOB = "*.log"
CHECKPOINT_GLOB = "*.checkpoint"


def load_image(directory: Path, at: EpochOffset) -> MetadataImage:
    """The image whose last record is ``at`` (offset inclusive).

    :param directory: the one that holds the segments, ``__cluster_metadata-0``.
    :raises OperatorError: when the log there does not reach that far, or is damaged.
    """
    loader = ImageLoader(_snapshot_image(directory, at))
    for batch in _batches(directory, loader.published.provenance.offset + 1, at.offset):
        records = [record for record, _ in batch.records()]
        header = batch.header
        loader.append(header.base_offset, header.leader_epoch, header.max_timestamp, records)
        loader.apply()
    loader.commit(at.offset + 1)
    image = loader.published
    if image.provenance.offset != at.offset:
        raise OperatorError(
            f"the log does not hold a complete image at offset {at.offset}, only at {image.provenance.offset}",
            where=str(directory),
        )
    return image


def _snapshot_image(directory: Path, at: EpochOffset) -> MetadataImage:
    """Of the newest snapshot that is not beyond the offset; the empty image without one."""
    known = [(id_, path) for path in directory.glob(CHECKPOINT_GLOB) if (id_ := snapshot_id_of(path)) is not None]
    fitting = [(id_, path) for id_, path in known if 0 < id_.offset <= at.offset + 1]
    if not fitting:
        return EMPTY_IMAGE
    snapshot, path = max(fitting, key=lambda entry: entry[0].offset)
    provenance = Provenance(snapshot.offset - 1, snapshot.epoch, 0)
    image = None
    for image in load_snapshot(_snapshot_records(path), provenance):  # noqa: B007 - the last one is the result
        pass
    return image or EMPTY_IMAGE


def _snapshot_records(path: Path) -> Iterator[MetadataRecord]:
    for batch in iter_snapshot(path):
        if not batch.header.is_control:
            yield from (record for record, _ in batch.records())


def _batches(directory: Path, first: int, last: int) -> Iterator[Batch]:
    """Data batches with records from ``first`` to ``last``; the owner may be writing the last one."""
    segments = sorted(directory.glob(SEGMENT_GLOB))
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is not None and int(following.stem) <= first:
            continue
        for _, batch in iter_file_batches(segment):
            header = batch.header
            if header.last_offset >= first and header.base_offset <= last and not header.is_control:
                yield batch
            if header.last_offset >= last:
                return
