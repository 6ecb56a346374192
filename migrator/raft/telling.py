"""Who may hear from this node which epoch it knows, and who leads: one rule for every answer to a replica.

Replicas that were given up when the majority was lost have a majority of the old voters. If one of them heard of our
epoch, they would elect a leader above it (docs/adr/0024-a-lost-majority.md).
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
LEAP = EPOCH_STEP // 2
"""So far the epoch goes only by a recovery. It seems less than `EPOCH_STEP` to whoever has read records of the lost
replicas: they go on among themselves, in ever higher epochs of their own."""


@value
class Asker:
    """Who asks, and the epoch that the request names, which is no news to it. ``directory_id`` is zero where the
    message has no room for one: then the id may be that of a lost replica, or of the one that came in its place."""

    node_id: int
    directory_id: Uuid
    epoch: int


def asker_of(request: RaftRequest) -> Asker:
    """Who has sent a request. A new kind of request needs a case here."""
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
    """Whether the asker was given up when the majority was lost, as far as its message says who it is. Where it names
    no directory, its id and an epoch from before the recovery tell: a replica on a new disk has a later one."""
    is_old = own_epoch - asker.epoch >= LEAP
    without_disk = asker.directory_id == ZERO_UUID and recovered.has_lost(asker.node_id) and is_old
    return without_disk or recovered.refuses(asker.node_id, asker.directory_id)


def may_hear(recovered: Recovered, own_epoch: int, asker: Asker) -> bool:
    """Whether an answer may tell ``own_epoch`` and its leader.

    Whoever names this epoch knows it. Anybody else must be known to be no lost replica. So a node must have read the
    log far enough, too.
    """
    if recovered.refuses(asker.node_id, asker.directory_id):
        return False
    if asker.epoch == own_epoch:
        return True
    may_be_lost = asker.directory_id == ZERO_UUID and recovered.has_lost(asker.node_id)
    return not may_be_lost and not may_lack_a_recovery(recovered, own_epoch)


def may_lack_a_recovery(recovered: Recovered, own_epoch: int) -> bool:
    """Whether the epoch has made a leap beyond what this node has read: a recovery lies there, as a rule."""
    return own_epoch - recovered.read_epoch >= LEAP
