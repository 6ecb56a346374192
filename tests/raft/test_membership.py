"""Voters that change, driven by hand: what the leader refuses, what counts from when, and who stands for election."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft import messages as m
from migrator.raft.progress import OBSERVER_SESSION_MS
from migrator.raft.states import Role
from migrator.raft.voter_changes import AddVoter, RemoveVoter, UpdateVoter, UpgradeVoters, VoterChange
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.control import KRaftVersion, KRaftVoters, VoterEndpoint
from migrator.records.uuid import Uuid
from tests.raft.support.cluster import CLUSTER_ID, Cluster, Envelope, Member
from tests.simulation.batches import LeaderChange
from tests.simulation.planning import entry

OTHER_DISK = Uuid(b"another-disk-id!")


def led(voters: int = 3, observers: int = 1) -> Cluster:
    """Node 1 leads, has committed its first batch, and everybody has caught up."""
    cluster = Cluster(voters, observers, dynamic=True)
    cluster.elect(1)
    cluster.wait(1_200)
    assert cluster[1].raft.role is Role.LEADER
    return cluster


def change(member: Member, wanted: VoterChange) -> fx.AppendVoters | fx.VotersRefused:
    """Step a change; what came of it."""
    effects = member.step(ev.ChangeVoters(wanted))
    (found,) = [effect for effect in effects if isinstance(effect, fx.AppendVoters | fx.VotersRefused)]
    return found


def refusal(member: Member, wanted: VoterChange) -> ErrorCode:
    found = change(member, wanted)
    assert isinstance(found, fx.VotersRefused)
    return found.refusal.error


def add(cluster: Cluster, node_id: int) -> AddVoter:
    """Node ``node_id`` on its own disk."""
    return AddVoter(entry(cluster[node_id].key))


def test_the_first_leader_writes_the_voters_that_its_directory_was_formatted_with() -> None:
    """As stock Kafka does: LeaderChange, KRaftVersion and Voters in one batch, at offsets 0 to 2."""
    cluster = led()
    for node_id in (1, 2, 3, 4):
        first = cluster[node_id].log.batches[0]
        assert [type(record) for record in first.records] == [LeaderChange, KRaftVersion, KRaftVoters]
        assert cluster[node_id].log.membership().offset == 2
    assert [voter for member in cluster.members.values() for voter in member.voters] == [1, 2, 3] * 4


def nameless(wanted: AddVoter | UpdateVoter) -> VoterChange:
    """With one more listener, whose name Kafka takes for none: it ends on such a record, and again at each start."""
    more = VoterEndpoint(" \t", "localhost", 1)
    return replace(wanted, voter=replace(wanted.voter, endpoints=(*wanted.voter.endpoints, more)))


REFUSALS: dict[str, tuple[Callable[[Cluster], VoterChange], ErrorCode]] = {
    "same id": (lambda cluster: add(cluster, 2), ErrorCode.duplicate_voter),
    "same id, other disk": (lambda _c: AddVoter(entry(ReplicaKey(2, OTHER_DISK))), ErrorCode.duplicate_voter),
    "no common version": (
        lambda cluster: AddVoter(entry(cluster[4].key, highest_version=0)),
        ErrorCode.invalid_request,
    ),
    "never seen": (lambda _c: AddVoter(entry(ReplicaKey(9, OTHER_DISK))), ErrorCode.request_timed_out),
    "seen on another disk": (lambda _c: AddVoter(entry(ReplicaKey(4, OTHER_DISK))), ErrorCode.request_timed_out),
    "remove a stranger": (lambda cluster: RemoveVoter(cluster[4].key), ErrorCode.voter_not_found),
    "remove another disk": (lambda _c: RemoveVoter(ReplicaKey(2, OTHER_DISK)), ErrorCode.voter_not_found),
    "update a stranger": (lambda cluster: UpdateVoter(entry(cluster[4].key)), ErrorCode.voter_not_found),
    "add with a listener without name": (lambda cluster: nameless(add(cluster, 4)), ErrorCode.invalid_request),
    "update with a listener without name": (
        lambda cluster: nameless(UpdateVoter(entry(cluster[2].key))),
        ErrorCode.invalid_request,
    ),
    "update another disk": (lambda _c: UpdateVoter(entry(ReplicaKey(2, OTHER_DISK))), ErrorCode.voter_not_found),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_change_that_makes_no_sense_is_refused_and_nothing_is_written(case: str) -> None:
    cluster = led()
    wanted, error = REFUSALS[case]
    end = cluster[1].log.end_offset()
    assert refusal(cluster[1], wanted(cluster)) is error
    assert cluster[1].log.end_offset() == end


def test_who_does_not_lead_refuses() -> None:
    cluster = led()
    assert refusal(cluster[2], add(cluster, 4)) is ErrorCode.not_leader_or_follower


def test_the_voters_of_the_configuration_are_fixed() -> None:
    cluster = Cluster(3)
    cluster.elect(1)
    assert refusal(cluster[1], RemoveVoter(ReplicaKey(2))) is ErrorCode.unsupported_version


def configured() -> Cluster:
    """Node 1 leads three voters of the configuration, and everybody has caught up."""
    cluster = Cluster(3, 1, disks=True)
    cluster.elect(1)
    cluster.wait(1_200)
    return cluster


def upgrade(cluster: Cluster, *nodes: int, highest_version: int = 1) -> UpgradeVoters:
    """Nodes on their own disks."""
    return UpgradeVoters(VoterSet.of(entry(cluster[it].key, highest_version=highest_version) for it in nodes))


def test_configured_voters_are_taken_into_the_log_and_change_from_then_on() -> None:
    cluster = configured()
    found = change(cluster[1], upgrade(cluster, 1, 2, 3))
    assert isinstance(found, fx.AppendVoters)
    assert found.kraft_version == 1
    cluster.wait(1_200)
    for node_id in (1, 2, 3, 4):
        assert cluster[node_id].log.membership().kraft_version == 1
        assert cluster[node_id].voters == [1, 2, 3]
    assert cluster[1].raft.high_watermark == cluster[1].log.end_offset()
    assert isinstance(change(cluster[1], add(cluster, 4)), fx.AppendVoters)


def test_an_upgrade_that_is_cut_away_leaves_the_configured_voters_in_force() -> None:
    cluster = configured()
    cluster.cut = {1}
    change(cluster[1], upgrade(cluster, 1, 2, 3))
    cluster.elect(2)
    cluster.cut = set()
    cluster.wait(1_200)
    for node_id in (1, 2, 3):
        assert cluster[node_id].log.membership().kraft_version == 0
        assert cluster[node_id].raft.membership.voters == VoterSet.static((1, 2, 3))


UPGRADE_REFUSALS: dict[str, tuple[Callable[[Cluster], UpgradeVoters], ErrorCode]] = {
    "too few": (lambda cluster: upgrade(cluster, 1, 2), ErrorCode.invalid_request),
    "a stranger": (lambda cluster: upgrade(cluster, 1, 2, 4), ErrorCode.invalid_request),
    "an old voter": (lambda cluster: upgrade(cluster, 1, 2, 3, highest_version=0), ErrorCode.invalid_update_version),
    "no disk known": (
        lambda cluster: UpgradeVoters(upgrade(cluster, 1, 2, 3).voters.with_voter(entry(ReplicaKey(3)))),
        ErrorCode.invalid_update_version,
    ),
    "the disk that a voter had before": (
        lambda cluster: UpgradeVoters(upgrade(cluster, 1, 2, 3).voters.with_voter(entry(ReplicaKey(3, OTHER_DISK)))),
        ErrorCode.invalid_update_version,
    ),
}


@pytest.mark.parametrize("case", UPGRADE_REFUSALS)
def test_an_upgrade_that_makes_no_sense_is_refused(case: str) -> None:
    cluster = configured()
    wanted, error = UPGRADE_REFUSALS[case]
    assert refusal(cluster[1], wanted(cluster)) is error


def test_voters_in_the_log_are_not_upgraded_again() -> None:
    cluster = led()
    assert refusal(cluster[1], upgrade(cluster, 1, 2, 3)) is ErrorCode.invalid_update_version


def test_the_only_voter_stays() -> None:
    cluster = led(1, 1)
    assert refusal(cluster[1], RemoveVoter(cluster[1].key)) is ErrorCode.voter_not_found


def test_a_leader_that_has_committed_nothing_in_its_epoch_refuses() -> None:
    """The fault in Raft's thesis: two leaders could each build on the set that the other one replaces."""
    cluster = led()
    cluster[1].step(ev.Resign(1, 2))
    cluster.deliver(lambda envelope: not isinstance(envelope.body, m.FetchRequest))
    assert cluster[2].raft.role is Role.LEADER
    assert refusal(cluster[2], RemoveVoter(cluster[3].key)) is ErrorCode.request_timed_out


