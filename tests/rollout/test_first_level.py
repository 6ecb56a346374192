"""The metadata.version of a rollout's controllers: what the brokers have. No broker is restarted into another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.config.keys import FLAG
from migrator.config.properties import decoded, encoded
from migrator.errors import OperatorError
from migrator.observe.journal import COMMAND_FILE
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.inventory import parse_inventory
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.plan.jobs import command_of
from migrator.rollout.plan.steps import Job, Phase
from migrator.rollout.ports import BrokerMode
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import inventory_text, model_inventory, with_level
from tests.rollout.support.runs import Operator

KEY = "inter.broker.protocol.version"


def operator_with(tmp_path: Path, *levels: str, typed: str = "") -> Operator:
    """Brokers with these versions; the last one counts for all others."""
    (tmp_path / "state").mkdir()
    inventory = with_level(model_inventory(), typed)
    cluster = ModelCluster(inventory)
    for number, node in enumerate(inventory.brokers.nodes):
        key, level = (node.name, node.properties), levels[min(number, len(levels) - 1)]
        cluster.files[key] = cluster.files[key].replace(f"{KEY}=3.9".encode(), f"{KEY}={level}".encode())
        cluster.start_as_configured(node)
    return Operator(cluster, tmp_path / "state")


def formats(operator: Operator) -> set[str]:
    """The versions that directories were formatted with."""
    return {words[words.index("--release-version") + 1] for words in operator.cluster.commands if "format" in words}


@pytest.mark.parametrize(("level", "name"), [("3.6", "3.6-IV2"), ("3.8-IV0", "3.8-IV0"), ("3.9", "3.9-IV0")])
def test_without_a_version_controllers_get_that_of_the_brokers(tmp_path: Path, level: str, name: str) -> None:
    operator = operator_with(tmp_path, level)
    assert operator.apply() is Ending.COMPLETE
    assert formats(operator) == {name}
    rehearsal = next(words for words in operator.cluster.commands if "rehearse" in words)
    assert name in rehearsal


@pytest.mark.parametrize("typed", ["3.9", "3.7"])
def test_a_version_with_which_no_broker_would_register_is_refused(tmp_path: Path, typed: str) -> None:
    operator = operator_with(tmp_path, "3.8", typed=typed)
    with pytest.raises(OperatorError, match=f"could not register with metadata.version {typed}.*3.8") as refused:
        operator.apply()
    assert "controllers.release_version" in str(refused.value)
    assert (operator.entries, operator.cluster.commands) == ([], [])


def test_a_broker_that_is_in_migration_mode_already_would_not_register_either(tmp_path: Path) -> None:
    """An operator has changed its file before the controllers were formatted."""
    operator = operator_with(tmp_path, "3.8", typed="3.9")
    for node in operator.cluster.inventory.brokers.nodes:
        operator.cluster.files[node.name, node.properties] += f"{FLAG}=true\n".encode()
        operator.cluster.start_as_configured(node)
    with pytest.raises(OperatorError, match=r"could not register with metadata.version 3\.9.*3\.8"):
        operator.apply()
    assert (operator.entries, operator.cluster.commands) == ([], [])


@pytest.mark.parametrize("typed", ["", "3.8"])
def test_brokers_that_differ_are_named(tmp_path: Path, typed: str) -> None:
    operator = operator_with(tmp_path, "3.8", "3.9", typed=typed)
    with pytest.raises(OperatorError, match=r"3\.9") as refused:
        operator.apply()
    assert "brokers 2-3" in str(refused.value) or "brokers 2, 3" in str(refused.value)
    assert "give -r" not in str(refused.value)
    assert operator.entries == []


def test_each_command_stays_with_the_version_of_the_first(tmp_path: Path) -> None:
    operator = operator_with(tmp_path, "3.8")
    operator.apply(StopAt(Phase.REHEARSE))
    operator.cluster.inventory = with_level(operator.cluster.inventory, "3.9")
    assert operator.resume() is Ending.COMPLETE
    assert formats(operator) == {"3.8-IV0"}
    assert progress_of(operator.entries).release_version == "3.8-IV0"


def test_a_quorum_that_runs_already_counts_and_not_the_inventory(tmp_path: Path) -> None:
    operator = operator_with(tmp_path, "3.8")
    operator.apply(StopAt(Phase.START))
    (operator.state / COMMAND_FILE).unlink()
    operator.lock.owner = None
    operator.cluster.inventory = with_level(operator.cluster.inventory, "3.9")
    assert operator.apply() is Ending.COMPLETE
    assert progress_of(operator.entries).release_version == "3.8-IV0"


def test_a_quorum_with_another_version_than_the_brokers_is_named_before_one_is_restarted(tmp_path: Path) -> None:
    operator = operator_with(tmp_path, "3.8")
    operator.apply(StopAt(Phase.START))
    (operator.state / COMMAND_FILE).unlink()
    operator.lock.owner = None
    operator.cluster.level = "3.9-IV0"
    restarts = operator.cluster.restarts.copy()
    with pytest.raises(OperatorError, match=r"metadata\.version 3\.9-IV0, which the quorum has"):
        operator.apply()
    assert operator.cluster.restarts == restarts


def test_the_way_back_without_a_backup_takes_the_quorums_own(tmp_path: Path) -> None:
    """A broker of 3.8 does not start with 3.9."""
    operator = operator_with(tmp_path, "3.8")
    operator.apply(StopAt(Phase.KRAFT))
    for key in [key for key in operator.cluster.files if ".before-" in key[1]]:
        del operator.cluster.files[key]
    for node in operator.cluster.inventory.brokers.nodes:
        text = decoded(operator.cluster.files[node.name, node.properties])
        without = [line for line in text.splitlines() if not line.startswith("#")]
        operator.cluster.files[node.name, node.properties] = encoded("\n".join(without) + "\n")
    (operator.state / COMMAND_FILE).unlink()
    operator.lock.owner = None
    operator.zookeeper_connect = "zk:2181/kafka"
    assert operator.rollback() is Ending.COMPLETE
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}
    for node in operator.cluster.inventory.brokers.nodes:
        assert f"{KEY}=3.8-IV0".encode() in operator.cluster.files[node.name, node.properties]


def test_kafkas_own_format_gets_the_version_too() -> None:
    inventory = parse_inventory(inventory_text(kind="stock", handover=False), "model.yaml")
    node = inventory.controllers.nodes[0]
    words = command_of(Job.FORMAT, node, inventory, "id", "3.8-IV0")
    assert words[-2:] == ["--release-version", "3.8-IV0"]
    assert "--release-version" not in command_of(Job.FORMAT, node, inventory, "id", "")
