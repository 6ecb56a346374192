"""The files of a model cluster's operator: the inventory, and the property file of each node.

Broker files hold a secret and a comment, so a test sees when a rollout shows the one or loses the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from migrator.rollout.inventory import Inventory, parse_inventory
from migrator.rollout.nodes import Node
from migrator.rollout.ports import BrokerMode, BrokerSeen

REFUSED = "CLUSTER_AUTHORIZATION_FAILED"
SECRET = "s3cr3t-of-the-model"
COMMENT = b"# H\xe4nde weg, sagt \xc3\x85sa\n"
"""In two encodings: a property file has none but Java's."""


def broker_file(node: Node) -> bytes:
    """As an operator writes it, with a secret and a comment."""
    return (
        f"""# Broker {node.name}, see the wiki
broker.id={node.node_id}
listeners=PLAINTEXT://:9092
log.dirs=/data/{node.name}
zookeeper.connect=zk:2181/kafka
inter.broker.protocol.version=3.9
zookeeper.metadata.migration.enable=false
authorizer.class.name=kafka.security.authorizer.AclAuthorizer
ssl.keystore.password={SECRET}
zookeeper.ssl.keystore.password={SECRET}
""".encode()
        + COMMENT
    )


def controller_file(node: Node) -> bytes:
    """As Kafka's manual has it."""
    return (
        f"""process.roles=controller
node.id={node.node_id}
log.dirs=/data/{node.name}
zookeeper.metadata.migration.enable=true
zookeeper.connect=zk:2181/kafka
inter.broker.listener.name=PLAINTEXT
password.encoder.secret={SECRET}
""".encode()
        + COMMENT
    )


def from_outside(seen: BrokerSeen, shown: Mapping[str, str | None] | None, *, leads: bool, answers: bool) -> BrokerSeen:
    """A broker as the observer sees it. Without its settings, all that tells of its mode is where it is registered.

    :param shown: what its property file said as it started; None: the login may not look.
    :param leads: whether a quorum does, with which it is registered.
    """
    if answers and shown is not None:
        return replace(seen, file=shown)
    if seen.mode is BrokerMode.MIGRATING and not leads:
        seen = replace(seen, mode=BrokerMode.ZOOKEEPER)
    return replace(seen, settings=None, hidden=REFUSED) if answers else silent(seen)


def silent(seen: BrokerSeen) -> BrokerSeen:
    """It is registered, and says nothing."""
    return replace(seen, serving=False, release="", settings=None)


@cache
def model_inventory(
    brokers: int = 3,
    racks: int = 1,
    *,
    roll: str = "broker",
    kind: str = "migrator",
    handover: bool = True,
    verify_seconds: int = 0,
) -> Inventory:
    """Three controllers and so many brokers."""
    return parse_inventory(
        inventory_text(brokers, racks, roll=roll, kind=kind, handover=handover, verify_seconds=verify_seconds),
        "model.yaml",
    )


def with_level(inventory: Inventory, typed: str = "3.9") -> Inventory:
    """The operator names the metadata.version; where the brokers hide their settings, that is asked for."""
    return replace(inventory, controllers=replace(inventory.controllers, release_version=typed))


def inventory_text(
    brokers: int = 3,
    racks: int = 1,
    *,
    roll: str = "broker",
    kind: str = "migrator",
    handover: bool = True,
    verify_seconds: int = 0,
) -> str:
    """As an operator writes it."""
    lines = "".join(
        f"    - {{id: {number}, properties: /etc/b{number}.properties, rack: r{number % racks}}}\n"
        for number in range(1, brokers + 1)
    )
    controllers = "".join(
        f"    - {{id: {number}, properties: /etc/c{number}.properties}}\n" for number in (3001, 3002, 3003)
    )
    return f"""
cluster: model
access: access.properties
controllers:
  kind: {kind}
  nodes:
{controllers}
brokers:
  roll: {roll}
  settings: {{controller.listener.names: CONTROLLER, controller.quorum.voters: "3001@c:9093"}}
  nodes:
{lines}
executors: {{default: {{preset: local}}}}
{'handover: {release: "3.9.1"}' if handover else ""}
gates: {{seconds: 60, poll_seconds: 20, soak_seconds: 180, verify_seconds: {verify_seconds}}}
"""
