"""Shapes of clusters and beginnings: many brokers on racks, and a start in the middle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.gates.gatekeeper import GateTimeoutError
from migrator.rollout.inventory import LeftOut
from migrator.rollout.journal.journal import Event
from migrator.rollout.plan.steps import Act, Phase
from migrator.rollout.ports import BrokerMode
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
    """An operator came that far by hand: there is no journal, and no option for it."""
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


def test_nothing_is_called_a_proof_where_nothing_is_compared(tmp_path: Path) -> None:
    """The gate before the end stays, under another name."""
    inventory = replace(model_inventory(), left_out=LeftOut(preflight=False, rehearse=False, verify=True))
    operator = operator_at(tmp_path / "state", ModelCluster(inventory))
    assert operator.apply(StopAt(Phase.VERIFY)) is Ending.REACHED
    done = {entry.step: entry for entry in operator.entries if entry.event is Event.DONE and not entry.act}
    assert "verify" not in done
    assert "ready" in done
    assert not [line for line in operator.said if "proves" in line]
    assert not [words for words in operator.cluster.commands if "verify" in words]
    operator.cluster.lag = 7
    with pytest.raises(GateTimeoutError, match="7 records behind"):
        operator.resume()
    operator.cluster.lag = 0
    assert operator.resume() is Ending.COMPLETE


def test_the_gate_before_the_end_is_asked_before_the_question(tmp_path: Path) -> None:
    inventory = replace(model_inventory(), left_out=LeftOut(preflight=False, rehearse=False, verify=True))
    operator = operator_at(tmp_path / "state", ModelCluster(inventory))
    assert operator.apply(StopAt(Phase.KRAFT)) is Ending.REACHED
    operator.cluster.foreign_writes = ("/config/topics/orders",)
    with pytest.raises(GateTimeoutError, match="/config/topics/orders"):
        operator.resume()
    assert not operator.asked
