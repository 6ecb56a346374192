"""Two nodes that one command would touch: an executor refuses them before anything is done."""

from __future__ import annotations

import pytest

from migrator.errors import OperatorError
from migrator.rollout.executors.executors import NodeExecutor
from migrator.rollout.inventory import parse_inventory

TWO = """
cluster: c
access: a.properties
controllers: {nodes: [{id: 3001, host: h, properties: /etc/c.properties, variables: {CONTROLLER}, stock: {STOCK}}]}
brokers:
  settings: {controller.listener.names: C, controller.quorum.voters: "3001@h:9093"}
  nodes: [{id: 1, host: h, properties: /etc/b.properties, variables: {BROKER}}]
executors: {default: EXECUTOR}
handover: {release: "3.9.1"}
"""
UNITS = "{preset: ssh-systemd}"
PODS = "{preset: statefulset, commands: {stop: 'k stop {name}', start: 'k start {name}'}}"


def of_two(executor: str, broker: str, controller: str, stock: str) -> NodeExecutor:
    """A controller beside a broker; each with a variable."""
    text = TWO.replace("EXECUTOR", executor).replace("{BROKER}", "{" + broker + "}")
    text = text.replace("{CONTROLLER}", "{" + controller + "}").replace("{STOCK}", "{" + stock + "}")
    inventory = parse_inventory(text, "two.yaml")
    return NodeExecutor(inventory.executors, (*inventory.nodes, *inventory.controllers.stock.values()))


@pytest.mark.parametrize(
    ("executor", "broker", "controller", "stock", "said"),
    [
        (UNITS, "", "", "variables: {unit: k}", "controller-3001 and broker-1 get the same command to stop"),
        (UNITS, "", "unit: m", "", "controller-3001 and controller-3001-stock get the same command to start"),
        (UNITS, "", "unit: m", "variables: {unit: kafka.service}", "broker-1 and controller-3001-stock get the same"),
        (PODS, "pod: a", "pod: a", "", "controller-3001 and broker-1 get the same command to restart"),
        (
            PODS,
            "pod: a",
            "pod: c",
            "properties: /etc/c.properties",
            "controller-3001-stock get the same command to read",
        ),
    ],
)
def test_two_nodes_that_one_command_would_touch_are_refused(
    executor: str, broker: str, controller: str, stock: str, said: str
) -> None:
    """A forgotten unit is the default of both: the way back would stop the broker in place of the controller."""
    with pytest.raises(OperatorError) as refused:
        of_two(executor, broker, controller, stock)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("executor", "broker", "controller", "stock"),
    [
        (UNITS, "", "unit: m", "variables: {unit: k}"),
        (PODS, "pod: a", "pod: c", ""),
    ],
)
def test_a_controller_and_its_successor_may_share_a_place(
    executor: str, broker: str, controller: str, stock: str
) -> None:
    of_two(executor, broker, controller, stock)
