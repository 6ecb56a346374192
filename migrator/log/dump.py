"""Segments and checkpoints as text, in the format of Kafka's own tool.

Kafka's tool prints secrets. This one prints ``(redacted)`` for SCRAM credentials and for configuration values that
DescribeConfigs would hide, unless the caller asks for them.
Source: ``kafka.tools.DumpLogSegments`` with ``--cluster-metadata-decoder``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from migrator.config.sensitive import REDACTED
from migrator.log.errors import StorageError
from migrator.log.files import iter_file_batches
from migrator.log.snapshots import snapshot_id_of
from migrator.observe.printable import json_text
from migrator.records.batch import Batch, BatchHeader, RawRecord
from migrator.records.codec import decode, to_json
from migrator.records.control import LeaderChange, control_to_json, decode_control
from migrator.records.errors import CorruptRecordsError
from migrator.records.metadata import ConfigRecord, MetadataRecord, UserScramCredentialRecord, ZkMigrationStateRecord
from migrator.values import value

_SEGMENT = re.compile(r"(\d{20})\.log")
_LEADER_CHANGE_TEXT = "controlType: LEADER_CHANGE(2)"
_CREDENTIAL_FIELDS = ("salt", "storedKey", "serverKey")


@value
class DumpedRecord:
    """One record: ``content`` has ``type``, ``data`` and, for metadata records, ``version``; ``text`` is the part of
    Kafka's line that differs between records."""

    raw: RawRecord
    content: dict[str, Any]
    text: str


@value
class DumpedBatch:
    """One batch, with its byte position in the file."""

    position: int
    header: BatchHeader
    records: tuple[DumpedRecord, ...]


def dump_file(path: Path, *, secrets: bool = False) -> Iterator[DumpedBatch]:
    """Every batch of a segment or checkpoint, decoded.

    :param secrets: whether to show secrets.
    :raises StorageError: at the first damage, with its byte position, or when the file cannot be read.
    """
    try:
        for position, batch in iter_file_batches(path):
            yield _dump_batch(batch, position, secrets=secrets)
    except CorruptRecordsError as error:
        raise StorageError(
            f"damaged at byte {error.position}: {error.what}",
            where=str(path),
            remedy="What precedes it is whole. A torn end of a log is cut when its node starts",
        ) from error


def _dump_batch(batch: Batch, position: int, *, secrets: bool) -> DumpedBatch:
    dump_record = _dump_control if batch.header.is_control else partial(_dump_data, secrets=secrets)
    try:
        return DumpedBatch(position, batch.header, tuple(map(dump_record, batch.raw_records())))
    except CorruptRecordsError as error:
        raise CorruptRecordsError(error.what, position) from error


def to_lines(path: Path, *, secrets: bool = False) -> Iterator[str]:
    """The file as Kafka's tool prints it; errors as `dump_file`."""
    yield f"Dumping {path}"
    segment, snapshot_id = _SEGMENT.fullmatch(path.name), snapshot_id_of(path)
    if segment:
        yield f"Log starting offset: {int(segment[1])}"
    elif snapshot_id:
        yield f"Snapshot end offset: {snapshot_id.offset}, epoch: {snapshot_id.epoch}"
    elif path.name == "bootstrap.checkpoint":
        yield "KRaft bootstrap snapshot"
    for batch in dump_file(path, secrets=secrets):
        yield _batch_line(batch)
        for record in batch.records:
            yield _record_line(batch.header, record)


def to_objects(path: Path, *, secrets: bool = False) -> Iterator[dict[str, Any]]:
    """One object a record: offset, leaderEpoch, timestamp, control, type, version, data; errors as `dump_file`."""
    for batch in dump_file(path, secrets=secrets):
        header = batch.header
        for record in batch.records:
            place = {"offset": record.raw.offset, "leaderEpoch": header.leader_epoch, "timestamp": header.max_timestamp}
            yield {**place, "control": header.is_control, **record.content}


def _dump_data(raw: RawRecord, *, secrets: bool) -> DumpedRecord:
    record, version = decode(raw.value)
    content = known = to_json(record, version)
    if not secrets:
        content["data"] |= dict.fromkeys(_secret_fields(record), REDACTED)
    if isinstance(record, ZkMigrationStateRecord):  # all other fields are our tagged fields, which Kafka's tool skips
        known = to_json(ZkMigrationStateRecord(record.zk_migration_state), version)
    return DumpedRecord(raw, content, f"payload: {json_text(known)}")


def _secret_fields(record: MetadataRecord) -> Sequence[str]:
    """Names of a record's fields, in JSON, that must not be shown."""
    if isinstance(record, UserScramCredentialRecord):
        return _CREDENTIAL_FIELDS
    return ("value",) if isinstance(record, ConfigRecord) and record.is_sensitive else ()


def _dump_control(raw: RawRecord) -> DumpedRecord:
    record, version = decode_control(raw.key or b"", raw.value)
    content = control_to_json(record, version)
    if isinstance(record, LeaderChange):
        return DumpedRecord(raw, content, _LEADER_CHANGE_TEXT)
    return DumpedRecord(raw, content, f"{content['type']} {json_text(content['data'])}")


def _batch_line(batch: DumpedBatch) -> str:
    header = batch.header
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.count}"
        f" baseSequence: {header.base_sequence} lastSequence: -1 producerId: {header.producer_id}"
        f" producerEpoch: {header.producer_epoch} partitionLeaderEpoch: {header.leader_epoch} isTransactional: false"
        f" isControl: {str(header.is_control).lower()} deleteHorizonMs: OptionalLong.empty position: {batch.position}"
        f" CreateTime: {header.max_timestamp} size: {header.size} magic: {header.magic} compresscodec: none"
        f" crc: {header.crc} isvalid: true"
    )


def _record_line(header: BatchHeader, record: DumpedRecord) -> str:
    key_size = -1 if record.raw.key is None else len(record.raw.key)
    return (
        f"| offset: {record.raw.offset} CreateTime: {header.base_timestamp} keySize: {key_size}"
        f" valueSize: {len(record.raw.value)} sequence: -1 headerKeys: [] {record.text}"
    )
