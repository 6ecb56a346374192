"""Metadata records <-> bytes, as values of the records of the metadata log.

A value is ``uvarint frame (1), uvarint api key, uvarint version, body``; trailing bytes are an error. The three
varints are single bytes in practice, and are the key by which the reader is found. Most record types use the generic
codec of `schema`; the four types that make up a copy have hand-written code in `fastpath`.
Source: ``AbstractApiMessageSerde``, ``MetadataRecordSerde``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

from migrator.records import fastpath
from migrator.records import metadata as m
from migrator.records.errors import CorruptRecordsError, TooLongError
from migrator.records.primitives import Reader, Writer
from migrator.records.schema import Codec, compiled
from migrator.records.specs import SPECS, RecordSpec
from migrator.records.versions import record_version

FRAME_VERSION = 1
PREFIX_SIZE = 3

SPEC_OF = {spec.record_type: spec for spec in SPECS}
"""Layout of each record type."""

DECODE_ERRORS = (IndexError, struct.error, UnicodeDecodeError)
"""The exceptions that readers raise when bytes end too early or are not text."""

RecordEncoder = Callable[[m.MetadataRecord], bytes]


def prefix(spec: RecordSpec, version: int) -> bytes:
    """The bytes in front of a record's body."""
    return bytes((FRAME_VERSION, spec.api_key, version))


def generic_codec(record_type: type[m.MetadataRecord], version: int) -> Codec:
    """The table-driven codec of a record's body.

    :raises ValueError: when the type has no such version.
    """
    spec = SPEC_OF[record_type]
    if not 0 <= version <= spec.latest:
        raise ValueError(f"{record_type.__name__} has versions 0 to {spec.latest}, not {version}")
    return compiled(spec.struct, version)


def _writer(spec: RecordSpec, version: int) -> Writer:
    """Writes a whole value, prefix included."""
    generic = generic_codec(spec.record_type, version)
    head = prefix(spec, version)
    fast = fastpath.WRITERS.get(spec.record_type)
    return fast(head, version) if fast else lambda record: head + generic.write(record)


def _reader(spec: RecordSpec, version: int) -> Reader:
    """Reads a body from the position after the prefix."""
    fast = fastpath.READERS.get(spec.record_type)
    return fast(version) if fast else generic_codec(spec.record_type, version).read


NAME_MAX: Final = 100
"""The most characters of a name in an error."""
_VERSIONED = tuple((spec, version) for spec in SPECS for version in range(spec.latest + 1))
_WRITERS = {(spec.record_type, version): _writer(spec, version) for spec, version in _VERSIONED}
_READERS = {prefix(spec, version): (_reader(spec, version), version) for spec, version in _VERSIONED}


def encode(record: m.MetadataRecord, version: int) -> bytes:
    """The value of one record at one version.

    :raises ValueError: the version does not exist, or cannot express the record's content.
    """
    writer = _WRITERS.get((type(record), version))
    if writer is None:
        raise ValueError(f"{type(record).__name__} has no version {version}")
    return writer(record)


def encoder(level: int) -> RecordEncoder:
    """A function that encodes records for a cluster at that level of metadata.version.

    It raises `TooLongError` for a text that no record can hold, `ValueError` for content that the level cannot express
    (for example directories of a partition below level 17), and `InvariantViolation` for a record type that the level
    does not have.
    """
    writers: dict[type, Writer] = {}

    def encode_record(record: m.MetadataRecord) -> bytes:
        record_type = type(record)
        writer = writers.get(record_type)
        if writer is None:
            highest = record_version(record_type, level)
            writer = _WRITERS[record_type, highest]
            if record_type is m.BrokerRegistrationChangeRecord:
                writer = _lowest_version_writer(highest)
            writers[record_type] = writer
        try:
            return writer(record)
        except TooLongError as error:
            raise TooLongError(f"{_about(record)}: {error}") from error

    return encode_record


def encode_all(records: Iterable[m.MetadataRecord], level: int) -> list[bytes]:
    """Values of many records for a cluster at that level, in order."""
    return list(map(encoder(level), records))


def _about(record: m.MetadataRecord) -> str:
    if isinstance(record, m.ConfigRecord):
        return f"config {record.name[:NAME_MAX]!r} of {record.resource_name[:NAME_MAX]!r}"
    if isinstance(record, m.ClientQuotaRecord):
        entity = ", ".join(f"{of.entity_type} {(of.entity_name or '<default>')[:NAME_MAX]!r}" for of in record.entity)
        return f"quota {record.key[:NAME_MAX]!r} of {entity}"
    return type(record).__name__


def _lowest_version_writer(highest: int) -> Writer:
    """A writer of registration changes. Kafka writes one at the lowest version that can express it."""

    def write(record: m.BrokerRegistrationChangeRecord) -> bytes:
        needed = 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
        return _WRITERS[m.BrokerRegistrationChangeRecord, min(needed, highest)](record)

    return write


def decode(data: bytes) -> tuple[m.MetadataRecord, int]:
    """A record and its version.

    :raises CorruptRecordsError: it does not decode, or has an unknown type or version.
    """
    return decode_at(data, 0, len(data))


def decode_at(buffer: bytes, start: int, end: int) -> tuple[m.MetadataRecord, int]:
    """A record and its version, out of the middle of a buffer.

    :raises CorruptRecordsError: as `decode`; positions count from the start of the buffer.
    """
    reader, version = reader_of(buffer, start, end)
    try:
        record, position = reader(buffer, start + PREFIX_SIZE)
    except DECODE_ERRORS as error:
        raise CorruptRecordsError(f"a metadata record does not decode: {error}", start) from error
    if position != end:
        raise CorruptRecordsError(f"{type(record).__name__} is {position - end:+} bytes off its length", start)
    return record, version


def reader_of(buffer: bytes, start: int, end: int) -> tuple[Reader, int]:
    """The function that reads the body of a record, and the record's version.

    :raises CorruptRecordsError: type or version are unknown.
    """
    known = _READERS.get(buffer[start : start + PREFIX_SIZE])
    if known is None or end - start < PREFIX_SIZE:
        raise CorruptRecordsError(_why_unknown(buffer[start:end][:PREFIX_SIZE]), start)
    return known


def to_json(record: m.MetadataRecord, version: int) -> dict[str, Any]:
    """The record as Kafka's tools print it: ``{"type": ..., "version": ..., "data": {...}}``."""
    name = SPEC_OF[type(record)].type_name
    return {"type": name, "version": version, "data": generic_codec(type(record), version).to_json(record)}


def _why_unknown(head: bytes) -> str:
    if len(head) < PREFIX_SIZE:
        return "a metadata record ends within its first bytes"
    frame, api_key, version = head
    if frame != FRAME_VERSION:
        return f"a metadata record has frame version {frame} instead of {FRAME_VERSION}"
    for spec in SPECS:
        if spec.api_key == api_key:
            return f"{spec.type_name} has version {version}, we know up to {spec.latest}"
    return f"metadata record type {api_key} is unknown"
