"""A voter joins or leaves during a migration, one voter is dead, another has not seen the change: all of it, with the
real ballots in the model of a quorum. They cost no election that would come without them, and let no stock controller
lead that would end the migration."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.node.quorum.ballot import Ballot
from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.messages import VoteRequest
from migrator.raft.states import Role
from migrator.raft.voter_changes import AddVoter, RemoveVoter
from migrator.records.metadata import RegisterControllerRecord, ZkMigrationState, ZkMigrationStateRecord
from migrator.values import value
from migrator.wire.voters import VoterAnswer
from tests.controller.support.leading_controller import some_uuid
from tests.raft.support.cluster import Cluster, Envelope, Member
from tests.simulation.planning import entry

OURS = VoterAnswer(migrating=True, is_ours=True)
STOCK = VoterAnswer(migrating=True, is_ours=False)
STOCK_WITHOUT_FLAG = VoterAnswer(migrating=False, is_ours=False)
LEADER = 1
PATIENCE_MS = 60_000


@value
class Scenario:
    """``behind`` misses everything from the change on, or already from the registration of the joining controller."""

    voters: int
    joins: bool
    removed: int
    dead: int
    behind: int
    misses_registration: bool

    @property
    def controllers(self) -> int:
        return self.voters + self.joins


def scenarios() -> Iterator[Scenario]:
    for voters in (1, 2, 3, 4):
        for joins in (True, False):
            everybody = range(1, voters + joins + 1)
            changes = [0] if joins else everybody[: voters if voters > 1 else 0]
            yield from (
                Scenario(voters, joins, removed, dead, behind, misses)
                for removed in changes
                for dead in everybody
                for behind in everybody
                for misses in ((False, True) if joins and behind <= voters else (False,))
                if behind not in {dead, LEADER}
            )


class Migrating(Cluster):
    """Voters, and perhaps one that joins, in dual-write. Who is stock grants a vote to everybody, as Kafka does."""

    def __init__(self, scenario: Scenario, kinds: dict[int, VoterAnswer], *, asks: bool) -> None:
        super().__init__(scenario.voters, int(scenario.joins), dynamic=True)
        self.kinds = kinds
        self.registered_at = 1 << 62
        self.ballots: dict[int, Ballot] = {}
        self.leaders: set[int] = set()
        self._images = (image(range(1, scenario.voters + 1)), image(range(1, scenario.controllers + 1)))
        for member in self.members.values():
            if asks and kinds[member.node_id].is_ours:
                self._give_ballot(member)

    def _give_ballot(self, member: Member) -> None:
        settings: Any = SimpleNamespace(
            node_id=member.node_id,
            zookeeper_metadata_migration_enable=True,
            controller_quorum_election_timeout_ms=member.config.election_timeout_ms,
        )
        ballot = Ballot(settings, self._image(member), self._ask(member), lambda: member.voters)
        self.ballots[member.node_id] = ballot
        member.config = replace(member.config, may_grant_vote=ballot.may_grant)
        member.boot()

    def _image(self, member: Member) -> Callable[[], MetadataImage]:
        return lambda: self._images[member.log.end_offset() > self.registered_at]

    def _ask(self, member: Member) -> Callable[[int, float], Coroutine[Any, Any, VoterAnswer | None]]:
        async def ask(candidate: int, _seconds: float) -> VoterAnswer | None:
            is_known = candidate in member.voters or candidate in self._image(member)().cluster.controllers
            return self.kinds[candidate] if is_known and not self.cut & {candidate, member.node_id} else None

        return ask

    def hand_over_message(self, envelope: Envelope) -> list[fx.Effect]:
        """Each Vote waits until the candidate was asked (`QuorumRunner.handle`)."""
        ballot = self.ballots.get(self[envelope.target].node_id)
        if ballot is not None and isinstance(envelope.body, VoteRequest):
            asking = ballot.consult(envelope.body.candidate_id)
            with pytest.raises(StopIteration):
                asking.send(None)
        effects = super().hand_over_message(envelope)
        self.leaders |= {it for it, member in self.members.items() if member.raft.role is Role.LEADER}
        return effects


def image(controllers: range) -> MetadataImage:
    loader = ImageLoader()
    registrations = [RegisterControllerRecord(it, some_uuid(it), True, (), ()) for it in controllers]
    loader.append(0, 1, 0, [ZkMigrationStateRecord(ZkMigrationState.MIGRATION), *registrations])
    loader.apply()
    return loader.speculative


def led_by(scenario: Scenario, kinds: dict[int, VoterAnswer], *, asks: bool) -> set[int] | None:
    """The leader in the end, and the leaders before it; None when the change could not begin."""
    cluster = Migrating(scenario, kinds, asks=asks)
    leader = cluster.elect(LEADER)
    cluster.wait(3_000)
    if scenario.misses_registration:
        cluster.cut.add(scenario.behind)
    if scenario.joins:
        cluster.registered_at = leader.log.end_offset()
        cluster.propose(LEADER)
        cluster.wait(700)
        if leader.raft.high_watermark <= cluster.registered_at:
            return None  # whoever joins has to be registered first, and a majority has to know
    cluster.cut.add(scenario.behind)
    joining = AddVoter(entry(cluster[scenario.controllers].key))
    change = joining if scenario.joins else RemoveVoter(cluster[scenario.removed].key)
    if any(isinstance(effect, fx.VotersRefused) for effect in leader.step(ev.ChangeVoters(change))):
        return None
    cluster.wait(700)
    cluster.cut = {scenario.dead}
    cluster.leaders.clear()
    end = cluster.now + PATIENCE_MS
    while cluster.now < end and not leads(cluster):
        cluster.wait(500)
    return cluster.leaders - cluster.cut | leads(cluster)


def leads(cluster: Migrating) -> set[int]:
    """The leader that has committed a record in its epoch."""
    return {
        it
        for it, member in cluster.members.items()
        if it not in cluster.cut
        and member.raft.epoch_start_offset is not None
        and member.raft.high_watermark > member.raft.epoch_start_offset
    }


@pytest.mark.parametrize(
    "other",
    [pytest.param(OURS, id="ours", marks=pytest.mark.lane("test-all")), pytest.param(STOCK, id="stock")],
)
def test_a_change_costs_no_election(other: VoterAnswer) -> None:
    """The last of them is another program: it joins, or voted before."""
    tried = 0
    for scenario in scenarios():
        kinds = dict.fromkeys(range(1, scenario.controllers + 1), OURS) | {scenario.controllers: other}
        expected = led_by(scenario, kinds, asks=False)
        if expected is not None:
            tried += bool(expected)
            assert bool(led_by(scenario, kinds, asks=True)) == bool(expected), scenario
    assert tried > 50


def test_a_stock_controller_without_the_flag_never_leads() -> None:
    for scenario in scenarios():
        stranger = scenario.controllers
        if stranger == LEADER or (scenario.removed == LEADER and scenario.voters == 2):
            continue  # the rules of `migrator.migration.machine.voters` leave no stock voter alone
        kinds = dict.fromkeys(range(1, stranger), OURS) | {stranger: STOCK_WITHOUT_FLAG}
        assert stranger not in (led_by(scenario, kinds, asks=True) or ()), scenario
