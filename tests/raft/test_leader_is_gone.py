"""A leader's process that dies breaks its connections and refuses new ones: then no time-out need pass. One of the two
alone unseats nobody, and nor does one follower that sees both while the others hear the leader."""

from __future__ import annotations

from typing import Any

import pytest

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.departure import QUESTIONS_MAX, SPACING_MS, Departure
from migrator.raft.events import Failure
from migrator.raft.messages import VoteRequest, VoteResponse
from migrator.raft.states import Role
from migrator.raft.voter_changes import AddVoter
from tests.raft.support.cluster import Cluster
from tests.simulation.planning import entry

ELECTION_MS, FETCH_MS = 1_000, 2_000
KINDS = pytest.mark.parametrize("pre_votes", [True, False], ids=["pre-votes always", "pre-votes in early elections"])


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


def followers(cluster: Cluster, leader: int) -> list[int]:
    return sorted(set(cluster.members) - {leader})


def ms_until_another_leads(cluster: Cluster, before: int) -> int:
    since = cluster.now
    while not set(leaders(cluster)) - {before}:
        cluster.wait(10)
        assert cluster.now - since < 10 * FETCH_MS, "nobody is elected"
    return cluster.now - since


def questions(cluster: Cluster, node_id: int) -> int:
    """How often a node has asked for pre-votes so far."""
    roles = [effect.role for effect in cluster[node_id].effects if isinstance(effect, fx.RoleChanged)]
    return roles.count(Role.PROSPECTIVE)


def lose(cluster: Cluster, node_id: int, leader: int) -> None:
    """Its connection to the leader breaks, and the leader's port is closed to it."""
    cluster.kept_apart.add((node_id, leader))
    cluster.break_connection(node_id, leader)


def assert_still_led(cluster: Cluster, leader: int, epoch: int) -> None:
    assert {member.raft.epoch for member in cluster.members.values()} == {epoch}
    assert leaders(cluster) == [leader]


@KINDS
@pytest.mark.parametrize("voters", [3, 4, 5])
def test_the_others_elect_a_leader_before_the_fetch_time_out(voters: int, *, pre_votes: bool) -> None:
    cluster, leader = led_cluster(voters, asks_for_pre_votes=pre_votes)
    cluster.end(leader)
    assert ms_until_another_leads(cluster, leader) < ELECTION_MS


def test_two_that_ask_at_the_same_moment_do_not_split_the_votes() -> None:
    """The third voter is dead: nobody would win before an election time-out is over."""
    cluster, leader = led_cluster(3)
    cluster.end(leader)
    for _ in range(2):
        cluster.now += 200
        for node_id in followers(cluster, leader):
            cluster[node_id].step(ev.Tick())
            cluster[node_id].step(ev.RequestFailed(leader, cluster[node_id].asked[leader], Failure.REFUSED))
    assert [cluster[it].raft.role for it in followers(cluster, leader)] == [Role.PROSPECTIVE] * 2
    assert ms_until_another_leads(cluster, leader) < ELECTION_MS // 2


@pytest.mark.parametrize("behind", [0, 1], ids=["the first lacks records", "the second lacks records"])
def test_a_follower_that_lacks_records_does_not_cost_the_time_out(behind: int) -> None:
    """Under load the others' logs differ: whoever has less asks in vain, and whoever has more asks again."""
    cluster, leader = led_cluster(3)
    late, whole = followers(cluster, leader)[:: 1 - 2 * behind]
    cluster.cut.add(late)
    cluster.propose(leader)
    cluster.deliver()
    assert cluster[late].log.end_offset() < cluster[whole].log.end_offset()
    cluster.end(leader)
    cluster.cut.clear()
    assert ms_until_another_leads(cluster, leader) < ELECTION_MS
    assert leaders(cluster) == [whole]


def test_who_does_not_answer_at_all_may_be_slow_so_the_time_out_passes() -> None:
    """A machine that is gone does not refuse, and a process that hangs keeps its connections."""
    cluster, leader = led_cluster(3, asks_for_pre_votes=True)
    cluster.cut.add(leader)
    assert ms_until_another_leads(cluster, leader) > FETCH_MS - ELECTION_MS


def test_a_broken_connection_alone_is_no_reason() -> None:
    """A leader closes one of too many connections, or one with an old certificate; or its machine dies."""
    cluster, leader = led_cluster(3)
    for node_id in followers(cluster, leader):
        cluster.break_connection(node_id, leader)
    cluster.cut.add(leader)
    assert ms_until_another_leads(cluster, leader) > FETCH_MS - ELECTION_MS


