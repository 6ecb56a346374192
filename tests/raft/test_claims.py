"""One test for each claim of the Raft paper and of the KIPs, with its place; each prepares, acts and looks."""

from __future__ import annotations

from random import Random

import pytest
from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft import messages as m
from migrator.raft.config import EPOCH_LIMIT, OFFSET_LIMIT, RaftConfig
from migrator.raft.core import RaftNode
from migrator.raft.messages import EpochOffset
from migrator.raft.replication import locate
from migrator.raft.states import SAME_EPOCH, TRANSITIONS, ElectionState, Role
from migrator.records.uuid import Uuid
from tests.raft.support.cluster import CLUSTER_ID, NONE, Cluster, Envelope
from tests.simulation.disk import SimulatedLog

OTHER_DIRECTORY = Uuid(b"another-disk-id!")


def vote(epoch: int, candidate: int, log: tuple[int, int] = (0, 0), voter: int = 1) -> m.VoteRequest:
    """A Vote of a candidate whose log ends with (epoch, offset)."""
    return m.VoteRequest(CLUSTER_ID, voter, epoch, candidate, *log)


def fetch(epoch: int, offset: int, last_epoch: int, replica: int = 2, wait: int = 0) -> m.FetchRequest:
    return m.FetchRequest(CLUSTER_ID, replica, epoch, offset, last_epoch, wait, 1000)


def led(voters: int = 3, observers: int = 0) -> Cluster:
    """A cluster whose node 1 leads in epoch 1, with its first record committed."""
    cluster = Cluster(voters, observers)
    cluster.elect(1)
    return cluster


def kinds(effects: list[fx.Effect]) -> list[type]:
    """The types of effects, for their order."""
    return [type(effect) for effect in effects]


def sent(effects: list[fx.Effect], kind: type) -> list[fx.Send]:
    """The requests of a kind that a step sends."""
    return [effect for effect in effects if isinstance(effect, fx.Send) and isinstance(effect.request, kind)]


# Elections


@pytest.mark.parametrize(("epoch", "candidate"), [(9, 7), (EPOCH_LIMIT, 2), (2**31 - 1, 2)])
def test_who_may_not_stand_gets_no_vote_no_error_and_moves_no_epoch(epoch: int, candidate: int) -> None:
    """Not a voter, or an epoch that would leave none for the next election. Errors 31 and 42 end a stock peer."""
    member = Cluster(3)[1]
    effects = member.step(ev.RequestReceived(Envelope(2, 1, 0, None), vote(epoch, candidate)))
    (answer,) = [effect.response for effect in effects if isinstance(effect, fx.Reply)]
    assert isinstance(answer, m.VoteResponse)
    assert (answer.top_error, answer.error, answer.vote_granted) == (ErrorCode.none, ErrorCode.none, False)
    assert fx.PersistElectionState not in kinds(effects)
    assert member.raft.epoch == 0


def test_the_last_epoch_below_the_limit_is_a_voters_to_take() -> None:
    """No limit on jumps: a voter may have been away for long, or alone."""
    member = Cluster(3)[1]
    member.step(ev.RequestReceived(Envelope(2, 1, 0, None), vote(EPOCH_LIMIT - 1, 2)))
    assert member.raft.epoch == EPOCH_LIMIT - 1


def test_when_all_epochs_are_used_up_a_voter_stands_no_more_and_goes_on_otherwise() -> None:
    """It persists nothing beyond, does not end, votes in the epoch that it has, and follows a leader of it."""
    member = Cluster(3)[1]
    member.step(ev.RequestReceived(Envelope(2, 1, 0, None), vote(EPOCH_LIMIT - 1, 2)))
    effects = [effect for now in range(0, 60_000, 500) for effect in member.raft.step(ev.Tick(), now)]
    assert fx.PersistElectionState not in kinds(effects)
    assert member.raft.role is Role.UNATTACHED
    begin = m.BeginQuorumEpochRequest(CLUSTER_ID, 1, 2, EPOCH_LIMIT - 1)
    member.step(ev.RequestReceived(Envelope(2, 1, 0, None), begin))
    effects = [effect for now in range(60_000, 120_000, 500) for effect in member.raft.step(ev.Tick(), now)]
    assert (member.raft.role, member.raft.leader_id) == (Role.FOLLOWER, 2)
    assert sent(effects, m.FetchRequest)


