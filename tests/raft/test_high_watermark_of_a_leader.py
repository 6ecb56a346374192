"""A leader announces no high watermark from before its epoch (``LeaderState.highWatermark``)."""

from __future__ import annotations

from tests.raft.support.cluster import Cluster, Member

UNKNOWN = -1


def shown(member: Member) -> int:
    return member.raft.status(member.cluster.now).high_watermark


def test_a_new_leader_does_not_know_what_is_committed_before_its_own_epoch_is() -> None:
    cluster = Cluster(3)
    first = cluster.elect(1)
    cluster.propose(1, 5)
    cluster.wait(1_000)
    committed = shown(first)
    assert committed == first.log.end_offset()
    assert shown(cluster[2]) == committed, "a follower knows what its leader has said"
    cluster.cut = {1}
    cluster.campaign(2)
    cluster.deliver(lambda envelope: "Fetch" not in type(envelope.body).__name__)
    new = cluster[2]
    assert new.raft.epoch_start_offset is not None
    assert shown(new) == UNKNOWN
    cluster.wait(5_000)
    assert shown(new) > committed


def test_a_leader_that_was_restarted_alone_does_not_say_zero() -> None:
    cluster = Cluster(1)
    leader = cluster.elect(1)
    cluster.propose(1, 5)
    cluster.wait(1_000)
    leader.holds_syncs = True
    leader.boot()
    cluster.campaign(1)
    assert shown(leader) == UNKNOWN
    leader.finish_syncs()
    assert shown(leader) == leader.log.end_offset()
