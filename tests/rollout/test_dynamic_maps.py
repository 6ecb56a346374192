"""A listener.security.protocol.map that is set dynamically counts more than the file that the rollout writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending
from migrator.rollout.opening.refusals import refuse_dynamic_maps
from migrator.rollout.ports import BrokerMode, BrokerSeen, Observation
from migrator.rollout.seeing.brokers import SettingsAnswer
from migrator.rollout.seeing.observer import brokers_seen
from migrator.rollout.seeing.zookeeper import RegisteredBroker, ZooKeeperLook
from migrator.seeing.quorum import QuorumLook
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

INVENTORY = model_inventory()
KEY, LACKS = "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,EXTERNAL:SSL"


def with_map(text: str, mode: BrokerMode = BrokerMode.ZOOKEEPER) -> Observation:
    return Observation(brokers={2: BrokerSeen(2, mode, dynamic_map=text)})


def named(listener: str) -> dict[str, str]:
    return {**INVENTORY.brokers.settings, "controller.listener.names": listener}


def test_nothing_is_begun_before_it_has_the_controllers_listener(tmp_path: Path) -> None:
    """The operator does what the message says."""
    operator = Operator(ModelCluster(INVENTORY), tmp_path)
    operator.cluster.dynamic_maps["broker-2"] = LACKS
    before = operator.cluster.restarts.copy()
    with pytest.raises(OperatorError, match="lacks the controllers' listener CONTROLLER") as raised:
        operator.apply()
    assert raised.value.where == "broker-2"
    assert "--entity-name 2 --alter --add-config" in raised.value.remedy
    assert operator.cluster.restarts == before
    asked = raised.value.remedy.partition(f"{KEY}=[")[2].partition("]")[0]
    assert asked == f"{LACKS},CONTROLLER:PLAINTEXT"
    operator.cluster.dynamic_maps["broker-2"] = asked
    assert operator.apply() is Ending.COMPLETE


@pytest.mark.parametrize("text", ["", "CONTROLLER:PLAINTEXT", "PLAINTEXT:PLAINTEXT, controller:SASL_SSL"])
def test_others_are_not_refused(text: str) -> None:
    refuse_dynamic_maps(INVENTORY, with_map(text))
    refuse_dynamic_maps(INVENTORY, Observation())


def test_a_broker_in_kraft_mode_runs_already() -> None:
    refuse_dynamic_maps(INVENTORY, with_map(LACKS, BrokerMode.KRAFT))


@pytest.mark.parametrize(
    ("listener", "refused"), [("SSL", False), ("Other,PLAINTEXT", True), ("PLAINTEXT,OTHER", False)]
)
def test_the_first_listener_counts_and_the_name_of_a_protocol_needs_no_entry(listener: str, *, refused: bool) -> None:
    inventory = replace(INVENTORY, brokers=replace(INVENTORY.brokers, settings=named(listener)))
    if not refused:
        refuse_dynamic_maps(inventory, with_map(LACKS))
        return
    with pytest.raises(OperatorError, match="listener OTHER"):
        refuse_dynamic_maps(inventory, with_map(LACKS))


def test_what_the_broker_says_is_kept() -> None:
    znode = ZooKeeperLook({1: RegisteredBroker(5, ())})
    answers = {1: SettingsAnswer({}, "3.9", dynamic_map=LACKS)}
    seen = brokers_seen(znode, QuorumLook(None, None, -1), answers, is_finished=False)
    assert seen is not None
    assert seen[1].dynamic_map == LACKS