def test_a_voter_whose_disk_is_beyond_the_limit_follows_whoever_leads_there() -> None:
    """Stock voters take any epoch: a directory that one of them left may hold such a one."""
    config = RaftConfig(1, CLUSTER_ID, frozenset({1, 2, 3}))
    raft = RaftNode(config, SimulatedLog(), ElectionState(EPOCH_LIMIT + 5), Random(0), 0)
    begin = m.BeginQuorumEpochRequest(CLUSTER_ID, 1, 2, EPOCH_LIMIT + 5)
    raft.step(ev.RequestReceived(Envelope(2, 1, 0, None), begin), 1)
    assert (raft.epoch, raft.leader_id) == (EPOCH_LIMIT + 5, 2)


@pytest.mark.parametrize("snapshot", [EpochOffset(2, 10), EpochOffset(2**31 - 1, 10), EpochOffset(1, OFFSET_LIMIT)])
def test_a_snapshot_of_an_epoch_to_come_or_behind_all_offsets_is_not_fetched(snapshot: EpochOffset) -> None:
    """The snapshot would replace the log, and lead this node to an epoch without a leader."""
    cluster = led()
    member = cluster[3]
    request = sent(member.effects, m.FetchRequest)[-1]
    response = m.FetchResponse(NONE, NONE, 1, 1, 10, 10, snapshot_id=snapshot)
    effects = member.step(ev.ResponseReceived(request.peer, request.correlation, response))
    assert fx.BlamePeer in kinds(effects)
    effects += [effect for now in range(1000, 3000, 100) for effect in member.raft.step(ev.Tick(), now)]
    assert not sent(effects, m.FetchSnapshotRequest)


@pytest.mark.parametrize("leader", [-1, 2])
def test_no_answer_and_no_announcement_carries_us_beyond_the_limit(leader: int) -> None:
    """Epochs come from responses, BeginQuorumEpoch and EndQuorumEpoch."""
    cluster = led()
    member = cluster[3]
    request = sent(member.effects, m.FetchRequest)[-1]
    response = m.FetchResponse(ErrorCode.none, ErrorCode.fenced_leader_epoch, leader, EPOCH_LIMIT, -1, -1)
    effects = member.step(ev.ResponseReceived(request.peer, request.correlation, response))
    begin = m.BeginQuorumEpochRequest(CLUSTER_ID, 3, 2, EPOCH_LIMIT)
    end = m.EndQuorumEpochRequest(CLUSTER_ID, 2, EPOCH_LIMIT, ())
    for message in (begin, end):
        effects += member.step(ev.RequestReceived(Envelope(2, 3, 0, None), message))
    assert fx.BlamePeer in kinds(effects)
    assert fx.PersistElectionState not in kinds(effects)
    assert member.raft.epoch == 1


def test_a_vote_is_durable_before_it_is_sent() -> None:
    """Raft 5.1, Figure 2: persistent state is updated on stable storage before responding to RPCs."""
    member = Cluster(3)[1]
    effects = member.step(ev.RequestReceived(Envelope(2, 1, 0, None), vote(1, 2)))
    last_persist = max(i for i, kind in enumerate(kinds(effects)) if kind is fx.PersistElectionState)
    assert last_persist < kinds(effects).index(fx.Reply)
    assert member.disk.election == ElectionState(1, None, 2)


def test_a_voter_votes_once_an_epoch_also_after_a_restart() -> None:
    """Raft 5.2: each server votes for at most one candidate in a term, first come, first served."""
    cluster = Cluster(3)
    granted = cluster.ask(1, vote(1, 2))
    cluster[1].lose_power()
    other, again = cluster.ask(1, vote(1, 3)), cluster.ask(1, vote(1, 2))
    assert isinstance(granted, m.VoteResponse)
    assert granted.vote_granted
    assert isinstance(other, m.VoteResponse)
    assert not other.vote_granted
    assert isinstance(again, m.VoteResponse)
    assert again.vote_granted, "the same candidate may ask again"


