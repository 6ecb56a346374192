"""Hypothesis strategies for the messages of the consensus core, and the fields that older wire versions lose."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st
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
    VoteRequest,
    VoteResponse,
)
from migrator.records.uuid import ZERO_UUID, Uuid

int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(0, 2**63 - 1)
node = st.integers(0, 2**31 - 1)
maybe_node = st.integers(-1, 2**31 - 1)
cluster = st.none() | st.text(max_size=22)
directory = st.binary(min_size=16, max_size=16).map(Uuid)
epoch_offset = st.builds(EpochOffset, int32, int64)
error = st.sampled_from(list(ErrorCode))
rarely_error = st.sampled_from([ErrorCode.none] * 4 + [ErrorCode.inconsistent_cluster_id])


def requests() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(VoteRequest, cluster, node, int32, node, int32, int64, directory, directory),
        st.builds(BeginQuorumEpochRequest, cluster, node, node, int32, directory),
        st.builds(_end_request, cluster, node, int32, st.lists(st.tuples(node, directory), max_size=4)),
        st.builds(FetchRequest, cluster, maybe_node, int32, int64, int32, int32, int32, directory),
        st.builds(FetchSnapshotRequest, cluster, maybe_node, int32, epoch_offset, int64, int32, directory),
    )


def _end_request(
    cluster_id: str | None, leader: int, epoch: int, successors: list[tuple[int, Uuid]]
) -> EndQuorumEpochRequest:
    """A leader names each successor with its directory."""
    nodes, directories = [node for node, _ in successors], [directory for _, directory in successors]
    return EndQuorumEpochRequest(cluster_id, leader, epoch, tuple(nodes), tuple(directories))


def responses() -> st.SearchStrategy[Any]:
    """Any response that a core would give: a diverging epoch, a snapshot id or records, not two of them."""
    head = (rarely_error, error, maybe_node, int32)
    fetched = st.one_of(
        st.builds(FetchResponse, *head, int64, int64),
        st.builds(FetchResponse, *head, int64, int64, epoch_offset),
        st.builds(FetchResponse, *head, int64, int64, st.none(), epoch_offset),
        st.builds(FetchResponse, *head, int64, int64, st.none(), st.none(), st.binary(max_size=500)),
    )
    return st.one_of(
        st.builds(VoteResponse, *head, st.booleans()),
        st.builds(BeginQuorumEpochResponse, *head),
        st.builds(EndQuorumEpochResponse, *head),
        fetched,
        st.builds(FetchSnapshotResponse, *head, epoch_offset, int64, int64, st.binary(max_size=500)),
    )


_NO_DIRECTORY = {"replica_directory_id": ZERO_UUID}

LOSSY_FIELDS: dict[tuple[type, int], dict[str, Any]] = {
    (VoteRequest, 0): {"voter_id": -1, "candidate_directory_id": ZERO_UUID, "voter_directory_id": ZERO_UUID},
    (BeginQuorumEpochRequest, 0): {"voter_id": -1, "voter_directory_id": ZERO_UUID},
    (EndQuorumEpochRequest, 0): {"successor_directories": ()},
    (FetchSnapshotRequest, 0): _NO_DIRECTORY,
    **{(FetchRequest, version): _NO_DIRECTORY for version in range(12, 17)},
}
"""Fields that a version of the Kafka protocol cannot carry, with the values that are read instead."""


def without(message: Any, lost: dict[str, Any]) -> Any:
    """The message as it is after such a version."""
    return dataclasses.replace(message, **lost)
