"""Releases of brokers that an inventory does not suit. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.errors import OperatorError
from migrator.rollout.inventory import FIND_QUORUM, Inventory
from migrator.rollout.modes import parsed
from migrator.rollout.ports import Observation

FIRST_WITH_BOOTSTRAP = (3, 9)
"""Kafka's release that finds a quorum by ``controller.quorum.bootstrap.servers`` (KIP-853)."""


def refuse_old_brokers(inventory: Inventory, seen: Observation, texts: Mapping[str, str]) -> None:
    """
    :param texts: property files by node.
    :raises OperatorError: a broker would have no key by which its release finds the quorum.
    """
    voters, bootstrap = FIND_QUORUM
    if inventory.brokers.settings.get(voters):
        return
    old = []
    for node in inventory.brokers.nodes:
        broker = (seen.brokers or {}).get(node.node_id)
        if broker is not None and _is_old(broker.release) and not parsed(node, texts[node.name]).get(voters):
            old.append(f"{node.name} ({broker.release})")
    if old:
        raise OperatorError(
            f"brokers older than Kafka 3.9 do not know {bootstrap}, and have nothing else to find the controllers by: "
            f"{', '.join(old)}",
            where="brokers.settings",
            remedy=f"Add {voters} to brokers.settings of the inventory",
        )


def _is_old(release: str) -> bool:
    numbers = tuple(int(part) for part in release.split(".")[:2] if part.isdecimal())
    return len(numbers) == len(FIRST_WITH_BOOTSTRAP) and numbers < FIRST_WITH_BOOTSTRAP