@pytest.mark.parametrize(
    ("theirs", "is_granted"),
    [((3, 1), True), ((2, 4), True), ((2, 5), True), ((2, 3), False), ((1, 9), False)],
)
def test_only_a_log_that_is_up_to_date_gets_a_vote(theirs: tuple[int, int], is_granted: bool) -> None:
    """Raft 5.4.1: the later last term is more up to date; among equals the longer log is."""
    cluster = Cluster(3)
    cluster[1].write((1, 2), (2, 2))
    cluster[1].boot()
    response = cluster.ask(1, vote(5, 2, theirs))
    assert isinstance(response, m.VoteResponse)
    assert response.vote_granted is is_granted
    assert cluster[1].raft.epoch == 5, "the epoch is taken over in any case"


def test_a_candidate_claims_only_what_is_on_disk() -> None:
    """Our own: a voter grants the same candidate again unseen, so its claim must survive its restart."""
    cluster = led()
    cluster[1].holds_syncs = True
    cluster.propose(1)
    cluster[1].step(ev.Resign(1))
    cluster.queue.clear()
    cluster.cut.update({2, 3})
    cluster.campaign(1)
    assert cluster[1].raft.role is Role.CANDIDATE
    assert not [envelope for envelope in cluster.queue if isinstance(envelope.body, m.VoteRequest)]
    cluster[1].finish_syncs()
    asked = [envelope.body for envelope in cluster.queue if isinstance(envelope.body, m.VoteRequest)]
    assert [request.last_offset for request in asked] == [2, 2]


def test_the_hook_refuses_candidates() -> None:
    """a voter refuses a candidate that is not ready for the migration."""
    cluster = Cluster(3, may_grant_vote=lambda candidate: candidate != 2)
    refused, granted = cluster.ask(1, vote(1, 2)), cluster.ask(1, vote(1, 3))
    assert isinstance(refused, m.VoteResponse)
    assert (refused.error, refused.vote_granted) == (NONE, False)
    assert isinstance(granted, m.VoteResponse)
    assert granted.vote_granted


def test_a_candidate_that_has_our_vote_is_looked_at_again() -> None:
    """it may have been restarted since, with another flag. The vote stays given, to nobody else."""
    barred: set[int] = set()
    cluster = Cluster(3, may_grant_vote=lambda candidate: candidate not in barred)

    def is_granted(candidate: int) -> bool:
        answer = cluster.ask(1, vote(1, candidate))
        return isinstance(answer, m.VoteResponse) and answer.vote_granted

    assert is_granted(3)
    barred.add(3)
    assert not is_granted(3)
    assert not is_granted(2)
    barred.clear()
    assert is_granted(3)


def test_a_candidate_that_hears_of_a_leader_follows_it() -> None:
    """Raft 5.2: a candidate that hears from a leader of its term or a later one becomes a follower."""
    cluster = Cluster(3)
    cluster.campaign(1)
    cluster.ask(1, m.BeginQuorumEpochRequest(CLUSTER_ID, 1, 2, 1))
    assert (cluster[1].raft.role, cluster[1].raft.leader_id) == (Role.FOLLOWER, 2)


def test_an_election_time_out_is_drawn_from_one_to_two_times_the_setting() -> None:
    """Raft 5.2, KIP-595: random time-outs, so that split votes are rare."""
    draws = set()
    for seed in range(200):
        config = RaftConfig(1, CLUSTER_ID, frozenset({1, 2, 3}))
        node = RaftNode(config, SimulatedLog(), ElectionState(0), Random(seed), 0)
        node.step(ev.Tick(), 0)
        draws.add(node.deadline())
    assert all(draw is not None and 1000 <= draw < 2000 for draw in draws)
    assert len(draws) > 100


@pytest.mark.parametrize("backoff_max_ms", [100, 1_000])
def test_a_lost_election_is_followed_by_a_wait_that_no_other_candidate_has(backoff_max_ms: int) -> None:
    """A message takes 5 ms: who stands within that time votes for itself, and not for whoever was first."""
    cluster = Cluster(2, election_backoff_max_ms=backoff_max_ms)
    for turn in range(100):
        due = [member.raft.deadline() or 0 for member in cluster.members.values()]
        assert not 1 < turn <= 30 or max(due) - cluster.now <= backoff_max_ms
        cluster.now = max(due) if turn < 30 else max(cluster.now, min(due)) + 5
        for member in cluster.members.values():
            member.step(ev.Tick())
        cluster.deliver()
    assert Role.LEADER in {member.raft.role for member in cluster.members.values()}