def test_one_change_after_the_other() -> None:
    cluster = led()
    cluster.queue.clear()
    assert isinstance(change(cluster[1], add(cluster, 4)), fx.AppendVoters)
    assert refusal(cluster[1], RemoveVoter(cluster[3].key)) is ErrorCode.request_timed_out
    cluster.wait(600)
    assert isinstance(change(cluster[1], RemoveVoter(cluster[3].key)), fx.AppendVoters)


def test_a_set_that_is_in_the_log_since_the_last_step_counts_for_whoever_looks() -> None:
    """Otherwise a leader clears the target, is then refused to leave, and stays for good."""
    cluster = led()
    cluster[1].holds_syncs = True
    cluster.queue.clear()
    assert isinstance(change(cluster[1], add(cluster, 4)), fx.AppendVoters)
    refused = cluster[1].raft.why_not(RemoveVoter(cluster[3].key))
    assert refused is not None
    assert refused.error is ErrorCode.request_timed_out


def test_the_new_set_counts_from_its_append_on() -> None:
    """Four voters need three: with two cut off nothing is committed, not even the new set."""
    cluster = led()
    cluster.wait(600)
    cluster.cut = {3, 4}
    committed = cluster[1].raft.high_watermark
    change(cluster[1], add(cluster, 4))
    cluster.wait(300)
    assert cluster[1].voters == [1, 2, 3, 4]
    assert cluster[2].log.end_offset() > committed, "the second voter has it"
    assert cluster[1].raft.high_watermark == committed
    cluster.cut = {3}
    cluster.wait(2_200)
    assert cluster[1].raft.high_watermark > committed


