"""Reads the image at an offset from a log directory while its owner writes there.

A worker process of the controller calls `load_image`, so the image does not cross the process border. Nothing is locked
or repaired; a batch that is just being written is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from migrator.errors import OperatorError
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.image.replay import replay, snapshot_image
from migrator.log.errors import storage_errors
from migrator.log.files import iter_file_batches
from migrator.log.listing import LogListing, list_log
from migrator.log.snapshots import iter_snapshot
from migrator.raft.messages import EpochOffset
from migrator.records.batch import Batch

OnBytes = Callable[[int], None]
"""Called with the bytes of each batch that was read."""


def ignore(_size: int) -> None:
    """An `OnBytes` that does nothing."""


def load_image(
    directory: Path, at: EpochOffset, on_bytes: OnBytes = ignore, known: MetadataImage = EMPTY_IMAGE
) -> MetadataImage:
    """Load the image whose last record is ``at`` (offset inclusive).

    :param directory: the directory that holds the segments, ``__cluster_metadata-0``.
    :param known: an earlier committed image; if the log still has all that follows it, only that is read.
    :raises OperatorError: when the log there does not reach that far, or is damaged.
    """
    listing = list_log(directory)
    loader = ImageLoader(known if _follows(listing, known, at) else _newest_snapshot(listing, at, on_bytes))
    for batch in _batches(listing, loader.published.provenance.offset + 1, at.offset, on_bytes):
        replay(loader, batch)
    loader.commit(at.offset + 1)
    image = loader.published
    if image.provenance.offset != at.offset:
        raise OperatorError(
            f"the log does not hold a complete image at offset {at.offset}, only at {image.provenance.offset}",
            where=str(directory),
            remedy="Report this with the controller's log. Another controller can lead meanwhile: restart this one",
        )
    return image


def bytes_to_load(directory: Path, at: EpochOffset, known: MetadataImage = EMPTY_IMAGE) -> int:
    """About how many bytes `load_image` will read. Segments count as a whole."""
    listing = list_log(directory)
    first, files = 0, list[Path]()
    if _follows(listing, known, at):
        first = known.provenance.offset + 1
    elif (snapshot := listing.newest_snapshot(at.offset)) is not None:
        first, files = snapshot.offset, [listing.snapshots[snapshot]]
    with storage_errors("cannot read", directory):
        return sum(path.stat().st_size for path in (*files, *listing.segments_from(first)))


def _follows(listing: LogListing, known: MetadataImage, at: EpochOffset) -> bool:
    """Whether the segments lead from the known image to the offset."""
    first = known.provenance.offset + 1
    return 0 < first <= at.offset + 1 and any(int(segment.stem) <= first for segment in listing.segments)


def _newest_snapshot(listing: LogListing, at: EpochOffset, on_bytes: OnBytes) -> MetadataImage:
    """The image of the newest snapshot that is not beyond the offset; the empty image when there is none."""
    newest = listing.newest_snapshot(at.offset)
    if newest is None:
        return EMPTY_IMAGE
    return snapshot_image(newest.offset, newest.epoch, _told(iter_snapshot(listing.snapshots[newest]), on_bytes))


def _told(batches: Iterable[Batch], on_bytes: OnBytes) -> Iterator[Batch]:
    for batch in batches:
        on_bytes(batch.header.size)
        yield batch


def _batches(listing: LogListing, first: int, last: int, on_bytes: OnBytes) -> Iterator[Batch]:
    """Data batches with records from ``first`` to ``last``; the owner may be writing the last one."""
    for segment in listing.segments_from(first):
        for _, batch in iter_file_batches(segment):
            header = batch.header
            on_bytes(header.size)
            if header.last_offset >= first and header.base_offset <= last and not header.is_control:
                yield batch
            if header.last_offset >= last:
                return
