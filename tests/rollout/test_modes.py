"""What a broker's file says in each mode, where Kafka is particular about it (``KafkaConfig.validateValues``)."""

from __future__ import annotations

import pytest

from migrator.config.properties import decoded, parse_properties
from migrator.errors import OperatorError
from migrator.rollout.nodes import Node, Role
from migrator.rollout.plan.modes import FileMode, ModeSettings, changes_shown, lost_zookeeper, rewritten

SETTINGS = ModeSettings(
    {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": "3001@c:9093"}, "SSL", "zk:2181", "3.9"
)


def changed(text: str, target: FileMode, node_id: int = 7, settings: ModeSettings = SETTINGS) -> dict[str, str]:
    node = Node("broker-7", Role.BROKER, node_id, "host", "/etc/kafka/server.properties", "default", "", {})
    return parse_properties(rewritten(node, text, target, settings))


def test_a_generated_id_is_written_down_for_the_migration() -> None:
    found = changed("zookeeper.connect=zk:2181\n", FileMode.BROKER_MIGRATING, 1001)
    assert found["broker.id"] == "1001"
    assert found["broker.id.generation.enable"] == "false", "Kafka refuses an id above the reserved ones otherwise"


@pytest.mark.parametrize(
    ("text", "node_id"), [("broker.id=7\n", 7), ("broker.id=1001\nreserved.broker.max.id=2000\n", 1001)]
)
def test_a_reserved_id_needs_nothing_more(text: str, node_id: int) -> None:
    found = changed(f"zookeeper.connect=zk:2181\n{text}", FileMode.BROKER_MIGRATING, node_id)
    assert "broker.id.generation.enable" not in found


def test_a_limit_that_is_no_number_is_named() -> None:
    with pytest.raises(OperatorError, match=r"reserved\.broker\.max\.id: 'many' is no number"):
        changed("broker.id=7\nreserved.broker.max.id=many\n", FileMode.BROKER_MIGRATING)


@pytest.mark.parametrize("mode", [FileMode.BROKER_MIGRATING, FileMode.BROKER_KRAFT])
def test_the_brokers_own_listeners_stay_in_the_map(mode: FileMode) -> None:
    """The inventory's map may name the controllers' listener only."""
    settings = ModeSettings({**SETTINGS.for_brokers, "listener.security.protocol.map": "CONTROLLER:SSL"}, "SSL", "", "")
    text = "broker.id=7\nzookeeper.connect=zk:2181\n"
    found = changed(f"{text}listener.security.protocol.map=INSIDE:SASL_SSL\n", mode, settings=settings)
    assert found["listener.security.protocol.map"] == "INSIDE:SASL_SSL,CONTROLLER:SSL"
    found = changed(text, mode, settings=settings)
    assert found["listener.security.protocol.map"].startswith("PLAINTEXT:PLAINTEXT,"), "Kafka's default"
    assert found["listener.security.protocol.map"].endswith(",CONTROLLER:SSL")


OF_ZOOKEEPER = """broker.id=7
zookeeper.connect=zk-1:2181,\\
  zk-2:2181/kafka
zookeeper.ssl.client.enable=true
zookeeper.metadata.migration.enable=true
zookeeper.session.timeout.ms=6000
inter.broker.protocol.version=3.8
controller.quorum.voters=3001@c:9093
"""


def test_keys_of_zookeeper_come_back_from_comments() -> None:
    node = Node("broker-7", Role.BROKER, 7, "host", "/etc/kafka/server.properties", "default", "", {})
    in_kraft = rewritten(node, OF_ZOOKEEPER, FileMode.BROKER_KRAFT, SETTINGS)
    found = changed(in_kraft, FileMode.BROKER_MIGRATING)
    before = parse_properties(OF_ZOOKEEPER)
    assert {key: found.get(key) for key in before} == before
    assert not lost_zookeeper(node, in_kraft, FileMode.BROKER_MIGRATING)


def test_bytes_beyond_ascii_are_kept_and_come_back_from_comments() -> None:
    """The second byte of some characters in UTF-8 ends a line for others than Java."""
    node = Node("broker-7", Role.BROKER, 7, "host", "/etc/kafka/server.properties", "default", "", {})
    text = decoded(OF_ZOOKEEPER.encode() + "# Ångström\nzookeeper.ssl.keystore.password=Å à\n".encode() + b"# \xe4\n")
    in_kraft = rewritten(node, text, FileMode.BROKER_KRAFT, SETTINGS)
    assert decoded("# Ångström\n#zookeeper.ssl.keystore.password=Å à\n".encode() + b"# \xe4\n") in in_kraft
    back = changed(in_kraft, FileMode.BROKER_MIGRATING)
    assert back["zookeeper.ssl.keystore.password"] == decoded("Å à".encode())


def test_a_plan_shows_what_the_author_of_a_file_sees() -> None:
    assert changes_shown(decoded("log.dirs=/größe".encode()), "log.dirs=/gr\\u00f6\\u00dfe") == [
        "- log.dirs=/größe",
        "+ log.dirs=/größe",
    ]


def test_where_nothing_says_what_zookeeper_needs_the_operator_is_told() -> None:
    node = Node("broker-7", Role.BROKER, 7, "host", "/etc/kafka/server.properties", "default", "", {})
    bare = "process.roles=broker\nnode.id=7\n# zookeeper.ssl.client.enable=true is what the wiki says\n"
    assert lost_zookeeper(node, bare, FileMode.BROKER_MIGRATING)
    assert not lost_zookeeper(node, bare, FileMode.BROKER_KRAFT)
    found = changed(bare, FileMode.BROKER_MIGRATING)
    assert {key for key in found if key.startswith("zookeeper.")} == {
        "zookeeper.connect",
        "zookeeper.metadata.migration.enable",
    }
