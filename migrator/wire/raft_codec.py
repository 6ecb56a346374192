"""The messages of the consensus core in Kafka's wire format, both directions, in every version that 3.9 supports.

Each message has a list of topics, which must be partition 0 of ``__cluster_metadata`` alone. Records and snapshot bytes
are passed by reference. Source: ``RaftUtil``, ``KafkaRaftClient`` (KIP-595, 630, 853).
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EpochOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OwnLog,
    RaftRequest,
    RaftResponse,
    VoteRequest,
    VoteResponse,
)
from migrator.records.uuid import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from migrator.values import value
from migrator.wire.schemas import (
    BEGIN_QUORUM_EPOCH,
    END_QUORUM_EPOCH,
    FETCH,
    FETCH_SNAPSHOT,
    VOTE,
    VersionRange,
    build,
    request_type,
    response_type,
)

METADATA_TOPIC = "__cluster_metadata"
TOPIC_ID = uuid.UUID(bytes=METADATA_TOPIC_ID)

TOPIC_IDS_SINCE = 13
"""The first version of Fetch that names topics by id. The metadata topic has an id, and stock quorums refuse earlier
versions."""

PRE_VOTES_SINCE = 2
"""The first version of Vote with pre-votes (Kafka 4.0, KIP-996)."""

RAFT_APIS: Mapping[type, tuple[int, VersionRange]] = {
    VoteRequest: (VOTE, VersionRange(0, PRE_VOTES_SINCE - 1)),
    BeginQuorumEpochRequest: (BEGIN_QUORUM_EPOCH, VersionRange(0, 1)),
    EndQuorumEpochRequest: (END_QUORUM_EPOCH, VersionRange(0, 1)),
    FetchRequest: (FETCH, VersionRange(TOPIC_IDS_SINCE, 17)),
    FetchSnapshotRequest: (FETCH_SNAPSHOT, VersionRange(0, 1)),
}
"""The API key of each request, and the versions that this program sends. Pre-votes need `PRE_VOTE_VERSIONS`."""

PRE_VOTE_VERSIONS = VersionRange(0, PRE_VOTES_SINCE)
"""The versions for a pre-vote. A peer that supports only the earlier ones knows no pre-votes."""


@value
class ListenerEndpoint:
    """The address of a node's controller listener; ``listener`` is its name."""

    listener: str
    host: str
    port: int


class InvalidRaftRequestError(PeerError):
    """The request is not about the metadata partition. It is answered with ``error``, and the connection may stay open.

    :ivar error: the error for `error_response`.
    """

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(f"the request is not about {METADATA_TOPIC}-0: {error.name}")
        self.error = error


def _uuid(raw: Uuid) -> uuid.UUID | None:
    return None if raw == ZERO_UUID else uuid.UUID(bytes=raw)


def _raw(identifier: uuid.UUID | None) -> Uuid:
    return ZERO_UUID if identifier is None else Uuid(identifier.bytes)