def test_a_refused_port_alone_is_no_reason() -> None:
    """kube-proxy, a probe that fails, a firewall: nothing says that the leader was there a moment ago."""
    cluster, leader = led_cluster(3)
    cluster.kept_apart |= {(node_id, leader) for node_id in followers(cluster, leader)}
    assert ms_until_another_leads(cluster, leader) > FETCH_MS - ELECTION_MS


def test_peers_that_know_no_pre_votes_are_not_asked_for_votes_before_the_time_out() -> None:
    cluster, leader = led_cluster(3, asks_for_pre_votes=True)
    cluster.without_pre_votes = set(cluster.members)
    cluster.end(leader)
    assert ms_until_another_leads(cluster, leader) > FETCH_MS - ELECTION_MS


@KINDS
def test_a_connection_that_only_this_follower_loses_costs_nobody_the_leader(*, pre_votes: bool) -> None:
    """A sidecar that restarts, a connection limit: the others refuse, and the follower waits as ever, then follows."""
    cluster, leader = led_cluster(3, asks_for_pre_votes=pre_votes)
    lonely, epoch = followers(cluster, leader)[0], cluster[leader].raft.epoch
    before = questions(cluster, lonely)
    lose(cluster, lonely, leader)
    cluster.wait(FETCH_MS - ELECTION_MS)
    assert questions(cluster, lonely) == before + QUESTIONS_MAX
    assert_still_led(cluster, leader, epoch)
    cluster.kept_apart.clear()
    cluster.wait(ELECTION_MS // 2)
    assert (cluster[lonely].raft.role, cluster[lonely].raft.leader_id) == (Role.FOLLOWER, leader)
    assert_still_led(cluster, leader, epoch)


def test_one_early_election_in_a_fetch_time_out_with_few_questions() -> None:
    """However often the connection breaks, and whatever the leader answers in between."""
    cluster, leader = led_cluster(3)
    lonely, epoch = followers(cluster, leader)[0], cluster[leader].raft.epoch
    before, end = questions(cluster, lonely), cluster.now + FETCH_MS - ELECTION_MS // 2
    times = 0
    while cluster.now < end:
        lose(cluster, lonely, leader)
        cluster.wait(4 * SPACING_MS)
        cluster.kept_apart.clear()
        cluster.propose(leader)
        cluster.wait(4 * SPACING_MS)
        times += not cluster[lonely].raft._quorum.departure.is_connection_lost
    assert times > 1, "the leader answers in between"
    assert 0 < questions(cluster, lonely) - before <= QUESTIONS_MAX
    assert_still_led(cluster, leader, epoch)


def test_a_leader_that_lets_everybody_wait_for_a_moment_keeps_its_leadership() -> None:
    """Its listener is opened anew: all connections break, and a connection is refused once to each."""
    cluster, leader = led_cluster(3)
    epoch = cluster[leader].raft.epoch
    for node_id in followers(cluster, leader):
        lose(cluster, node_id, leader)
    cluster.wait(SPACING_MS // 2)
    cluster.kept_apart.clear()
    cluster.wait(2 * FETCH_MS)
    assert_still_led(cluster, leader, epoch)


def test_a_leader_that_comes_back_within_milliseconds_hands_over_as_after_any_restart() -> None:
    cluster, leader = led_cluster(3)
    epoch = cluster[leader].raft.epoch
    cluster.end(leader)
    cluster.wait(SPACING_MS // 2)
    cluster.gone.clear()
    cluster[leader].boot()
    assert ms_until_another_leads(cluster, leader) < ELECTION_MS
    cluster.wait(FETCH_MS)
    assert {member.raft.epoch for member in cluster.members.values()} == {epoch + 1}


def pre_vote_of(cluster: Cluster, asker: int, voter: int) -> bool:
    """Whether a voter would vote for another one now."""
    asking, asked = cluster[asker], cluster[voter]
    end = asking.raft._quorum.log_end()
    keys = (asking.key.directory_id, asked.key.directory_id)
    request = VoteRequest(
        asking.config.cluster_id, voter, asking.raft.epoch, asker, end.epoch, end.offset, *keys, pre_vote=True
    )
    answer = cluster.ask(voter, request)
    assert isinstance(answer, VoteResponse)
    return answer.vote_granted


def test_a_vote_is_promised_only_by_whoever_saw_the_same_and_until_the_leader_answers() -> None:
    cluster, leader = led_cluster(3)
    asker, voter = followers(cluster, leader)
    cluster.kept_apart.add((asker, leader))
    assert not pre_vote_of(cluster, asker, voter)
    cluster.kept_apart.add((voter, leader))
    cluster.break_connection(voter, leader)
    assert not pre_vote_of(cluster, asker, voter), "no refusal yet"
    while cluster[voter].raft._quorum.departure.refusals < 1:
        cluster.wait(1)
    assert not pre_vote_of(cluster, asker, voter), "one refusal"
    while cluster[voter].raft._quorum.departure.refusals < 2:
        cluster.wait(1)
    assert pre_vote_of(cluster, asker, voter)
    cluster.kept_apart.clear()
    cluster.wait(ELECTION_MS)
    assert not pre_vote_of(cluster, asker, voter), "the leader has answered"


def test_evidence_does_not_outlive_the_epoch() -> None:
    cluster, leader = led_cluster(3)
    for node_id in followers(cluster, leader):
        lose(cluster, node_id, leader)
    ms_until_another_leads(cluster, leader)
    cluster.wait(SPACING_MS)
    assert {member.raft._quorum.departure.is_evident for member in cluster.members.values()} == {False}


def test_refusals_count_only_after_a_connection_and_apart_from_each_other() -> None:
    seen, evident = Departure(), []
    for event in (0, "lost", 10, 10 + SPACING_MS - 1, 10 + SPACING_MS, "lost again"):
        seen.refused(event) if isinstance(event, int) else seen.connection_lost()
        evident.append(seen.is_evident)
    assert evident == [False, False, False, False, True, False]


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


def test_an_observer_never_asks_and_looks_for_the_next_leader_at_once() -> None:
    cluster, leader = led_cluster(3, observers=1, asks_for_pre_votes=True, bootstrap=(-2, -3, -4))
    cluster.end(leader)
    ms_until_another_leads(cluster, leader)
    cluster.wait(ELECTION_MS // 2)
    assert not questions(cluster, 4)
    assert [cluster[4].raft.leader_id] == leaders(cluster)


def test_an_observer_that_the_leader_refuses_promises_no_vote() -> None:
    """It may be a voter without knowing it yet. It asks others meanwhile, who say that the leader leads."""
    cluster, leader = led_cluster(3, observers=1)
    asker, member = followers(cluster, leader)[0], cluster[4]
    cluster.kept_apart.add((4, leader))
    member.step(ev.RequestFailed(leader, member.asked[leader], Failure.REFUSED))
    cluster.wait(ELECTION_MS)
    assert not pre_vote_of(cluster, asker, 4)


def test_who_shuts_down_asks_for_no_election() -> None:
    cluster, leader = led_cluster(3)
    node_id = followers(cluster, leader)[0]
    before = questions(cluster, node_id)
    cluster[node_id].step(ev.Shutdown())
    lose(cluster, node_id, leader)
    cluster.wait(ELECTION_MS)
    assert questions(cluster, node_id) == before


def test_a_follower_that_reaches_the_leader_again_promises_no_vote_while_its_fetch_waits_for_news() -> None:
    """Two proxies restart one after the other: at each moment a majority reaches the leader."""
    cluster, leader = led_cluster(3, asks_for_pre_votes=True)
    first, second = followers(cluster, leader)
    epoch = cluster[leader].raft.epoch
    cluster.wait(700)
    lose(cluster, first, leader)
    cluster.wait(130)
    cluster.kept_apart.discard((first, leader))
    cluster.wait(120)
    lose(cluster, second, leader)
    cluster.wait(400)
    assert leaders(cluster) == [leader]
    assert {member.raft.epoch for member in cluster.members.values()} == {epoch}


@pytest.mark.parametrize(("voters", "down_ms"), [(2, 130), (3, 600)], ids=["of two", "of three, one dead"])
def test_a_leader_that_comes_back_while_it_is_asked_about_is_heard(voters: int, down_ms: int) -> None:
    """It says EndQuorumEpoch: the others need not wait for an election time-out."""
    cluster, leader = led_cluster(voters, asks_for_pre_votes=True)
    others = followers(cluster, leader)
    cluster.cut.update(others[1:])
    epoch = cluster[leader].raft.epoch
    cluster.wait(700)
    cluster.end(leader)
    cluster.wait(down_ms)
    assert cluster[others[0]].raft.role is Role.PROSPECTIVE
    cluster.gone.discard(leader)
    cluster[leader].boot()
    cluster[leader].step(ev.Tick())
    cluster.wait(ELECTION_MS // 2)
    assert [it for it in leaders(cluster) if cluster[it].raft.epoch > epoch]
