"""Orders of an operator that a node takes, and orders that it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from migrator.errors import OperatorError
from migrator.image.model import EMPTY_IMAGE
from migrator.migration.machine import events as ev
from migrator.migration.machine.states import OVERRIDES, PublicState, State
from migrator.migration.machine.volatile_state import DriverStatus, Situation
from migrator.migration.write_behind.versions import VersionsMissing
from migrator.node.migration.status import MigrationInsight
from migrator.node.status_source import NodeStatusSource
from migrator.observe.status import Force, Goal, Orderer
from migrator.raft.core import QuorumInfo
from migrator.raft.messages import EpochOffset
from migrator.raft.states import Role
from migrator.records.metadata import ZkMigrationState

ALL_RAISED = VersionsMissing(0, 0)
ALICE = Orderer("User:CN=alice", "ipv4:10.0.0.1:4711")
WAITS_FOR = {
    State.REFUSED: {Force.RECLAIM},
    State.HOLDING: {Force.DELETES, Force.RECONCILE},
    State.DUAL_WRITING: {Force.RECONCILE, Force.FINISH},
    State.FINISHING: {Force.FINISH},
}


class Runtime:
    """The migration's runtime in one state; what happens is noted in order."""

    def __init__(self, state: State, situation: Situation | None = None) -> None:
        self.state = state
        self.situation = situation or Situation()
        self.seen: list[object] = []
        self.executor = SimpleNamespace(coordinator=self, feed=self.seen.append)

    def status(self, now_ms: int) -> DriverStatus:
        return DriverStatus(self.state, PublicState.DUAL_WRITE, 1, now_ms, self.situation, True, False, None)

    def note(self, kind: str, text: str, **details: str) -> None:
        self.seen.append((kind, text, details))


def insight(runtime: Runtime) -> MigrationInsight:
    unused = cast("Any", None)
    return MigrationInsight(unused, cast("Any", runtime), unused, unused)


@pytest.mark.parametrize("state", State)
async def test_only_what_the_migration_waits_for_can_be_forced(state: State) -> None:
    for kind in Force:
        runtime = Runtime(state)
        if kind is Force.FINISH and kind in WAITS_FOR.get(state, set()):
            with pytest.raises(OperatorError, match="names no node"):
                await insight(runtime).force(kind, "the audit said so", ALICE)
            assert runtime.seen == []
        elif kind in WAITS_FOR.get(state, set()) and kind in OVERRIDES:
            with pytest.raises(OperatorError, match="an order cannot override"):
                await insight(runtime).force(kind, "the audit said so", ALICE)
            assert runtime.seen == []
        elif kind in WAITS_FOR.get(state, set()):
            await insight(runtime).force(kind, "the audit said so", ALICE)
            noted = ("force", "the audit said so", {"what": kind.value} | ALICE.details)
            assert runtime.seen == [noted, ev.OperatorForce(kind)], "the journal has it before it is done"
        else:
            with pytest.raises(OperatorError, match=f"is '{state.value}'"):
                await insight(runtime).force(kind, "the audit said so", ALICE)
            assert runtime.seen == []


FACTS = ("/migration holds offset 100", "/controller is held by ZooKeeper broker 2")


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ((), "does not say which facts it overrides"),  # of an earlier release
        (FACTS[:1], "was given for other facts"),
        ((*FACTS, "something else"), "was given for other facts"),
        (("/migration holds offset 99", FACTS[1]), "was given for other facts"),
        (FACTS, ""),
        (FACTS[::-1], ""),
    ],
)
@pytest.mark.parametrize(("state", "kind"), [(State.REFUSED, Force.RECLAIM), (State.HOLDING, Force.DELETES)])
async def test_an_order_overrides_exactly_what_was_shown(
    state: State, kind: Force, shown: tuple[str, ...], why: str
) -> None:
    runtime = Runtime(state, Situation("refused", "Look.", FACTS))
    if why:
        with pytest.raises(OperatorError, match=why) as refused:
            await insight(runtime).force(kind, "CHG-1", ALICE, overrides=shown)
        assert all(fact in refused.value.what for fact in FACTS), "all that holds now is said"
        assert runtime.seen == []
    else:
        await insight(runtime).force(kind, "CHG-1", ALICE, overrides=shown)
        noted = {"what": kind.value, "overrides": "; ".join(FACTS)} | ALICE.details
        assert runtime.seen == [("force", "CHG-1", noted), ev.OperatorForce(kind, overrides=frozenset(FACTS))]


WRONG_CHROOT = Situation("no Kafka cluster is here", "Correct zookeeper.connect, and restart this controller.")


