"""A snapshot as its records, without the turns of an event loop."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.image.model import MetadataImage
from migrator.image.snapshot import snapshot_steps
from migrator.records.metadata import MetadataRecord


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """The records of `migrator.image.snapshot.snapshot_steps`."""
    return (record for record in snapshot_steps(image) if record is not None)