def test_a_set_that_is_cut_from_the_log_was_never_there() -> None:
    cluster = led()
    cluster.cut = {1}
    change(cluster[1], add(cluster, 4))
    assert cluster[1].voters == [1, 2, 3, 4]
    cluster.elect(2)
    cluster.cut = set()
    cluster.wait(4_000)
    assert cluster[1].voters == [1, 2, 3]
    assert cluster[1].raft.leader_id == 2


def test_a_leader_that_removes_itself_is_not_counted_and_resigns_after_the_commit() -> None:
    cluster = led()
    change(cluster[1], RemoveVoter(cluster[1].key))
    cluster.cut = {3}
    cluster.wait(200)
    assert cluster[1].raft.leader_id == 1, "one of the two that count has it, and that is no majority"
    cluster.cut = set()
    cluster.wait(6_000)
    assert cluster[1].raft.leader_id in {2, 3}
    assert cluster[1].voters == [2, 3]


def test_a_removed_follower_observes_also_after_a_restart() -> None:
    cluster = led()
    change(cluster[1], RemoveVoter(cluster[3].key))
    cluster.wait(1_000)
    cluster[3].boot()
    cluster.wait(10_000)
    assert (cluster[3].raft.role, cluster[3].raft.epoch) == (Role.FOLLOWER, 1)
    assert cluster[3].voters == [1, 2]


def test_a_new_voter_votes_by_its_own_log() -> None:
    cluster = led()
    change(cluster[1], add(cluster, 4))
    cluster.wait(1_000)
    cluster.gone = {1}
    cluster.elect(4)
    assert cluster[4].raft.leader_id == 4


def test_a_sole_voter_is_not_cut_off_as_soon_as_it_has_company() -> None:
    cluster = led(1, 1)
    cluster.wait(60_000)
    change(cluster[1], add(cluster, 2))
    cluster.wait(10_000)
    assert (cluster[1].raft.role, cluster[1].raft.epoch) == (Role.LEADER, 1)
    assert cluster[2].voters == [1, 2]


def test_whoever_is_removed_by_a_record_that_others_lack_is_elected_to_bring_it_to_them() -> None:
    """Of two voters the leader removes itself and loses its power: the other one has the shorter log, so nobody votes
    for it, and nobody but the removed one can lead (Raft thesis 4.2.2)."""
    cluster = led(2, 0)
    cluster.cut = {2}
    change(cluster[1], RemoveVoter(cluster[1].key))
    cluster[1].boot()
    cluster.cut = set()
    cluster.wait(30_000)
    assert cluster[2].raft.role is Role.LEADER
    assert cluster[1].voters == cluster[2].voters == [2]


def vote(member: Member, candidate: ReplicaKey, epoch: int, directory: Uuid | None = None) -> m.VoteRequest:
    """A Vote with as good a log as the receiver's."""
    end = (member.log.last_epoch(), member.log.end_offset())
    own = member.config.directory_id if directory is None else directory
    return m.VoteRequest(CLUSTER_ID, member.node_id, epoch, candidate.node_id, *end, candidate.directory_id, own)