def test_a_sole_voter_elects_itself_and_commits_when_its_disk_has_it() -> None:
    """KIP-595: a quorum of one."""
    cluster = Cluster(1)
    cluster[1].holds_syncs = True
    cluster.tick(1)
    assert (cluster[1].raft.role, cluster[1].raft.high_watermark) == (Role.LEADER, 0)
    cluster[1].finish_syncs()
    assert cluster[1].raft.high_watermark == 1


def test_a_leader_that_restarts_does_not_lead_its_old_epoch() -> None:
    """KIP-595, QuorumState.initialize: it may have lost records of that epoch, and may not write others in it."""
    cluster = led()
    cluster[1].lose_power()
    assert (cluster[1].raft.role, cluster[1].raft.epoch) == (Role.RESIGNED, 1)
    assert fx.Append not in kinds(cluster[1].step(ev.Propose(1, b"")))


def test_an_observer_never_stands_for_election_and_counts_for_nothing() -> None:
    """KIP-595: observers fetch; only voters elect and commit."""
    cluster = led(observers=1)
    cluster.wait(3000)
    assert (cluster[4].raft.role, cluster[4].raft.leader_id) == (Role.FOLLOWER, 1)
    cluster.cut.update({2, 3})
    cluster.propose(1)
    cluster.deliver()
    assert cluster[4].log.end_offset() == 2
    assert cluster[1].raft.high_watermark == 1
    assert sent(cluster[4].effects, m.VoteRequest) == []


# Commitment


def test_old_epochs_are_committed_only_behind_a_record_of_the_leaders_own() -> None:
    """Raft 5.4.2, Figure 8: counting replicas commits only records of the current term."""
    cluster = Cluster(3)
    for node in (1, 2):
        cluster[node].write((1, 1), (2, 1))
        cluster[node].boot()
    cluster.cut.add(3)
    cluster.campaign(1)
    cluster.deliver(lambda envelope: not isinstance(envelope.body, m.FetchRequest))
    assert cluster[1].raft.role is Role.LEADER
    cluster.ask(1, fetch(3, 2, 2))
    assert cluster[1].raft.high_watermark == 0, "both have it, but it is of epoch 2"
    cluster.ask(1, fetch(3, 3, 3))
    assert cluster[1].raft.high_watermark == 3


def test_the_leader_counts_itself_only_after_its_fsync() -> None:
    """Our own (facts B): stock Kafka counts before, a hole for one voter."""
    cluster = led(voters=2)
    cluster[1].holds_syncs = True
    cluster.propose(1)
    cluster.deliver()
    assert cluster[1].raft.high_watermark == 1
    cluster[1].finish_syncs()
    assert cluster[1].raft.high_watermark == 2


def test_a_follower_fetches_on_only_after_its_fsync() -> None:
    """KIP-595: the fetch offset is the acknowledgement."""
    cluster = led()
    cluster[2].holds_syncs = True
    cluster.propose(1)
    cluster.deliver()
    assert cluster[2].log.end_offset() == 2
    assert max(send.request.fetch_offset for send in sent(cluster[2].effects, m.FetchRequest)) == 1  # type: ignore[union-attr]
    cluster[2].finish_syncs()
    assert max(send.request.fetch_offset for send in sent(cluster[2].effects, m.FetchRequest)) == 2  # type: ignore[union-attr]


def test_an_fsync_from_before_a_truncation_counts_for_nothing() -> None:
    """Our own: an fsync that others overtook says nothing about the log that came after the cut."""
    cluster = led()
    member = cluster[1]
    member.holds_syncs = True
    cluster.propose(1)
    cluster.propose(1)
    slow, fast = member.syncs
    member.syncs = []
    cluster.ask(1, m.BeginQuorumEpochRequest(CLUSTER_ID, 1, 2, 2))
    asked = sent(member.step(fast), m.FetchRequest)
    diverging = m.FetchResponse(NONE, NONE, 2, 2, 1, 0, diverging=EpochOffset(1, 1))
    member.step(ev.ResponseReceived(2, asked[0].correlation, diverging))
    assert member.log.end_offset() == 1
    member.effects.clear()
    member.finish_syncs()
    asked = sent(member.effects, m.FetchRequest)
    records = cluster.batches.encode([cluster.batches.make(1, 2, (7,)), cluster.batches.make(2, 2, (8,))])
    member.step(ev.ResponseReceived(2, asked[0].correlation, m.FetchResponse(NONE, NONE, 2, 2, 1, 0, records=records)))
    assert member.log.end_offset() == 3 == fast.end_offset
    assert member.step(fast) == [], "an old report of the same end"
    assert member.step(slow) == []
    member.effects.clear()
    member.finish_syncs()
    assert [send.request.fetch_offset for send in sent(member.effects, m.FetchRequest)] == [3]  # type: ignore[union-attr]


