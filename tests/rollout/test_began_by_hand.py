"""The operator has begun by Kafka's manual: files are in migration mode before the rollout sees them first.

What it then keeps of them was never in ZooKeeper mode, and the way back takes nothing of the quorum from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.config.properties import decoded, encoded, parse_properties
from migrator.errors import OperatorError
from migrator.observe.journal import COMMAND_FILE
from migrator.parts.kafka import StockKafka
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.inventory import Inventory
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

FLAG, MAP = "zookeeper.metadata.migration.enable", "listener.security.protocol.map"
AS_THE_ROLLOUT = f"{MAP}=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
WITH_A_BLANK = f"{MAP}=PLAINTEXT:PLAINTEXT, CONTROLLER:PLAINTEXT\n"
VOTERS = "controller.quorum.voters=3001@c:9093\n"
ALL = ("broker-1", "broker-2", "broker-3")


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return with_controllers(model_inventory(handover=False), tmp_path / "state")


def with_controllers(inventory: Inventory, state: Path) -> Operator:
    """They run already."""
    state.mkdir()
    operator = Operator(ModelCluster(inventory), state)
    assert operator.apply(StopAt(Phase.START)) is Ending.REACHED
    forget(operator)
    return operator


def forget(operator: Operator) -> None:
    """The journal is lost, and another machine goes on."""
    (operator.state / COMMAND_FILE).unlink()
    operator.lock.owner = None


def migrate_by_hand(operator: Operator, names: Iterable[str], *, more: str) -> None:
    """As the manual says it: keys are added, and the broker is restarted."""
    for node in map(operator.node, names):
        text = file_of(operator, node.name).replace(f"{FLAG}=false", f"{FLAG}=true")
        text += f"controller.listener.names=CONTROLLER\n{more}"
        operator.cluster.files[node.name, node.properties] = encoded(text)
        operator.cluster.start_as_configured(node)


def file_of(operator: Operator, name: str) -> str:
    return decoded(operator.cluster.files[name, operator.node(name).properties])


def is_as_before(operator: Operator) -> bool:
    """All brokers run with ZooKeeper, with files that say nothing of the quorum."""
    for name in ALL:
        found = parse_properties(file_of(operator, name))
        assert not [key for key in found if key.startswith("controller.")], name
        assert found.get(FLAG, "false") == "false", name
        assert "CONTROLLER" not in found.get(MAP, ""), name
    assert not operator.cluster.violations
    return set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}


@pytest.mark.parametrize("until", [Phase.MIGRATE, Phase.KRAFT])
@pytest.mark.parametrize("names", [ALL[:1], ALL], ids=["one broker", "all brokers"])
@pytest.mark.parametrize(
    "more",
    [AS_THE_ROLLOUT + VOTERS, WITH_A_BLANK + VOTERS, AS_THE_ROLLOUT + "controller.quorum.voters=3001@old:9093\n"],
    ids=["as the rollout", "with a blank", "other voters"],
)
def test_nothing_of_the_quorum_stays_on_the_way_back(
    operator: Operator, more: str, names: tuple[str, ...], until: Phase
) -> None:
    migrate_by_hand(operator, names, more=more)
    assert operator.apply(StopAt(until)) is Ending.REACHED
    assert operator.rollback() is Ending.COMPLETE
    assert is_as_before(operator)


def test_nothing_of_the_quorum_stays_after_a_lost_journal_and_corrected_settings(operator: Operator) -> None:
    """Both rollouts have kept each file: the first one in ZooKeeper mode, the second one in migration mode."""
    before = {name: file_of(operator, name) for name in ALL}
    assert operator.apply(StopAt(Phase.COPY)) is Ending.REACHED
    forget(operator)
    brokers = operator.cluster.inventory.brokers
    settings = {**brokers.settings, "controller.quorum.voters": "3001@right:9093"}
    operator.inventory = replace(operator.cluster.inventory, brokers=replace(brokers, settings=settings))
    assert operator.apply(StopAt(Phase.COPY)) is Ending.REACHED
    assert operator.rollback() is Ending.COMPLETE
    for name in ALL:
        assert parse_properties(file_of(operator, name)).items() >= _without_flag(before[name]).items()
    assert is_as_before(operator)


def _without_flag(text: str) -> dict[str, str]:
    found = parse_properties(text)
    found.pop(FLAG)
    return found


@pytest.mark.parametrize(
    "more",
    [
        AS_THE_ROLLOUT + VOTERS,
        WITH_A_BLANK + VOTERS,
        f"{AS_THE_ROLLOUT}{VOTERS}{FLAG}=TRUE\n",
    ],
    ids=["as the rollout", "a blank in the map", "in capitals"],
)
def test_a_broker_that_migrates_is_not_restarted_for_what_kafka_reads_alike(operator: Operator, more: str) -> None:
    migrate_by_hand(operator, ALL, more=more)
    before = {name: operator.cluster.restarts[name] for name in ALL}
    assert operator.apply(StopAt(Phase.COPY)) is Ending.REACHED
    assert {name: operator.cluster.restarts[name] for name in ALL} == before


def test_a_file_that_was_prepared_by_half_comes_back_without_the_controllers_listener(operator: Operator) -> None:
    """No broker was restarted with this file: Kafka refuses it."""
    node = operator.node("broker-1")
    operator.cluster.files[node.name, node.properties] += b"controller.listener.names=CONTROLLER\n"
    assert operator.apply(StopAt(Phase.MIGRATE)) is Ending.REACHED
    assert operator.rollback() is Ending.COMPLETE
    assert is_as_before(operator)


def test_a_key_of_the_inventory_that_the_brokers_own_listeners_may_need_stays(tmp_path: Path) -> None:
    """The earlier file was not kept, so only the keys that a quorum alone needs are removed."""
    inventory = model_inventory(handover=False)
    more = {"ssl.truststore.location": "/etc/trust.p12", "listener.name.controller.ssl.client.auth": "none"}
    brokers = replace(inventory.brokers, settings={**inventory.brokers.settings, **more})
    operator = with_controllers(replace(inventory, brokers=brokers), tmp_path / "state")
    own = "".join(f"{key}={text}\n" for key, text in more.items())
    migrate_by_hand(operator, ALL, more=WITH_A_BLANK + VOTERS + own)
    assert operator.apply(StopAt(Phase.COPY)) is Ending.REACHED
    assert operator.rollback() is Ending.COMPLETE
    assert is_as_before(operator)
    for name in ALL:
        found = parse_properties(file_of(operator, name))
        assert found["ssl.truststore.location"] == "/etc/trust.p12"
        assert "listener.name.controller.ssl.client.auth" not in found


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("comes_back", [True, False], ids=["as it comes back", "with the key"])
def test_kafka_starts_with_what_comes_back(
    operator: Operator, tmp_path: Path, kafka_391: StockKafka, *, comes_back: bool
) -> None:
    """Kafka's own tool reads the file of a broker with ``zookeeper.connect`` as the broker does."""
    migrate_by_hand(operator, ALL, more=WITH_A_BLANK + VOTERS)
    assert operator.apply(StopAt(Phase.COPY)) is Ending.REACHED
    assert operator.rollback() is Ending.COMPLETE
    (tmp_path / "data").mkdir()
    text = file_of(operator, "broker-1").replace("/data/broker-1", str(tmp_path / "data"))
    path = tmp_path / "server.properties"
    path.write_bytes(encoded(text if comes_back else f"{text}controller.listener.names=CONTROLLER\n"))
    with pytest.raises(OperatorError) as raised:  # also for a directory that is not formatted
        kafka_391.tool("kafka.tools.StorageTool", "info", "-c", str(path), directory=tmp_path)
    assert ("must be empty when not running in KRaft mode" in str(raised.value)) is not comes_back
    assert ("Found log directory" in str(raised.value)) is comes_back
