"""Nodes that are down, or waited for, are named once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.rollout.engine.standing import seen_lines
from migrator.rollout.gates.gatekeeper import Gatekeeper, GateTimeoutError
from migrator.rollout.gates.gates import judge
from migrator.rollout.gates.placements import counted
from migrator.rollout.plan.plan import plan
from migrator.rollout.plan.steps import Direction
from migrator.rollout.ports import BrokerMode, BrokerSeen, Gate, GateKind, Observation, Placement, Some
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import inventory_text, model_inventory
from tests.rollout.support.runs import Operator
from tests.rollout.test_commands import Desk, desk

__all__ = ["desk"]

UP = BrokerSeen(1, BrokerMode.KRAFT, "1", serving=True)
DOWN = BrokerSeen(2, None)


def test_status_names_who_is_down() -> None:
    seen = Observation(brokers={1: UP, 2: DOWN, 7: replace(DOWN, broker_id=7)})
    lines = seen_lines(seen, {1: "broker-1", 2: "kafka-b"})
    assert "brokers: 1 in KRaft mode: broker-1, 2 in no mode (down): kafka-b, broker 7" in lines


def test_status_of_a_model_names_who_is_down(desk: Desk) -> None:
    desk.printed("apply --until DualWrite")
    assert "brokers: 3 in migration mode\n" in desk.printed("status", exit_code=1)
    desk.cluster.crash(model_inventory().brokers.nodes[1])
    assert "1 in no mode (down): broker-2" in desk.printed("status", exit_code=1)


@pytest.mark.parametrize("led", [True, False])
def test_a_gate_of_another_broker_names_who_is_down(*, led: bool) -> None:
    alone = Placement(frozenset((1, 2)), frozenset((1,)) if led else frozenset((2,)), 1, led, 6, ("orders-0",))
    seen = Observation(brokers={1: UP, 2: DOWN, 3: DOWN}, partitions=counted((alone,), Some()))
    first, *others = judge(Gate(GateKind.PARTITIONS_HEALTHY), seen)
    assert (first.who, first.what) == ("broker 2", "is down: it is not registered, and partitions miss it")
    assert "start it" in first.remedy
    assert {each.who for each in others} == {"partitions"}


def test_who_is_down_and_has_no_replicas_holds_nothing_up() -> None:
    seen = Observation(brokers={1: UP, 2: DOWN}, partitions=counted((), Some()))
    assert not judge(Gate(GateKind.PARTITIONS_HEALTHY), seen)


def test_one_broker_is_waited_for_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator(ModelCluster(model_inventory()), tmp_path)
    observe = operator.cluster.observe

    async def silent() -> Observation:
        seen = await observe()
        assert seen.brokers is not None
        return replace(seen, brokers={**seen.brokers, 2: replace(seen.brokers[2], serving=False)})

    monkeypatch.setattr(operator.cluster, "observe", silent)
    back = Gate(GateKind.BROKER_BACK, operator.node("broker-2"), BrokerMode.ZOOKEEPER)
    asked = (back, Gate(GateKind.PARTITIONS_HEALTHY))
    with pytest.raises(GateTimeoutError) as raised:
        asyncio.run(Gatekeeper(operator.parts(), dict, print).wait(lambda _: asked, "migrate/broker-2"))
    assert raised.value.what.endswith(" s: broker-2: is registered, but does not serve yet")


@pytest.mark.parametrize(("down", "does"), [(True, "starts"), (False, "restarts")])
def test_a_node_that_is_down_is_started_and_no_other_one(tmp_path: Path, *, down: bool, does: str) -> None:
    operator = Operator(ModelCluster(model_inventory()), tmp_path)
    if down:
        operator.cluster.crash(operator.node("broker-2"))
    operator.apply()
    assert [line for line in operator.said if line.startswith("migrate/broker-2") and "starts" in line] == [
        f"migrate/broker-2: {does} broker-2"
    ]


def test_a_step_says_of_the_last_controller_alone_that_nobody_is_the_controller_behind_it() -> None:
    steps = [step for step in plan(model_inventory(), Direction.BACK) if step.name.startswith("stop-quorum/")]
    assert {step.rules.why.split("nobody")[0] for step in steps} == {"the quorum ends; behind its last controller "}


def test_the_last_step_of_the_end_is_about_no_controller() -> None:
    (last,) = (step for step in plan(model_inventory(), Direction.FORWARD) if step.name == "finished")
    assert "this controller" not in last.rules.why


def test_one_controller_is_one(desk: Desk) -> None:
    text = inventory_text().replace("    - {id: 3002, properties: /etc/c3002.properties}\n", "")
    desk.inventory.write_text(text.replace("    - {id: 3003, properties: /etc/c3003.properties}\n", ""))
    assert "cluster model: 1 controller of this program, 3 brokers, " in desk.printed("plan")


def test_a_wrong_name_keeps_no_znodes(desk: Desk) -> None:
    desk.printed("apply --yes")
    assert "'nosuch' is not the name of the cluster" in desk.refused("remove-znodes --cluster nosuch")
