"""An empty disk asks the others: when it takes part in elections, what it asks, and when it stops asking."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.census import Word
from migrator.raft.messages import EpochOffset, OwnLog, VoteRequest, VoteResponse
from migrator.raft.states import ElectionState, Role
from migrator.raft.voter_set import ReplicaKey
from tests.raft.support.cluster import CLUSTER_ID, Cluster, Member
from tests.simulation.disk import SimulatedDisk

NO_PRE_VOTES = VoteResponse(ErrorCode.unsupported_version, ErrorCode.none, -1, -1, vote_granted=False)


def restart(member: Member) -> None:
    """The process begins anew, and finds out from its disk whether it has to fetch first."""
    member.config = replace(member.config, must_fetch_first=member.disk.mark_if_empty())
    member.boot()


def wipe(member: Member) -> None:
    member.disk = SimulatedDisk(member.disk.log.bootstrap)
    member.log = member.disk.log
    restart(member)


def fresh(voters: int = 3, *, dynamic: bool = False, **settings: bool) -> Cluster:
    """Every directory is new, and every voter knows it."""
    cluster = Cluster(voters, dynamic=dynamic, **settings)
    for member in cluster.members.values():
        restart(member)
    return cluster


def leaders(cluster: Cluster) -> list[int]:
    return [node_id for node_id, member in cluster.members.items() if member.raft.role is Role.LEADER]


def waits(cluster: Cluster, seconds: int = 20) -> None:
    for _ in range(seconds):
        cluster.wait(1_000)


def words(member: Member) -> dict[int, Word]:
    return dict(member.raft.status(member.cluster.now).waits_for)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("pre_votes", [False, True])
@pytest.mark.parametrize("voters", [1, 2, 3, 5])
def test_a_new_quorum_elects_a_leader_once_all_are_there(voters: int, dynamic: bool, pre_votes: bool) -> None:
    cluster = fresh(voters, dynamic=dynamic, asks_for_pre_votes=pre_votes)
    if voters > 1:
        cluster.cut.add(voters)
        waits(cluster)
        assert not leaders(cluster)
        assert {member.raft.epoch for member in cluster.members.values()} == {0}, "nobody raised an epoch by asking"
        assert words(cluster[1])[voters] is Word.SILENT
        cluster.cut.clear()
    waits(cluster, 5)
    assert len(leaders(cluster)) == 1
    assert all(member.disk.must_fetch_first is None for member in cluster.members.values()) or voters == 1


def test_the_mark_is_gone_before_the_high_watermark_is_told() -> None:
    cluster = fresh()
    waits(cluster, 5)
    for member in cluster.members.values():
        kinds = [type(effect) for effect in member.effects]
        assert kinds.count(fx.LogIsWhole) == 1
        assert kinds.index(fx.LogIsWhole) < kinds.index(fx.AdvanceHighWatermark)


def led(records: int = 5, **settings: bool) -> Cluster:
    cluster = fresh(**settings)
    waits(cluster, 5)
    (leader,) = leaders(cluster)
    cluster.propose(leader, records)
    cluster.wait(600)
    return cluster


@pytest.mark.parametrize("dynamic", [False, True])
def test_who_was_killed_when_it_had_just_won_the_first_election_does_not_follow_itself(dynamic: bool) -> None:
    """Its disk says that it leads, and is still marked as empty. Seed 263 of whole controllers found it."""
    cluster = fresh(dynamic=dynamic)
    winner = cluster[1]
    winner.disk.election = ElectionState(winner.raft.epoch + 1, leader_id=1)
    restart(winner)
    assert (winner.raft.role, winner.raft.leader_id) == (Role.UNATTACHED, 1)
    waits(cluster, 10)
    assert len(leaders(cluster)) == 1


@pytest.mark.parametrize("restarts", [1, 2, 5])
def test_two_lost_disks_elect_nobody_however_often_they_are_restarted(restarts: int) -> None:
    cluster = led()
    whole = 1
    end = cluster[whole].log.end_offset()
    lost = [2, 3]
    cluster.cut.add(whole)
    for node_id in lost:
        wipe(cluster[node_id])
    for _ in range(restarts):
        waits(cluster, 5)
        assert not set(leaders(cluster)) & set(lost)
        for node_id in lost:
            restart(cluster[node_id])
    cluster.cut.clear()
    waits(cluster)
    assert not leaders(cluster), "nobody but an operator knows that nothing else is lost"
    assert cluster[whole].log.end_offset() == end
    assert words(cluster[2]) == {1: Word.HAS_LOG, 3: Word.EMPTY}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_lost_disk_that_led_is_no_leader_because_others_remember_it(dynamic: bool) -> None:
    """The voter with the log still names the leader of its epoch, the lost disk repeats what it was told, and another
    one must not take that for a sign of life: it would wait, and refuse its promise, for ever."""
    cluster = led(dynamic=dynamic, asks_for_pre_votes=True)
    (leader,) = leaders(cluster)
    whole, other = sorted({1, 2, 3} - {leader})
    for node_id in (leader, other):
        wipe(cluster[node_id])
    restart(cluster[whole])
    waits(cluster, 10)
    assert not any(member.raft.status(cluster.now).has_leader for member in cluster.members.values())
    assert words(cluster[other]) == {whole: Word.HAS_LOG, leader: Word.EMPTY}
    assert words(cluster[leader]) == {whole: Word.HAS_LOG, other: Word.EMPTY}


def test_a_lost_disk_that_missed_its_leader_fetches_again_when_it_is_there() -> None:
    """Meanwhile it asks the others about their disks, which brings no records."""
    cluster = led(asks_for_pre_votes=True)
    (leader,) = leaders(cluster)
    lost = min({1, 2, 3} - {leader})
    wipe(cluster[lost])
    while cluster[lost].raft.role is not Role.FOLLOWER:
        cluster.wait(1)
    cluster.cut.add(lost)
    waits(cluster, 5)
    assert not cluster[lost].raft.status(cluster.now).has_leader
    assert cluster[lost].disk.must_fetch_first is not None
    cluster.cut.clear()
    waits(cluster, 5)
    assert cluster[lost].log.end_offset() == cluster[leader].log.end_offset()


def test_one_lost_disk_comes_back_by_itself() -> None:
    cluster = led()
    (leader,) = leaders(cluster)
    lost = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    wipe(cluster[lost])
    waits(cluster, 3)
    assert cluster[lost].log.end_offset() == cluster[leader].log.end_offset()
    cluster.cut.add(leader)
    waits(cluster, 10)
    assert set(leaders(cluster)) - cluster.cut


def test_half_a_log_counts_as_empty_after_a_restart() -> None:
    cluster = led()
    (leader,) = leaders(cluster)
    lost, third = (node_id for node_id in (1, 2, 3) if node_id != leader)
    wipe(cluster[lost])
    cluster[lost].write((1, 2))
    restart(cluster[lost])
    cluster.cut.add(leader)
    waits(cluster)
    assert not set(leaders(cluster)) & {lost, third}
    assert words(cluster[lost]) == {leader: Word.SILENT, third: Word.HAS_LOG}


def test_where_all_lost_their_disks_the_longest_part_of_a_log_is_kept() -> None:
    cluster = led()
    for node_id in (1, 2, 3):
        wipe(cluster[node_id])
    cluster[2].write((1, 4))
    cluster[3].write((1, 2))
    for node_id in (1, 2, 3):
        restart(cluster[node_id])
    waits(cluster, 10)
    assert leaders(cluster) == [2]
    assert cluster[1].epochs()[:4] == cluster[3].epochs()[:4] == [1] * 4


def test_an_order_or_stock_behaviour_lifts_the_rule() -> None:
    cluster = led()
    cluster.cut.add(1)
    for node_id in (2, 3):
        wipe(cluster[node_id])
        cluster[node_id].config = replace(cluster[node_id].config, takes_part_empty=True)
        cluster[node_id].boot()
    waits(cluster, 5)
    assert set(leaders(cluster)) & {2, 3}


# Stock voters, played by hand: 2 answers nothing but what the test says.


def asked(member: Member) -> VoteRequest:
    """The last question to voter 2."""
    sent = [effect.request for effect in member.effects if isinstance(effect, fx.Send) and effect.peer == 2]
    (question,) = [request for request in sent if isinstance(request, VoteRequest)][-1:]
    return question


def alone() -> Member:
    """One of two voters; the other one is stock Kafka's."""
    member = fresh(2)[1]
    member.step(ev.Tick())
    return member


