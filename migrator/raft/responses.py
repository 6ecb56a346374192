"""Responses that carry this node's epoch and leader, as every one of KRaft's does; -1 stands for no leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from migrator.raft.messages import (
    BeginQuorumEpochResponse,
    EndQuorumEpochResponse,
    EpochOffset,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteResponse,
)

if TYPE_CHECKING:
    from migrator.raft.quorum import Quorum

NONE = ErrorCode.none


def _leader(quorum: Quorum) -> int:
    leader = quorum.leader_id
    return -1 if leader is None else leader


def vote(quorum: Quorum, error: ErrorCode, *, granted: bool = False, top_error: ErrorCode = NONE) -> VoteResponse:
    """Answer to Vote."""
    return VoteResponse(top_error, error, _leader(quorum), quorum.epoch, granted)


def begin(quorum: Quorum, error: ErrorCode, *, top_error: ErrorCode = NONE) -> BeginQuorumEpochResponse:
    """Answer to BeginQuorumEpoch."""
    return BeginQuorumEpochResponse(top_error, error, _leader(quorum), quorum.epoch)


def end(quorum: Quorum, error: ErrorCode, *, top_error: ErrorCode = NONE) -> EndQuorumEpochResponse:
    """Answer to EndQuorumEpoch."""
    return EndQuorumEpochResponse(top_error, error, _leader(quorum), quorum.epoch)


def fetch(
    quorum: Quorum,
    error: ErrorCode,
    *,
    high_watermark: int = -1,
    diverging: EpochOffset | None = None,
    snapshot_id: EpochOffset | None = None,
    top_error: ErrorCode = NONE,
) -> FetchResponse:
    """Answer to Fetch, without records."""
    start = quorum.log.start_offset()
    return FetchResponse(top_error, error, _leader(quorum), quorum.epoch, high_watermark, start, diverging, snapshot_id)


def fetch_snapshot(
    quorum: Quorum, error: ErrorCode, request: FetchSnapshotRequest, *, top_error: ErrorCode = NONE
) -> FetchSnapshotResponse:
    """Answer to FetchSnapshot, without data."""
    return FetchSnapshotResponse(
        top_error, error, _leader(quorum), quorum.epoch, request.snapshot_id, 0, request.position, b""
    )
