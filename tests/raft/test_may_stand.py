"""A controller that could not lead does not stand for election: it follows and votes, so that another is elected."""

from __future__ import annotations

from dataclasses import replace

from migrator.raft import events as ev
from migrator.raft.states import ElectionState, Role
from tests.raft.support.cluster import Cluster

TIMEOUT = 1_000


class Held:
    """A quorum whose node 1 may not stand until it is let."""

    def __init__(self, voters: int) -> None:
        self.may_stand = False
        self.cluster = Cluster(voters, election_timeout_ms=TIMEOUT)
        self.one = self.cluster[1]
        self.one.config = replace(self.one.config, may_stand=lambda: self.may_stand)
        self.one.boot()

    def wait_in_vain(self) -> None:
        """Nothing is left that it waits for by the clock."""
        self.one.step(ev.Tick())
        assert self.one.raft.deadline() is None
        self.cluster.now += 20 * TIMEOUT

    def let(self) -> None:
        self.may_stand = True
        self.one.step(ev.Tick())

    def leaders(self) -> list[int]:
        return [node_id for node_id, member in self.cluster.members.items() if member.raft.role is Role.LEADER]


def test_others_lead_with_its_vote_and_it_follows() -> None:
    held = Held(3)
    held.cluster.wait(10 * TIMEOUT)
    (first,) = held.leaders()
    assert first != 1
    assert held.one.raft.leader_id == first
    held.cluster.cut.add(first)
    held.cluster.wait(20 * TIMEOUT)
    (second,) = set(held.leaders()) - {first}
    assert second != 1, "the other one has no majority without the vote of node 1"
    assert held.one.raft.leader_id == second


def test_it_waits_for_ever_and_stands_at_once_when_it_may() -> None:
    held = Held(1)
    held.wait_in_vain()
    assert held.one.raft.role is Role.UNATTACHED
    held.let()
    assert held.leaders() == [1]


def test_an_election_before_its_restart_is_not_gone_on_with() -> None:
    held = Held(1)
    held.one.disk.election = ElectionState(7, None, 1)
    held.one.boot()
    held.wait_in_vain()
    assert held.one.raft.role is Role.CANDIDATE
    held.let()
    assert held.leaders() == [1]