def _partition(topics: tuple[Any, ...], error: ErrorCode) -> Any:
    """The one partition in a list of topics. The APIs have different names for the fields."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        topic, partition = topics[0], topics[0].partitions[0]
        name = getattr(topic, "topic_name", None) or getattr(topic, "topic", None) or getattr(topic, "name", None)
        known = name == METADATA_TOPIC if name is not None else getattr(topic, "topic_id", None) == TOPIC_ID
        if known and _index(partition) == 0:
            return partition
    raise InvalidRaftRequestError(error)


def _index(partition: Any) -> int | None:
    for name in ("partition_index", "partition", "index"):
        if hasattr(partition, name):
            return int(getattr(partition, name))
    return None


def _topics(**partition: Any) -> tuple[dict[str, Any], ...]:
    """A list of topics with the metadata partition, under each name that the APIs have for the fields."""
    names = {"topic_name": METADATA_TOPIC, "topic": METADATA_TOPIC, "name": METADATA_TOPIC, "topic_id": TOPIC_ID}
    return ({**names, "partitions": ({"partition_index": 0, "partition": 0, "index": 0, **partition},)},)


# --- requests -----------------------------------------------------------------------------------------------------


def decode_raft_request(body: Any) -> RaftRequest:
    """The core's request from kio's, of any version.

    :raises InvalidRaftRequestError: it is about something else than the metadata partition.
    """
    return _REQUEST_READERS[body.__api_key__](body)


def _vote_request(body: Any) -> VoteRequest:
    partition = _partition(body.topics, ErrorCode.invalid_request)
    return VoteRequest(
        cluster_id=body.cluster_id,
        voter_id=getattr(body, "voter_id", -1),
        candidate_epoch=partition.candidate_epoch,
        candidate_id=partition.candidate_id,
        last_epoch=partition.last_offset_epoch,
        last_offset=partition.last_offset,
        candidate_directory_id=_raw(getattr(partition, "candidate_directory_id", None)),
        voter_directory_id=_raw(getattr(partition, "voter_directory_id", None)),
        pre_vote=getattr(partition, "pre_vote", False),
    )


def _begin_request(body: Any) -> BeginQuorumEpochRequest:
    partition = _partition(body.topics, ErrorCode.invalid_request)
    return BeginQuorumEpochRequest(
        body.cluster_id,
        getattr(body, "voter_id", -1),
        partition.leader_id,
        partition.leader_epoch,
        _raw(getattr(partition, "voter_directory_id", None)),
    )


def _end_request(body: Any) -> EndQuorumEpochRequest:
    partition = _partition(body.topics, ErrorCode.invalid_request)
    candidates = getattr(partition, "preferred_candidates", ())
    successors = getattr(partition, "preferred_successors", tuple(each.candidate_id for each in candidates))
    directories = tuple(_raw(each.candidate_directory_id) for each in candidates)
    return EndQuorumEpochRequest(body.cluster_id, partition.leader_id, partition.leader_epoch, successors, directories)


def _fetch_request(body: Any) -> FetchRequest:
    if body.__version__ < TOPIC_IDS_SINCE:
        raise InvalidRaftRequestError(ErrorCode.invalid_request)
    partition = _partition(body.topics, ErrorCode.invalid_request)
    state = getattr(body, "replica_state", None)
    return FetchRequest(
        cluster_id=getattr(body, "cluster_id", None),
        replica_id=body.replica_id if state is None else state.replica_id,
        leader_epoch=getattr(partition, "current_leader_epoch", -1),
        fetch_offset=partition.fetch_offset,
        last_fetched_epoch=getattr(partition, "last_fetched_epoch", -1),
        max_wait_ms=body.max_wait // dt.timedelta(milliseconds=1),
        max_bytes=getattr(body, "max_bytes", partition.partition_max_bytes),
        replica_directory_id=_raw(getattr(partition, "replica_directory_id", None)),
    )


def _fetch_snapshot_request(body: Any) -> FetchSnapshotRequest:
    partition = _partition(body.topics, ErrorCode.unknown_topic_or_partition)
    return FetchSnapshotRequest(
        cluster_id=body.cluster_id,
        replica_id=body.replica_id,
        leader_epoch=partition.current_leader_epoch,
        snapshot_id=EpochOffset(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
        position=partition.position,
        max_bytes=body.max_bytes,
        replica_directory_id=_raw(getattr(partition, "replica_directory_id", None)),
    )


_REQUEST_READERS: Mapping[int, Callable[[Any], RaftRequest]] = {
    VOTE: _vote_request,
    BEGIN_QUORUM_EPOCH: _begin_request,
    END_QUORUM_EPOCH: _end_request,
    FETCH: _fetch_request,
    FETCH_SNAPSHOT: _fetch_snapshot_request,
}


def encode_raft_request(request: RaftRequest, version: int, own_endpoints: tuple[ListenerEndpoint, ...] = ()) -> Any:
    """kio's request from the core's.

    :param own_endpoints: this node's controller listeners, which a leader sends to its voters from version 1 on.
    """
    api_key, _ = RAFT_APIS[type(request)]
    endpoints = tuple({"name": at.listener, "host": at.host, "port": at.port} for at in own_endpoints)
    return build(
        request_type(api_key, version),
        **_request_fields(request),
        leader_endpoints=endpoints,
    )


def _request_fields(request: RaftRequest) -> dict[str, Any]:
    if isinstance(request, VoteRequest):
        return _vote_fields(request)
    if isinstance(request, BeginQuorumEpochRequest):
        topics = _topics(
            leader_id=request.leader_id,
            leader_epoch=request.leader_epoch,
            voter_directory_id=_uuid(request.voter_directory_id),
        )
        return {"cluster_id": request.cluster_id, "voter_id": request.voter_id, "topics": topics}
    if isinstance(request, EndQuorumEpochRequest):
        topics = _topics(
            leader_id=request.leader_id,
            leader_epoch=request.leader_epoch,
            preferred_successors=request.preferred_successors,
            preferred_candidates=tuple(
                {"candidate_id": node, "candidate_directory_id": _uuid(directory)}
                for node, directory in zip_longest(
                    request.preferred_successors, request.successor_directories, fillvalue=ZERO_UUID
                )
            ),
        )
        return {"cluster_id": request.cluster_id, "topics": topics}
    if isinstance(request, FetchRequest):
        return _fetch_fields(request)
    return _fetch_snapshot_fields(request)


def _vote_fields(request: VoteRequest) -> dict[str, Any]:
    return {
        "cluster_id": request.cluster_id,
        "voter_id": request.voter_id,
        "topics": _topics(
            candidate_epoch=request.candidate_epoch,
            candidate_id=request.candidate_id,
            candidate_directory_id=_uuid(request.candidate_directory_id),
            voter_directory_id=_uuid(request.voter_directory_id),
            last_offset_epoch=request.last_epoch,
            last_offset=request.last_offset,
            pre_vote=request.pre_vote,
        ),
    }


def _fetch_fields(request: FetchRequest) -> dict[str, Any]:
    return {
        "cluster_id": request.cluster_id,
        "replica_id": request.replica_id,
        "replica_state": {"replica_id": request.replica_id},
        "max_wait": dt.timedelta(milliseconds=request.max_wait_ms),
        "max_bytes": request.max_bytes,
        "topics": _topics(
            current_leader_epoch=request.leader_epoch,
            fetch_offset=request.fetch_offset,
            last_fetched_epoch=request.last_fetched_epoch,
            partition_max_bytes=request.max_bytes,
            replica_directory_id=_uuid(request.replica_directory_id),
        ),
    }


def _fetch_snapshot_fields(request: FetchSnapshotRequest) -> dict[str, Any]:
    return {
        "cluster_id": request.cluster_id,
        "replica_id": request.replica_id,
        "max_bytes": request.max_bytes,
        "topics": _topics(
            current_leader_epoch=request.leader_epoch,
            snapshot_id={"epoch": request.snapshot_id.epoch, "end_offset": request.snapshot_id.offset},
            position=request.position,
            replica_directory_id=_uuid(request.replica_directory_id),
        ),
    }


# --- responses ----------------------------------------------------------------------------------------------------


def error_response(api_key: int, version: int, error: ErrorCode) -> Any:
    """A response with only ``error``, for the whole request."""
    return build(response_type(api_key, version), error_code=error)


def encode_raft_response(
    response: RaftResponse, version: int, leader_endpoint: Callable[[int], ListenerEndpoint | None] = lambda _: None
) -> Any:
    """kio's response from the core's.

    :param leader_endpoint: the address of a leader, for the versions that have a field for it.
    """
    api_key = _RESPONSE_KEYS[type(response)]
    if response.top_error != ErrorCode.none:
        return error_response(api_key, version, response.top_error)
    fields = _topics(**_partition_fields(response))
    at = leader_endpoint(response.leader_id) if response.leader_id >= 0 else None
    known = () if at is None else ({"node_id": response.leader_id, "host": at.host, "port": at.port},)
    # Fetch 16 has the field, too, but there only replicas of ordinary topics use it.
    nodes = known if version >= (17 if api_key == FETCH else 1) else ()
    return build(response_type(api_key, version), topics=fields, responses=fields, node_endpoints=nodes)


def _partition_fields(response: RaftResponse) -> dict[str, Any]:
    leader = {"leader_id": response.leader_id, "leader_epoch": response.leader_epoch}
    common = {"error_code": response.error, **leader, "current_leader": leader}
    if isinstance(response, VoteResponse):
        return {**common, "vote_granted": response.vote_granted, **_own_log_fields(response.own_log)}
    if isinstance(response, FetchResponse):
        return {**common, **_fetched_fields(response)}
    if isinstance(response, FetchSnapshotResponse):
        return {
            **common,
            "snapshot_id": {"epoch": response.snapshot_id.epoch, "end_offset": response.snapshot_id.offset},
            "size": response.size,
            "position": response.position,
            "unaligned_records": response.data,
        }
    return common


def _own_log_fields(own: OwnLog | None) -> dict[str, Any]:
    if own is None:
        return {}
    end = {"epoch": own.end.epoch, "end_offset": own.end.offset}
    return {"own_log": {**end, "must_fetch_first": own.must_fetch_first}}


def _fetched_fields(response: FetchResponse) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "high_watermark": response.high_watermark,
        "log_start_offset": response.log_start_offset,
        "aborted_transactions": (),
        "records": response.records,
    }
    if response.diverging is not None:
        fields["diverging_epoch"] = {"epoch": response.diverging.epoch, "end_offset": response.diverging.offset}
    if response.snapshot_id is not None:
        fields["snapshot_id"] = {"epoch": response.snapshot_id.epoch, "end_offset": response.snapshot_id.offset}
    return fields


_RESPONSE_KEYS: Mapping[type, int] = {
    VoteResponse: VOTE,
    BeginQuorumEpochResponse: BEGIN_QUORUM_EPOCH,
    EndQuorumEpochResponse: END_QUORUM_EPOCH,
    FetchResponse: FETCH,
    FetchSnapshotResponse: FETCH_SNAPSHOT,
}


def decode_raft_response(body: Any) -> RaftResponse:
    """The core's response from kio's, of any version.

    :raises PeerError: it is about something else than the metadata partition.
    """
    api_key = body.__api_key__
    top_error = getattr(body, "error_code", ErrorCode.none)
    topics = body.responses if api_key == FETCH else body.topics
    if top_error != ErrorCode.none and not topics:
        return _failed(api_key, top_error)
    partition = _partition(topics, ErrorCode.invalid_request)
    if api_key == FETCH:
        return _fetch_response(top_error, partition)
    if api_key == FETCH_SNAPSHOT:
        return _fetch_snapshot_response(top_error, partition)
    leader = partition.leader_id, partition.leader_epoch
    if api_key == VOTE:
        return VoteResponse(top_error, partition.error_code, *leader, partition.vote_granted, _own_log(partition))
    response = BeginQuorumEpochResponse if api_key == BEGIN_QUORUM_EPOCH else EndQuorumEpochResponse
    return response(top_error, partition.error_code, *leader)


def _own_log(partition: Any) -> OwnLog | None:
    """The report of this program's controller about its log, from version 2 on; None from other controllers."""
    told = getattr(partition, "own_log", None)
    if told is None or told.epoch < 0 or told.end_offset < 0:
        return None
    return OwnLog(EpochOffset(told.epoch, told.end_offset), told.must_fetch_first)