def standing(
    state: State,
    situation: Situation,
    lag: int | None,
    *,
    compared: bool = True,
    versions: VersionsMissing = ALL_RAISED,
) -> MigrationInsight:
    """An active controller in dual-write."""
    unused = cast("Any", None)
    runtime: Any = Runtime(state, situation)
    runtime.lag = SimpleNamespace(records=lag, age_ms=0)
    runtime.broker_troubles = {}
    runtime.write_behind = SimpleNamespace(
        unanswered=None,
        set_aside=(),
        reached=EpochOffset(1, 1),
        compared=compared,
        versions_missing=lambda _: versions,
    )
    runtime.verified = None
    image = replace(EMPTY_IMAGE, features=replace(EMPTY_IMAGE.features, zk_migration_state=ZkMigrationState.MIGRATION))
    core: Any = SimpleNamespace(metadata=SimpleNamespace(published=image))
    return MigrationInsight(core, runtime, cast("Any", SimpleNamespace(blocked_ms=0)), unused)


@pytest.mark.parametrize("goal", [Goal.FINISH, Goal.ROLLBACK])
async def test_the_gates_of_a_refused_migration_say_what_the_status_says(goal: Goal) -> None:
    refused = standing(State.REFUSED, WRONG_CHROOT, None)
    gates = {gate.name: gate for gate in await refused.gates(goal)}
    assert gates["state"].what == "the migration is in DualWrite (refused)"
    assert not gates["lag"].open
    assert gates["lag"].what.endswith("is behind. migration: no Kafka cluster is here")
    assert gates["lag"].remedy == "Correct zookeeper.connect, and restart this controller", "to wait does not help"
    (problem,) = refused.problems()
    assert (problem.what, problem.remedy) == (WRONG_CHROOT.why, WRONG_CHROOT.remedy)


@pytest.mark.parametrize("lag", [7, None])
async def test_a_zookeeper_that_follows_is_waited_for(lag: int | None) -> None:
    insight = standing(State.DUAL_WRITING, Situation("writes"), lag)
    gates = {gate.name: gate for gate in await insight.gates(Goal.ROLLBACK)}
    assert gates["state"].what == "the migration is in DualWrite"
    assert (gates["lag"].open, gates["lag"].remedy) == (False, "Wait until ZooKeeper has caught up")


@pytest.mark.parametrize("state", [State.COMPARING, State.RECONCILING])
@pytest.mark.parametrize("goal", [Goal.FINISH, Goal.ROLLBACK])
async def test_a_comparison_of_all_of_zookeeper_is_waited_for(goal: Goal, state: State) -> None:
    insight = standing(state, Situation("compares"), 0, compared=False)
    (lag,) = [gate for gate in await insight.gates(goal) if gate.name == "lag"]
    assert (lag.open, lag.what) == (False, "all of ZooKeeper has to be compared with the log first")


@pytest.mark.parametrize(
    ("compared", "versions", "said"),
    [
        (True, VersionsMissing(0, 0), "has the version that brokers know"),
        (True, VersionsMissing(84_000, 61), "raised: 84,000 sets are left, about 1 min"),
        (True, VersionsMissing(84_000, None), "raised: 84,000 sets are left$"),
        (False, VersionsMissing(0, 0), "not known yet"),
    ],
)
async def test_a_rollback_waits_for_the_versions_of_partition_states(
    compared: bool, versions: VersionsMissing, said: str
) -> None:
    insight = standing(State.DUAL_WRITING, Situation("writes"), 0, compared=compared, versions=versions)
    (gate,) = [gate for gate in await insight.gates(Goal.ROLLBACK) if gate.name == "versions"]
    assert gate.open is (compared and not versions.sets)
    assert re.search(said, gate.what)


async def test_nothing_is_forced_without_a_reason() -> None:
    runtime = Runtime(State.DUAL_WRITING)
    with pytest.raises(OperatorError, match="--reason"):
        await insight(runtime).force(Force.RECONCILE, "", ALICE)
    assert runtime.seen == []


@pytest.mark.parametrize(("leader", "remedy"), [(3, "Ask controller 3, which leads"), (None, "Wait for an election")])
async def test_a_node_that_does_not_lead_names_the_leader(leader: int | None, remedy: str) -> None:
    """The one that it hears, not one that it remembers."""
    info = QuorumInfo(Role.FOLLOWER, 4, 3, 0, (), (), has_leader=leader is not None)
    core = SimpleNamespace(controller=SimpleNamespace(epoch=None), quorum=SimpleNamespace(status=lambda: info))
    runtime = Runtime(State.DUAL_WRITING)
    source = NodeStatusSource(
        cast("Any", SimpleNamespace(node_id=2)), cast("Any", core), insight(runtime), lambda _: []
    )
    with pytest.raises(OperatorError, match=remedy):
        await source.force(Force.RECONCILE, "the audit said so", ALICE)
    assert runtime.seen == []
