"""The codec against kio's own, over every message of Kafka 3.9, and against bytes that no Kafka would send."""

from __future__ import annotations

import datetime as dt
import io
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from migrator.errors import PeerError
from migrator.wire.decode import (
    TooManyElementsError,
    decode_body,
    decode_entity,
    decode_exactly,
    read_unsigned_varint,
)
from migrator.wire.encode import encode_entity, unsigned_varint
from migrator.wire.schemas import (
    API_VERSIONS,
    CONTROLLER_APIS,
    FETCH,
    HEADER_TAGS_MAX,
    build,
    decode_request_header,
    request_type,
    response_type,
)
from tests.wire.support.messages import every_message_type, random_message

CREATE_DELEGATION_TOKEN = 38
DESCRIBE_CLUSTER = 60

TYPES = st.deferred(lambda: st.sampled_from(list(every_message_type())))
"""Not while the tests are collected: it imports 646 modules."""


def kio_bytes(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def test_every_message_has_the_bytes_that_kio_gives_it() -> None:
    source = random.Random(7)
    for entity_type in every_message_type():
        for _ in range(3):
            message = random_message(entity_type, source)
            expected = kio_bytes(message)
            assert b"".join(encode_entity(message)) == expected, message
            assert decode_entity(entity_type, expected) == (message, len(expected))
            assert entity_reader(entity_type)(expected, 0) == (message, len(expected))


@given(TYPES, st.binary(max_size=400))
def test_random_bytes_are_a_message_or_a_peer_error(entity_type: Any, data: bytes) -> None:
    try:
        message, end = decode_entity(entity_type, data)
    except PeerError:
        return
    assert end <= len(data)
    assert isinstance(message, entity_type)


@given(TYPES, st.integers(0, 2**32), st.data())
def test_a_damaged_message_is_a_message_or_a_peer_error(entity_type: Any, seed: int, data: st.DataObject) -> None:
    raw = bytearray(b"".join(encode_entity(random_message(entity_type, random.Random(seed)))))
    for _ in range(data.draw(st.integers(1, 4))):
        if raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_body(entity_type, raw)
    except PeerError:
        return


def test_a_length_beyond_the_frame_is_refused_before_anything_is_built() -> None:
    # Two thousand million topics, in twelve bytes: kio's reader would try.
    delete_topics = request_type(20, 0)
    with pytest.raises(PeerError, match="length"):
        decode_body(delete_topics, b"\x7f\xff\xff\xff" + bytes(8))


def test_a_negative_length_does_not_move_backwards() -> None:
    with pytest.raises(PeerError, match="length -2"):
        decode_body(request_type(20, 0), b"\x00\x00\x00\x01\xff\xfe\x00\x00\x00\x00")


def test_unknown_tags_are_skipped_and_unknown_errors_have_a_name() -> None:
    fields = build(response_type(API_VERSIONS, 3), error_code=ErrorCode.none)
    raw = b"".join(encode_entity(fields))
    assert raw.endswith(b"\x00")
    with_tag = (999).to_bytes(2, "big", signed=True) + raw[2:-1] + b"\x01" + unsigned_varint(77) + b"\x03abc"
    decoded = decode_body(response_type(API_VERSIONS, 3), with_tag)
    assert decoded.error_code == ErrorCode.unknown_server_error
    assert decoded.zk_migration_ready is False


def test_a_tag_whose_size_is_not_its_contents_is_refused() -> None:
    raw = b"\x00\x00\x01\x00\x00\x00\x00\x01" + b"\x03\x02\x01\x01"
    with pytest.raises(PeerError, match="tagged field"):
        decode_body(response_type(API_VERSIONS, 3), raw)


def test_null_where_none_may_be_is_refused() -> None:
    with pytest.raises(PeerError, match="must not be null"):
        decode_body(request_type(52, 0), b"\x00\x00\x00")


def test_trailing_bytes_are_ignored_as_in_kafka() -> None:
    message = build(request_type(63, 0), broker_id=1)
    raw = b"".join(encode_entity(message))
    assert decode_body(request_type(63, 0), raw + b"\x00") == message
    with pytest.raises(PeerError, match="1 bytes too many"):
        decode_exactly(request_type(63, 0), raw + b"\x00")


@given(st.integers(0, 2**32 - 1))
def test_varints_round_trip(number: int) -> None:
    raw = unsigned_varint(number)
    assert read_unsigned_varint(memoryview(raw), 0) == (number, len(raw))


def test_big_records_are_never_copied_on_their_way_out() -> None:
    records = bytes(1_000_000)
    response = build(
        response_type(FETCH, 17), responses=({"partitions": ({"records": records, "aborted_transactions": ()},)},)
    )
    assert any(chunk is records for chunk in encode_entity(response))


def test_build_fills_in_defaults_and_drops_what_a_version_lacks() -> None:
    request = build(request_type(FETCH, 12), replica_id=7, replica_state={"replica_id": 7})
    assert request.replica_id == 7
    assert request.max_wait == dt.timedelta(0)
    newest = build(request_type(FETCH, 17), replica_id=7, replica_state={"replica_id": 7})
    assert newest.replica_state.replica_id == 7


def test_every_version_that_we_advertise_has_its_classes() -> None:
    for key, served in CONTROLLER_APIS.items():
        for version in range(served.min, served.max + 1):
            assert request_type(key, version).__api_key__ == key
            assert response_type(key, version).__version__ == version


@pytest.mark.parametrize("milliseconds", [-(2**63), -1, 2**63 - 1])
def test_a_duration_may_be_all_that_64_bits_can_say(milliseconds: int) -> None:
    """A token's lifetime of Long.MAX_VALUE is one that stock takes; Python's durations end before."""
    create = request_type(CREATE_DELEGATION_TOKEN, 0)
    message = decode_exactly(create, (0).to_bytes(4, "big") + milliseconds.to_bytes(8, "big", signed=True))
    assert (message.max_lifetime > dt.timedelta(0)) == (milliseconds > 0)


def test_tagged_fields_count_as_elements_of_arrays_do() -> None:
    """Two bytes each that nobody knows: a frame holds fifty million of them."""
    body = request_type(DESCRIBE_CLUSTER, 0)
    data = b"\0" + unsigned_varint(1_001) + b"\x63\0" * 1_001
    assert decode_body(body, data, max_elements=1_001)
    with pytest.raises(TooManyElementsError):
        decode_body(body, data, max_elements=1_000)
    head = struct.pack(">hhi", DESCRIBE_CLUSTER, 0, 1) + struct.pack(">h", -1)
    with pytest.raises(TooManyElementsError):
        decode_request_header(head + unsigned_varint(HEADER_TAGS_MAX + 1) + b"\x63\0" * (HEADER_TAGS_MAX + 1))


def test_a_text_that_a_version_cannot_say_is_the_peers_loss() -> None:
    answer = build(response_type(CREATE_DELEGATION_TOKEN, 0), token_id="x" * 2**15)
    with pytest.raises(PeerError):
        encode_entity(answer)


def test_a_text_is_no_longer_than_kafka_reads() -> None:
    """A received text may get into the log, and stock brokers and controllers would fail at it."""

    def request(size: int) -> bytes:
        resource = {"resource_name": "t", "configs": ({"name": "k", "value": "x" * size},)}
        return b"".join(encode_entity(build(request_type(44, 1), resources=(resource,))))

    kept = decode_body(request_type(44, 1), request(0x7FFF)).resources[0].configs[0].value
    assert len(kept) == 0x7FFF
    with pytest.raises(PeerError):
        decode_body(request_type(44, 1), request(0x8000))
