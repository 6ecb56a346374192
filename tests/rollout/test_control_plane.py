"""The brokers have a listener for their controller. Ours uses it; Kafka refuses the key in KRaft mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.config.properties import decoded, parse_properties
from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.plan.steps import Phase
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

KEY = "control.plane.listener.name"
MORE = f"{KEY}=PLANE\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,PLANE:PLAINTEXT\n".encode()


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """Files as M105 wants them."""
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    cluster = operator.cluster
    for node in cluster.inventory.controllers.nodes:
        cluster.files[node.name, node.properties] += MORE
    for node in cluster.inventory.brokers.nodes:
        key = node.name, node.properties
        cluster.files[key] = cluster.files[key].replace(b"://:9092", b"://:9092,PLANE://:9099") + MORE
        cluster.start_as_configured(node)
    return operator


def planes(operator: Operator) -> set[str | None]:
    """The value in the controllers' files."""
    nodes = operator.cluster.inventory.controllers.nodes
    files = [operator.cluster.files[node.name, node.properties] for node in nodes]
    return {parse_properties(decoded(file)).get(KEY) for file in files}


def test_kafkas_controllers_take_over_without_the_key(operator: Operator) -> None:
    assert operator.apply() is Ending.COMPLETE
    assert not operator.cluster.violations
    assert planes(operator) == {None}


def test_a_file_that_kafka_refuses_for_another_reason_is_named_before_ours_is_stopped(operator: Operator) -> None:
    node = operator.node("controller-3002")
    operator.cluster.files[node.name, node.properties] += b"max.connections.per.ip=0\n"
    with pytest.raises(OperatorError, match="Kafka does not start: it is 0"):
        operator.apply()
    assert node.name in operator.cluster.processes


@pytest.mark.parametrize("ended", ["controller-3003", "controller-3002"])
def test_the_key_comes_back_with_the_migration(operator: Operator, ended: str) -> None:
    assert operator.apply(StopAt(Phase.VERIFY)) is Ending.REACHED
    operator.interrupted_at(f"after done finish/{ended} ", KeyboardInterrupt())
    assert None in planes(operator)
    assert operator.rollback() is Ending.COMPLETE
    assert planes(operator) == {"PLANE"}
    assert not operator.cluster.violations
