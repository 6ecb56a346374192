"""Which replicas may learn this node's epoch and leader: one rule for every answer to a replica.

The replicas that were given up when the majority was lost are a majority of the old voters. If one of them learned our
epoch, they would elect a leader in a higher one (docs/adr/0024-a-lost-majority.md).
"""

from __future__ import annotations

from typing import assert_never

from kio.schema.errors import ErrorCode

from migrator.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RaftRequest,
    VoteRequest,
)
from migrator.raft.recovery import EPOCH_STEP
from migrator.raft.refused import Recovered
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.values import value

GIVEN_UP = ErrorCode.inconsistent_voter_set
"""The error for replicas that were given up when the majority was lost (`migrator.raft.refused`)."""
RECOVERY_EPOCH_JUMP = EPOCH_STEP // 2
"""A jump of the epoch by this much is a recovery. It is less than `EPOCH_STEP`, because a node may have read
records of the lost replicas, which go on electing leaders in higher epochs among themselves."""


@value
class Asker:
    """The sender of a request, and the epoch that the request names. ``directory_id`` is zero when the message has no
    field for it: then the sender may be a lost replica, or its successor with the same id."""

    node_id: int
    directory_id: Uuid
    epoch: int


def asker_of(request: RaftRequest) -> Asker:
    """The sender of a request. A new kind of request needs a case here."""
    match request:
        case VoteRequest():
            return Asker(request.candidate_id, request.candidate_directory_id, request.candidate_epoch)
        case FetchRequest() | FetchSnapshotRequest():
            return Asker(request.replica_id, request.replica_directory_id, request.leader_epoch)
        case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
            return Asker(request.leader_id, ZERO_UUID, request.leader_epoch)
        case _:
            assert_never(request)


def is_given_up(recovered: Recovered, own_epoch: int, asker: Asker) -> bool:
    """Whether the sender was given up when the majority was lost. A message without a directory is judged by its id and
    its epoch: a successor on a new disk already knows an epoch of after the recovery."""
    is_old = own_epoch - asker.epoch >= RECOVERY_EPOCH_JUMP
    without_disk = asker.directory_id == ZERO_UUID and recovered.has_lost(asker.node_id) and is_old
    return without_disk or recovered.refuses(asker.node_id, asker.directory_id)


def may_hear(recovered: Recovered, own_epoch: int, asker: Asker) -> bool:
    """Whether an answer may tell ``own_epoch`` and its leader.

    A sender that names this epoch knows it already. Every other sender must be known not to be a lost replica, and for
    that this node must have read its log up to the last recovery.
    """
    if recovered.refuses(asker.node_id, asker.directory_id):
        return False
    if asker.epoch == own_epoch:
        return True
    may_be_lost = asker.directory_id == ZERO_UUID and recovered.has_lost(asker.node_id)
    return not may_be_lost and not may_lack_a_recovery(recovered, own_epoch)


def may_lack_a_recovery(recovered: Recovered, own_epoch: int) -> bool:
    """Whether the log may hold a recovery that this node has not read: its epoch is far above the last epoch read."""
    return own_epoch - recovered.read_epoch >= RECOVERY_EPOCH_JUMP
