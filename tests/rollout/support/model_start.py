"""Reasons why Kafka does not start with a property file (``KafkaConfig.validateValues``), a sentence each.

The model refuses a start with them, so a rollout that writes such a file fails its test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from migrator.config.keys import CONTROL_PLANE
from migrator.config.types import split_list
from migrator.rollout.nodes import Node
from migrator.rollout.plan.modes import FileMode, file_mode

CONTROLLERS = "controller.listener.names"


def refused_of_broker(node: Node, properties: Mapping[str, str]) -> Iterator[str]:
    """
    :param properties: of the broker that starts.
    """
    mode = file_mode(node.role, properties)
    if mode is FileMode.BROKER_ZOOKEEPER and properties.get(CONTROLLERS):
        yield f"{node.name} starts in ZooKeeper mode with {CONTROLLERS}"
    if mode is FileMode.BROKER_KRAFT and CONTROL_PLANE in properties:
        yield f"{node.name} starts in KRaft mode with {CONTROL_PLANE}"
    yield from _without_protocol(node, properties)


def refused_of_controller(node: Node, properties: Mapping[str, str]) -> Iterator[str]:
    """
    :param properties: of Kafka's own controller that starts.
    """
    if CONTROL_PLANE in properties:
        yield f"{node.name} starts in KRaft mode with {CONTROL_PLANE}"


def _without_protocol(node: Node, properties: Mapping[str, str]) -> Iterator[str]:
    """Listeners (``KafkaConfig.effectiveListenerSecurityProtocolMap``)."""
    protocols = {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}
    if text := properties.get("listener.security.protocol.map"):
        protocols = {entry.partition(":")[0] for entry in split_list(text)}
    names = [each.partition(":")[0] for each in properties["listeners"].split(",")]
    names += [name for name in properties.get(CONTROLLERS, "").split(",") if name]
    yield from (f"{node.name} has no protocol for its listener {name}" for name in names if name not in protocols)
