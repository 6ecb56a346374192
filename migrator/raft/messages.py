"""The messages of KRaft's consensus, as values. Both transports carry exactly these.

Fields are those of Kafka 3.9's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot for the one
partition ``__cluster_metadata-0`` (KIP-595, KIP-630, KIP-853). Epochs are leader epochs, offsets are record
offsets, positions and sizes bytes. A transport that cannot carry a field fills in the default.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.values import value


@value
class EpochOffset:
    """A leader epoch with an end offset (exclusive); names a snapshot or a point of divergence."""

    epoch: int
    offset: int


@value
class VoteRequest:
    """``pre_vote``: the answer is no vote, it says whether the voter would vote (KIP-996). ``candidate_epoch`` is then
    the epoch that the node has, not the next one."""

    cluster_id: str | None
    voter_id: int
    candidate_epoch: int
    candidate_id: int
    last_epoch: int
    last_offset: int
    candidate_directory_id: Uuid = ZERO_UUID
    voter_directory_id: Uuid = ZERO_UUID
    pre_vote: bool = False


@value
class OwnLog:
    """A node's report about its log: its end, and whether its disk began empty and has not yet held everything that a
    leader had committed."""

    end: EpochOffset
    must_fetch_first: bool


@value
class VoteResponse:
    """``top_error`` concerns the whole request, ``error`` the partition, here and below. ``own_log`` is in the answers
    of this program to pre-votes."""

    top_error: ErrorCode
    error: ErrorCode
    leader_id: int
    leader_epoch: int
    vote_granted: bool
    own_log: OwnLog | None = None


@value
class BeginQuorumEpochRequest:
    cluster_id: str | None
    voter_id: int
    leader_id: int
    leader_epoch: int
    voter_directory_id: Uuid = ZERO_UUID


@value
class BeginQuorumEpochResponse:
    top_error: ErrorCode
    error: ErrorCode
    leader_id: int
    leader_epoch: int


@value
class EndQuorumEpochRequest:
    """``preferred_successors`` are the ids of the other voters, the most suitable first; ``successor_directories`` are
    their disks in the same order, or nothing from a sender that does not name them."""

    cluster_id: str | None
    leader_id: int
    leader_epoch: int
    preferred_successors: tuple[int, ...]
    successor_directories: tuple[Uuid, ...] = ()


@value
class EndQuorumEpochResponse:
    top_error: ErrorCode
    error: ErrorCode
    leader_id: int
    leader_epoch: int


@value
class FetchRequest:
    """``replica_id`` -1 is a client that does not count for replication; ``max_wait_ms`` how long it may park."""

    cluster_id: str | None
    replica_id: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int
    max_bytes: int
    replica_directory_id: Uuid = ZERO_UUID


@value
class FetchResponse:
    """At most one of ``diverging``, ``snapshot_id`` and non-empty ``records`` is set. ``records`` of this program are
    whole batches. Those of a stock leader hold at least one whole batch and may end within another."""

    top_error: ErrorCode
    error: ErrorCode
    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    diverging: EpochOffset | None = None
    snapshot_id: EpochOffset | None = None
    records: bytes = b""


@value
class FetchSnapshotRequest:
    cluster_id: str | None
    replica_id: int
    leader_epoch: int
    snapshot_id: EpochOffset
    position: int
    max_bytes: int
    replica_directory_id: Uuid = ZERO_UUID


@value
class FetchSnapshotResponse:
    top_error: ErrorCode
    error: ErrorCode
    leader_id: int
    leader_epoch: int
    snapshot_id: EpochOffset
    size: int
    position: int
    data: bytes


RaftRequest = VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest | FetchRequest | FetchSnapshotRequest
RaftResponse = VoteResponse | BeginQuorumEpochResponse | EndQuorumEpochResponse | FetchResponse | FetchSnapshotResponse
