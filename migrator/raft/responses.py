"""Makes the responses of consensus; each carries this node's epoch and leader, as in KRaft. -1 stands for no leader.

The handlers of all roles use it. `nothing` makes an answer that has only an error, for a sender that belongs to another
cluster, or may not learn the epoch (`telling`).
"""

from __future__ import annotations

from typing import Protocol, assert_never

from kio.schema.errors import ErrorCode

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
from migrator.raft.storage import LogView

NONE = ErrorCode.none


class Responder(Protocol):
    """The fields of a response about the node that sends it: leader, epoch and the start of its log."""

    @property
    def leader_id(self) -> int | None: ...
    @property
    def epoch(self) -> int: ...
    @property
    def log(self) -> LogView: ...


def _leader(node: Responder) -> int:
    return -1 if node.leader_id is None else node.leader_id


def vote(node: Responder, error: ErrorCode, *, granted: bool = False, own_log: OwnLog | None = None) -> VoteResponse:
    return VoteResponse(NONE, error, _leader(node), node.epoch, granted, own_log)


def begin(node: Responder, error: ErrorCode) -> BeginQuorumEpochResponse:
    """Answer to BeginQuorumEpoch."""
    return BeginQuorumEpochResponse(NONE, error, _leader(node), node.epoch)


def end(node: Responder, error: ErrorCode) -> EndQuorumEpochResponse:
    """Answer to EndQuorumEpoch."""
    return EndQuorumEpochResponse(NONE, error, _leader(node), node.epoch)


def fetch(
    node: Responder,
    error: ErrorCode,
    *,
    high_watermark: int = -1,
    diverging: EpochOffset | None = None,
    snapshot_id: EpochOffset | None = None,
) -> FetchResponse:
    """Answer to Fetch, without records."""
    start = node.log.start_offset()
    return FetchResponse(NONE, error, _leader(node), node.epoch, high_watermark, start, diverging, snapshot_id)


def fetch_snapshot(node: Responder, error: ErrorCode, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
    """Answer to FetchSnapshot, without data."""
    return FetchSnapshotResponse(NONE, error, _leader(node), node.epoch, request.snapshot_id, 0, request.position, b"")


def nothing(request: RaftRequest, error: ErrorCode, *, top_error: ErrorCode = NONE) -> RaftResponse:
    """A response of the request's type that has only the error."""
    leader, epoch = -1, 0
    match request:
        case VoteRequest():
            return VoteResponse(top_error, error, leader, epoch, vote_granted=False)
        case BeginQuorumEpochRequest():
            return BeginQuorumEpochResponse(top_error, error, leader, epoch)
        case EndQuorumEpochRequest():
            return EndQuorumEpochResponse(top_error, error, leader, epoch)
        case FetchRequest():
            return FetchResponse(top_error, error, leader, epoch, high_watermark=-1, log_start_offset=-1)
        case FetchSnapshotRequest():
            return FetchSnapshotResponse(top_error, error, leader, epoch, request.snapshot_id, 0, request.position, b"")
        case _:
            assert_never(request)
