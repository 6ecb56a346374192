"""Replicas that were given up when the majority was lost: no vote, no records, no place, and nobody follows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.messages import (
    BeginQuorumEpochRequest,
    EpochOffset,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    VoteRequest,
)
from migrator.raft.refused import NOTHING_RECOVERED, Recovered, merged
from migrator.raft.states import Role
from migrator.raft.telling import RECOVERY_EPOCH_JUMP
from migrator.raft.voter_changes import AddVoter
from migrator.raft.voter_set import ReplicaKey
from migrator.records.control import KRaftVoters
from migrator.records.uuid import Uuid
from tests.raft.support.cluster import CLUSTER_ID, Cluster, Member
from tests.simulation.planning import entry

OLD_DISK = Uuid(b"a lost old disk.")
NEW_DISK = Uuid(b"the new own disk")
HIGHER = 50


def recovered_from(cluster: Cluster, node_id: int, *lost: int) -> Member:
    """Start a survivor on the disk that the command left. The others are gone."""
    member = cluster[node_id]
    keys = frozenset(cluster[it].key for it in lost)
    epoch, offset = member.log.last_epoch() + 10, member.log.end_offset()
    member.log.append(cluster.batches.make(offset, epoch, (KRaftVoters((entry(member.key),)),)))
    member.log.synced_end = member.log.end_offset()
    found = Recovered(keys, epoch, member.log.end_offset())
    member.config = replace(member.config, recovered=lambda: found)
    member.boot()
    cluster.queue.clear()
    cluster.cut |= set(lost)
    return member


def survivor() -> tuple[Cluster, Member]:
    """Node 3 of three has been made the only voter, and leads."""
    cluster = Cluster(3, dynamic=True)
    cluster.elect(1)
    cluster.propose(1, 5)
    cluster.wait(600)
    member = recovered_from(cluster, 3, 1, 2)
    member.step(ev.Tick())
    cluster.deliver()
    assert member.raft.role is Role.LEADER
    return cluster, member


def vote(key: ReplicaKey, epoch: int, **fields: Any) -> VoteRequest:
    return VoteRequest(CLUSTER_ID, -1, epoch, key.node_id, epoch - 1, 1_000, key.directory_id, **fields)


def fetch(key: ReplicaKey, epoch: int) -> FetchRequest:
    return FetchRequest(CLUSTER_ID, key.node_id, epoch, 0, 0, 0, 1_000, key.directory_id)


@pytest.mark.parametrize("pre_vote", [False, True])
def test_their_vote_is_refused_and_raises_no_epoch(pre_vote: bool) -> None:
    cluster, member = survivor()
    epoch = member.raft.epoch
    answer: Any = cluster.ask(3, vote(cluster[1].key, epoch + HIGHER, pre_vote=pre_vote))
    assert (answer.error, answer.vote_granted) == (ErrorCode.inconsistent_voter_set, False)
    assert (answer.leader_id, answer.leader_epoch) == (-1, 0), "they could elect one of them above our epoch"
    assert (member.raft.role, member.raft.epoch) == (Role.LEADER, epoch)


def test_they_get_no_records_and_no_snapshot() -> None:
    cluster, member = survivor()
    key, epoch = cluster[1].key, member.raft.epoch
    part = FetchSnapshotRequest(CLUSTER_ID, 1, epoch, EpochOffset(1, 3), 0, 10, key.directory_id)
    for request in (fetch(key, epoch), part):
        answer: Any = cluster.ask(3, request)
        assert (answer.error, answer.leader_epoch) == (ErrorCode.inconsistent_voter_set, 0)
    assert member.raft.status(cluster.now).observers == ()


def test_the_same_id_with_another_disk_is_served() -> None:
    cluster, member = survivor()
    answer: Any = cluster.ask(3, fetch(ReplicaKey(1, NEW_DISK), member.raft.epoch))
    assert answer.error is ErrorCode.none
    assert [row.replica_id for row in member.raft.status(cluster.now).observers] == [1]


def test_they_cannot_join_again() -> None:
    cluster, member = survivor()
    refusal = member.raft.why_not(AddVoter(entry(cluster[1].key)))
    assert refusal is not None
    assert "was given up" in refusal.message
    assert "format it" in refusal.message
    again = member.raft.why_not(AddVoter(entry(ReplicaKey(1, NEW_DISK))))
    assert again is None


def test_a_sole_voter_follows_none_of_them() -> None:
    cluster, member = survivor()
    epoch = member.raft.epoch
    answer: Any = cluster.ask(3, BeginQuorumEpochRequest(CLUSTER_ID, 3, 1, epoch + HIGHER))
    assert answer.error is ErrorCode.invalid_voter_key
    assert answer.leader_epoch == 0
    assert (member.raft.role, member.raft.epoch) == (Role.LEADER, epoch)
    answer = cluster.ask(3, BeginQuorumEpochRequest(CLUSTER_ID, 3, 1, 1))
    assert (answer.error, answer.leader_epoch) == (ErrorCode.fenced_leader_epoch, 0)


def test_a_sole_voter_that_does_not_lead_yet_follows_none_of_them() -> None:
    cluster = Cluster(3, dynamic=True)
    cluster.elect(1)
    cluster.wait(600)
    member = recovered_from(cluster, 3, 1, 2)
    assert member.raft.role is Role.UNATTACHED
    answer: Any = cluster.ask(3, BeginQuorumEpochRequest(CLUSTER_ID, 3, 1, member.raft.epoch + HIGHER))
    assert answer.error is ErrorCode.invalid_voter_key
    assert member.raft.leader_id in {None, 3}


def test_they_unseat_nobody_when_they_elect_one_of_them() -> None:
    """Two of three come back: they have a majority of the old set."""
    cluster, member = survivor()
    cluster.cut.clear()
    epoch = member.raft.epoch
    for _ in range(20):
        cluster.wait(1_000)
    assert (member.raft.role, member.raft.epoch) == (Role.LEADER, epoch)
    leaders = [it.node_id for it in cluster.members.values() if it.raft.role is Role.LEADER]
    assert len(leaders) == 2, "the lost ones lead themselves, far below"
    assert all(cluster[it].raft.epoch < epoch for it in (1, 2))


def test_a_follower_that_hears_its_leader_does_not_believe_a_lost_id() -> None:
    cluster = Cluster(4, dynamic=True)
    lost = Recovered(frozenset({ReplicaKey(4, OLD_DISK)}), 1, 1)
    cluster[2].config = replace(cluster[2].config, recovered=lambda: lost)
    cluster[2].boot()
    cluster.elect(1)
    cluster.wait(600)
    follower, epoch = cluster[2].raft, cluster[2].raft.epoch
    begin = BeginQuorumEpochRequest(CLUSTER_ID, 2, 4, epoch + HIGHER)
    answer: Any = cluster.ask(2, begin)
    assert answer.error is ErrorCode.invalid_voter_key
    assert (follower.leader_id, follower.epoch) == (1, epoch)
    cluster.cut.add(1)
    cluster.now += 10_000
    answer = cluster.ask(2, begin)
    assert answer.error is ErrorCode.none, "the id has joined with another disk, and the leader is silent"
    assert (follower.leader_id, follower.epoch) == (4, epoch + HIGHER)


def follower_of(cluster: Cluster, recovered: Recovered) -> tuple[Member, fx.Send]:
    """Node 2 follows node 1, and waits for an answer to its fetch; it has just started."""
    member = cluster[2]
    member.config = replace(member.config, recovered=lambda: recovered)
    member.boot()
    epoch = member.raft.epoch + 1
    effects = member.step(ev.RequestReceived(None, BeginQuorumEpochRequest(CLUSTER_ID, 2, 1, epoch)))
    return member, next(effect for effect in effects if isinstance(effect, fx.Send))


@pytest.mark.parametrize(
    ("place", "is_refused"),
    [
        ({"diverging": EpochOffset(1, 3)}, True),
        ({"diverging": EpochOffset(1, 6)}, False),
        ({"snapshot_id": EpochOffset(1, 5)}, True),
        ({"snapshot_id": EpochOffset(0, 20)}, True),
        ({"snapshot_id": EpochOffset(1, 20)}, False),
    ],
)
def test_nobody_takes_the_recovery_out_of_the_log(place: dict[str, EpochOffset], is_refused: bool) -> None:
    cluster = Cluster(3)
    cluster[2].write((1, 8))
    member, send = follower_of(cluster, Recovered(frozenset({ReplicaKey(9, OLD_DISK)}), 1, 6))
    answer = FetchResponse(ErrorCode.none, ErrorCode.none, 1, member.raft.epoch, 0, 0, **place)  # type: ignore[arg-type]
    effects = member.step(ev.ResponseReceived(1, send.correlation, answer))
    blames = [effect.reason for effect in effects if isinstance(effect, fx.BlamePeer)]
    assert bool(blames) is is_refused
    if is_refused:
        assert "recovery of epoch 1" in blames[0]
        assert member.log.end_offset() == 8


@pytest.mark.parametrize("leap", [0, RECOVERY_EPOCH_JUMP])
def test_who_has_followed_the_given_up_is_told_to_be_formatted_again(leap: int) -> None:
    """It joined with an empty disk, and met the lost replicas first. It knows no recovery, but sees the leap."""
    cluster = Cluster(3)
    member = cluster[2]
    member.write((1, 8))
    member, send = follower_of(cluster, Recovered(read_epoch=1))
    answer = FetchResponse(ErrorCode.none, ErrorCode.none, 1, member.raft.epoch, 8, 0)
    (send,) = (
        effect
        for effect in member.step(ev.ResponseReceived(1, send.correlation, answer))
        if isinstance(effect, fx.Send)
    )
    epoch = member.raft.epoch + leap
    if leap:
        effects = member.step(ev.RequestReceived(None, BeginQuorumEpochRequest(CLUSTER_ID, 2, 3, epoch)))
        (send,) = (effect for effect in effects if isinstance(effect, fx.Send))
    leader = 3 if leap else 1
    answer = FetchResponse(ErrorCode.none, ErrorCode.none, leader, epoch, 0, 0, diverging=EpochOffset(1, 3))
    effects = member.step(ev.ResponseReceived(leader, send.correlation, answer))
    (blame,) = (effect.reason for effect in effects if isinstance(effect, fx.BlamePeer))
    assert ("broke the protocol" in blame, "format it again" in blame) == (not leap, bool(leap))
    assert member.log.end_offset() == 8


def test_recoveries_add_up() -> None:
    first, second = ReplicaKey(1, OLD_DISK), ReplicaKey(2, OLD_DISK)
    found = merged([Recovered(frozenset({second}), 20, 9), Recovered(frozenset({first}), 10, 5)])
    assert found == Recovered(frozenset({first, second}), 20, 9)
    assert merged([]) == NOTHING_RECOVERED
