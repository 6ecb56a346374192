"""Every role hears every message, with every kind of field: it never raises, answers once, and stays lawful.

The idea is h2's: each pair of state and input ends in a legal state or in an error response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest
from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft import messages as m
from migrator.raft.messages import EpochOffset, RaftRequest, RaftResponse
from migrator.raft.states import Role
from tests.raft.support.cluster import CLUSTER_ID, Cluster, Envelope

EPOCHS = (-1, 0, 1, 2, 3, 9, 2**31 - 1)
NODES = (-1, 1, 2, 3, 7)
OFFSETS = (-1, 0, 3, 4, 5, 100, 2**63 - 1)
ENDS = tuple(EpochOffset(epoch, offset) for epoch, offset in product((-1, 0, 2, 9), (-1, 0, 3, 100)))
ERRORS = (
    ErrorCode.none,
    ErrorCode.unknown_server_error,
    ErrorCode.not_leader_or_follower,
    ErrorCode.broker_not_available,
    ErrorCode.cluster_authorization_failed,
    ErrorCode.invalid_request,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.snapshot_not_found,
    ErrorCode.position_out_of_range,
    ErrorCode.inconsistent_cluster_id,
    ErrorCode.invalid_voter_key,
)
NONE = ErrorCode.none


def _unattached() -> Cluster:
    return _prepared()


def _candidate() -> Cluster:
    cluster = _prepared()
    cluster.campaign(1)
    return cluster


def _leader() -> Cluster:
    cluster = _candidate()
    cluster.deliver(lambda envelope: not isinstance(envelope.body, m.BeginQuorumEpochResponse))
    cluster.propose(1)
    return cluster


def _resigned() -> Cluster:
    cluster = _leader()
    cluster[1].step(ev.Resign(cluster[1].raft.epoch))
    while cluster[1].raft.role is Role.LEADER:
        cluster.tick(1)  # nobody has what was proposed, so it waits for a successor for a while
    return cluster


def _follower() -> Cluster:
    cluster = _prepared()
    cluster.campaign(2)
    cluster.deliver()
    return cluster


def _downloading() -> Cluster:
    cluster = _prepared()
    cluster[2].write((2, 4))
    cluster[2].boot()
    cluster.cut.add(1)
    cluster.elect(2)
    cluster[2].take_snapshot(8)
    cluster.cut.clear()
    cluster.wait(900)
    cluster.deliver(lambda envelope: not isinstance(envelope.body, m.FetchSnapshotResponse))
    return cluster


def _prepared() -> Cluster:
    """Three voters and an observer with logs up to 4 in epochs 1 and 2; node 1 will be spoken to."""
    cluster = Cluster(3, 1)
    for node_id in (1, 2, 3, 4):
        cluster[node_id].write((1, 2), (2, 2))
        cluster[node_id].boot()
    return cluster


ROLES: dict[str, tuple[Callable[[], Cluster], Role]] = {
    "unattached": (_unattached, Role.UNATTACHED),
    "candidate": (_candidate, Role.CANDIDATE),
    "leader": (_leader, Role.LEADER),
    "resigned": (_resigned, Role.RESIGNED),
    "follower": (_follower, Role.FOLLOWER),
}


def _requests() -> Iterator[RaftRequest]:
    for cluster_id in (None, CLUSTER_ID, "another"):
        yield m.VoteRequest(cluster_id, 1, 5, 2, 2, 4)
        yield m.BeginQuorumEpochRequest(cluster_id, 1, 2, 5)
        yield m.EndQuorumEpochRequest(cluster_id, 2, 5, (1, 3))
        yield m.FetchRequest(cluster_id, 2, 3, 4, 2, 500, 1000)
        yield m.FetchSnapshotRequest(cluster_id, 2, 3, EpochOffset(2, 4), 0, 1000)
    for epoch, node, offset in product(EPOCHS, NODES, OFFSETS):
        yield m.VoteRequest(None, 1, epoch, node, 2, offset)
        yield m.VoteRequest(None, node, epoch, 2, epoch - 1, offset)
        yield m.FetchRequest(None, node, epoch, offset, 2, 500, 1000)
        yield m.FetchRequest(None, 2, 3, offset, epoch, 0, 0)
        yield m.FetchSnapshotRequest(None, node, epoch, EpochOffset(2, 4), offset, 1000)
    for epoch, node, other in product(EPOCHS, NODES, NODES):
        yield m.BeginQuorumEpochRequest(None, other, node, epoch)
        yield m.EndQuorumEpochRequest(None, node, epoch, (other, 1))
    for end in ENDS:
        yield m.FetchSnapshotRequest(None, 2, 3, end, 0, 0)


def _responses(kind: type, epoch: int, leader: int) -> Iterator[RaftResponse]:
    """Responses of a kind; the loops are smaller than those of requests since each needs a request to answer."""
    for error in ERRORS:
        yield from _bodies(kind, NONE, error, leader, epoch)
        yield from _bodies(kind, error, NONE, leader, epoch)


def _bodies(kind: type, top: ErrorCode, error: ErrorCode, leader: int, epoch: int) -> Iterator[RaftResponse]:
    if kind is m.VoteRequest:
        yield m.VoteResponse(top, error, leader, epoch, vote_granted=True)
        yield m.VoteResponse(top, error, leader, epoch, vote_granted=False)
    elif kind is m.BeginQuorumEpochRequest:
        yield m.BeginQuorumEpochResponse(top, error, leader, epoch)
    elif kind is m.EndQuorumEpochRequest:
        yield m.EndQuorumEpochResponse(top, error, leader, epoch)
    elif kind is m.FetchRequest:
        yield m.FetchResponse(top, error, leader, epoch, 2**62, 0)
        if top == error == NONE:
            for end in ENDS:
                yield m.FetchResponse(NONE, NONE, leader, epoch, 4, 0, diverging=end)
                yield m.FetchResponse(NONE, NONE, leader, epoch, 4, 0, snapshot_id=end)
    else:
        for position, size in product((-1, 0, 7), (-1, 0, 5, 7)):
            yield m.FetchSnapshotResponse(top, error, leader, epoch, EpochOffset(2, 8), size, position, b"12345")
            yield m.FetchSnapshotResponse(top, error, leader, epoch, EpochOffset(0, 0), size, position, b"")


def _check(cluster: Cluster, before: int) -> None:
    raft, log = cluster[1].raft, cluster[1].log
    assert raft.epoch >= before
    assert raft.high_watermark <= log.end_offset() or cluster[1].syncs
    assert raft.role in Role
    deadline = raft.deadline()
    assert deadline is None or deadline > cluster.now, "the node would spin"
    assert raft.epoch in {before, cluster[1].disk.election.epoch}, "an epoch that was entered is on disk"


@pytest.mark.parametrize("role", ROLES)
def test_every_role_answers_every_request_once(role: str) -> None:
    prepare, expected = ROLES[role]
    cluster = prepare()
    assert cluster[1].raft.role is expected
    for request in _requests():
        if cluster[1].raft.role is not expected or cluster[1].raft.epoch > 3:
            cluster = prepare()
        before = cluster[1].raft.epoch
        context = Envelope(9, 1, 0, request)
        effects = cluster[1].step(ev.RequestReceived(context, request))
        answers = [
            e for e in effects if isinstance(e, fx.Reply | fx.ReadLog | fx.ReadSnapshot) and e.context is context
        ]
        if not answers:  # parked
            cluster.now += 501
            effects = cluster[1].step(ev.Tick())
            answers = [
                e for e in effects if isinstance(e, fx.Reply | fx.ReadLog | fx.ReadSnapshot) and e.context is context
            ]
            assert isinstance(request, m.FetchRequest)
        assert len(answers) == 1, request
        cluster.queue.clear()
        _check(cluster, before)


@pytest.mark.parametrize("role", [*ROLES, "downloading"])
def test_every_role_survives_every_response(role: str) -> None:
    prepare = _downloading if role == "downloading" else ROLES[role][0]
    heard = 0
    for epoch, leader in product((-1, 2, 3, 9), NODES):
        cluster = prepare()
        start = (cluster[1].raft.role, cluster[1].raft.epoch)
        outstanding = _outstanding(cluster)
        for asked in outstanding:
            for response in _responses(type(asked.request), epoch, leader):
                if (cluster[1].raft.role, cluster[1].raft.epoch) != start:
                    cluster = prepare()
                now_asked = [e for e in _outstanding(cluster) if type(e.request) is type(asked.request)]
                if not now_asked:
                    cluster = prepare()
                    now_asked = [e for e in _outstanding(cluster) if type(e.request) is type(asked.request)]
                before = cluster[1].raft.epoch
                cluster[1].step(ev.ResponseReceived(now_asked[0].peer, now_asked[0].correlation, response))
                _check(cluster, before)
                heard += 1
    assert (heard > 0) == (role != "unattached"), "a voter without a leader asks nobody anything"


def _outstanding(cluster: Cluster) -> list[fx.Send]:
    """Requests of node 1 whose answers its core still expects."""
    sends = [effect for effect in cluster[1].effects if isinstance(effect, fx.Send)]
    peers = cluster[1].raft._quorum.peers._peers
    return [send for send in sends if send.peer in peers and peers[send.peer].correlation == send.correlation]
