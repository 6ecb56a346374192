"""Protobuf messages of the quorum."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from migrator.errors import PeerError
from migrator.rpc.codec import from_proto, to_proto
from migrator.rpc.stubs import quorum_pb2
from tests.rpc.support.raft_messages import requests, responses


@given(requests() | responses())
def test_every_message_round_trips(message: Any) -> None:
    proto = to_proto(message)
    assert from_proto(type(proto).FromString(proto.SerializeToString())) == message


def test_a_directory_id_of_another_size_is_refused() -> None:
    with pytest.raises(PeerError, match="5 bytes"):
        from_proto(quorum_pb2.VoteRequest(candidate_directory_id=b"12345"))


def test_a_snapshot_request_must_name_its_snapshot() -> None:
    with pytest.raises(PeerError, match="without snapshot_id"):
        from_proto(quorum_pb2.FetchSnapshotRequest())
