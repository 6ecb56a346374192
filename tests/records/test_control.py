"""Control records and their batches."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage
from kio.schema.voters_record.v0.data import VotersRecord
from kio.serial import entity_reader

from migrator.records.batch import iter_batches
from migrator.records.control import (
    SPECS,
    ControlRecord,
    ControlSpec,
    DynamicVoter,
    KRaftVersion,
    KRaftVersionRange,
    KRaftVoters,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    Voter,
    VoterEndpoint,
    build_control_batch,
    control_records,
    control_to_json,
    decode_control,
    encode_control,
)
from migrator.records.errors import CorruptRecordsError
from migrator.records.runs import checked_batches
from migrator.records.uuid import Uuid
from tests.records.support.strategies import structs

DIRECTORY = Uuid(bytes(range(16)))
EVERY_VERSION = [(spec, version) for spec in SPECS for version in range(spec.latest + 1)]


def name_of(parameter: Any) -> str:
    return parameter.name if isinstance(parameter, ControlSpec) else f"v{parameter}"


@pytest.mark.parametrize(("spec", "version"), EVERY_VERSION, ids=name_of)
@given(data=st.data())
def test_value_to_bytes_and_back(spec: ControlSpec, version: int, data: st.DataObject) -> None:
    record = data.draw(structs(spec.struct, version))
    key, content = encode_control(record, version)
    assert decode_control(key, content) == (record, version)
    with pytest.raises(CorruptRecordsError):
        decode_control(key, content + b"\0")
    with pytest.raises(CorruptRecordsError):
        decode_control(key, content[: data.draw(st.integers(0, len(content) - 1))])


def test_kio_reads_what_we_write() -> None:
    change = LeaderChange(1, (Voter(1), Voter(2)), (Voter(2),))
    key, content = encode_control(change)
    assert key == b"\0\0\0\2"
    message, size = entity_reader(LeaderChangeMessage)(content, 0)
    assert (message.version, message.leader_id, size) == (0, 1, len(content))
    assert [voter.voter_id for voter in message.voters] == [1, 2]
    voter = DynamicVoter(3, DIRECTORY, (VoterEndpoint("C", "localhost", 9093),), KRaftVersionRange(0, 1))
    message, _ = entity_reader(VotersRecord)(encode_control(KRaftVoters((voter,)))[1], 0)
    assert message.voters[0].endpoints[0].port == 9093


def test_a_batch_of_control_records() -> None:
    records: list[ControlRecord] = [SnapshotHeader(5), KRaftVersion(1)]
    data = build_control_batch(records, timestamp_ms=3, base_offset=2, leader_epoch=4)
    (batch,) = checked_batches(data, next_offset=2)
    assert batch.header.is_control
    assert control_records(batch) == [(record, 0) for record in records]


def test_what_is_no_control_record_is_refused() -> None:
    with pytest.raises(CorruptRecordsError, match="type 77 is unknown"):
        decode_control(b"\0\0\0\x4d", b"\0\0\0")
    with pytest.raises(CorruptRecordsError, match="too short"):
        decode_control(b"\0", b"\0\0")
    with pytest.raises(CorruptRecordsError, match="versions 0 to 1, not 9"):
        decode_control(b"\0\0\0\2", b"\0\x09\0")
    with pytest.raises(ValueError, match="cannot carry voter_directory_id"):
        encode_control(LeaderChange(1, (Voter(1, DIRECTORY),), ()))


def test_json_is_that_of_kafkas_tools() -> None:
    assert control_to_json(SnapshotFooter(), 0) == {"type": "SnapshotFooter", "data": {"version": 0}}
    assert control_to_json(KRaftVersion(1), 0)["data"] == {"version": 0, "kRaftVersion": 1}
    footer = build_control_batch([SnapshotFooter()], timestamp_ms=0)
    assert next(iter_batches(footer)).header.count == 1
