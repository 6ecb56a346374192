"""The log that a controller leaves, record by record with its version, as long as it has no snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from migrator.records import metadata as m
from migrator.records.batch import Batch, iter_batches
from migrator.records.control import ControlRecord, control_records

Records = tuple[tuple[m.MetadataRecord, int], ...]


def records_of(directory: Path) -> Records:
    return tuple(record for batch in _batches(directory) if not batch.header.is_control for record in batch.records())


def control_records_of(directory: Path) -> list[ControlRecord]:
    return [record for batch in _batches(directory) if batch.header.is_control for record, _ in control_records(batch)]


def highest_versions(records: Records) -> dict[type[m.MetadataRecord], int]:
    """By type of record; without those that only time decides about."""
    ordered = sorted(records, key=lambda found: found[1])
    return {type(record): version for record, version in ordered if not isinstance(record, m.NoOpRecord)}


def _batches(directory: Path) -> Iterable[Batch]:
    (log,) = (directory / "__cluster_metadata-0").glob("*.log")
    return iter_batches(log.read_bytes(), partial_tail=True)
