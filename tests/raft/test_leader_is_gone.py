"""The machine of the leader says that nobody listens there: its process has ended, and no time-out need pass."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.raft import events as ev
from migrator.raft.states import Role
from migrator.raft.voter_changes import AddVoter
from tests.raft.support.cluster import Cluster
from tests.simulation.planning import entry

ELECTION_MS, FETCH_MS = 1_000, 2_000


def led_cluster(voters: int, *, observers: int = 0, **settings: Any) -> tuple[Cluster, int]:
    """A cluster that is at rest, and who leads it."""
    cluster = Cluster(
        voters, observers, dynamic=True, election_timeout_ms=ELECTION_MS, fetch_timeout_ms=FETCH_MS, **settings
    )
    cluster.wait(5 * FETCH_MS)
    (leader,) = leaders(cluster)
    assert all(member.raft.leader_id == leader for member in cluster.members.values())
    return cluster, leader


def leaders(cluster: Cluster) -> list[int]:
    return [it for it, member in cluster.members.items() if member.raft.role is Role.LEADER and it not in cluster.gone]


def ms_until_another_leads(cluster: Cluster, before: int) -> int:
    since = cluster.now
    while not set(leaders(cluster)) - {before}:
        cluster.wait(10)
        assert cluster.now - since < 10 * FETCH_MS, "nobody is elected"
    return cluster.now - since


@pytest.mark.parametrize("voters", [3, 4, 5])
def test_the_others_elect_a_leader_before_the_fetch_time_out(voters: int) -> None:
    cluster, leader = led_cluster(voters, asks_for_pre_votes=True)
    cluster.end(leader)
    assert ms_until_another_leads(cluster, leader) < ELECTION_MS


def test_who_does_not_answer_at_all_may_be_slow_so_the_time_out_passes() -> None:
    cluster, leader = led_cluster(3, asks_for_pre_votes=True)
    cluster.cut.add(leader)
    assert ms_until_another_leads(cluster, leader) > FETCH_MS - ELECTION_MS


def test_without_pre_votes_the_time_out_passes() -> None:
    cluster, leader = led_cluster(3)
    cluster.end(leader)
    assert ms_until_another_leads(cluster, leader) > FETCH_MS - ELECTION_MS


def test_one_voter_that_a_firewall_keeps_from_the_leader_unseats_nobody_and_follows_again() -> None:
    cluster, leader = led_cluster(3, asks_for_pre_votes=True)
    lonely = min(set(cluster.members) - {leader})
    epoch, roles = cluster[leader].raft.epoch, set()
    cluster.kept_apart.add((lonely, leader))
    for _ in range(5 * FETCH_MS // 10):
        cluster.wait(10)
        roles.add(cluster[lonely].raft.role)
    assert Role.PROSPECTIVE in roles
    assert {member.raft.epoch for member in cluster.members.values()} == {epoch}
    assert leaders(cluster) == [leader]
    cluster.kept_apart.clear()
    cluster.wait(2 * FETCH_MS)
    assert (cluster[lonely].raft.role, cluster[lonely].raft.leader_id) == (Role.FOLLOWER, leader)


@pytest.mark.parametrize("is_told", [True, False], ids=["process gone", "machine gone"])
def test_a_voter_that_does_not_know_yet_that_it_is_one_votes_for_who_knows(*, is_told: bool) -> None:
    """Of 1, 2, 3 and 4 three must vote; 4 observes as far as it knows, and others tell it that the old leader leads."""
    cluster, leader = led_cluster(3, observers=1, asks_for_pre_votes=True)
    knows, other = sorted({1, 2, 3} - {leader})
    cluster.cut.update({other, 4})
    cluster[leader].step(ev.ChangeVoters(AddVoter(entry(cluster[4].key))))
    cluster.wait(FETCH_MS // 4)
    assert [cluster[it].voters for it in (knows, other, 4)] == [[1, 2, 3, 4], [1, 2, 3], [1, 2, 3]]
    cluster.cut.clear()
    cluster.end(leader) if is_told else cluster.cut.add(leader)
    assert ms_until_another_leads(cluster, leader) < (ELECTION_MS if is_told else FETCH_MS + 3 * ELECTION_MS)
    cluster.wait(FETCH_MS)
    assert leaders(cluster) == [knows]
    assert cluster[4].voters == [1, 2, 3, 4]


def test_an_observer_looks_for_the_next_leader_at_once() -> None:
    cluster, leader = led_cluster(3, observers=1, asks_for_pre_votes=True, bootstrap=(-2, -3, -4))
    cluster.end(leader)
    ms_until_another_leads(cluster, leader)
    cluster.wait(ELECTION_MS // 2)
    assert [cluster[4].raft.leader_id] == leaders(cluster)