def answer(member: Member, response: VoteResponse) -> None:
    member.step(ev.ResponseReceived(2, member.asked[2], response))


def test_the_question_raises_no_epoch_and_asks_for_no_vote() -> None:
    member = alone()
    assert (asked(member).pre_vote, asked(member).candidate_epoch) == (True, 0)
    assert (asked(member).last_epoch, asked(member).last_offset) == (0, 0)
    answer(member, VoteResponse(ErrorCode.none, ErrorCode.fenced_leader_epoch, -1, 7, vote_granted=False))
    assert words(member) == {2: Word.UNKNOWN}
    member.cluster.now += 1_000
    member.step(ev.Tick())
    assert (asked(member).pre_vote, asked(member).candidate_epoch) == (True, 7), "the epoch that it has, and no other"


@pytest.mark.parametrize(("granted", "known"), [(True, {}), (False, {2: Word.HAS_LOG})])
def test_a_stock_voter_that_would_vote_for_an_empty_log_has_none(granted: bool, known: dict[int, Word]) -> None:
    member = alone()
    answer(member, VoteResponse(ErrorCode.none, ErrorCode.none, -1, 0, vote_granted=granted))
    assert words(member) == known


@pytest.mark.parametrize(("end", "known"), [((0, 0), {}), ((3, 40), {2: Word.HAS_LOG})])
def test_an_older_stock_voter_says_it_when_it_stands_itself(end: tuple[int, int], known: dict[int, Word]) -> None:
    member = alone()
    vote = VoteRequest(CLUSTER_ID, 1, 9, 2, *end)
    member.step(ev.RequestReceived("early", vote))
    assert words(member) == {2: Word.SILENT}, "it is not known yet to be of Kafka 3.9"
    member.cluster.now += 1_000
    member.step(ev.Tick())
    answer(member, NO_PRE_VOTES)
    assert words(member) == {2: Word.UNKNOWN}
    member.step(ev.RequestReceived("vote", replace(vote, candidate_epoch=10)))
    assert words(member) == known