def _failed(api_key: int, error: ErrorCode) -> RaftResponse:
    """A response with an error for the whole request, without a leader."""
    if api_key == FETCH:
        return FetchResponse(error, ErrorCode.none, -1, -1, -1, -1)
    if api_key == FETCH_SNAPSHOT:
        return FetchSnapshotResponse(error, ErrorCode.none, -1, -1, EpochOffset(-1, -1), 0, 0, b"")
    if api_key == VOTE:
        return VoteResponse(error, ErrorCode.none, -1, -1, vote_granted=False)
    response = BeginQuorumEpochResponse if api_key == BEGIN_QUORUM_EPOCH else EndQuorumEpochResponse
    return response(error, ErrorCode.none, -1, -1)


def _fetch_response(top_error: ErrorCode, partition: Any) -> FetchResponse:
    leader, diverging, snapshot = partition.current_leader, partition.diverging_epoch, partition.snapshot_id
    return FetchResponse(
        top_error=top_error,
        error=partition.error_code,
        leader_id=leader.leader_id,
        leader_epoch=leader.leader_epoch,
        high_watermark=partition.high_watermark,
        log_start_offset=partition.log_start_offset,
        diverging=EpochOffset(diverging.epoch, diverging.end_offset) if diverging.epoch >= 0 else None,
        snapshot_id=EpochOffset(snapshot.epoch, snapshot.end_offset) if snapshot.epoch >= 0 else None,
        records=partition.records or b"",
    )


def _fetch_snapshot_response(top_error: ErrorCode, partition: Any) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(
        top_error=top_error,
        error=partition.error_code,
        leader_id=partition.current_leader.leader_id,
        leader_epoch=partition.current_leader.leader_epoch,
        snapshot_id=EpochOffset(partition.snapshot_id.epoch, partition.snapshot_id.end_offset),
        size=partition.size,
        position=partition.position,
        data=partition.unaligned_records or b"",
    )