def test_a_leader_without_a_majority_resigns_in_one_and_a_half_fetch_time_outs() -> None:
    """KIP-595 and KAFKA-15489, check quorum: an isolated leader commits nothing and gives up."""
    cluster = led()
    cluster.cut.update({2, 3})
    began = cluster.now
    cluster.propose(1)
    while cluster[1].raft.role is Role.LEADER:
        cluster.tick(1)
    assert cluster.now - began <= 3000 + 500
    assert cluster[1].raft.high_watermark == 1


def test_a_leader_that_overslept_resigns_before_it_answers() -> None:
    """Our own: a stopped process that goes on must not serve what may be long replaced."""
    cluster = led()
    cluster.now += 10_000
    response = cluster.ask(1, fetch(1, 1, 1, replica=-1))
    assert response.error == ErrorCode.not_leader_or_follower


# Requests of others


def test_errors_of_a_leader_only_request_are_kafkas() -> None:
    """KIP-595: FENCED_LEADER_EPOCH below, UNKNOWN_LEADER_EPOCH above, NOT_LEADER_OR_FOLLOWER elsewhere."""
    cluster = led()
    assert cluster.ask(1, fetch(0, 0, 0)).error == ErrorCode.fenced_leader_epoch
    assert cluster.ask(1, fetch(2, 0, 0)).error == ErrorCode.unknown_leader_epoch
    assert cluster.ask(2, fetch(1, 0, 0, replica=3)).error == ErrorCode.not_leader_or_follower
    assert cluster.ask(2, fetch(1, 0, 0, replica=3)).leader_id == 1
    assert cluster.ask(1, fetch(1, -1, 0)).error == ErrorCode.invalid_request


def test_another_cluster_is_refused_and_changes_nothing() -> None:
    """KIP-595: INCONSISTENT_CLUSTER_ID at the top of the response."""
    cluster = led()
    response = cluster.ask(1, m.VoteRequest("another", 1, 9, 2, 8, 8))
    assert (response.top_error, cluster[1].raft.epoch) == (ErrorCode.inconsistent_cluster_id, 1)


def test_a_vote_that_is_meant_for_another_disk_is_refused() -> None:
    """KIP-853: INVALID_VOTER_KEY, with the epoch taken over."""
    cluster = Cluster(3, directory_id=Uuid(b"this-very-disk!!"))
    response = cluster.ask(1, m.VoteRequest(CLUSTER_ID, 1, 4, 2, 0, 0, voter_directory_id=OTHER_DIRECTORY))
    assert (response.error, cluster[1].raft.epoch) == (ErrorCode.invalid_voter_key, 4)
    assert cluster.ask(1, m.VoteRequest(CLUSTER_ID, 3, 4, 2, 0, 0)).error == ErrorCode.invalid_voter_key


@pytest.mark.parametrize(
    ("offset", "last_epoch", "where"),
    [
        (10, 4, "valid"),
        (8, 4, "valid"),
        (11, 4, "diverging 4 10"),
        (9, 3, "diverging 3 8"),
        (8, 5, "diverging 4 10"),
        (5, 3, "valid"),
        (5, 2, "snapshot"),
        (4, 3, "snapshot"),
        (0, 0, "snapshot"),
        (7, 1, "snapshot"),
    ],
)
def test_where_a_fetch_leads(offset: int, last_epoch: int, where: str) -> None:
    """KIP-595 (divergence) and KIP-630 (snapshot): a log from 5, epoch 3 up to 8, epoch 4 up to 10."""
    cluster = Cluster(1)
    cluster[1].write((2, 3), (3, 5), (4, 2))
    cluster[1].take_snapshot(5)
    found = locate(cluster[1].log, offset, last_epoch)
    kind, *rest = where.split()
    assert found.is_valid == (kind == "valid")
    assert found.snapshot_id == (EpochOffset(3, 5) if kind == "snapshot" else None)
    assert found.diverging == (EpochOffset(*map(int, rest)) if kind == "diverging" else None)


