"""``bootstrap.checkpoint``: the records that the first leader of a new quorum appends.

Formatting writes the file, and a node reads it at its start. It is a snapshot with its own name, and its records are in
no log until a leader appends them. Source: ``org.apache.kafka.metadata.bootstrap.BootstrapDirectory``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from migrator.log.snapshots import SUFFIX, SnapshotWriter, iter_snapshot
from migrator.machine import machine
from migrator.raft.messages import EpochOffset
from migrator.records.codec import encode_all
from migrator.records.metadata import FeatureLevelRecord, MetadataRecord
from migrator.records.versions import FEATURE_NAME, LATEST_SUPPORTED, MetadataVersion

_NAME = "bootstrap"
FILE_NAME = f"{_NAME}{SUFFIX}"


def bootstrap_records(version: MetadataVersion) -> list[MetadataRecord]:
    """The records of a new quorum with that metadata.version."""
    return [FeatureLevelRecord(FEATURE_NAME, version.level)]


def write_bootstrap(directory: Path, records: Sequence[MetadataRecord], *, now_ms: int) -> Path:
    """Write the file; durable when this returns.

    :raises StorageError: when the disk refuses.
    """
    writer = SnapshotWriter(directory, EpochOffset(0, 0), last_contained_log_timestamp_ms=0, now_ms=now_ms, name=_NAME)
    with writer:
        writer.append(encode_all(records, LATEST_SUPPORTED), now_ms=now_ms)
        return writer.freeze(now_ms=now_ms)


def read_bootstrap(directory: Path) -> list[MetadataRecord] | None:
    """The records in the directory's file; None when there is no file.

    :raises StorageError: when it cannot be read or is damaged.
    :raises CorruptRecordsError: when a record in it does not decode.
    """
    path = directory / FILE_NAME
    if not machine().exists(path):
        return None
    batches = [batch for batch in iter_snapshot(path) if not batch.header.is_control]
    return [record for batch in batches for record, _ in batch.records()]
