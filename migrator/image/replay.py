"""Turns the batches of a log or a snapshot into images, for nodes, tools and workers alike.

Source: ``RecordsIterator``, which uses a batch's max timestamp as its append time, and ``RecordsSnapshotReader``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage, Provenance
from migrator.image.snapshot import load_snapshot
from migrator.records.batch import Batch, BatchHeader
from migrator.records.control import SnapshotHeader, control_records
from migrator.records.metadata import MetadataRecord


def append_records(loader: ImageLoader, header: BatchHeader, records: Sequence[MetadataRecord]) -> None:
    """Give the records of one data batch to the loader, which has to apply them."""
    loader.append(header.base_offset, header.leader_epoch, header.max_timestamp, records)


def replay(loader: ImageLoader, batch: Batch) -> None:
    """Apply one batch; a control batch changes nothing.

    :raises CorruptRecordsError: a record does not decode.
    :raises InvariantViolation: a record does not fit the image.
    """
    if not batch.header.is_control:
        append_records(loader, batch.header, [record for record, _ in batch.iter_records()])
        loader.apply()


def replay_snapshot(offset: int, epoch: int, batches: Iterable[Batch]) -> Iterator[MetadataImage | None]:
    """Build the image of a snapshot: yields None where a turn is over, and the image at the end.

    :param offset: the snapshot's end offset (exclusive), as in its name; with ``epoch`` its id.
    :param batches: all batches, control batches included. The header has the append time of the last record.
    :raises CorruptRecordsError: a record does not decode.
    :raises InvariantViolation: a record does not fit, or is the marker of a transaction.
    """
    source = iter(batches)
    first = next(source, None)
    whole = chain(() if first is None else (first,), source)
    timestamp_ms = -1 if first is None else _append_time(first)
    yield from load_snapshot(sized_records(whole), Provenance(offset - 1, epoch, timestamp_ms))


def sized_records(batches: Iterable[Batch]) -> Iterator[tuple[MetadataRecord, int]]:
    """The metadata records of all batches, each with its number of bytes; errors as in `replay`."""
    return (record for batch in batches if not batch.header.is_control for record in batch.sized_records())


def snapshot_image(offset: int, epoch: int, batches: Iterable[Batch]) -> MetadataImage:
    """Like `replay_snapshot`, in one call."""
    image = None
    for image in replay_snapshot(offset, epoch, batches):  # noqa: B007 - the last one is the image
        pass
    return image or EMPTY_IMAGE


def _append_time(first: Batch) -> int:
    """The append time in ms of the last record before a snapshot's end, from its header; -1 without one."""
    control = control_records(first) if first.header.is_control else []
    headers = (record for record, _ in control if isinstance(record, SnapshotHeader))
    return next((header.last_contained_log_timestamp for header in headers), -1)
