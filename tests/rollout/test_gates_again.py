"""A gate that was open once counts for a while only: who goes on later, asks it again before a node is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.rollout.apply import Ending, StopAt
from migrator.rollout.gatekeeper import GateTimeoutError
from migrator.rollout.nodes import Node
from migrator.rollout.ports import ExecutorError
from migrator.rollout.steps import Phase
from tests.rollout.support.model import ModelCluster, nothing
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
