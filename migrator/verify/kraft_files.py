"""Reads the metadata of a directory that a controller may be writing to: the newest snapshot and the log behind it.

Nothing is locked, cut or repaired. An incomplete batch at the very end is what a running node is about to write; any
other damage is an error, so that a verdict never rests on half of a log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from migrator.errors import InvariantViolation, OperatorError
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage, Provenance
from migrator.image.snapshot import load_snapshot
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.snapshots import iter_snapshot, snapshot_id_of
from migrator.records.batch import Batch, checked_batches
from migrator.records.control import SnapshotHeader, control_records
from migrator.records.errors import CorruptRecordsError
from migrator.records.metadata import MetadataRecord

_REMEDY = "Name the metadata directory of a controller (metadata.log.dir, else the first of log.dirs)"


def read_image(directory: Path) -> MetadataImage:
    """The image at the end of a directory's log, without what belongs to an open transaction.

    :param directory: a metadata directory, or its ``__cluster_metadata-0``.
    :raises OperatorError: it can't be read, or holds damage; names file and offset.
    """
    log_directory = directory if directory.name == DIRECTORY_NAME else directory / DIRECTORY_NAME
    if not log_directory.is_dir():
        raise OperatorError("there is no metadata log", where=str(log_directory), remedy=_REMEDY)
    loader = _newest_snapshot(log_directory)
    try:
        for path, batch in _batches(log_directory, loader.end_offset):
            _append(loader, path, batch)
        loader.apply()
        loader.commit(max(loader.end_offset, loader.published.provenance.offset + 1))
    except InvariantViolation as error:
        raise OperatorError(str(error), where=str(log_directory), remedy="Compare with another controller's") from error
    image = loader.published
    if image.provenance.offset < 0:
        raise OperatorError("the metadata log is empty", where=str(log_directory), remedy=_REMEDY)
    return image


def _newest_snapshot(log_directory: Path) -> ImageLoader:
    found = {
        (snapshot_id.offset, snapshot_id.epoch): path
        for path in log_directory.glob("*.checkpoint")
        if (snapshot_id := snapshot_id_of(path)) is not None and snapshot_id.offset > 0
    }
    if not found:
        return ImageLoader()
    offset, epoch = newest = max(found)
    timestamp_ms = -1
    records: list[MetadataRecord] = []
    for batch in iter_snapshot(found[newest]):
        if batch.header.is_control:
            headers = [record for record, _ in control_records(batch) if isinstance(record, SnapshotHeader)]
            timestamp_ms = headers[0].last_contained_log_timestamp if headers else timestamp_ms
        else:
            records.extend(record for record, _ in batch.records())
    image = None
    for image in load_snapshot(records, Provenance(offset - 1, epoch, timestamp_ms)):  # noqa: B007 (the last one counts)
        pass
    return ImageLoader() if image is None else ImageLoader(image)


def _batches(log_directory: Path, start: int) -> Iterator[tuple[Path, Batch]]:
    """Batches from ``start`` on, with the segment that they are in."""
    segments = sorted(log_directory.glob("*.log"))
    expected = int(segments[0].stem) if segments else 0
    for path in segments:
        try:
            batches = checked_batches(path.read_bytes(), next_offset=expected, partial_tail=path is segments[-1])
        except OSError as error:
            raise OperatorError(f"can't be read: {error.strerror}", where=str(path)) from error
        except CorruptRecordsError as error:
            raise _damaged(path, error) from error
        expected = batches[-1].header.next_offset if batches else expected
        yield from ((path, batch) for batch in batches if batch.header.base_offset >= start)


def _append(loader: ImageLoader, path: Path, batch: Batch) -> None:
    header = batch.header
    if header.is_control:
        return
    try:
        records = [record for record, _ in batch.records()]
    except CorruptRecordsError as error:
        raise _damaged(path, error) from error
    loader.append(header.base_offset, header.leader_epoch, header.base_timestamp, records)
    loader.apply()


def _damaged(path: Path, error: CorruptRecordsError) -> OperatorError:
    return OperatorError(str(error), where=str(path), remedy="Compare with another controller's directory")
