"""A cluster of Kafka brokers as the nodes of an inventory."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.drill.kafka.cluster import KafkaCluster
from migrator.drill.rollout.desk import DeskNode, DeskNodes
from migrator.drill.rollout.services import KafkaNode, OurController
from migrator.drill.shape import Shape
from migrator.rollout.target_release import parse_target


def takes_over(release: str) -> bool:
    """Whether Kafka's controllers of that release can join a quorum of ours."""
    try:
        return parse_target(release).rolling
    except ValueError:
        return False


def names_of(kafka: KafkaCluster, shape: Shape | None) -> dict[int, str]:
    """The names of controllers and brokers in the inventory, by id."""
    if shape is not None:
        return {node.node_id: node.name for node in (*shape.controllers, *shape.brokers)}
    controllers = {controller.node_id: f"controller-{controller.node_id}" for controller in kafka.controllers}
    return controllers | {broker: f"broker-{broker}" for broker in kafka.brokers}


def nodes_of(kafka: KafkaCluster, shape: Shape | None, *, hand_over: bool) -> DeskNodes:
    """Its controllers, brokers and, with a hand-over, Kafka's controllers in their place."""
    names = names_of(kafka, shape)
    racks = {} if shape is None else {node.node_id: node.rack for node in (*shape.controllers, *shape.brokers)}
    controllers = [
        DeskNode(
            each.node_id, names[each.node_id], each.property_file, OurController(each), racks.get(each.node_id, "")
        )
        for each in kafka.controllers
    ]
    stock = kafka.stock_controllers() if hand_over else []
    return DeskNodes(
        controllers=controllers,
        stock=[
            DeskNode(node.node_id, f"{node.name}-stock", each.properties_file, KafkaNode(each))
            for node, each in zip(controllers, stock, strict=False)
        ],
        brokers=[
            DeskNode(broker, names[broker], node.properties_file, KafkaNode(node), racks.get(broker, ""))
            for broker, node in kafka.brokers.items()
        ],
        settings={**kafka.quorum_keys, "controller.listener.names": kafka.controller_listener},
        controller_protocol=_protocol(kafka.controllers[0].properties, kafka.controller_listener),
        by_rack=shape is not None and shape.by_rack,
        release=kafka.kafka.version,
    )


def _protocol(properties: Mapping[str, str], listener: str) -> str:
    entries = properties["listener.security.protocol.map"].split(",")
    return dict(entry.split(":") for entry in entries)[listener]
