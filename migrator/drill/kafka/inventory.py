"""A cluster of Kafka brokers as the nodes of an inventory."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.drill.cluster import ControllerProcess
from migrator.drill.kafka.cluster import KafkaCluster
from migrator.drill.rollout.desk import DeskNode, DeskNodes
from migrator.drill.rollout.services import KafkaNode, OurController
from migrator.handover.target_release import parse_target

CONTROLLER = "CONTROLLER"


def broker_name(broker: int) -> str:
    """As the inventory calls it."""
    return f"broker-{broker}"


def takes_over(release: str) -> bool:
    """Whether Kafka's controllers of that release can join a quorum of ours."""
    try:
        return parse_target(release).rolling
    except ValueError:
        return False


def nodes_of(kafka: KafkaCluster, *, hand_over: bool) -> DeskNodes:
    """Its controllers, brokers and, with a hand-over, Kafka's controllers in their place."""
    controllers = [_controller(controller) for controller in kafka.controllers]
    stock = kafka.stock_controllers() if hand_over else []
    return DeskNodes(
        controllers=controllers,
        stock=[
            DeskNode(node.node_id, f"{node.name}-stock", each.properties_file, KafkaNode(each))
            for node, each in zip(controllers, stock, strict=False)
        ],
        brokers=[
            DeskNode(broker, broker_name(broker), node.properties_file, KafkaNode(node))
            for broker, node in kafka.brokers.items()
        ],
        settings={**kafka.quorum_keys, "controller.listener.names": CONTROLLER},
        controller_protocol=_protocol(kafka.controllers[0].properties),
        release=kafka.kafka.version,
    )


def _controller(controller: ControllerProcess) -> DeskNode:
    name = f"controller-{controller.node_id}"
    return DeskNode(controller.node_id, name, controller.property_file, OurController(controller))


def _protocol(properties: Mapping[str, str]) -> str:
    """Of the controllers' listener."""
    entries = properties["listener.security.protocol.map"].split(",")
    return dict(entry.split(":") for entry in entries)[CONTROLLER]
