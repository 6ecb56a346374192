"""Racks whose brokers are restarted together: what is asked before each, who is waited for, when they may not go."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.step import ABORT_FILE
from migrator.rollout.gates.gatekeeper import GateTimeoutError, ProcessEndedError
from migrator.rollout.journal.journal import Event
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

RACK = ("broker-1", "broker-4")
"""The first of three racks of two."""


THREE = ("broker-1", "broker-3", "broker-5")
"""The first of two racks of three."""


def operator_at(tmp_path: Path, *, racks: int = 3, replicas: int = 3, min_isr: int = 2) -> Operator:
    (tmp_path / "state").mkdir()
    inventory = model_inventory(brokers=6, racks=racks, roll="rack")
    return Operator(ModelCluster(inventory, replicas=replicas, min_isr=min_isr), tmp_path / "state")


def with_racks_of_three(tmp_path: Path) -> Operator:
    """Each partition is in both racks."""
    return operator_at(tmp_path, racks=2, replicas=2, min_isr=1)


def test_a_rack_goes_together_where_each_partition_is_spread_over_the_racks(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    assert operator.apply() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_a_rack_that_has_all_replicas_of_a_partition_does_not_go_together(tmp_path: Path) -> None:
    """One rack of six: whoever stops them all takes everything away."""
    operator = operator_at(tmp_path, racks=1)
    with pytest.raises(GateTimeoutError, match=r"6 partitions would go offline: orders-0") as raised:
        operator.apply()
    assert "brokers.roll: broker" in raised.value.remedy
    assert not operator.cluster.violations
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}


def test_what_would_fall_below_the_least_number_of_replicas_in_sync_is_named(tmp_path: Path) -> None:
    operator = operator_at(tmp_path, racks=2)
    operator.cluster.partitions = [frozenset((1, 2, 3))]  # two of them in one rack
    with pytest.raises(GateTimeoutError, match=r"would fall below min.insync.replicas: orders-\d"):
        operator.apply()
    assert not operator.cluster.violations


def test_the_gates_are_asked_although_the_first_broker_of_the_rack_is_down(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    operator.apply(StopAt(Phase.START))
    operator.cluster.crash(operator.node(RACK[0]))
    operator.cluster.lagging = {"broker-2"}  # not in sync, and of another rack
    with pytest.raises(GateTimeoutError, match="under-replicated"):
        operator.resume()
    assert not operator.cluster.violations
    assert operator.cluster.modes()[RACK[0]] is BrokerMode.MIGRATING
    assert operator.cluster.modes()[RACK[1]] is BrokerMode.ZOOKEEPER
    operator.cluster.lagging = set()
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_the_second_broker_of_a_rack_waits_for_what_fell_out_of_sync_meanwhile(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    operator.apply(StopAt(Phase.COPY))

    def falls(where: str) -> None:
        if where == f"after done kraft/{RACK[0]} ":
            operator.cluster.lagging = {"broker-2"}

    operator.cluster.points.at = falls
    with pytest.raises(GateTimeoutError):
        operator.resume()
    assert not operator.cluster.violations
    assert operator.cluster.modes()[RACK[1]] is BrokerMode.MIGRATING


def test_a_mistake_in_the_settings_takes_one_broker_of_a_rack_away_and_not_all(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    operator.apply(StopAt(Phase.START))
    operator.cluster.old_settings = {RACK[0]}
    restarts = operator.cluster.restarts.copy()
    with pytest.raises(GateTimeoutError, match="broker-1: is registered in ZooKeeper, and not yet"):
        operator.resume()
    assert not (operator.cluster.restarts - restarts)[RACK[1]]


def test_a_rack_is_waited_for_although_its_last_broker_has_nothing_to_do(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    operator.apply(StopAt(Phase.KRAFT))
    last = operator.node("broker-6")
    key = ("broker-6", last.properties)
    kept = next(text for (name, path), text in operator.cluster.files.items() if name == "broker-6" and "kraft" in path)
    operator.cluster.files[key] = kept
    operator.cluster.start_as_configured(last)  # a person has taken it back already

    def falls(where: str) -> None:
        if where == "after done leave-kraft/broker-3 edit":
            operator.cluster.lagging = {"broker-3"}

    operator.cluster.points.at = falls
    with pytest.raises(GateTimeoutError, match=r"leave-kraft/broker-6.*under-replicated"):
        operator.rollback()
    assert not [entry for entry in operator.entries if entry.step == "leave-kraft/broker-6" and entry.act]


def test_a_rack_of_the_inventory_that_is_another_one_is_named(tmp_path: Path) -> None:
    operator = operator_at(tmp_path)
    operator.cluster.racks[RACK[1]] = "north"
    with pytest.raises(GateTimeoutError, match=r"broker-4: its broker\.rack is north, and the inventory says r1"):
        operator.apply()


def test_brokers_of_a_rack_start_beside_one_another(tmp_path: Path) -> None:
    """Only the first one is waited for before the last one is restarted."""
    operator = operator_at(tmp_path)
    started: list[str] = []

    def notes(action: str, node: Node) -> None:
        if action in ("stop", "start") and node.name.startswith("broker"):
            started.append(node.name)

    operator.cluster.fault = notes
    operator.apply(StopAt(Phase.MIGRATE))
    assert list(dict.fromkeys(started))[:2] == list(RACK)
    passed = [entry.step for entry in operator.entries if entry.event is Event.PASSED and entry.act == "check-after"]
    assert {f"migrate/{name}" for name in RACK} <= set(passed)


def ends_at_once(operator: Operator, name: str) -> None:
    """Each time that it is started: its file is wrong."""

    def ends(where: str) -> None:
        if where == f"after start {name}":
            operator.cluster.crash(operator.node(name))

    operator.cluster.points.at = ends


def mend(operator: Operator, name: str) -> None:
    operator.cluster.points.at = nothing
    operator.cluster.files[name, operator.node(name).properties] += b"num.io.threads=16\n"


@pytest.mark.parametrize("by_hand", [False, True], ids=["resume starts it", "the operator starts it"])
def test_a_pause_in_the_middle_of_a_rack_waits_for_those_that_were_restarted(tmp_path: Path, *, by_hand: bool) -> None:
    operator = with_racks_of_three(tmp_path)
    ends_at_once(operator, THREE[1])
    pause = StopAt(step=f"migrate/{THREE[1]}")
    for _ in range(2):
        with pytest.raises(ProcessEndedError, match=f"migrate/{THREE[1]}: {THREE[1]} has ended"):
            operator.apply(pause)
    mend(operator, THREE[1])
    if by_hand:
        operator.cluster.start_as_configured(operator.node(THREE[1]))
    assert operator.apply(pause) is Ending.PAUSED
    assert operator.cluster.modes()[THREE[1]] is BrokerMode.MIGRATING
    assert operator.cluster.modes()[THREE[2]] is BrokerMode.ZOOKEEPER
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_a_failed_pause_in_the_middle_of_a_rack_is_not_passed_by_unasked(tmp_path: Path) -> None:
    """Also not by who goes on without the pause: the next broker of the rack is not restarted."""
    operator = with_racks_of_three(tmp_path)
    ends_at_once(operator, THREE[1])
    with pytest.raises(ProcessEndedError):
        operator.apply(StopAt(step=f"migrate/{THREE[1]}"))
    with pytest.raises(ProcessEndedError, match=f"{THREE[1]} has ended"):
        operator.resume()
    assert operator.cluster.modes()[THREE[2]] is BrokerMode.ZOOKEEPER
    mend(operator, THREE[1])
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_a_pause_behind_a_broker_with_nothing_to_do_waits_for_those_that_were_restarted(tmp_path: Path) -> None:
    operator = with_racks_of_three(tmp_path)
    operator.apply(StopAt(Phase.KRAFT))
    second = operator.node(THREE[1])
    names = [(name, path) for name, path in operator.cluster.files if name == THREE[1] and ".before-kraft" in path]
    operator.cluster.files[THREE[1], second.properties] = operator.cluster.files[names[0]]
    operator.cluster.start_as_configured(second)  # a person has taken it back already

    def ends(where: str) -> None:
        if where == f"after done leave-kraft/{THREE[0]} ":
            operator.cluster.crash(operator.node(THREE[0]))

    operator.cluster.points.at = ends
    with pytest.raises(ProcessEndedError, match=f"leave-kraft/{THREE[1]}: {THREE[0]} has ended"):
        operator.rollback(StopAt(step=f"leave-kraft/{THREE[1]}"))


def test_an_abort_in_the_middle_of_a_rack_says_who_is_not_back(tmp_path: Path) -> None:
    operator = with_racks_of_three(tmp_path)

    def ends(where: str) -> None:
        if where == f"after start {THREE[1]}":
            operator.cluster.crash(operator.node(THREE[1]))
            (operator.state / ABORT_FILE).touch()

    operator.cluster.points.at = ends
    assert operator.apply() is Ending.ABORTED
    assert any(f"waits: {THREE[1]}: is not registered" in line for line in operator.said)
    assert not (operator.state / ABORT_FILE).exists()
    assert operator.cluster.modes()[THREE[2]] is BrokerMode.ZOOKEEPER
    mend(operator, THREE[1])
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations


def test_an_abort_in_the_middle_of_a_rack_that_is_well_says_nothing(tmp_path: Path) -> None:
    operator = with_racks_of_three(tmp_path)

    def aborts(where: str) -> None:
        if where == f"after start {THREE[1]}":
            (operator.state / ABORT_FILE).touch()

    operator.cluster.points.at = aborts
    assert operator.apply() is Ending.ABORTED
    assert not any("stops here" in line for line in operator.said), operator.said
    assert operator.cluster.modes()[THREE[2]] is BrokerMode.ZOOKEEPER
    operator.cluster.points.at = nothing
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations
