"""How long a leader has heard nothing of a replica, also of one that it never heard."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft.messages import BeginQuorumEpochRequest, FetchRequest, FetchSnapshotRequest
from migrator.raft.progress import ReplicaStatus
from migrator.records.uuid import Uuid
from tests.raft.support.cluster import CLUSTER_ID, Cluster


def row(cluster: Cluster, leader: int, replica_id: int) -> ReplicaStatus:
    info = cluster[leader].raft.status(cluster.now)
    return next(each for each in (*info.voters, *info.observers) if each.replica_id == replica_id)


def test_a_voter_that_was_dead_before_the_election_is_silent_since_then() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.wait(60_000)
    cluster.cut = {1}
    cluster.elect(2)
    elected = cluster.now
    cluster.wait(5_000)
    assert (row(cluster, 2, 1).heard_ms, row(cluster, 2, 1).awaited_ms) == (-1, elected)
    assert row(cluster, 2, 3).heard_ms >= elected


def test_only_a_voter_that_does_not_fetch_is_told_again_who_leads() -> None:
    """All of them were told once a second, for as long as the leader led."""
    cluster = Cluster(3)
    leader = cluster.elect(1)
    cluster.wait(1_500)
    leader.effects.clear()
    cluster.cut = {3}
    cluster.wait(10_000)
    sent = [effect for effect in leader.effects if isinstance(effect, fx.Send)]
    assert {effect.peer for effect in sent if isinstance(effect.request, BeginQuorumEpochRequest)} == {3}


def test_a_voter_that_downloads_a_snapshot_is_heard() -> None:
    cluster = Cluster(3)
    cluster.cut = {3}
    leader = cluster.elect(1)
    cluster.propose(1, 4)
    cluster.deliver()
    snapshot = leader.take_snapshot(5)
    cluster.wait(60_000)
    assert row(cluster, 1, 3).heard_ms == -1
    part = FetchSnapshotRequest(CLUSTER_ID, 3, leader.raft.epoch, snapshot, 0, 100)
    cluster.ask(1, part)
    assert (row(cluster, 1, 3).heard_ms, row(cluster, 1, 3).last_fetch_ms) == (cluster.now, -1)


def test_an_observer_that_downloads_a_snapshot_is_known_and_live() -> None:
    cluster = Cluster(1)
    leader = cluster.elect(1)
    cluster.propose(1, 4)
    snapshot = leader.take_snapshot(5)
    disk = Uuid(b"the disk of nine")
    fetch = FetchRequest(CLUSTER_ID, 9, leader.raft.epoch, 0, 0, 0, 100, disk)
    assert cluster.ask(1, fetch).error is ErrorCode.none
    cluster.ask(1, FetchSnapshotRequest(CLUSTER_ID, 9, leader.raft.epoch, snapshot, 0, 100, disk))
    assert row(cluster, 1, 9).heard_ms == cluster.now
