"""Turns the batches of a log or a snapshot into images, for nodes, tools and workers alike.

Source: ``RecordsIterator``, which uses a batch's max timestamp as its append time, and ``RecordsSnapshotReader``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, MetadataImage, Provenance
from migrator.image.snapshot import load_snapshot
from migrator.records.batch import Batch, BatchHeader
from migrator.records.control import SnapshotHeader, control_records
from migrator.records.metadata import MetadataRecord

Decode = Callable[[Batch], Sequence[MetadataRecord]]
"""Returns the records of a data batch: one for each record in it, so that offsets are kept."""
DecodeSized = Callable[[Batch], Iterable[tuple[MetadataRecord, int]]]
"""The same, each record with its bytes."""


def every_record(batch: Batch) -> Sequence[MetadataRecord]:
    """A `Decode` that decodes every record.

    :raises CorruptRecordsError: a record does not decode.
    """
    return [record for record, _ in batch.iter_records()]


def append_records(loader: ImageLoader, header: BatchHeader, records: Sequence[MetadataRecord]) -> None:
    """Give the records of one data batch to the loader, which has to apply them."""
    loader.append(header.base_offset, header.leader_epoch, header.max_timestamp, records)


def replay(loader: ImageLoader, batch: Batch, decode: Decode = every_record) -> None:
    """Apply one batch; a control batch changes nothing.

    :raises CorruptRecordsError: a record does not decode.
    :raises InvariantViolation: a record does not fit the image.
    """
    if not batch.header.is_control:
        append_records(loader, batch.header, decode(batch))
        loader.apply()


def replay_snapshot(
    offset: int, epoch: int, batches: Iterable[Batch], decode: DecodeSized = Batch.sized_records
) -> Iterator[MetadataImage | None]:
    """Build the image of a snapshot. Yields None where a turn is over, and the image at the end.

    :param offset: the snapshot's end offset (exclusive), as in its name; with ``epoch`` its id.
    :param batches: all batches, control batches included. The header has the append time of the last record.
    :raises CorruptRecordsError: a record does not decode.
    :raises InvariantViolation: a record does not fit, or is the marker of a transaction.
    """
    source = iter(batches)
    first = next(source, None)
    whole = chain(() if first is None else (first,), source)
    records = (record for batch in whole if not batch.header.is_control for record in decode(batch))
    timestamp_ms = -1 if first is None else _append_time(first)
    yield from load_snapshot(records, Provenance(offset - 1, epoch, timestamp_ms))


def snapshot_image(offset: int, epoch: int, batches: Iterable[Batch], decode: Decode = every_record) -> MetadataImage:
    """As `replay_snapshot`, in one call."""
    image = None
    sized = partial(_unweighed, decode)
    for image in replay_snapshot(offset, epoch, batches, sized):  # noqa: B007 - the last one is the image
        pass
    return image or EMPTY_IMAGE


def _unweighed(decode: Decode, batch: Batch) -> Iterator[tuple[MetadataRecord, int]]:
    return ((record, 0) for record in decode(batch))


def _append_time(first: Batch) -> int:
    """The append time in ms of the last record before a snapshot's end, from its header; -1 without one."""
    control = control_records(first) if first.header.is_control else []
    headers = (record for record, _ in control if isinstance(record, SnapshotHeader))
    return next((header.last_contained_log_timestamp for header in headers), -1)
