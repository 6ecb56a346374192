"""Nothing from outside stops a controller, and what is really sent keeps the quorum safe, in whichever order."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.errors import InvariantViolation
from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft import messages as m
from migrator.raft.messages import EpochOffset
from migrator.raft.states import Role
from migrator.raft.voter_set import DYNAMIC_VERSION, Membership, VoterSet
from tests.lanes import seeds
from tests.raft.support.blind import BlindQuorum
from tests.raft.support.cluster import CLUSTER_ID, Cluster
from tests.simulation.planning import entry

NONE = ErrorCode.none


MORE = pytest.param(range(20_000, 20_600), id="600 others", marks=pytest.mark.lane("test-all"))


@pytest.mark.parametrize("forges", [False, True])
@pytest.mark.parametrize("numbers", [*seeds(60, 10_000), MORE])
def test_no_event_stops_a_controller_or_breaks_a_rule(numbers: range, forges: bool) -> None:
    for seed in numbers:
        try:
            BlindQuorum(seed, forges=forges).run()
        except (AssertionError, InvariantViolation, LookupError, TypeError, ValueError) as error:
            raise AssertionError(f"BlindQuorum({seed}, forges={forges}).run()") from error


@pytest.mark.parametrize("is_granted", [True, False])
@pytest.mark.parametrize("pre_votes", [True, False])
def test_who_learns_of_its_removal_during_an_election_stands_no_more(pre_votes: bool, is_granted: bool) -> None:
    """A slow disk finishes the snapshot that says so. Peers that grant nothing are of Kafka 3.9, without pre-votes."""
    cluster = Cluster(3, dynamic=True, asks_for_pre_votes=pre_votes, asks_for_pre_votes_once_dynamic=pre_votes)
    cluster.wait(5_000)
    leader, other, member = sorted(cluster.members.values(), key=lambda it: it.raft.role is not Role.LEADER)
    cluster.propose(leader.node_id, 2)
    cluster.wait(600)
    held: list[fx.Effect] = []
    handlers: Any = {**member._HANDLERS, fx.FinishSnapshot: lambda _self, effect: held.append(effect)}
    member._HANDLERS = handlers  # type: ignore[misc]
    epoch, end = member.raft.epoch, EpochOffset(member.raft.epoch, 50)
    told = (NONE, NONE, leader.node_id, epoch)
    for found in (m.FetchResponse(*told, 60, 50, None, end), m.FetchSnapshotResponse(*told, end, 10, 0, b"0123456789")):
        member.step(ev.ResponseReceived(leader.node_id, member.asked[leader.node_id], found))
    assert held
    vote = m.VoteRequest(CLUSTER_ID, member.node_id, epoch + 1, other.node_id, 0, 0, other.key.directory_id)
    member.step(ev.RequestReceived("vote", vote))
    while member.raft.role not in {Role.PROSPECTIVE, Role.CANDIDATE}:
        cluster.tick(member.node_id)
    left = VoterSet.of([entry(leader.key), entry(other.key)])
    member.log.add_snapshot(end, Membership(DYNAMIC_VERSION, left, 49))
    member.step(ev.SnapshotFinished(end))
    top = NONE if is_granted else ErrorCode.unsupported_version
    for peer in (leader.node_id, other.node_id):
        answer = m.VoteResponse(top, NONE, -1, member.raft.epoch, vote_granted=True)
        member.step(ev.ResponseReceived(peer, member.asked[peer], answer))
    assert (member.raft.role, member.raft.epoch) == (Role.UNATTACHED, member.disk.election.epoch)
    assert member.raft.high_watermark == end.offset


@pytest.mark.parametrize("told", [1, 2])
def test_a_cut_into_a_batch_keeps_the_committed_part_of_the_batch(told: int) -> None:
    """The leader said before that ``told`` of the three records of the batch are committed."""
    cluster = Cluster(3)
    cluster.elect(1)
    member = cluster[2]
    start, answer = member.log.end_offset(), (NONE, NONE, 1, member.raft.epoch)
    batch = cluster.batches.make(start, member.raft.epoch, (1, 2, 3))
    for found in (
        m.FetchResponse(*answer, start + told, 0, records=cluster.batches.encode([batch])),
        m.FetchResponse(*answer, start + told, 0),
        m.FetchResponse(*answer, start + told, 0, EpochOffset(member.raft.epoch, start + 2)),
    ):
        member.step(ev.ResponseReceived(1, member.asked[1], found))
    assert (member.raft.high_watermark, member.log.end_offset()) == (start + told, start + 3)


def test_a_snapshot_that_a_leader_lacks_is_not_installed_and_stops_nobody() -> None:
    """A leader before this one had told of it, wrongly."""
    cluster = Cluster(3)
    member = cluster.elect(1)
    end = member.log.end_offset()
    member.log.add_snapshot(EpochOffset(0, end + 5))
    member.step(ev.SnapshotFinished(EpochOffset(0, end + 5)))
    assert (member.raft.role, member.log.end_offset()) == (Role.LEADER, end)
