"""A ``listener.security.protocol.map`` that is set dynamically counts more than what the rollout writes into the file.

A broker in migration mode takes its dynamic settings from ZooKeeper first (``KafkaServer``), then looks for the
protocol of the controllers' listener, and does not start without one (``RaftManager``, ``SecurityProtocol.forName``).
"""

from __future__ import annotations

from migrator.errors import OperatorError
from migrator.rollout.inventory import Inventory
from migrator.rollout.plan.listeners import PROTOCOLS, lacks_controllers
from migrator.rollout.ports import BrokerMode, Observation


def refuse_dynamic_maps(inventory: Inventory, seen: Observation) -> None:
    """Before anything is changed. What nobody could look at is left to preflight, which reads it in ZooKeeper.

    :raises OperatorError: brokers would not start in migration mode.
    """
    found = [
        (node, broker.dynamic_map)
        for node in inventory.brokers.nodes
        if (broker := seen.broker(node)) is not None and broker.mode is not BrokerMode.KRAFT
        if broker.dynamic_map and lacks_controllers(broker.dynamic_map, inventory.brokers.settings)
    ]
    if not found:
        return
    node, text = found[0]
    missing = lacks_controllers(text, inventory.brokers.settings)
    command = (
        f"kafka-configs.sh --bootstrap-server HOST:PORT --entity-type brokers --entity-name {node.node_id} --alter"
    )
    raise OperatorError(
        f"brokers would not start in migration mode: their {PROTOCOLS} is set dynamically, which counts more than the "
        f"property file, and it lacks the controllers' listener {missing}",
        where=", ".join(each.name for each, _ in found),
        remedy=f"For each of them, add it: {command} --add-config "
        f"'{PROTOCOLS}=[{text},{missing}:{inventory.brokers.controller_protocol}]'. If the map of its file has all of "
        f"its listeners, you can remove the dynamic one instead: {command} --delete-config {PROTOCOLS}",
    )
