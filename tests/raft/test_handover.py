"""A leader that hands over lets its successor fetch the rest first: under load every voter lacks some (thesis 3.10)."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.states import Role
from migrator.raft.voter_changes import RemoveVoter
from tests.raft.support.cluster import Cluster

ELECTION_MS = 1_000


def under_load() -> tuple[Cluster, int, int]:
    """A quorum of four whose leader has just appended, a voter that does not have it on disk, and others that do."""
    cluster = Cluster(4, dynamic=True, election_timeout_ms=ELECTION_MS, asks_for_pre_votes=True)
    cluster.wait(5 * ELECTION_MS)
    (leader,) = (it for it, member in cluster.members.items() if member.raft.role is Role.LEADER)
    behind = min(set(cluster.members) - {leader})
    cluster[behind].holds_syncs = True
    cluster.propose(leader)
    cluster.deliver()
    return cluster, leader, behind


def ended(cluster: Cluster, node_id: int) -> bool:
    return cluster[node_id].raft.role is not Role.LEADER


def test_the_successor_has_the_whole_log_before_the_leader_resigns_and_wins_at_once() -> None:
    cluster, leader, behind = under_load()
    epoch = cluster[leader].raft.epoch
    cluster[leader].step(ev.Resign(epoch, behind))
    assert not ended(cluster, leader), "its successor would lose the election"
    cluster[behind].holds_syncs = False
    cluster[behind].finish_syncs()
    cluster.deliver()
    assert cluster[behind].raft.role is Role.LEADER
    assert cluster[behind].raft.epoch == epoch + 1


def test_a_leader_that_hands_over_appends_nothing_and_changes_no_voters() -> None:
    cluster, leader, behind = under_load()
    member = cluster[leader]
    member.step(ev.Resign(member.raft.epoch, behind))
    end = member.log.end_offset()
    cluster.propose(leader)
    (refused,) = member.step(ev.ChangeVoters(RemoveVoter(cluster[behind].key)))
    assert isinstance(refused, fx.VotersRefused)
    assert refused.refusal.error is ErrorCode.not_leader_or_follower
    assert member.log.end_offset() == end


@pytest.mark.parametrize("is_shutdown", [False, True])
def test_it_resigns_soon_although_nobody_catches_up(*, is_shutdown: bool) -> None:
    cluster, leader, _ = under_load()
    cluster.propose(leader)
    cluster.cut.update(set(cluster.members) - {leader})
    began = cluster.now
    cluster[leader].step(ev.Shutdown() if is_shutdown else ev.Resign(cluster[leader].raft.epoch))
    while not ended(cluster, leader):
        cluster.tick(leader)
    assert cluster.now - began <= ELECTION_MS // 2


def test_a_follower_keeps_its_turn_when_the_first_successor_is_not_elected() -> None:
    """The others have what the first one lacks: the second stands after its short wait, not after a time-out."""
    cluster, leader, behind = under_load()
    cluster[behind].holds_syncs = False
    cluster[behind].finish_syncs()
    cluster.cut.add(behind)
    cluster.propose(leader)
    cluster.deliver()
    cluster.cut.clear()
    epoch = cluster[leader].raft.epoch
    cluster[leader].step(ev.Resign(epoch, behind))
    while not ended(cluster, leader):
        cluster.tick(leader)
    cluster.deliver()
    assert (cluster[behind].raft.epoch, cluster[behind].raft.role) == (epoch + 1, Role.CANDIDATE)
    began = cluster.now
    while not any(it != leader and member.raft.role is Role.LEADER for it, member in cluster.members.items()):
        cluster.wait(10)
    assert cluster.now - began < ELECTION_MS
