"""Control records: those that consensus and snapshots write between the metadata records.

The key has the type, and the value begins with its version. A control batch has no metadata records.
Source: ``org.apache.kafka.common.record.ControlRecordType``, ``ControlRecordUtils``; KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from migrator.records.batch import Batch, build_batch
from migrator.records.codec import DECODE_ERRORS
from migrator.records.errors import CorruptRecordsError
from migrator.records.schema import (
    BOOLEAN,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Codec,
    Field,
    ListOf,
    Struct,
    compiled,
)
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.values import value


@value
class Voter:
    """A voter in a `LeaderChange`; version 0 has no directory."""

    voter_id: int
    voter_directory_id: Uuid = ZERO_UUID


@value
class LeaderChange:
    """First record of each leader epoch.

    ``led_by_migrator``: a controller of this program led, not a stock one. It is a tagged field that Kafka skips.
    """

    leader_id: int
    voters: tuple[Voter, ...]
    granting_voters: tuple[Voter, ...]
    led_by_migrator: bool = False


@value
class SnapshotHeader:
    """``last_contained_log_timestamp``: append time in ms of the last record before the snapshot's end."""

    last_contained_log_timestamp: int


@value
class SnapshotFooter:
    pass


@value
class KRaftVersion:
    """kraft.version: 0 static voters, 1 voters in the log (KIP-853)."""

    k_raft_version: int


@value
class VoterEndpoint:
    name: str
    host: str
    port: int


@value
class KRaftVersionRange:
    min_supported_version: int
    max_supported_version: int


@value
class DynamicVoter:
    """A voter with its endpoints, as `KRaftVoters` lists them."""

    voter_id: int
    voter_directory_id: Uuid
    endpoints: tuple[VoterEndpoint, ...]
    k_raft_version_feature: KRaftVersionRange


@value
class KRaftVoters:
    """The whole voter set, from kraft.version 1 on."""

    voters: tuple[DynamicVoter, ...]


ControlRecord = LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters
VotersRecord = KRaftVersion | KRaftVoters
"""The records that name the voters or the kraft.version."""
KRAFT_VERSION_MAX = 1
"""The latest kraft.version that this program knows."""


@value
class ControlSpec:
    """A control record type: its number, name in Kafka's tools, highest version and layout."""

    type_id: int
    name: str
    latest: int
    struct: Struct


_VOTER = Struct(Voter, (Field("voter_id", INT32), Field("voter_directory_id", UUID, since=1, default=ZERO_UUID)))
_ENDPOINT = Struct(VoterEndpoint, (Field("name", STRING), Field("host", STRING), Field("port", UINT16)))
_RANGE = Struct(KRaftVersionRange, (Field("min_supported_version", INT16), Field("max_supported_version", INT16)))
_DYNAMIC_VOTER = Struct(
    DynamicVoter,
    (
        Field("voter_id", INT32),
        Field("voter_directory_id", UUID),
        Field("endpoints", ListOf(_ENDPOINT)),
        Field("k_raft_version_feature", _RANGE),
    ),
)
_OUR_TAG = 10_866
"""The tag of ``led_by_migrator``. Kafka numbers its tags from 0 on, so it will not use this one."""
_LEADER_CHANGE = Struct(
    LeaderChange,
    (
        Field("leader_id", INT32),
        Field("voters", ListOf(_VOTER)),
        Field("granting_voters", ListOf(_VOTER)),
        Field("led_by_migrator", BOOLEAN, tag=_OUR_TAG, default=False),
    ),
)
_SNAPSHOT_HEADER = Struct(SnapshotHeader, (Field("last_contained_log_timestamp", INT64),))

SPECS = (
    ControlSpec(2, "LeaderChange", 1, _LEADER_CHANGE),
    ControlSpec(3, "SnapshotHeader", 0, _SNAPSHOT_HEADER),
    ControlSpec(4, "SnapshotFooter", 0, Struct(SnapshotFooter, ())),
    ControlSpec(5, "KRaftVersion", 0, Struct(KRaftVersion, (Field("k_raft_version", INT16),))),
    ControlSpec(6, "KRaftVoters", 0, Struct(KRaftVoters, (Field("voters", ListOf(_DYNAMIC_VOTER)),))),
)
_BY_TYPE = {spec.struct.build: spec for spec in SPECS}
_BY_ID = {spec.type_id: spec for spec in SPECS}
_VOTERS_TYPES = frozenset(INT16.write(_BY_TYPE[kind].type_id) for kind in (KRaftVersion, KRaftVoters))
_KEY_VERSION = 0


