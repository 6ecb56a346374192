"""A candidate waits, for a bounded time, until a majority of the voters has addresses (KIP-642)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.messages import VoteRequest
from migrator.raft.states import Role
from tests.raft.support.cluster import Cluster, Member

TIMEOUT = 1_000


class Knowing:
    """A quorum whose node 1 has heard where the nodes of ``known`` are; it asks about no other."""

    def __init__(self, voters: int, known: set[int], *, dynamic: bool = True, **settings: bool) -> None:
        self.known = known
        self.asked: set[int] = set()
        self.cluster = Cluster(voters, dynamic=dynamic, election_timeout_ms=TIMEOUT, **settings)
        self.one = self.cluster[1]
        self.one.config = replace(self.one.config, has_address=self._has)
        self.one.boot()

    def _has(self, node_id: int) -> bool:
        self.asked.add(node_id)
        return node_id in self.known

    def follow(self) -> None:
        """One of the others leads, and node 1 follows."""
        self.known = set(self.cluster.members)
        self.cluster.cut.add(1)
        self.cluster.wait(6 * TIMEOUT)
        self.cluster.cut.clear()
        self.cluster.wait(6 * TIMEOUT)
        assert self.one.raft.role is Role.FOLLOWER
        self.known = set()

    def until_it_stands(self) -> None:
        """Its own ticks only: nobody answers it."""
        for _ in range(200):
            self.cluster.tick(1)
            if stands(self.one):
                return
        raise AssertionError("it never stands")

    def until_it_waits(self) -> int:
        for _ in range(200):
            self.cluster.tick(1)
            found = missing(self.one)
            if found:
                assert not stands(self.one)
                return found[0].deadline
        raise AssertionError("it does not wait")


def stands(member: Member) -> bool:
    return member.raft.role in {Role.CANDIDATE, Role.PROSPECTIVE, Role.LEADER}


def missing(member: Member) -> list[fx.AddressesMissing]:
    return [effect for effect in member.effects if isinstance(effect, fx.AddressesMissing)]


def asked_for_votes(member: Member) -> set[int]:
    sent = [effect for effect in member.effects if isinstance(effect, fx.Send)]
    return {effect.peer for effect in sent if isinstance(effect.request, VoteRequest)}


@pytest.mark.parametrize("pre_votes", [False, True])
@pytest.mark.parametrize(("voters", "known", "names"), [(3, set(), (2, 3)), (5, {4}, (2, 3, 5)), (2, set(), (2,))])
def test_it_waits_one_election_time_out_names_them_once_and_then_stands(
    voters: int, known: set[int], names: tuple[int, ...], *, pre_votes: bool
) -> None:
    knowing = Knowing(voters, known, asks_for_pre_votes=pre_votes)
    deadline = knowing.until_it_waits()
    began = knowing.cluster.now
    assert deadline == began + TIMEOUT
    assert knowing.one.raft.epoch == 0
    knowing.until_it_stands()
    assert knowing.cluster.now == deadline
    for _ in range(300):  # elections that nobody answers
        knowing.cluster.tick(1)
    assert [effect.voters for effect in missing(knowing.one)] == [names]
    assert asked_for_votes(knowing.one) == set(range(2, voters + 1)), "also those without an address: one may be found"


@pytest.mark.parametrize(("voters", "known"), [(3, {3}), (5, {2, 5}), (1, set())])
def test_it_waits_for_nobody_when_a_majority_has_addresses(voters: int, known: set[int]) -> None:
    knowing = Knowing(voters, known)
    knowing.until_it_stands()
    assert missing(knowing.one) == []


def test_it_stands_as_soon_as_a_majority_has_addresses() -> None:
    knowing = Knowing(5, {2})
    deadline = knowing.until_it_waits()
    knowing.one.step(ev.Tick())
    assert not stands(knowing.one)
    knowing.known.add(4)
    knowing.one.step(ev.Tick())
    assert stands(knowing.one)
    assert knowing.cluster.now < deadline


def test_it_looks_for_a_leader_meanwhile() -> None:
    knowing = Knowing(3, set())
    deadline = knowing.until_it_waits()
    knowing.one.effects.clear()
    while knowing.cluster.now < deadline and not knowing.one.effects:
        knowing.cluster.tick(1)
    assert any(isinstance(effect, fx.Send) for effect in knowing.one.effects)


def test_a_follower_that_waits_goes_on_to_ask_its_leader() -> None:
    knowing = Knowing(3, set())
    knowing.follow()
    before = (knowing.one.raft.epoch, knowing.one.raft.leader_id)
    knowing.cluster.queue.clear()  # what is on its way is lost
    deadline = knowing.until_it_waits()
    assert knowing.one.raft.role is Role.FOLLOWER
    knowing.cluster.deliver()
    knowing.cluster.wait(deadline - knowing.cluster.now + TIMEOUT)
    assert knowing.one.raft.role is Role.FOLLOWER
    assert (knowing.one.raft.epoch, knowing.one.raft.leader_id) == before


def test_each_loss_of_a_leader_is_waited_for_again() -> None:
    knowing = Knowing(3, set(), asks_for_pre_votes=True)
    for _ in range(2):
        knowing.follow()
        knowing.one.effects.clear()
        knowing.cluster.cut.add(1)
        knowing.cluster.wait(10 * TIMEOUT)
        assert len(missing(knowing.one)) == 1


def test_configured_voters_are_never_waited_for() -> None:
    knowing = Knowing(3, set(), dynamic=False)
    knowing.until_it_stands()
    assert missing(knowing.one) == []
    assert knowing.asked == set()
