"""Shapes of clusters and beginnings: many brokers on racks, and a start in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.rollout.apply import Ending, StopAt
from migrator.rollout.journal import Event
from migrator.rollout.ports import BrokerMode
from migrator.rollout.steps import Act, Phase
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator


def operator_at(directory: Path, cluster: ModelCluster) -> Operator:
    directory.mkdir()
    return Operator(cluster, directory)


def test_thirty_brokers_on_three_racks(tmp_path: Path) -> None:
    """Ten at a time, and no partition is ever below min ISR."""
    inventory = model_inventory(brokers=30, racks=3, roll="rack")
    operator = operator_at(tmp_path / "state", ModelCluster(inventory))
    assert operator.apply(canary="7") is Ending.PAUSED
    assert [name for name, mode in operator.cluster.modes().items() if mode is BrokerMode.MIGRATING] == ["broker-7"]
    assert operator.resume() is Ending.PAUSED
    assert operator.resume() is Ending.COMPLETE
    assert not operator.cluster.violations
    assert set(operator.cluster.modes().values()) == {BrokerMode.KRAFT}
    waited = [entry for entry in operator.entries if entry.event is Event.PASSED and entry.step.startswith("kraft/")]
    assert len([entry for entry in waited if entry.act == Act.CHECK_AFTER]) == 30
    assert all(operator.cluster.restarts[node.name] == 3 for node in inventory.brokers.nodes)


def test_thirty_brokers_of_a_roll_by_rack_go_back(tmp_path: Path) -> None:
    operator = operator_at(tmp_path / "state", ModelCluster(model_inventory(brokers=30, racks=3, roll="rack")))
    assert operator.apply(StopAt(Phase.KRAFT)) is Ending.REACHED
    assert operator.rollback() is Ending.COMPLETE
    assert not operator.cluster.violations
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}


@pytest.mark.parametrize("done", [Phase.START, Phase.MIGRATE, Phase.COPY, Phase.KRAFT, Phase.FINISH, Phase.HANDOVER])
def test_a_start_in_the_middle_does_only_what_is_left(tmp_path: Path, done: Phase) -> None:
    """Somebody else came that far: there is no journal, and no option for it."""
    cluster = ModelCluster(model_inventory())
    clean = operator_at(tmp_path / "clean", ModelCluster(model_inventory()))
    clean.apply()
    assert operator_at(tmp_path / "others", cluster).apply(StopAt(done)) is Ending.REACHED
    assert operator_at(tmp_path / "ours", cluster).apply() is Ending.COMPLETE
    assert cluster.end_state() == clean.cluster.end_state()
    assert cluster.restarts == clean.cluster.restarts
    assert not cluster.violations


def test_a_start_in_the_middle_of_a_roll(tmp_path: Path) -> None:
    cluster = ModelCluster(model_inventory())
    assert operator_at(tmp_path / "others", cluster).apply(StopAt(step="kraft/broker-2")) is Ending.PAUSED
    before = cluster.restarts.copy()
    assert operator_at(tmp_path / "ours", cluster).apply() is Ending.COMPLETE
    assert cluster.restarts["broker-2"] == before["broker-2"]
    assert cluster.restarts["broker-3"] == before["broker-3"] + 1