@pytest.mark.parametrize("stranger", [ReplicaKey(9, OTHER_DISK), ReplicaKey(2, OTHER_DISK)], ids=["id", "disk"])
def test_a_stranger_unseats_nobody_and_gets_a_vote_where_nobody_leads(stranger: ReplicaKey) -> None:
    cluster = led()
    for node_id in (1, 3):
        member = cluster[node_id]
        effects = member.step(ev.RequestReceived(Envelope(2, node_id, 0, None), vote(member, stranger, 7)))
        (answer,) = [effect.response for effect in effects if isinstance(effect, fx.Reply)]
        assert isinstance(answer, m.VoteResponse)
        assert (answer.error, answer.vote_granted, member.raft.epoch) == (ErrorCode.none, False, 1)
    lonely = Cluster(3, dynamic=True)[1]
    effects = lonely.step(ev.RequestReceived(Envelope(2, 1, 0, None), vote(lonely, stranger, 7)))
    answers = [effect.response for effect in effects if isinstance(effect, fx.Reply)]
    assert [isinstance(answer, m.VoteResponse) and answer.vote_granted for answer in answers] == [True]


def test_a_vote_for_another_disk_is_refused() -> None:
    member = Cluster(3, dynamic=True)[1]
    request = vote(member, ReplicaKey(2, OTHER_DISK), 7, directory=OTHER_DISK)
    effects = member.step(ev.RequestReceived(Envelope(2, 1, 0, None), request))
    (answer,) = [effect.response for effect in effects if isinstance(effect, fx.Reply)]
    assert answer.error is ErrorCode.invalid_voter_key


def shows(cluster: Cluster, leader: int, member: Member, more: int) -> None:
    """A replica shows the leader a log that is longer by so many records than the leader's."""
    end, epoch = cluster[leader].log.end_offset() + more, cluster[leader].raft.epoch
    cluster.ask(leader, m.FetchRequest(CLUSTER_ID, member.node_id, epoch, end, epoch, 0, 1000, member.key.directory_id))


def test_no_change_below_an_end_that_a_voter_has_shown() -> None:
    """Stock replicas overlook it until they start again; see ``_is_after_every_shown_end``."""
    cluster = led()
    shows(cluster, 1, cluster[2], 5)
    assert refusal(cluster[1], add(cluster, 4)) is ErrorCode.request_timed_out
    refused = cluster[1].raft.why_not(add(cluster, 4))
    assert refused is not None
    assert refused.lacking_records == 5
    cluster.propose(1, 6)
    cluster.wait(600)
    assert isinstance(change(cluster[1], add(cluster, 4)), fx.AppendVoters)


def test_an_observer_whose_first_fetch_shows_a_longer_log_is_no_voter_below_it() -> None:
    """The leader lists it only once it has fetched from a position that is in the leader's log."""
    cluster = Cluster(3, 1, dynamic=True)
    cluster.cut.add(4)
    cluster.elect(1)
    cluster.wait(600)
    shows(cluster, 1, cluster[4], 5)
    assert cluster[1].raft.status(cluster.now).observers == ()
    cluster.cut.clear()
    cluster.wait(3_000)
    assert [row.replica_id for row in cluster[1].raft.status(cluster.now).observers] == [4]
    refused = change(cluster[1], add(cluster, 4))
    assert isinstance(refused, fx.VotersRefused)
    assert refused.refusal.lacking_records == 5


def test_a_replica_that_was_silent_is_known_by_the_longest_log_that_it_has_shown() -> None:
    cluster = led()
    shows(cluster, 1, cluster[4], 5)
    cluster.cut.add(4)
    for _ in range(OBSERVER_SESSION_MS // 1_000 + 1):
        cluster.wait(1_000)
    assert cluster[1].raft.status(cluster.now).observers == ()
    cluster.cut.clear()
    cluster.wait(3_000)
    refused = change(cluster[1], add(cluster, 4))
    assert isinstance(refused, fx.VotersRefused)
    assert refused.refusal.lacking_records == 5
    cluster.propose(1, 5)
    cluster.wait(600)
    assert isinstance(change(cluster[1], add(cluster, 4)), fx.AppendVoters)


def test_a_leader_that_was_stopped_looks_first_and_changes_nothing_when_it_is_cut_off() -> None:
    """Otherwise a caller that waits for the commit misses the end of the leadership."""
    cluster = led()
    end = cluster[1].log.end_offset()
    cluster.now += 60_000
    assert refusal(cluster[1], RemoveVoter(cluster[3].key)) is ErrorCode.not_leader_or_follower
    assert cluster[1].log.end_offset() == end
