"""Responses that carry this node's epoch and leader, as every one of KRaft's does; -1 stands for no leader."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, TypeVar

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
from migrator.raft.storage import LogView

Answer = TypeVar("Answer", VoteResponse, BeginQuorumEpochResponse, FetchResponse, FetchSnapshotResponse)

NONE = ErrorCode.none
GIVEN_UP = ErrorCode.inconsistent_voter_set
"""For replicas that were given up when the majority was lost (`migrator.raft.refused`)."""


class Responder(Protocol):
    """What responses tell of the node that gives them: leader and epoch, and where its log begins."""

    @property
    def leader_id(self) -> int | None: ...
    @property
    def epoch(self) -> int: ...
    @property
    def log(self) -> LogView: ...


def _leader(node: Responder) -> int:
    return -1 if node.leader_id is None else node.leader_id


def vote(node: Responder, error: ErrorCode, *, granted: bool = False, top_error: ErrorCode = NONE) -> VoteResponse:
    """Answer to Vote."""
    return VoteResponse(top_error, error, _leader(node), node.epoch, granted)


def begin(node: Responder, error: ErrorCode, *, top_error: ErrorCode = NONE) -> BeginQuorumEpochResponse:
    """Answer to BeginQuorumEpoch."""
    return BeginQuorumEpochResponse(top_error, error, _leader(node), node.epoch)


def end(node: Responder, error: ErrorCode, *, top_error: ErrorCode = NONE) -> EndQuorumEpochResponse:
    """Answer to EndQuorumEpoch."""
    return EndQuorumEpochResponse(top_error, error, _leader(node), node.epoch)


def fetch(
    node: Responder,
    error: ErrorCode,
    *,
    high_watermark: int = -1,
    diverging: EpochOffset | None = None,
    snapshot_id: EpochOffset | None = None,
    top_error: ErrorCode = NONE,
) -> FetchResponse:
    """Answer to Fetch, without records."""
    start = node.log.start_offset()
    return FetchResponse(top_error, error, _leader(node), node.epoch, high_watermark, start, diverging, snapshot_id)


def fetch_snapshot(
    node: Responder, error: ErrorCode, request: FetchSnapshotRequest, *, top_error: ErrorCode = NONE
) -> FetchSnapshotResponse:
    """Answer to FetchSnapshot, without data."""
    return FetchSnapshotResponse(
        top_error, error, _leader(node), node.epoch, request.snapshot_id, 0, request.position, b""
    )


def untold(response: Answer) -> Answer:
    """The same without leader and epoch. Replicas that were given up could elect a leader among themselves, in an
    epoch above ours, if they knew ours."""
    return replace(response, leader_id=-1, leader_epoch=0)
