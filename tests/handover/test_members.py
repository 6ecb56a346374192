"""A hand-over by membership: what refuses it, which step comes next, and a run that was interrupted."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import OperatorError
from migrator.handover.members import ObservedBroker, ObservedMembers, refusals, with_obstacles
from migrator.handover.members_run import MembersRun, MembersSurvey
from migrator.raft.planner import PlannerView, Replica, Wait, plan, with_key
from migrator.raft.voter_set import ReplicaKey, VoterSet
from migrator.records.uuid import Uuid

NEW = (4, 5, 6)
AT = {node: frozenset({f"host-{node}:9093"}) for node in range(1, 7)}
LEVEL = 21


def key(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, Uuid(bytes([node_id]) * 16))


def voters(*ids: int) -> VoterSet:
    found = VoterSet(())
    for node_id in ids:
        found = with_key(found, key(node_id))
    return found


def view(leader: int, *ids: int, observers: tuple[int, ...] = NEW) -> PlannerView:
    there = dict.fromkeys((*ids, *observers))
    replicas = tuple(Replica(key(node), 100, is_live=True, is_caught_up=True) for node in there)
    target = tuple(ReplicaKey(node) for node in NEW)
    return PlannerView(own=key(leader), is_leader=True, voters=voters(*ids), target=target, replicas=replicas)


def broker(controllers: frozenset[str], **other: Any) -> ObservedBroker:
    return replace(ObservedBroker(10, reads_voters=True, controllers=controllers), **other)


EVERYWHERE = frozenset().union(*AT.values())
SEEN = ObservedMembers(
    planner=view(1, 1, 2, 3),
    epoch=7,
    is_finished=True,
    level=LEVEL,
    kraft_version=1,
    target=None,
    controllers=AT,
    brokers=(broker(EVERYWHERE),),
)


def test_nothing_is_against_it() -> None:
    assert list(refusals(SEEN)) == []


@pytest.mark.parametrize(
    ("change", "reason", "remedy"),
    [
        ({"is_finished": False}, "migration is not finished", "Finish it first"),
        ({"level": LEVEL - 1}, "metadata.version is below 3.9-IV0", "kafka-features"),
        ({"kraft_version": 0}, "kraft.version 0", "quorum upgrade"),
        ({"target": "7,8,9"}, "to 7,8,9 is under way", "quorum cancel"),
        ({"brokers": (broker(EVERYWHERE, reads_voters=False),)}, "Broker 10 is older than Kafka 3.9", "Upgrade it"),
        (
            {"brokers": (broker(frozenset(), trouble="no answer at b:9092"),)},
            "no answer at b:9092",
            "'migrator quorum unregister' it",
        ),
        ({"brokers": (broker(AT[1] | AT[4]),)}, "does not name these controllers.*: 5, 6", "bootstrap.servers"),
        (
            {"controllers": {1: AT[1]}, "brokers": (broker(AT[1], broker_id=4),)},
            "Node 4 is a broker",
            "controllers only",
        ),
    ],
)
def test_what_refuses_it(change: dict[str, Any], reason: str, remedy: str) -> None:
    first = next(refusals(replace(SEEN, **change)))
    assert re.search(reason, first.reason)
    assert remedy in first.remedy


def test_whoever_has_not_registered_is_waited_for() -> None:
    planner = with_obstacles(view(1, 1, 2, 3), {node: AT[node] for node in (1, 2, 3)})
    step = plan(planner)
    assert isinstance(step, Wait)
    assert "has not registered" in step.reason


class Quorum(MembersSurvey):
    """Changes at once what it is asked to change; the leader that removes itself is followed by the highest id."""

    def __init__(self, *, interrupt_after: int = 99) -> None:
        self.leader, self.ids = 1, [1, 2, 3]
        self.changes: list[str] = []
        self._interrupt_after = interrupt_after

    async def look(self) -> ObservedMembers | None:
        observers = tuple(node for node in range(1, 7) if node not in self.ids)
        return replace(SEEN, planner=view(self.leader, *self.ids, observers=observers))

    async def add(self, key: ReplicaKey) -> str:
        return self._noted(f"+{key.node_id}", lambda: self.ids.append(key.node_id))

    async def remove(self, key: ReplicaKey) -> str:
        return self._noted(f"-{key.node_id}", lambda: self.ids.remove(key.node_id))

    def _noted(self, name: str, change: Callable[[], None]) -> str:
        if len(self.changes) == self._interrupt_after:
            self._interrupt_after = 99
            raise OperatorError("killed")
        self.changes.append(name)
        change()
        self.ids.sort()
        if self.leader not in self.ids:
            self.leader = self.ids[-1]
        return ""


def run(quorum: Quorum, folder: Path, said: list[str]) -> MembersRun:
    return MembersRun(folder / "controller.properties", NEW, tell=said.append, patience_seconds=1, voters=quorum)


async def test_one_change_at_a_time_the_leader_last(tmp_path: Path) -> None:
    quorum, said = Quorum(), list[str]()
    await run(quorum, tmp_path, said).run()
    assert quorum.ids == list(NEW)
    assert [change for change in quorum.changes if change[0] == "-"][-1] == "-1"
    assert len(quorum.changes) == 6
    assert said[-1] == "The voters are 4, 5, 6. Stop the other controllers now"


@pytest.mark.parametrize("done", range(6))
async def test_a_run_that_was_killed_goes_on(tmp_path: Path, done: int) -> None:
    quorum = Quorum(interrupt_after=done)
    with pytest.raises(OperatorError, match="killed"):
        await run(quorum, tmp_path, []).run()
    await run(quorum, tmp_path, []).run()
    assert quorum.ids == list(NEW)
    assert len(quorum.changes) == 6


async def test_a_refusal_changes_nothing(tmp_path: Path) -> None:
    class Unfinished(Quorum):
        async def look(self) -> ObservedMembers | None:
            return replace(SEEN, is_finished=False)

    quorum = Unfinished()
    with pytest.raises(OperatorError, match="migration is not finished"):
        await run(quorum, tmp_path, []).run()
    assert quorum.changes == []


async def test_nobody_who_leads_is_waited_for(tmp_path: Path) -> None:
    class Leaderless(Quorum):
        async def look(self) -> ObservedMembers | None:
            return None

    with pytest.raises(OperatorError, match=r"did not complete within 1 s: No controller leads"):
        await run(Leaderless(), tmp_path, []).run()