def _codec(spec: ControlSpec, version: int) -> Codec:
    if not 0 <= version <= spec.latest:
        raise ValueError(f"{spec.name} has versions 0 to {spec.latest}, not {version}")
    return compiled(spec.struct, version)


def encode_control(record: ControlRecord, version: int = 0) -> tuple[bytes, bytes]:
    """Key and value of a control record.

    :raises ValueError: when the version does not exist or lacks a field that the record needs.
    """
    spec = _BY_TYPE[type(record)]
    key = INT16.write(_KEY_VERSION) + INT16.write(spec.type_id)
    return key, INT16.write(version) + _codec(spec, version).write(record)


def decode_control(key: bytes, data: bytes) -> tuple[ControlRecord, int]:
    """A control record and its version.

    :raises CorruptRecordsError: when it does not decode, or is of a type or version that we do not know.
    """
    try:
        type_id, _ = INT16.read(key, 2)
        version, start = INT16.read(data, 0)
    except DECODE_ERRORS as error:
        raise CorruptRecordsError("a control record is too short") from error
    spec = _BY_ID.get(type_id)
    if spec is None:
        raise CorruptRecordsError(f"control record type {type_id} is unknown")
    try:
        record, end = _codec(spec, version).read(data, start)
    except (*DECODE_ERRORS, ValueError) as error:
        raise CorruptRecordsError(f"a {spec.name} record does not decode: {error}") from error
    if end != len(data):
        raise CorruptRecordsError(f"a {spec.name} record is {end - len(data):+} bytes off its length")
    return record, version


def control_records(batch: Batch) -> list[tuple[ControlRecord, int]]:
    """Every control record of a control batch, with its version.

    :raises CorruptRecordsError: a record does not decode, or the batch is not a control batch.
    """
    if not batch.header.is_control:
        raise CorruptRecordsError(f"the batch at offset {batch.header.base_offset} holds no control records")
    return [decode_control(raw.key or b"", raw.value) for raw in batch.raw_records()]


def voters_records(batch: Batch) -> list[tuple[int, VotersRecord]]:
    """The voters records of a control batch, with their offsets. Other records are not decoded.

    :raises CorruptRecordsError: one of them does not decode, or its voters cannot form a quorum.
    """
    found: list[tuple[int, VotersRecord]] = []
    for raw in batch.raw_records():
        if (raw.key or b"")[2:4] in _VOTERS_TYPES:
            record, _ = decode_control(raw.key or b"", raw.value)
            if isinstance(record, KRaftVersion | KRaftVoters):
                _check_voters(record, raw.offset)
                found.append((raw.offset, record))
    return found


def _check_voters(record: VotersRecord, offset: int) -> None:
    if isinstance(record, KRaftVersion):
        if not 0 <= record.k_raft_version <= KRAFT_VERSION_MAX:
            raise CorruptRecordsError(
                f"the record at offset {offset} sets kraft.version {record.k_raft_version}; "
                f"known are 0 to {KRAFT_VERSION_MAX}"
            )
        return
    ids = [voter.voter_id for voter in record.voters]
    if not ids or min(ids) < 0 or len(set(ids)) < len(ids):
        raise CorruptRecordsError(
            f"the record at offset {offset} names the voters {ids}, and these cannot form a quorum"
        )


def build_control_batch(
    records: Sequence[ControlRecord], *, timestamp_ms: int, base_offset: int = 0, leader_epoch: int = 0
) -> bytes:
    """One batch of control records, each at version 0 as Kafka 3.9 writes them."""
    keys, values = zip(*map(encode_control, records), strict=True)
    return build_batch(
        values, timestamp_ms=timestamp_ms, base_offset=base_offset, leader_epoch=leader_epoch, control_keys=keys
    )


def control_to_json(record: ControlRecord, version: int) -> dict[str, Any]:
    """The record as Kafka's tools print it: type and data; the data begins with the version."""
    spec = _BY_TYPE[type(record)]
    return {"type": spec.name, "data": {"version": version, **_codec(spec, version).to_json(record)}}
