"""What an operator may order of a node, and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from migrator.errors import OperatorError
from migrator.migration.machine import events as ev
from migrator.migration.machine.states import PublicState, State
from migrator.migration.machine.volatile_state import DriverStatus, Situation
from migrator.node.migration.status import MigrationInsight
from migrator.node.status_source import NodeStatusSource
from migrator.observe.status import Force, Orderer
from migrator.raft.core import QuorumInfo
from migrator.raft.states import Role

ALICE = Orderer("User:CN=alice", "ipv4:10.0.0.1:4711")
WAITS_FOR = {
    State.REFUSED: {Force.RECLAIM},
    State.HOLDING: {Force.DELETES, Force.RECONCILE},
    State.DUAL_WRITING: {Force.RECONCILE},
}


class Runtime:
    """The migration's runtime in one state; what happens is noted in order."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.seen: list[object] = []
        self.executor = SimpleNamespace(coordinator=self, feed=self.seen.append)

    def status(self, now_ms: int) -> DriverStatus:
        return DriverStatus(self.state, PublicState.DUAL_WRITE, 1, now_ms, Situation(), True, False, None)

    def note(self, kind: str, text: str, **details: str) -> None:
        self.seen.append((kind, text, details))


def insight(runtime: Runtime) -> MigrationInsight:
    unused = cast("Any", None)
    return MigrationInsight(unused, cast("Any", runtime), unused, unused)


@pytest.mark.parametrize("state", State)
def test_only_what_the_migration_waits_for_can_be_forced(state: State) -> None:
    for kind in Force:
        runtime = Runtime(state)
        if kind in WAITS_FOR.get(state, set()):
            insight(runtime).force(kind, "the audit said so", ALICE)
            noted = ("force", "the audit said so", {"what": kind.value} | ALICE.details)
            assert runtime.seen == [noted, ev.OperatorForce(kind)], "the journal has it before it is done"
        else:
            with pytest.raises(OperatorError, match=f"is '{state.value}'"):
                insight(runtime).force(kind, "the audit said so", ALICE)
            assert runtime.seen == []


def test_nothing_is_forced_without_a_reason() -> None:
    runtime = Runtime(State.DUAL_WRITING)
    with pytest.raises(OperatorError, match="--reason"):
        insight(runtime).force(Force.RECONCILE, "", ALICE)
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
