"""A broker's file in each mode, where Kafka checks it (``KafkaConfig.validateValues``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from migrator.config.properties import decoded, parse_properties
from migrator.errors import OperatorError
from migrator.rollout.files.property_files import not_kept
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.modes import (
    FileMode,
    ModeSettings,
    changes_shown,
    digest_shown,
    lost_zookeeper,
    rewritten,
)

SETTINGS = ModeSettings(
    {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": "3001@c:9093"}, "SSL", "zk:2181", "3.9"
)


def changed(text: str, target: FileMode, node_id: int = 7, settings: ModeSettings = SETTINGS) -> dict[str, str]:
    node = Node("broker-7", NodeKind.BROKER, node_id, "host", "/etc/kafka/server.properties", "default", "", {})
    return parse_properties(rewritten(node, text, target, settings))


def test_a_generated_id_is_written_down_for_the_migration() -> None:
    found = changed("zookeeper.connect=zk:2181\n", FileMode.BROKER_MIGRATING, 1001)
    assert found["broker.id"] == "1001"
    assert found["broker.id.generation.enable"] == "false", "Kafka refuses an id above the reserved ones otherwise"


@pytest.mark.parametrize("text", ["broker.id=-1\n", "broker.id=-1\nbroker.id.generation.enable=true\n"])
def test_minus_one_is_kafkas_word_for_a_generated_id(text: str) -> None:
    text = f"zookeeper.connect=zk:2181\n{text}"
    assert changed(text, FileMode.BROKER_MIGRATING, 1001)["broker.id"] == "1001"
    assert changed(text, FileMode.BROKER_KRAFT, 1001)["node.id"] == "1001"
    node = Node("broker-7", NodeKind.BROKER, 1001, "host", "/etc/kafka/server.properties", "default", "", {})
    migrating = rewritten(node, text, FileMode.BROKER_MIGRATING, SETTINGS)
    assert rewritten(node, migrating, FileMode.BROKER_ZOOKEEPER, SETTINGS, text) == text


@pytest.mark.parametrize(
    ("text", "node_id"), [("broker.id=7\n", 7), ("broker.id=1001\nreserved.broker.max.id=2000\n", 1001)]
)
def test_a_reserved_id_needs_nothing_more(text: str, node_id: int) -> None:
    found = changed(f"zookeeper.connect=zk:2181\n{text}", FileMode.BROKER_MIGRATING, node_id)
    assert "broker.id.generation.enable" not in found


def test_a_limit_that_is_no_number_is_named() -> None:
    with pytest.raises(OperatorError, match=r"reserved\.broker\.max\.id: 'many' is no number"):
        changed("broker.id=7\nreserved.broker.max.id=many\n", FileMode.BROKER_MIGRATING)


def test_a_value_counts_as_kafka_trims_it() -> None:
    authorizer = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer  \nreserved.broker.max.id=+1000 \n"
    found = changed(f"broker.id= +7\nzookeeper.connect=zk:2181\n{authorizer}", FileMode.BROKER_KRAFT)
    assert found["authorizer.class.name"] == "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert found["node.id"] == "7"
    with pytest.raises(OperatorError, match=r"that of node \(empty\), and the inventory says 7"):
        changed("broker.id=\n", FileMode.BROKER_KRAFT)


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


@pytest.mark.parametrize("level", ["3.8-IV0", "3.9-IV0", ""])
@pytest.mark.parametrize("kept", [True, False])
def test_keys_of_zookeeper_come_back_from_comments(level: str, *, kept: bool) -> None:
    """The level of the protocol is that of the cluster, which may have been raised since: with the old one, a broker
    does not register."""
    node = Node("broker-7", NodeKind.BROKER, 7, "host", "/etc/kafka/server.properties", "default", "", {})
    settings = replace(SETTINGS, release_version=level)
    in_kraft = rewritten(node, OF_ZOOKEEPER, FileMode.BROKER_KRAFT, SETTINGS)
    back = rewritten(node, in_kraft, MIGRATING, settings, OF_ZOOKEEPER if kept else None)
    expected = parse_properties(OF_ZOOKEEPER) | ({"inter.broker.protocol.version": level} if "3.9" in level else {})
    found = parse_properties(back)
    assert {key: found.get(key) for key in expected} == expected
    home = rewritten(node, back, ZOOKEEPER, settings, OF_ZOOKEEPER.replace("zookeeper.metadata", "#") if kept else None)
    assert parse_properties(home)["inter.broker.protocol.version"] == expected["inter.broker.protocol.version"]
    assert (back == OF_ZOOKEEPER) is (kept and "3.9" not in level)
    assert not lost_zookeeper(node, in_kraft, FileMode.BROKER_MIGRATING)


def test_bytes_beyond_ascii_are_kept_and_come_back_from_comments() -> None:
    """The second byte of some characters in UTF-8 ends a line for others than Java."""
    node = Node("broker-7", NodeKind.BROKER, 7, "host", "/etc/kafka/server.properties", "default", "", {})
    text = decoded(OF_ZOOKEEPER.encode() + "# Ångström\nzookeeper.ssl.keystore.password=Å à\n".encode() + b"# \xe4\n")
    in_kraft = rewritten(node, text, FileMode.BROKER_KRAFT, SETTINGS)
    aside = "# Ångström\n#migrator set aside: zookeeper.ssl.keystore.password=Å à\n".encode()
    assert decoded(aside + b"# \xe4\n") in in_kraft
    back = changed(in_kraft, FileMode.BROKER_MIGRATING)
    assert back["zookeeper.ssl.keystore.password"] == decoded("Å à".encode())


def test_a_plan_shows_what_the_author_of_a_file_sees() -> None:
    assert changes_shown(decoded("log.dirs=/größe".encode()), "log.dirs=/gr\\u00f6\\u00dfe") == [
        "- log.dirs=/größe",
        "+ log.dirs=/größe",
    ]


def test_where_nothing_says_what_zookeeper_needs_the_operator_is_told() -> None:
    node = Node("broker-7", NodeKind.BROKER, 7, "host", "/etc/kafka/server.properties", "default", "", {})
    bare = "process.roles=broker\nnode.id=7\n# zookeeper.ssl.client.enable=true is what the wiki says\n"
    assert lost_zookeeper(node, bare, FileMode.BROKER_MIGRATING)
    assert not lost_zookeeper(node, bare, FileMode.BROKER_KRAFT)
    found = changed(bare, FileMode.BROKER_MIGRATING)
    assert {key for key in found if key.startswith("zookeeper.")} == {
        "zookeeper.connect",
        "zookeeper.metadata.migration.enable",
    }


NODE = Node("broker-7", NodeKind.BROKER, 7, "host", "/etc/kafka/server.properties", "default", "", {})
ZOOKEEPER, MIGRATING, KRAFT = FileMode.BROKER_ZOOKEEPER, FileMode.BROKER_MIGRATING, FileMode.BROKER_KRAFT
MAP = "listener.security.protocol.map"
BARE = "broker.id=7\nzookeeper.connect=zk:2181\n"


def there_and_back(text: str, change: Callable[[str], str], since: FileMode, settings: ModeSettings = SETTINGS) -> str:
    """Into the migration, somebody changes the file in one mode, and all the way back, with the backups."""
    migrating = rewritten(NODE, text, MIGRATING, settings)
    if since is MIGRATING:
        return rewritten(NODE, change(migrating), ZOOKEEPER, settings, text)
    in_kraft = change(rewritten(NODE, migrating, KRAFT, settings))
    back = rewritten(NODE, in_kraft, MIGRATING, settings, migrating)
    return rewritten(NODE, back, ZOOKEEPER, settings, text)


def opened_for_others(text: str) -> str:
    """The operator gives the broker one more listener."""
    text = text.replace("listeners=INTERNAL://:9092", "listeners=INTERNAL://:9092,EXTERNAL://:9094")
    return text.replace("INTERNAL:SASL_SSL,", "INTERNAL:SASL_SSL,EXTERNAL:SSL,")


@pytest.mark.parametrize("since", [MIGRATING, KRAFT])
@pytest.mark.parametrize("inventory_has", ["", "CONTROLLER:SSL,OTHER:SSL"])
def test_a_listener_that_was_added_since_keeps_its_protocol(since: FileMode, inventory_has: str) -> None:
    settings = SETTINGS
    if inventory_has:
        settings = ModeSettings({**SETTINGS.for_brokers, MAP: inventory_has}, "SSL", "", "")
    text = f"{BARE}listeners=INTERNAL://:9092\n{MAP}=INTERNAL:SASL_SSL\n"
    found = parse_properties(there_and_back(text, opened_for_others, since, settings))
    assert found["listeners"] == "INTERNAL://:9092,EXTERNAL://:9094"
    assert found[MAP] == "INTERNAL:SASL_SSL,EXTERNAL:SSL"


@pytest.mark.parametrize("since", [MIGRATING, KRAFT])
def test_a_protocol_that_was_added_to_kafkas_default_stays_and_that_of_the_controllers_goes(since: FileMode) -> None:
    found = there_and_back(BARE, lambda text: text.replace(",CONTROLLER:SSL", ",CONTROLLER:SSL,EXTERNAL:SSL"), since)
    assert parse_properties(found)[MAP].endswith(",SASL_SSL:SASL_SSL,EXTERNAL:SSL")
    found = there_and_back(BARE, lambda text: text + "num.io.threads=16\n", since)
    assert MAP not in parse_properties(found)


def test_an_own_listener_with_the_name_of_the_controllers_keeps_its_protocol() -> None:
    """It was added since, or is for the ZooKeeper controller (``control.plane.listener.name``)."""
    added = there_and_back(BARE, lambda text: text + "listeners=SSL://:9092,CONTROLLER://:9099\n", MIGRATING)
    assert "CONTROLLER:SSL" in parse_properties(added)[MAP]
    text = f"{BARE}control.plane.listener.name=CONTROLLER\nlisteners=SSL://:9092,CONTROLLER://:9099\n{MAP}=SSL:SSL,CONTROLLER:SSL\n"
    found = there_and_back(text, lambda text: text.replace("SSL:SSL,", "SSL:SSL,EXTERNAL:SSL,"), KRAFT)
    assert parse_properties(found)[MAP] == "SSL:SSL,EXTERNAL:SSL,CONTROLLER:SSL"
    assert parse_properties(found)["control.plane.listener.name"] == "CONTROLLER"


def test_a_key_that_names_a_listener_which_was_removed_since_does_not_come_back_and_that_is_said() -> None:
    text = f"{BARE}control.plane.listener.name=PLANE\nlisteners=SSL://:9092,PLANE://:9099\n{MAP}=SSL:SSL,PLANE:SSL\n"
    migrating = rewritten(NODE, text, MIGRATING, SETTINGS)
    in_kraft = rewritten(NODE, migrating, KRAFT, SETTINGS).replace(",PLANE://:9099", "")
    back = rewritten(NODE, in_kraft, MIGRATING, SETTINGS, migrating)
    assert "control.plane.listener.name" not in parse_properties(back)
    (said,) = not_kept(NODE, in_kraft, back, SETTINGS, migrating)
    assert said.startswith("control.plane.listener.name=PLANE does not come back")


def test_what_was_written_by_hand_in_kraft_mode_counts_more_than_a_backup() -> None:
    """ZooKeeper has moved, or the brokers have another release."""
    by_hand = "zookeeper.connect=new:2181\ninter.broker.protocol.version=3.8\n"
    found = parse_properties(there_and_back(BARE, lambda text: text + by_hand, KRAFT))
    assert (found["zookeeper.connect"], found["inter.broker.protocol.version"]) == ("new:2181", "3.8")


def test_a_key_of_the_inventory_that_somebody_has_changed_is_named_as_the_way_back_takes_it() -> None:
    other = rewritten(NODE, BARE, MIGRATING, SETTINGS).replace("3001@c:9093", "3001@elsewhere:9093")
    back = rewritten(NODE, other, ZOOKEEPER, SETTINGS, BARE)
    (said,) = not_kept(NODE, other, back, SETTINGS, BARE)
    assert said.startswith("controller.quorum.voters: ")
    assert "elsewhere" not in said
    unchanged = rewritten(NODE, BARE, MIGRATING, SETTINGS)
    assert not list(not_kept(NODE, unchanged, rewritten(NODE, unchanged, ZOOKEEPER, SETTINGS, BARE), SETTINGS, BARE))
    assert not list(not_kept(NODE, BARE, unchanged, SETTINGS, None)), "the way forward"


def test_a_blank_in_a_list_is_no_change() -> None:
    voters = "3001@a:9093,3002@b:9093"
    settings = ModeSettings({**SETTINGS.for_brokers, "controller.quorum.voters": voters}, "SSL", "", "")
    migrating = rewritten(NODE, BARE, MIGRATING, settings)
    blanks = migrating.replace(",3002", ", 3002").replace(",CONTROLLER:SSL", " , CONTROLLER:SSL")
    assert blanks.count(", ") == 2
    assert rewritten(NODE, blanks, MIGRATING, settings) == blanks


def test_the_control_plane_of_our_controllers_goes_with_the_migration_and_comes_back() -> None:
    """No controller of Kafka starts with it: neither at the hand-over, nor if somebody starts Kafka on this file."""
    node = Node("controller-1", NodeKind.CONTROLLER, 1, "host", "/etc/kafka/controller.properties", "default", "", {})
    text = "node.id=1\nzookeeper.metadata.migration.enable=true\nzookeeper.connect=zk:2181\n"
    text += "control.plane.listener.name=PLANE\n"
    ended = rewritten(node, text, FileMode.CONTROLLER_ENDED, SETTINGS)
    assert "control.plane.listener.name" not in parse_properties(ended)
    back = rewritten(node, ended, FileMode.CONTROLLER_MIGRATING, SETTINGS)
    assert parse_properties(back)["control.plane.listener.name"] == "PLANE"


def test_a_blank_in_the_names_of_the_controllers_listeners_counts() -> None:
    """Kafka does not pass over it there (``KafkaConfig.controllerListenerNames``)."""
    settings = ModeSettings({**SETTINGS.for_brokers, "controller.listener.names": "CONTROLLER,OTHER"}, "SSL", "", "")
    text = f"{BARE}controller.listener.names=CONTROLLER, OTHER\n"
    assert changed(text, MIGRATING, settings=settings)["controller.listener.names"] == "CONTROLLER,OTHER"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("ssl.key.password=guess\nnum.partitions=1", True),
        ("# a comment\nnum.partitions = 1\nssl.key.password:x", True),
        ("some.unknown.password=1\nnum.partitions=1\nssl.key.password=x", False),
        ("num.partitions=2\nssl.key.password=x", False),
        ("num.partitions=1", False),
    ],
)
def test_nobody_can_test_a_guess_of_a_secret_with_the_digest_that_a_report_shows(other: str, same: bool) -> None:
    assert (digest_shown("num.partitions=1\nssl.key.password=x") == digest_shown(other)) is same
