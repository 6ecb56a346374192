"""An executor that says that nothing runs, while the node answers: nothing is stopped, formatted or believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.acts import HiddenProcessError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import ExecutorError
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory()), tmp_path / "state")


def hide(operator: Operator, *names: str) -> None:
    """As where the unit, or the user whose processes count, is another one."""
    seen = operator.cluster.incarnation

    async def incarnation(node: Node) -> str | None:
        return None if node.name in names else await seen(node)

    operator.cluster.incarnation = incarnation  # type: ignore[method-assign]


def test_a_broker_is_not_edited_and_started_beside_itself(operator: Operator) -> None:
    operator.apply(StopAt(Phase.START))
    file = operator.cluster.files["broker-2", "/etc/b2.properties"]
    hide(operator, "broker-2")
    with pytest.raises(HiddenProcessError, match="the node answers") as raised:
        operator.resume_until(Phase.MIGRATE)
    assert "broker-2" in raised.value.where
    assert operator.cluster.files["broker-2", "/etc/b2.properties"] == file
    assert operator.cluster.restarts["broker-2"] == 1


def test_controllers_that_run_do_not_pass_for_stopped(operator: Operator) -> None:
    """ZooKeeper would be given back beside a quorum that writes to it."""
    operator.resume_until(Phase.COPY)
    hide(operator, *(node.name for node in operator.cluster.inventory.controllers.nodes))
    with pytest.raises(HiddenProcessError, match="its executor says that no process of it runs"):
        operator.rollback()
    assert operator.cluster.kraft_claims
    assert len(operator.cluster.processes) == len(operator.cluster.inventory.nodes)


def test_a_directory_is_not_formatted_below_a_controller_that_runs(operator: Operator) -> None:
    operator.apply(StopAt(Phase.COPY))
    (operator.state / COMMAND_FILE).unlink()
    operator.lock.owner = None
    hide(operator, "controller-3002")
    with pytest.raises(HiddenProcessError):
        operator.apply()
    assert not operator.cluster.violations


def test_who_ends_just_now_is_no_riddle(operator: Operator) -> None:
    """The process answered at one look, and not at the next one."""
    operator.apply(StopAt(Phase.START))
    crashed = operator.node("broker-2")

    def ends(action: str, node: Node) -> None:
        if action == "incarnation" and node == crashed:
            operator.cluster.fault = nothing
            operator.cluster.crash(crashed)

    operator.cluster.fault = ends
    operator.resume_until(Phase.MIGRATE)
    assert crashed.name in operator.cluster.processes
    assert operator.apply() is Ending.COMPLETE


def test_a_stop_that_failed_is_not_taken_for_done(operator: Operator) -> None:
    """The operator names another unit then, which does not run."""
    operator.resume_until(Phase.COPY)
    controllers = [node.name for node in operator.cluster.inventory.controllers.nodes]

    def fault(action: str, node: Node) -> None:
        if action == "stop" and node.name in controllers:
            raise ExecutorError("a command failed", where=node.name)

    operator.cluster.fault = fault
    with pytest.raises(ExecutorError):
        operator.rollback()
    operator.cluster.fault = nothing
    hide(operator, *controllers)
    with pytest.raises(HiddenProcessError):
        operator.resume()
    assert operator.cluster.kraft_claims


def test_a_controller_that_just_comes_up_is_not_formatted(operator: Operator, tmp_path: Path) -> None:
    operator.apply(StopAt(Phase.COPY))
    anew = operator.copy(tmp_path / "anew")
    (anew.state / COMMAND_FILE).unlink()
    anew.lock.owner = None
    seen, asked = anew.cluster.incarnation, set[str]()

    async def incarnation(node: Node) -> str | None:
        is_first = node.name not in asked
        asked.add(node.name)
        return None if is_first else await seen(node)

    anew.cluster.incarnation = incarnation  # type: ignore[method-assign]
    begun = len(anew.cluster.commands)
    anew.resume_until(Phase.COPY)
    assert "format" not in {words[1] for words in anew.cluster.commands[begun:] if len(words) > 1}
