"""A gate that was open once counts for a while only: who goes on later, asks it again before a node is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.step import ABORT_FILE
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.journal.summary import failure_of
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import ExecutorError, LockedError, LockHolder
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_clock import ModelClock
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

BROKER, OTHER = "broker-2", "broker-3"
STOPS = pytest.mark.parametrize("stops", [True, False], ids=["stop and start", "restart in one command"])


class Killed(BaseException):
    """The process of the rollout ends, and notes nothing."""


def operator_at(tmp_path: Path, phase: Phase, *, stops: bool = True) -> Operator:
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory(), stops=stops), tmp_path / "state")
    assert operator.apply(StopAt(phase)) is Ending.REACHED
    return operator


def stays_down(operator: Operator, name: str) -> None:
    operator.cluster.crash(operator.node(name))

    def fault(action: str, found: Node) -> None:
        if action == "start" and found.name == name:
            raise ExecutorError("its disk is broken", where=name)

    operator.cluster.fault = fault


@STOPS
@pytest.mark.parametrize(("reached", "phase"), [(Phase.START, Phase.MIGRATE), (Phase.COPY, Phase.KRAFT)])
@pytest.mark.parametrize("line", ["passed {} check-before", "done {} edit", "begun {} restart"])
def test_a_gate_is_asked_again_by_whoever_goes_on_later(
    tmp_path: Path, reached: Phase, phase: Phase, line: str, *, stops: bool
) -> None:
    operator = operator_at(tmp_path, reached, stops=stops)
    operator.interrupted_at("after " + line.format(f"{phase.value}/{BROKER}"), Killed())
    stays_down(operator, OTHER)
    restarts = operator.cluster.restarts.copy()
    with pytest.raises(GateTimeoutError, match="under-replicated"):
        operator.resume()
    assert not operator.cluster.violations
    assert operator.cluster.restarts == restarts
    operator.cluster.fault = nothing
    operator.cluster.start_as_configured(operator.node(OTHER))
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_a_gate_is_asked_again_when_the_change_of_the_file_took_long(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.COPY)

    def takes_an_hour(where: str) -> None:
        if where == f"after write {BROKER}":
            operator.clock.now_ms += 3_600_000
            stays_down(operator, OTHER)

    operator.cluster.points.at = takes_an_hour
    with pytest.raises(GateTimeoutError, match="under-replicated"):
        operator.resume()
    assert not operator.cluster.violations


@pytest.mark.parametrize("boundary", [f"after stop {BROKER}", f"before start {BROKER}"])
def test_no_gate_holds_up_a_broker_that_the_rollout_has_stopped(tmp_path: Path, boundary: str) -> None:
    operator = operator_at(tmp_path, Phase.COPY)
    operator.interrupted_at(boundary, Killed())
    assert operator.cluster.modes()[BROKER] is None
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_no_gate_holds_up_a_broker_whose_restart_command_was_killed_in_the_middle(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.COPY, stops=False)

    def dies(where: str) -> None:
        if where == f"before restart {BROKER}":
            operator.cluster.crash(operator.node(BROKER))
            raise Killed

    operator.cluster.points.at = dies
    with pytest.raises(Killed):
        operator.resume()
    operator.cluster.points.at = nothing
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


@STOPS
@pytest.mark.parametrize(("reached", "phase"), [(Phase.START, Phase.MIGRATE), (Phase.COPY, Phase.KRAFT)])
@pytest.mark.parametrize("action", ["incarnation", "read"])
def test_the_gate_is_the_last_thing_before_a_node_is_stopped(
    tmp_path: Path, reached: Phase, phase: Phase, action: str, *, stops: bool
) -> None:
    """The looks before took minutes, and another broker has gone meanwhile."""
    operator = operator_at(tmp_path, reached, stops=stops)
    restarts = operator.cluster.restarts.copy()

    def takes_long(found: str, node: Node) -> None:
        if (found, node.name) == (action, BROKER) and operator.entries[-1].act == "edit":
            operator.clock.now_ms += 110_000
            stays_down(operator, OTHER)

    operator.cluster.fault = takes_long
    with pytest.raises(GateTimeoutError, match=f"{phase.value}/{BROKER}: .*under-replicated"):
        operator.resume()
    assert not (operator.cluster.restarts - restarts)[BROKER]
    assert not operator.cluster.violations
    operator.cluster.fault = nothing
    operator.cluster.start_as_configured(operator.node(OTHER))
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


@STOPS
def test_a_broker_that_was_down_and_is_back_is_gated_as_anybody(tmp_path: Path, *, stops: bool) -> None:
    """A broker that is down comes first, without a gate; but here an operator is just starting it."""
    operator = operator_at(tmp_path, Phase.COPY, stops=stops)
    operator.cluster.crash(operator.node(OTHER))
    restarts = operator.cluster.restarts.copy()

    def comes_back(where: str) -> None:
        if where == f"after write {OTHER}":
            operator.cluster.start_as_configured(operator.node(OTHER))
            restarts[OTHER] += 1
            stays_down(operator, BROKER)

    operator.cluster.points.at = comes_back
    with pytest.raises(GateTimeoutError, match="under-replicated"):
        operator.resume()
    assert operator.cluster.restarts == restarts
    assert not operator.cluster.violations
    operator.cluster.points.at, operator.cluster.fault = nothing, nothing
    operator.cluster.start_as_configured(operator.node(BROKER))
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_a_broker_that_goes_down_while_its_gate_is_shut_is_started_without_one(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.COPY)

    def goes_down(where: str) -> None:
        if where == f"after done kraft/{BROKER} edit":
            stays_down(operator, OTHER)
            operator.cluster.violations.clear()
            operator.cluster.crash(operator.node(BROKER))

    operator.cluster.points.at = goes_down
    restarts = operator.cluster.restarts.copy()
    with pytest.raises(OperatorError, match=OTHER):
        operator.resume()
    assert (operator.cluster.restarts - restarts)[BROKER] == 1


def test_a_lock_that_is_lost_while_the_gate_is_waited_for_is_seen(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.COPY)

    def takes(where: str) -> None:
        if where == f"after done kraft/{BROKER} edit":
            operator.cluster.lagging = {OTHER}

    def waits() -> None:
        if operator.cluster.lagging:
            operator.cluster.lagging = set()
            operator.lock.owner = LockHolder("another", "somebody", "ops-2", 5)

    operator.cluster.points.at = takes
    operator.clock = WaitingClock(operator.clock, waits)
    restarts = operator.cluster.restarts[BROKER]
    with pytest.raises(LockedError):
        operator.resume()
    assert operator.cluster.restarts[BROKER] == restarts


class WaitingClock(ModelClock):
    """Run an event while the rollout sleeps."""

    def __init__(self, clock: ModelClock, meanwhile: Callable[[], None]) -> None:
        super().__init__()
        self.now_ms, self._meanwhile = clock.now_ms, meanwhile

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        self._meanwhile()


@pytest.mark.parametrize("gate", ["before", "after"])
def test_an_abort_ends_the_wait_for_a_gate(tmp_path: Path, gate: str) -> None:
    """Nothing has failed, and nothing that the rollout has stopped is down."""
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    operator.apply(StopAt(Phase.COPY))

    def shuts(where: str) -> None:
        if where == ("after done soak " if gate == "before" else "after start broker-1"):
            operator.cluster.lagging = {"broker-3"}
            (operator.state / ABORT_FILE).touch() if gate == "after" else None

    def aborts(line: str) -> None:
        operator.said.append(line)
        if "waits:" in line:
            (operator.state / ABORT_FILE).touch()

    operator.cluster.points.at = shuts
    operator.hears = aborts
    began_ms = operator.clock.now_ms
    assert operator.resume() is Ending.ABORTED
    assert any("under-replicated" in line for line in operator.said)
    assert operator.clock.now_ms - began_ms < 1000 * (180 + 60), "no whole gate was waited for"
    assert failure_of(operator.entries) is None
    assert not (operator.state / ABORT_FILE).exists()
    assert "broker-1" in operator.cluster.processes
    operator.cluster.points.at = nothing
    operator.cluster.lagging = set()
    assert operator.resume() is Ending.COMPLETE


def test_kafkas_controllers_take_over_only_when_no_reassignment_of_the_voters_is_under_way(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, Phase.FINISH)
    operator.cluster.target = "3001,3002,3004"
    restarts = operator.cluster.restarts.copy()
    with pytest.raises(GateTimeoutError, match=r"3001,3002,3004 is under way.*quorum cancel"):
        operator.resume()
    assert operator.cluster.restarts == restarts
    operator.cluster.target = ""
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations
