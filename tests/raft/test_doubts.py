"""A voter that has not heard its leader for a while, although the leader is there."""

from __future__ import annotations

from migrator.raft.states import Role
from tests.raft.support.cluster import Cluster

GLITCH_MS = 1_000


def test_a_voter_whose_pre_vote_its_leader_refuses_follows_on_though_another_voter_is_silent() -> None:
    """Before, it did not fetch until its election time-out, and the leader resigned without a majority."""
    cluster = Cluster(3, dynamic=True, asks_for_pre_votes_once_dynamic=True)
    cluster.wait(6_000)
    (leader,) = [node_id for node_id, member in cluster.members.items() if member.raft.role is Role.LEADER]
    follower, silent = (node_id for node_id in cluster.members if node_id != leader)
    epoch = cluster[leader].raft.epoch
    cluster.cut = {silent, follower}
    cluster.wait(GLITCH_MS)
    cluster.cut = {silent}
    cluster.wait(10_000)
    assert (cluster[leader].raft.role, cluster[leader].raft.epoch) == (Role.LEADER, epoch)
    assert (cluster[follower].raft.role, cluster[follower].raft.epoch) == (Role.FOLLOWER, epoch)
