"""Whether the records of batches decode, looked at before they are written: what is in a log stays there."""

from __future__ import annotations

from collections import deque

from migrator.records.batch import Batch, Buffer, iter_batches
from migrator.records.control import control_records, voters_records


def check_contents(batches: Buffer) -> None:
    """Decode every record of whole batches, metadata and control records alike.

    :raises CorruptRecordsError: one does not decode, or is of a type or version that we do not know, or names voters
        who cannot form a quorum. Kafka 3.9 ends at such a record, too.
    """
    for batch in iter_batches(batches):
        check_batch(batch)


def check_batch(batch: Batch) -> None:
    """As `check_contents`, for one batch."""
    if batch.header.is_control:
        control_records(batch)
        voters_records(batch)
    else:
        deque(batch.iter_records(), maxlen=0)
