"""Checks that the records of batches decode, before they are written: a bad record in a log cannot be removed."""

from __future__ import annotations

from migrator.records.batch import Batch, BatchHeader, Buffer, iter_batches
from migrator.records.control import control_records, voters_records
from migrator.records.metadata import MetadataRecord

Decoded = tuple[BatchHeader, list[MetadataRecord]]
"""A batch with its metadata records; a control batch has none."""


def check_contents(batches: Buffer) -> list[Decoded]:
    """Decode every record of whole batches, metadata and control records alike.

    :raises CorruptRecordsError: a record does not decode, has an unknown type or version, or names voters that cannot
        form a quorum. Kafka 3.9 ends at such a record, too.
    """
    return [(batch.header, check_batch(batch)) for batch in iter_batches(batches)]


def check_batch(batch: Batch) -> list[MetadataRecord]:
    """Like `check_contents`, for one batch."""
    if batch.header.is_control:
        control_records(batch)
        voters_records(batch)
        return []
    return [record for record, _ in batch.sized_records()]
