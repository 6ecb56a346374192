"""Brokers that would have no key by which they find the quorum are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.inventory import FIND_QUORUM
from migrator.rollout.opening.refusals import refuse_lost_brokers
from migrator.rollout.ports import BrokerMode, BrokerSeen, Observation
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

VOTERS, BOOTSTRAP = FIND_QUORUM
INVENTORY = model_inventory()
BY_SERVERS = replace(
    INVENTORY,
    brokers=replace(INVENTORY.brokers, settings={"controller.listener.names": "CONTROLLER", BOOTSTRAP: "c:9093"}),
)
TEXTS = {node.name: f"broker.id={node.node_id}\n" for node in INVENTORY.brokers.nodes}


def seen(release: str) -> Observation:
    return Observation(brokers={1: BrokerSeen(1, BrokerMode.ZOOKEEPER, release=release)})


@pytest.mark.parametrize("release", ["3.6", "3.7.2", "3.8"])
def test_a_broker_that_knows_no_bootstrap_servers_is_named(release: str) -> None:
    with pytest.raises(OperatorError, match=f"broker-1 \\({release}\\)") as raised:
        refuse_lost_brokers(BY_SERVERS, seen(release), TEXTS)
    assert VOTERS in raised.value.remedy
    refuse_lost_brokers(INVENTORY, seen(release), TEXTS)
    refuse_lost_brokers(BY_SERVERS, seen(release), {**TEXTS, "broker-1": f"broker.id=1\n{VOTERS}=3001@c:9093\n"})


@pytest.mark.parametrize("release", ["3.9", "3.9.1", "", "4.0"])
def test_others_are_not_refused(release: str) -> None:
    refuse_lost_brokers(BY_SERVERS, seen(release), TEXTS)


def test_voters_that_are_configured_are_not_found_by_bootstrap_servers() -> None:
    controller = INVENTORY.controllers.nodes[0]
    configured = {**TEXTS, controller.name: f"node.id={controller.node_id}\n{VOTERS}=3001@c:9093\n"}
    with pytest.raises(OperatorError, match="knows as a voter: broker-1, broker-2, broker-3") as raised:
        refuse_lost_brokers(BY_SERVERS, seen("3.9.1"), configured)
    assert VOTERS in raised.value.remedy
    refuse_lost_brokers(INVENTORY, seen("3.9.1"), configured)


def test_nothing_is_begun_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = Operator(ModelCluster(BY_SERVERS), tmp_path)

    async def observe(*, partitions: bool = True) -> Observation:
        return seen("3.7")

    monkeypatch.setattr(operator.cluster, "observe", observe)
    with pytest.raises(OperatorError, match="older than Kafka 3"):
        operator.apply()
    assert operator.entries == []
