"""`migrator.quorum.require.bootstrap`: voters with empty disks elect nobody before they have fetched."""

from __future__ import annotations

from dataclasses import replace

from migrator.raft.states import Role
from tests.raft.support.cluster import Cluster, Member
from tests.simulation.disk import SimulatedDisk


def wipe(member: Member, *, must_fetch_first: bool) -> None:
    member.config = replace(member.config, must_fetch_first=must_fetch_first)
    member.disk = SimulatedDisk()
    member.log = member.disk.log
    member.boot()


def led(records: int = 5) -> Cluster:
    """Node 1 leads, and all have what it has committed."""
    cluster = Cluster(3)
    cluster.elect(1)
    cluster.propose(1, records)
    cluster.wait(600)
    return cluster


def waits(cluster: Cluster) -> None:
    """Many election time-outs. Who looks for a leader asks often, so this takes several turns."""
    for _ in range(20):
        cluster.wait(1_000)


def leaders(cluster: Cluster) -> list[int]:
    return [node_id for node_id, member in cluster.members.items() if member.raft.role is Role.LEADER]


def test_wiped_voters_elect_no_empty_log() -> None:
    cluster = led()
    cluster.cut.add(1)
    for node_id in (2, 3):
        wipe(cluster[node_id], must_fetch_first=True)
    waits(cluster)
    assert not set(leaders(cluster)) & {2, 3}
    assert cluster[2].raft.role is cluster[3].raft.role is Role.UNATTACHED
    assert cluster[2].log.end_offset() == cluster[3].log.end_offset() == 0


def test_without_the_key_they_do_as_in_kafka() -> None:
    cluster = led()
    cluster.cut.add(1)
    for node_id in (2, 3):
        wipe(cluster[node_id], must_fetch_first=False)
    waits(cluster)
    assert set(leaders(cluster)) & {2, 3}


def test_a_wiped_voter_votes_again_once_it_has_what_is_committed() -> None:
    cluster = led()
    wipe(cluster[3], must_fetch_first=True)
    cluster.wait(5_000)
    assert cluster[3].log.end_offset() == cluster[1].log.end_offset()
    cluster.cut.add(leaders(cluster)[0])
    waits(cluster)
    assert set(leaders(cluster)) - cluster.cut


def test_a_wiped_voter_says_no_while_it_has_nothing() -> None:
    cluster = led()
    wipe(cluster[3], must_fetch_first=True)
    cluster.cut.add(3)
    cluster.cut.add(1)
    cluster.wait(5_000)
    cluster.cut.remove(3)
    waits(cluster)
    assert not set(leaders(cluster)) & {2, 3}
    assert cluster[3].log.end_offset() == 0


def test_a_wiped_voter_that_has_a_part_does_not_stand() -> None:
    cluster = led()
    wipe(cluster[3], must_fetch_first=True)
    cluster[3].holds_syncs = True
    cluster.wait(1_000)
    assert cluster[3].raft.role is Role.FOLLOWER
    cluster.cut |= {1, 2}
    waits(cluster)
    assert cluster[3].raft.role in {Role.FOLLOWER, Role.UNATTACHED}
    assert cluster[3].raft.epoch == 1
