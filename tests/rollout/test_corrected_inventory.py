"""An inventory that the operator corrects between two commands counts from then on, for the step under way, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.config.properties import decoded
from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.journal.journal import Event
from migrator.rollout.nodes import ExecutorChoice, Node
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode, ExecutorError
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

VOTERS = "controller.quorum.voters"
RIGHT = "3001@right:9093"
KILLED = KeyboardInterrupt()


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(ModelCluster(model_inventory()), tmp_path / "state")


def correct_settings(operator: Operator) -> None:
    inventory = operator.cluster.inventory
    settings = {**inventory.brokers.settings, VOTERS: RIGHT}
    operator.cluster.inventory = replace(inventory, brokers=replace(inventory.brokers, settings=settings))


def reword(operator: Operator) -> None:
    """Another command tells the incarnation from now on."""
    commands: Mapping[str, str] = {"incarnation": "pgrep kafka"}
    choice = ExecutorChoice("default", "local", commands, {}, 120.0)
    operator.cluster.inventory = replace(operator.cluster.inventory, executors={"default": choice})
    operator.cluster.tells = "pid-"


def all_have_the_right_voters(operator: Operator) -> bool:
    return all(
        f"{VOTERS}={RIGHT}" in decoded(operator.cluster.files[node.name, node.properties])
        and operator.cluster.processes[node.name].properties[VOTERS] == RIGHT
        for node in operator.cluster.inventory.brokers.nodes
    )


def test_settings_that_were_corrected_reach_the_broker_that_failed_with_the_old_ones(operator: Operator) -> None:
    operator.apply(StopAt(Phase.START))
    operator.cluster.old_settings.add("broker-1")  # stands for a broker that does not find the quorum
    with pytest.raises(OperatorError, match="broker-1: is registered in ZooKeeper, and not yet"):
        operator.resume()
    operator.cluster.old_settings.clear()
    correct_settings(operator)
    operator.resume_until(Phase.MIGRATE)
    assert all_have_the_right_voters(operator)
    assert [entry.step for entry in operator.entries if entry.event is Event.REOPENED] == ["migrate/broker-1"]
    assert operator.cluster.restarts["broker-1"] == 3
    assert operator.resume() is Ending.COMPLETE


@pytest.mark.parametrize(
    "boundary",
    [
        "after begun migrate/broker-1 edit",
        "after write broker-1",
        "after done migrate/broker-1 edit",
        "after begun migrate/broker-1 restart",
        "after stop broker-1",
        "after start broker-1",
        "after done migrate/broker-1 restart",
    ],
)
def test_settings_count_wherever_the_command_died(operator: Operator, boundary: str) -> None:
    operator.apply(StopAt(Phase.START))
    operator.interrupted_at(boundary, KILLED)
    correct_settings(operator)
    operator.resume_until(Phase.MIGRATE)
    assert all_have_the_right_voters(operator)
    assert not operator.cluster.violations


def test_a_file_that_was_mended_by_hand_is_not_overwritten_while_the_inventory_is_the_same(operator: Operator) -> None:
    operator.apply(StopAt(Phase.START))
    operator.cluster.old_settings.add("broker-1")
    with pytest.raises(OperatorError, match="broker-1: is registered in ZooKeeper, and not yet"):
        operator.resume()
    key = "broker-1", "/etc/b1.properties"
    operator.cluster.files[key] = operator.cluster.files[key].replace(b"3001@c:9093", RIGHT.encode())
    operator.cluster.start_as_configured(operator.node("broker-1"))
    operator.resume_until(Phase.MIGRATE)
    assert RIGHT.encode() in operator.cluster.files[key]
    assert operator.cluster.restarts["broker-1"] == 3, "twice by the test, once by the rollout"


def test_a_process_that_another_command_names_is_not_another_process(operator: Operator) -> None:
    operator.apply(StopAt(Phase.START))

    def fails(action: str, node: Node) -> None:
        if (action, node.name) == ("stop", "broker-1"):
            raise ExecutorError("stop ended with exit code 1", where=node.name)

    operator.cluster.fault = fails
    with pytest.raises(ExecutorError):
        operator.resume()
    operator.cluster.fault = nothing
    reword(operator)
    operator.resume_until(Phase.MIGRATE)
    assert set(operator.cluster.modes().values()) == {BrokerMode.MIGRATING}
    assert operator.cluster.restarts["broker-1"] == 2


def test_a_restart_that_took_effect_is_not_repeated_although_another_command_tells(operator: Operator) -> None:
    operator.apply(StopAt(Phase.START))
    operator.interrupted_at("after start broker-1", KILLED)
    reword(operator)
    operator.resume_until(Phase.MIGRATE)
    assert operator.cluster.restarts["broker-1"] == 2


def test_a_controller_whose_stop_failed_is_restarted_although_another_command_tells(operator: Operator) -> None:
    operator.apply(StopAt(Phase.VERIFY))
    operator.interrupted_at("before stop controller-3002", KILLED)
    reword(operator)
    assert operator.resume() is Ending.COMPLETE
    assert operator.cluster.restarts["controller-3002"] == 2


@pytest.mark.parametrize("name", ["controller-3001", "controller-3002", "controller-3003"])
@pytest.mark.parametrize("boundary", ["after begun start/{} start", "after start {}", "after done start/{} start"])
def test_controllers_may_change_their_order_while_they_start(operator: Operator, name: str, boundary: str) -> None:
    """The node that starts last waits for no later one."""
    operator.apply(StopAt(Phase.FORMAT))
    operator.interrupted_at(boundary.format(name), KILLED)
    controllers = operator.cluster.inventory.controllers
    others = replace(controllers, nodes=tuple(reversed(controllers.nodes)))
    operator.cluster.inventory = replace(operator.cluster.inventory, controllers=others)
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations
