"""Parts of an operator's inventory that a drill takes, and parts that it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from migrator.cli.drill import command
from migrator.drill.cluster import free_ids
from migrator.drill.security.protection import BrokerPorts
from migrator.drill.security.shaped import Shaped
from migrator.drill.shape import Shape, bytes_of, refuse_too_large, shape_of
from migrator.errors import ExitCode, OperatorError
from migrator.rollout.inventory import parse_inventory
from tests.results import ROOT

EXAMPLES = sorted((ROOT / "deploy" / "rollout").glob("*.yaml"))
ACCESS = {
    "controller.listener.names": "QUORUM",
    "listener.security.protocol.map": "QUORUM:SSL,INSIDE:SASL_SSL,OUTSIDE:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
    "zookeeper.ssl.client.enable": "true",
}
"""Of the file that the inventory calls 'access'."""


def content(brokers: int = 6, **more: Any) -> dict[str, Any]:
    """Of an inventory: brokers on three racks in turn; its executor leaves a mark if it is ever run."""
    nodes = [
        {
            "id": 11 + number,
            "name": f"kafka-{number}",
            "rack": "abc"[number % 3],
            "properties": f"/etc/{number}.properties",
        }
        for number in range(brokers)
    ]
    controllers = [{"id": 3001, "name": "ctl-a", "host": "c1.example.com", "properties": "/etc/c.properties"}]
    return {
        "cluster": "payments",
        "access": "access.properties",
        "controllers": {"nodes": controllers, **more.pop("controllers", {})},
        "brokers": {
            "roll": "rack",
            "settings": {"controller.listener.names": "QUORUM", "controller.quorum.voters": "3001@c1.example.com:9093"},
            "controller_protocol": "SSL",
            "nodes": nodes,
        },
        "executors": {"default": {"preset": "ssh", "commands": {"incarnation": "false", "restart": "false"}}},
    }


def shape(found: dict[str, Any] | None = None, access: dict[str, str] | None = None) -> Shape:
    inventory = parse_inventory(yaml.safe_dump(found or content()), "inventory.yaml")
    return shape_of(inventory, ACCESS if access is None else access, "inventory.yaml")


def test_names_numbers_and_racks_are_those_of_the_inventory() -> None:
    found = shape()
    assert [(node.node_id, node.name, node.rack) for node in found.brokers] == [
        (11, "kafka-0", "a"), (14, "kafka-3", "a"), (12, "kafka-1", "b"), (15, "kafka-4", "b"), (13, "kafka-2", "c"),
        (16, "kafka-5", "c"),
    ]  # fmt: skip
    assert [(node.node_id, node.name) for node in found.controllers] == [(3001, "ctl-a")]
    assert found.by_rack


def test_listeners_are_those_of_the_access_file() -> None:
    found = shape()
    assert found.listeners == {"QUORUM": "SSL", "INSIDE": "SASL_SSL", "OUTSIDE": "PLAINTEXT"}
    assert found.for_controllers.name == "QUORUM"
    assert found.between_brokers.name == "INSIDE"
    assert found.for_clients.name == "OUTSIDE"
    assert found.zookeeper_tls
    assert found.notes == ()


def test_clients_do_not_come_to_a_listener_of_the_controllers() -> None:
    """While the listener of the controllers is changed there are two of them."""
    names = "CTRL_SASL:SASL_SSL,CTRL_OLD:SSL,INSIDE:SASL_SSL"
    more = {"controller.listener.names": "CTRL_SASL,ctrl_old", "listener.security.protocol.map": names}
    found = shape(access=ACCESS | more)
    assert found.for_controllers.name == "CTRL_SASL"
    assert found.for_clients.name == found.between_brokers.name == "INSIDE"
    assert found.notes == ()
    outside = shape(access=ACCESS | more | {"listener.security.protocol.map": f"{names},OUTSIDE:SSL"})
    assert outside.for_clients.name == "OUTSIDE"
    assert outside.notes == ()


def test_without_a_map_there_is_one_listener_in_clear() -> None:
    found = shape(access={"controller.listener.names": "QUORUM"})
    assert found.listeners == {"QUORUM": "SSL", "PLAINTEXT": "PLAINTEXT"}
    assert found.for_clients == found.between_brokers
    assert not found.zookeeper_tls


def test_what_is_rehearsed_otherwise_is_said() -> None:
    more = {
        "listener.security.protocol.map": ACCESS["listener.security.protocol.map"] + ",ADMIN:SSL",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    }
    first, second = shape(access=ACCESS | more).notes
    assert "ADMIN" in first
    assert "GSSAPI" in second


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (content(31), "31 brokers are more than one machine can rehearse"),
        (content(controllers={"kind": "stock"}), "the controllers are Kafka's own"),
    ],
)
def test_what_a_drill_cannot_be_is_refused(found: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message) as error:
        shape(found)
    assert error.value.remedy


def test_a_protocol_that_kafka_does_not_have_is_refused() -> None:
    with pytest.raises(OperatorError, match="INSIDE has the protocol TLS"):
        shape(access=ACCESS | {"listener.security.protocol.map": "QUORUM:SSL,INSIDE:TLS"})


def test_a_machine_that_is_too_small_is_told() -> None:
    found = shape(content(30))
    refuse_too_large(found, bytes_of(found), "inventory.yaml")
    with pytest.raises(OperatorError, match=r"30 brokers and 1 controller take about 18\.3 GB of memory, and this ma"):
        refuse_too_large(found, bytes_of(found) - 1, "inventory.yaml")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_example_of_an_inventory_has_a_shape(example: Path) -> None:
    inventory = parse_inventory(example.read_text("utf-8"), example.name)
    found = shape_of(inventory, {}, example.name)
    assert len(found.brokers) == len(inventory.brokers.nodes)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_files_of_nodes_have_the_listeners(tmp_path: Path, protocol: str) -> None:
    names = f"QUORUM:{protocol},INSIDE:{protocol},OUTSIDE:{protocol}"
    found = shape(access=ACCESS | {"listener.security.protocol.map": names})
    security = Shaped(tmp_path / "security", found)
    broker, controller = security.of_broker(14, BrokerPorts(1, 2), in_zookeeper=True), security.of_controller(3001)
    assert broker["listeners"] == "INSIDE://127.0.0.1:2,OUTSIDE://127.0.0.1:1"
    assert broker["listener.security.protocol.map"] == controller["listener.security.protocol.map"] == names
    assert broker["inter.broker.listener.name"] == controller["inter.broker.listener.name"] == "INSIDE"
    with_login = protocol.startswith("SASL")
    assert ("listener.name.quorum.plain.sasl.jaas.config" in controller) is with_login
    assert ("listener.name.inside.scram-sha-512.sasl.jaas.config" in broker) is with_login
    assert (broker.get("listener.name.outside.ssl.client.auth") == "required") is (protocol == "SSL")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--brokers", "5"], "--brokers does not go with --inventory"),
        (["--secure"], "--secure does not go with --inventory"),
        (["--kafka", "none"], "--kafka none does not go with --inventory"),
    ],
)
def test_options_that_contradict_the_inventory_are_refused(tmp_path: Path, options: list[str], said: str) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(yaml.safe_dump(content()))
    done = CliRunner().invoke(command, ["--inventory", str(file), *options])
    assert done.exit_code == ExitCode.REFUSED
    assert said in done.output


@pytest.mark.parametrize(
    ("release", "said"), [("4.1.1", "do not know ZooKeeper"), ("3.3.2", "cannot migrate to KRaft")]
)
def test_releases_whose_brokers_cannot_be_migrated_are_refused(release: str, said: str) -> None:
    done = CliRunner().invoke(command, ["--kafka", release])
    assert isinstance(done.exception, OperatorError)
    assert said in str(done.exception)


def test_executors_that_a_rollout_refuses_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(yaml.safe_dump(content() | {"executors": {"default": {"preset": "ansible"}}}))
    done = CliRunner().invoke(command, ["--inventory", str(file)])
    assert isinstance(done.exception, OperatorError)
    assert "there is no preset ansible" in str(done.exception)


@pytest.mark.parametrize(
    ("controllers", "brokers", "others"),
    [
        ((3001, 3002, 3003), (1, 2, 3), (3004, 3005, 3006)),
        ((1, 2, 3), (4, 5, 6), (7, 8, 9)),
        ((3, 2, 1), (11, 12), (13, 14, 15)),
        ((2**31 - 2, 2**31 - 1), (0, 2), (1, 3)),
    ],
)
def test_controllers_that_take_over_have_ids_of_their_own(
    controllers: tuple[int, ...], brokers: tuple[int, ...], others: tuple[int, ...]
) -> None:
    assert free_ids({*controllers, *brokers}, len(controllers)) == others
