"""Whether each broker would have a key by which it finds the quorum. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.errors import OperatorError
from migrator.rollout.inventory import FIND_QUORUM, Inventory
from migrator.rollout.nodes import Node
from migrator.rollout.plan.modes import parsed
from migrator.rollout.ports import Observation

FIRST_WITH_BOOTSTRAP = (3, 9)
"""Kafka's release that finds a quorum by ``controller.quorum.bootstrap.servers`` (KIP-853)."""


def refuse_lost_brokers(inventory: Inventory, seen: Observation, texts: Mapping[str, str]) -> None:
    """Voters that are configured must be configured on brokers of every release: a broker registers with a controller
    that it knows as a voter (Kafka's ``RaftControllerNodeProvider``), and such a log names none.

    :param texts: property files by node.
    :raises OperatorError: a broker would have no key by which its release finds the quorum.
    """
    voters, bootstrap = FIND_QUORUM
    if inventory.brokers.settings.get(voters):
        return
    without = [node for node in inventory.brokers.nodes if not parsed(node, texts[node.name]).get(voters)]
    releases = {number: broker.release for number, broker in (seen.brokers or {}).items()}
    if old := [node for node in without if _is_old(releases.get(node.node_id, ""))]:
        named = ", ".join(f"{node.name} ({releases[node.node_id]})" for node in old)
        _refuse(
            f"brokers older than Kafka 3.9 do not know {bootstrap}, and have nothing else to find the controllers by: "
            f"{named}"
        )
    if without and _are_configured(inventory.controllers.nodes, texts):
        named = ", ".join(node.name for node in without)
        _refuse(
            f"the controllers have {voters}, and these brokers would have only {bootstrap}: a broker registers only "
            f"with a controller that it knows as a voter: {named}"
        )


def _are_configured(controllers: tuple[Node, ...], texts: Mapping[str, str]) -> bool:
    return any(parsed(node, texts.get(node.name, "")).get(FIND_QUORUM[0]) for node in controllers)


def _refuse(what: str) -> None:
    raise OperatorError(
        what, where="brokers.settings", remedy=f"Add {FIND_QUORUM[0]} to brokers.settings of the inventory"
    )


def _is_old(release: str) -> bool:
    numbers = tuple(int(part) for part in release.split(".")[:2] if part.isdecimal())
    return len(numbers) == len(FIRST_WITH_BOOTSTRAP) and numbers < FIRST_WITH_BOOTSTRAP