def test_what_a_voter_said_is_forgotten_with_its_process_and_with_time() -> None:
    cluster = fresh(3)
    member = cluster[1]
    member.step(ev.Tick())
    part = OwnLog(EpochOffset(1, 3), must_fetch_first=True)
    answer(member, VoteResponse(ErrorCode.none, ErrorCode.none, -1, 1, vote_granted=False, own_log=part))
    assert words(member)[2] is Word.EMPTY
    cluster.now += 10_000
    member.step(ev.Tick())
    assert words(member)[2] is Word.SILENT
    answer(member, VoteResponse(ErrorCode.none, ErrorCode.none, -1, 1, vote_granted=False, own_log=part))
    cluster.now += 1_000
    member.step(ev.Tick())
    member.step(ev.RequestFailed(2, member.asked[2], ev.Failure.REFUSED))
    assert words(member)[2] is Word.SILENT


def test_who_answers_pre_votes_says_what_its_log_holds() -> None:
    cluster = led()
    question = VoteRequest(CLUSTER_ID, 1, 0, 2, 0, 0, pre_vote=True)
    (reply,) = [it for it in cluster[1].step(ev.RequestReceived("x", question)) if isinstance(it, fx.Reply)]
    assert isinstance(reply.response, VoteResponse)
    assert reply.response.own_log == OwnLog(cluster[1].raft._quorum.log_end(), must_fetch_first=False)
    vote = replace(question, candidate_epoch=cluster[1].raft.epoch, pre_vote=False)
    (reply,) = [it for it in cluster[1].step(ev.RequestReceived("y", vote)) if isinstance(it, fx.Reply)]
    assert isinstance(reply.response, VoteResponse)
    assert reply.response.own_log is None


def test_an_observer_asks_nobody_about_disks() -> None:
    cluster = Cluster(3, observers=1)
    for member in cluster.members.values():
        restart(member)
    waits(cluster, 5)
    sent = [effect.request for effect in cluster[4].effects if isinstance(effect, fx.Send)]
    assert sent
    assert not any(isinstance(request, VoteRequest) for request in sent)
    assert cluster[4].key == ReplicaKey(4)
