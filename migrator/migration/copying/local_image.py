"""The image at an offset, read from a log directory that its owner goes on writing: nothing is locked or repaired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from migrator.errors import OperatorError
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.image.replay import replay, snapshot_image
from migrator.log.errors import storage_errors
from migrator.log.files import iter_file_batches
from migrator.log.snapshots import iter_snapshot, snapshot_id_of
from migrator.raft.messages import EpochOffset
from migrator.records.batch import Batch

SEGMENT_GLOB = "*.log"
CHECKPOINT_GLOB = "*.checkpoint"


OnBytes = Callable[[int], None]
"""Hears of each batch that was read, and how many bytes it has."""


def ignore(_size: int) -> None:
    """An `OnBytes` for who does not want to know."""


def load_image(directory: Path, at: EpochOffset, on_bytes: OnBytes = ignore) -> MetadataImage:
    """The image whose last record is ``at`` (offset inclusive).

    :param directory: the one that holds the segments, ``__cluster_metadata-0``.
    :raises OperatorError: when the log there does not reach that far, or is damaged.
    """
    loader = ImageLoader(_newest_snapshot(directory, at, on_bytes))
    for batch in _batches(directory, loader.published.provenance.offset + 1, at.offset, on_bytes):
        replay(loader, batch)
    loader.commit(at.offset + 1)
    image = loader.published
    if image.provenance.offset != at.offset:
        raise OperatorError(
            f"the log does not hold a complete image at offset {at.offset}, only at {image.provenance.offset}",
            where=str(directory),
        )
    return image


def bytes_to_load(directory: Path, at: EpochOffset) -> int:
    """How much `load_image` will read, about: what follows the offset is in it."""
    snapshot = _snapshot(directory, at)
    first = 0 if snapshot is None else snapshot[0].offset
    files = [*_segments(directory, first), *([] if snapshot is None else [snapshot[1]])]
    with storage_errors("cannot read", directory):
        return sum(path.stat().st_size for path in files)


def _snapshot(directory: Path, at: EpochOffset) -> tuple[EpochOffset, Path] | None:
    """The newest snapshot that is not beyond the offset."""
    known = [(id_, path) for path in directory.glob(CHECKPOINT_GLOB) if (id_ := snapshot_id_of(path)) is not None]
    fitting = [(id_, path) for id_, path in known if 0 < id_.offset <= at.offset + 1]
    return max(fitting, key=lambda entry: entry[0].offset, default=None)


def _newest_snapshot(directory: Path, at: EpochOffset, on_bytes: OnBytes) -> MetadataImage:
    """Of the newest snapshot that is not beyond the offset; the empty image without one."""
    found = _snapshot(directory, at)
    if found is None:
        return EMPTY_IMAGE
    snapshot, path = found
    return snapshot_image(snapshot.offset, snapshot.epoch, _told(iter_snapshot(path), on_bytes))


def _told(batches: Iterable[Batch], on_bytes: OnBytes) -> Iterator[Batch]:
    for batch in batches:
        on_bytes(batch.header.size)
        yield batch


def _segments(directory: Path, first: int) -> list[Path]:
    """Those that hold ``first`` and what follows."""
    segments = sorted(directory.glob(SEGMENT_GLOB))
    nexts = [int(segment.stem) for segment in segments[1:]]
    return [segment for segment, following in zip(segments, [*nexts, first + 1], strict=False) if following > first]


def _batches(directory: Path, first: int, last: int, on_bytes: OnBytes) -> Iterator[Batch]:
    """Data batches with records from ``first`` to ``last``; the owner may be writing the last one."""
    for segment in _segments(directory, first):
        for _, batch in iter_file_batches(segment):
            header = batch.header
            on_bytes(header.size)
            if header.last_offset >= first and header.base_offset <= last and not header.is_control:
                yield batch
            if header.last_offset >= last:
                return
