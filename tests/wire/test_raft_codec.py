"""The core's messages through every version of the Kafka protocol that carries them."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.raft.messages import FetchResponse, VoteRequest, VoteResponse
from migrator.records.uuid import Uuid
from migrator.wire.decode import decode_body
from migrator.wire.encode import encode_entity
from migrator.wire.raft_codec import (
    RAFT_APIS,
    InvalidRaftRequestError,
    ListenerEndpoint,
    decode_raft_request,
    decode_raft_response,
    encode_raft_request,
    encode_raft_response,
    error_response,
)
from migrator.wire.schemas import FETCH, FETCH_SNAPSHOT, VOTE, build, request_type
from tests.rpc.support.raft_messages import LOSSY_FIELDS, requests, responses, without

AT = ListenerEndpoint("CONTROLLER", "host-1", 9093)


def through_bytes(message: Any) -> Any:
    return decode_body(type(message), b"".join(encode_entity(message)))


@given(requests(), st.data())
def test_requests_round_trip(request: Any, data: st.DataObject) -> None:
    _, versions = RAFT_APIS[type(request)]
    version = data.draw(st.integers(versions.min, versions.max))
    decoded = decode_raft_request(through_bytes(encode_raft_request(request, version, (AT,))))
    lost = LOSSY_FIELDS.get((type(request), version), {})
    assert decoded == without(request, lost)


@given(responses(), st.data())
def test_responses_round_trip(response: Any, data: st.DataObject) -> None:
    low, high = (12, 17) if isinstance(response, FetchResponse) else (0, 1)
    version = data.draw(st.integers(low, high))
    body = through_bytes(encode_raft_response(response, version, lambda _: AT))
    decoded = decode_raft_response(body)
    assert decoded.top_error == response.top_error
    if response.top_error == ErrorCode.none:
        assert decoded == response


def test_the_leaders_endpoint_goes_to_versions_that_know_it() -> None:
    response = VoteResponse(ErrorCode.none, ErrorCode.none, 3, 9, vote_granted=False)
    newer = encode_raft_response(response, 1, lambda node: AT if node == 3 else None)
    assert [(node.node_id, node.host, node.port) for node in newer.node_endpoints] == [(3, "host-1", 9093)]
    assert not hasattr(encode_raft_response(response, 0, lambda _: AT), "node_endpoints")
    nobody = VoteResponse(ErrorCode.none, ErrorCode.none, -1, 9, vote_granted=False)
    assert encode_raft_response(nobody, 1, lambda _: AT).node_endpoints == ()


def test_fetch_16_carries_no_endpoint_though_it_could() -> None:
    response = FetchResponse(ErrorCode.none, ErrorCode.fenced_leader_epoch, 3, 9, -1, 0)
    assert encode_raft_response(response, 16, lambda _: AT).node_endpoints == ()
    assert encode_raft_response(response, 17, lambda _: AT).node_endpoints[0].port == 9093


@pytest.mark.parametrize(
    "topics",
    [
        (),
        ({"topic_name": "orders", "partitions": ({"partition_index": 0},)},),
        ({"topic_name": "__cluster_metadata", "partitions": ()},),
        ({"topic_name": "__cluster_metadata", "partitions": ({"partition_index": 1},)},),
        ({"topic_name": "__cluster_metadata", "partitions": ({"partition_index": 0},)},) * 2,
    ],
)
def test_a_vote_about_anything_else_is_refused(topics: Any) -> None:
    with pytest.raises(InvalidRaftRequestError) as caught:
        decode_raft_request(build(request_type(VOTE, 1), topics=topics))
    assert caught.value.error == ErrorCode.invalid_request


def test_a_fetch_of_another_topic_id_is_refused() -> None:
    topics = ({"topic_id": uuid.uuid4(), "partitions": ({"partition": 0},)},)
    with pytest.raises(InvalidRaftRequestError):
        decode_raft_request(build(request_type(FETCH, 17), topics=topics))


def test_a_snapshot_of_another_topic_is_unknown() -> None:
    topics = ({"name": "orders", "partitions": ({"partition": 0},)},)
    with pytest.raises(InvalidRaftRequestError) as caught:
        decode_raft_request(build(request_type(FETCH_SNAPSHOT, 1), topics=topics))
    assert caught.value.error == ErrorCode.unknown_topic_or_partition


def test_an_answer_about_another_topic_is_a_peer_error() -> None:
    good = encode_raft_response(VoteResponse(ErrorCode.none, ErrorCode.none, 1, 1, vote_granted=True), 1)
    other = build(type(good), topics=({"topic_name": "orders", "partitions": ({"partition_index": 0},)},))
    with pytest.raises(PeerError):
        decode_raft_response(other)


def test_a_request_wide_error_is_all_there_is() -> None:
    body = error_response(VOTE, 1, ErrorCode.inconsistent_cluster_id)
    decoded = decode_raft_response(through_bytes(body))
    assert decoded == VoteResponse(ErrorCode.inconsistent_cluster_id, ErrorCode.none, -1, -1, vote_granted=False)


@pytest.mark.parametrize("version", range(13))
def test_a_fetch_by_the_topics_name_is_refused(version: int) -> None:
    """Stock controllers advertise Fetch from 0, and answer from 13 on."""
    topics = ({"topic": "__cluster_metadata", "partitions": ({"partition": 0, "fetch_offset": 5},)},)
    with pytest.raises(InvalidRaftRequestError) as caught:
        decode_raft_request(through_bytes(build(request_type(FETCH, version), replica_id=2, topics=topics)))
    assert caught.value.error == ErrorCode.invalid_request
    assert through_bytes(error_response(FETCH, version, ErrorCode.invalid_request)).__version__ == version


def test_a_vote_of_version_0_has_no_voter() -> None:
    request = VoteRequest(None, 2, 5, 1, 4, 100)
    decoded = decode_raft_request(encode_raft_request(request, 0))
    assert isinstance(decoded, VoteRequest)
    assert decoded.voter_id == -1


PRE_VOTE_OF_KAFKA = (
    "02630000000202135f5f636c75737465725f6d657461646174610200000000000000050000000100000000000000010000000000000002"
    "0000000000000003000000000000000400000004000000000000006401000000"
)
"""Written by VoteRequestData of Kafka 4.1.1: cluster "c", voter 2, epoch 5, replica 1, log end (4, 100)."""


def test_a_pre_vote_is_what_kafka_4_writes() -> None:
    """Version 2, which kio does not have (KIP-996)."""
    first, second = (Uuid(bytes.fromhex(f"{high:016x}{low:016x}")) for high, low in ((1, 2), (3, 4)))
    request = VoteRequest("c", 2, 5, 1, 4, 100, first, second, pre_vote=True)
    body = encode_raft_request(request, 2)
    assert b"".join(encode_entity(body)).hex() == PRE_VOTE_OF_KAFKA
    assert decode_raft_request(through_bytes(body)) == request
    assert (
        through_bytes(
            encode_raft_response(VoteResponse(ErrorCode.none, ErrorCode.none, 2, 5, vote_granted=True), 2)
        ).__version__
        == 2
    )
