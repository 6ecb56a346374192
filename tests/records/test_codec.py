"""Metadata records: bytes -> value -> bytes for every type and version."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.errors import InvariantViolation
from migrator.records import metadata as m
from migrator.records.codec import SPEC_OF, decode, decode_at, encode, encode_all, generic_codec, prefix, to_json
from migrator.records.errors import CorruptRecordsError, TooLongError
from migrator.records.fastpath import READERS
from migrator.records.specs import SPECS, RecordSpec
from migrator.records.uuid import Uuid, reserved_uuid
from migrator.records.versions import LATEST_SUPPORTED
from tests.lanes import examples
from tests.records.support.strategies import records

EVERY_VERSION = [(spec, version) for spec in SPECS for version in range(spec.latest + 1)]
FAST = [(spec, version) for spec, version in EVERY_VERSION if spec.record_type in READERS]
TOPIC = Uuid(bytes(range(16)))
FEWER = settings(max_examples=examples(40))
"""Each of these tests runs once for every version of every record."""


def name_of(parameter: Any) -> str:
    return parameter.type_name if isinstance(parameter, RecordSpec) else f"v{parameter}"


def test_every_record_class_has_a_layout_with_its_fields_in_order() -> None:
    assert {spec.record_type for spec in SPECS} == set(get_args(m.MetadataRecord))
    assert len({spec.api_key for spec in SPECS}) == len(SPECS)
    for spec in SPECS:
        assert tuple(field.name for field in spec.fields) == spec.record_type.__match_args__


@pytest.mark.parametrize(("spec", "version"), EVERY_VERSION, ids=name_of)
@FEWER
@given(data=st.data())
def test_value_to_bytes_and_back(spec: RecordSpec, version: int, data: st.DataObject) -> None:
    record = data.draw(records(spec, version))
    encoded = encode(record, version)
    assert encoded.startswith(prefix(spec, version))
    assert decode(encoded) == (record, version)
    framed = b"\7" * 5 + encoded + b"\7" * 30
    assert decode_at(framed, 5, 5 + len(encoded)) == (record, version)


@pytest.mark.parametrize(("spec", "version"), FAST, ids=name_of)
@FEWER
@given(data=st.data())
def test_fast_paths_equal_the_generic_codec(spec: RecordSpec, version: int, data: st.DataObject) -> None:
    record = data.draw(records(spec, version))
    generic = generic_codec(spec.record_type, version)
    body = generic.write(record)
    assert encode(record, version) == prefix(spec, version) + body
    assert READERS[spec.record_type](version)(body, 0) == generic.read(body, 0) == (record, len(body))


@pytest.mark.parametrize(("spec", "version"), EVERY_VERSION, ids=name_of)
@FEWER
@given(data=st.data())
def test_no_cut_or_lengthened_value_decodes(spec: RecordSpec, version: int, data: st.DataObject) -> None:
    encoded = encode(data.draw(records(spec, version)), version)
    with pytest.raises(CorruptRecordsError):
        decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))])
    with pytest.raises(CorruptRecordsError):
        decode(encoded + b"\0")


@given(st.binary(max_size=80), st.sampled_from(EVERY_VERSION))
def test_garbage_gives_a_record_or_the_one_error(body: bytes, kind: tuple[RecordSpec, int]) -> None:
    with suppress(CorruptRecordsError):
        decode(prefix(*kind) + body)


@pytest.mark.parametrize(
    ("record", "version", "text"),
    [
        # Bytes of stock records, taken apart by hand from Kafka's own message definitions.
        (m.NoOpRecord(), 0, "01140000"),
        (m.FeatureLevelRecord("metadata.version", 21), 0, "010c00116d657461646174612e76657273696f6e001500"),
        (m.BeginTransactionRecord("Bootstrap records"), 0, "011700010012 12426f6f747374726170207265636f726473"),
        (m.EndTransactionRecord(), 0, "01180000"),
        (m.ZkMigrationStateRecord(2), 0, "0115000200"),
        (m.PartitionChangeRecord(1, TOPIC, leader=-1), 1, f"01050100000001{TOPIC.hex()}010104ffffffff"),
    ],
)
def test_known_bytes(record: m.MetadataRecord, version: int, text: str) -> None:
    assert encode(record, version) == bytes.fromhex(text)
    assert decode(bytes.fromhex(text)) == (record, version)


def test_unknown_tagged_fields_are_stepped_over() -> None:
    assert decode(bytes.fromhex("01150002") + b"\x01\x63\x03abc") == (m.ZkMigrationStateRecord(2), 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends within"),
        (b"\x02\x14\x00\x00", "frame version 2"),
        (b"\x01\x63\x00\x00", "type 99 is unknown"),
        (b"\x01\x03\x09\x00", "PARTITION_RECORD has version 9"),
        (b"\x01\x14\x00\x00\x00", r"\-1 bytes off"),
        (b"\x01\x02\x00\x03\xff\xff" + bytes(17), "does not decode"),
        (b"\x01\x02\x00\x00" + bytes(17), "a string is null"),
    ],
)
def test_what_does_not_decode_says_why(data: bytes, message: str) -> None:
    with pytest.raises(CorruptRecordsError, match=message):
        decode(data)


def test_a_level_chooses_the_record_version() -> None:
    partition = m.PartitionRecord(0, TOPIC, (1,), (1,), (), (), 1, 0, 0, 0)
    assert [decode(encode_all([partition], level)[0])[1] for level in (1, 16, 17, 22, 23)] == [0, 0, 1, 1, 2]
    change = m.BrokerRegistrationChangeRecord(1, 5, fenced=1)
    stopping = m.BrokerRegistrationChangeRecord(1, 5, in_controlled_shutdown=1)
    moved = m.BrokerRegistrationChangeRecord(1, 5, log_dirs=(TOPIC,))
    assert [decode(data)[1] for data in encode_all([change, stopping, moved], 21)] == [0, 1, 2]


def test_what_a_level_cannot_carry_is_refused() -> None:
    assigned = m.PartitionRecord(0, TOPIC, (1,), (1,), (), (), 1, 0, 0, 0, (reserved_uuid(1),))
    with pytest.raises(ValueError, match="cannot carry directories"):
        encode_all([assigned], 16)
    with pytest.raises(ValueError, match="cannot carry in_controlled_shutdown"):
        encode_all([m.BrokerRegistrationChangeRecord(1, 5, in_controlled_shutdown=1)], 6)
    with pytest.raises(InvariantViolation, match="BeginTransactionRecord does not exist"):
        encode_all([m.BeginTransactionRecord()], 12)
    with pytest.raises(ValueError, match="no version 1"):
        encode(m.NoOpRecord(), 1)
    with pytest.raises(ValueError, match="Uuid has 3 bytes"):
        encode(m.PartitionChangeRecord(1, Uuid(b"abc")), 0)


def test_json_is_that_of_kafkas_tools() -> None:
    endpoint = m.Endpoint("PLAINTEXT", "localhost", 9092, 0)
    broker = m.RegisterBrokerRecord(
        1, True, TOPIC, 7, (endpoint,), (m.FeatureRange("metadata.version", 1, 21),), None, log_dirs=(TOPIC,)
    )
    uuid = "AAECAwQFBgcICQoLDA0ODw"
    assert to_json(broker, 3) == {
        "type": "REGISTER_BROKER_RECORD",
        "version": 3,
        "data": {
            "brokerId": 1,
            "isMigratingZkBroker": True,
            "incarnationId": uuid,
            "brokerEpoch": 7,
            "endPoints": [{"name": "PLAINTEXT", "host": "localhost", "port": 9092, "securityProtocol": 0}],
            "features": [{"name": "metadata.version", "minSupportedVersion": 1, "maxSupportedVersion": 21}],
            "rack": None,
            "fenced": True,
            "inControlledShutdown": False,
            "logDirs": [uuid],
        },
    }
    assert to_json(m.PartitionChangeRecord(0, TOPIC, isr=(1, 2)), 1)["data"] == {
        "partitionId": 0,
        "topicId": uuid,
        "isr": [1, 2],
    }
    assert SPEC_OF[m.ZkMigrationStateRecord].type_name == "ZK_MIGRATION_STATE_RECORD"
    assert SPEC_OF[m.NoOpRecord].type_name == "NO_OP_RECORD"


@pytest.mark.parametrize(
    "record",
    [
        m.ConfigRecord(2, "t", "k", "é" * 0x4000),
        m.TopicRecord("t" * 0x8000, TOPIC),
        m.DelegationTokenRecord("User:a", "User:a", ("User:" + "r" * 0x8000,), 1, 3, 2, "id"),
    ],
)
def test_a_text_that_no_reader_takes_is_not_written(record: m.MetadataRecord) -> None:
    """Kafka reads strings of 32,767 bytes at most: every stock broker and controller would end at this record."""
    with pytest.raises(TooLongError):
        encode_all([record], LATEST_SUPPORTED)
    assert encode_all([m.ConfigRecord(2, "t", "k", "x" * 0x7FFF)], LATEST_SUPPORTED)


def test_a_quota_that_is_too_long_is_named() -> None:
    entity = (m.QuotaEntity("user", "alice"), m.QuotaEntity("client-id", None))
    with pytest.raises(TooLongError, match=r"quota 'k+' of user 'alice', client-id '<default>'"):
        encode_all([m.ClientQuotaRecord(entity, "k" * 0x8000, 1.0, remove=False)], LATEST_SUPPORTED)
