"""A broker's file that Kafka would not start with in a later mode is named before anything is changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending
from migrator.rollout.engine.job_acts import JobFailedError
from migrator.rollout.opening.refusals import refuse_files
from migrator.rollout.plan.modes import FileMode, rewritten
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

OWN_CONTROLLER = (
    b"listeners=PLAINTEXT://:9092,CONTROLLER://:29093\ncontrol.plane.listener.name=CONTROLLER\n"
    b"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
)
"""As operators of Kubernetes write it, and Kafka's own documentation of the key."""
NAMED_TWICE = b"inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT\n"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(ModelCluster(model_inventory()), tmp_path)


@pytest.mark.parametrize(
    ("lines", "key", "what"),
    [
        (OWN_CONTROLLER, "controller.listener.names", "CONTROLLER is a listener of the broker itself"),
        (b"broker.id=2\nnode.id= 02 \nconnections.max.idle.ms=9\n", "connections.max.idle.ms", "is not more than"),
        (NAMED_TWICE, "security.inter.broker.protocol", "Kafka takes only one of them"),
        (
            b"advertised.listeners=SSL://h:1\n",
            "security.inter.broker.protocol",
            "not among the advertised listeners, SSL",
        ),
    ],
)
def test_nothing_is_begun_before_the_file_is_corrected(operator: Operator, lines: bytes, key: str, what: str) -> None:
    node = operator.node("broker-2")
    before = operator.cluster.files[node.name, node.properties]
    operator.cluster.files[node.name, node.properties] += lines
    restarts = operator.cluster.restarts.copy()
    with pytest.raises(OperatorError, match="Kafka would not start with this file in migration mode") as refused:
        operator.apply()
    assert refused.value.where.startswith("broker-2 on ")
    assert refused.value.where.endswith(f": {key}")
    assert what in refused.value.what
    assert refused.value.remedy
    assert operator.cluster.restarts == restarts
    assert not operator.entries
    operator.cluster.files[node.name, node.properties] = before
    assert operator.apply() is Ending.COMPLETE


@pytest.mark.parametrize("job", ["preflight", "rehearse"])
def test_what_was_mended_after_a_failed_job_is_taken_as_it_is(operator: Operator, job: str) -> None:
    """A file that was corrected after a rehearsal goes through preflight again."""
    operator.cluster.exit_codes[job] = 1
    with pytest.raises(JobFailedError):
        operator.apply()
    for name in ("broker-2", "controller-3001"):
        node = operator.node(name)
        operator.cluster.files[name, node.properties] += b"num.io.threads=16\n"
    operator.cluster.exit_codes.clear()
    assert operator.resume() is Ending.COMPLETE
    taken = [line for line in operator.said if "was changed, and is taken as it is" in line]
    assert len(taken) == 2
    assert b"num.io.threads=16" in operator.cluster.files["broker-2", operator.node("broker-2").properties]


def test_the_way_back_asks_for_nothing(operator: Operator) -> None:
    """The broker has to come back, with the file that it had."""
    parts, node = operator.parts(), operator.node("broker-2")
    settings = parts.mode_settings("3.9")
    text = (operator.cluster.files[node.name, node.properties] + OWN_CONTROLLER).decode("latin-1")
    migrating = rewritten(node, text, FileMode.BROKER_MIGRATING, settings)
    assert rewritten(node, migrating, FileMode.BROKER_ZOOKEEPER, settings, text) == text


def test_a_file_in_kraft_mode_has_been_taken_further(operator: Operator) -> None:
    parts = operator.parts()
    settings = parts.mode_settings("3.9")
    texts = {
        node.name: rewritten(
            node, operator.cluster.files[node.name, node.properties].decode("latin-1"), FileMode.BROKER_KRAFT, settings
        )
        + OWN_CONTROLLER.decode()
        for node in parts.inventory.brokers.nodes
    }
    refuse_files(parts.inventory, texts, settings)