def test_a_snapshot_below_the_logs_start_says_nothing_about_it() -> None:
    """Found by the simulator: with an older snapshot still listed, an older epoch at the start looked valid."""
    cluster = Cluster(1)
    log = cluster[1].log
    log.add_snapshot(EpochOffset(3, 9))
    log.add_snapshot(EpochOffset(7, 16))
    log.restart_at(EpochOffset(7, 16))
    assert locate(log, 16, 3).snapshot_id == EpochOffset(7, 16)
    assert locate(log, 27, 3).snapshot_id == EpochOffset(7, 16)
    assert locate(log, 16, 7).is_valid


def test_a_fetch_without_news_waits_and_the_append_answers_it() -> None:
    """KIP-595: long polling, at most max.wait.ms."""
    cluster = led(observers=1)
    cluster.wait(100)
    context = Envelope(8, 1, 0, None)
    member = cluster[1]
    assert member.step(ev.RequestReceived(context, fetch(1, 1, 1, replica=-1, wait=400))) == []
    batch = cluster.batches.make(1, 1, (5,))
    effects = member.step(ev.Propose(1, cluster.batches.encode([batch])))
    assert kinds(effects)[:2] == [fx.Append, fx.RequestSync], "the answer is read after the append"
    assert any(isinstance(effect, fx.ReadLog) and effect.context is context for effect in effects)


def test_waiting_fetches_are_bounded() -> None:
    """Beyond the bound, a fetch is answered at once, without records."""
    cluster = Cluster(1, max_parked_fetches=3)
    cluster.tick(1)
    answered = [
        bool(cluster[1].step(ev.RequestReceived(number, fetch(1, 1, 1, replica=-1, wait=400)))) for number in range(5)
    ]
    assert answered == [False, False, False, True, True]


def test_status_lists_replicas_as_describe_quorum_does() -> None:
    """KIP-836: end offset and times of voters and observers, known to the leader."""
    cluster = led(observers=1)
    cluster.wait(1500)
    status = cluster[1].raft.status(cluster.now)
    assert [(row.replica_id, row.end_offset) for row in status.voters] == [(1, 1), (2, 1), (3, 1)]
    assert [(row.replica_id, row.end_offset) for row in status.observers] == [(4, 1)]
    assert all(row.last_caught_up_ms >= cluster.now - 600 for row in (*status.voters, *status.observers))
    assert cluster[2].raft.status(cluster.now).voters == ()


# Faults of the own disk


def test_a_leader_without_room_hands_over() -> None:
    """A full disk: who cannot write does not lead."""
    cluster = led()
    effects = cluster[1].step(ev.AppendFailed())
    assert cluster[1].raft.role is Role.RESIGNED
    assert len(sent(effects, m.EndQuorumEpochRequest)) == 2


def test_a_slow_disk_of_its_own_does_not_make_a_follower_stand_for_election() -> None:
    """Facts B: Kafka begins the fetch time-out anew after its flush."""
    cluster = led()
    cluster[2].holds_syncs = True
    cluster.propose(1)
    cluster.deliver()
    assert cluster[2].raft.deadline() is None, "nothing but its disk can move it"
    cluster.now += 60_000
    cluster[2].step(ev.Tick())
    assert cluster[2].raft.role is Role.FOLLOWER
    cluster[2].finish_syncs()
    assert cluster[2].raft.role is Role.FOLLOWER


def test_every_transition_of_the_table_is_between_roles_and_a_leader_is_made_by_an_election_only() -> None:
    """The table itself: Raft's Figure 4, with KRaft's Resigned."""
    assert {before for before, after in TRANSITIONS.items() if Role.LEADER in after} == {Role.CANDIDATE}
    assert {before for before, after in TRANSITIONS.items() if Role.RESIGNED in after} == {Role.LEADER}
    assert all(after in TRANSITIONS[before] for before, after in SAME_EPOCH)
    assert set(TRANSITIONS) == set(Role)
