"""The plan: an inventory -> the steps of the whole way, forward or back. Pure.

It has every step, also those whose effect is there already: `apply` finds that out when their turn comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migrator.errors import OperatorError
from migrator.rollout.inventory import Inventory, Roll
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.modes import FileMode
from migrator.rollout.plan.phases import WAYS
from migrator.rollout.plan.steps import Direction, Phase, PhaseRules, Place, Step, Who


def plan(inventory: Inventory, direction: Direction, canary: str = "", *, reopens: bool = False) -> tuple[Step, ...]:
    """Every step of the way.

    :param canary: name or id of the broker that goes first in every roll; "" for none. A canary that is not in the
        inventory any more stops nothing: no broker goes first then.
    :param reopens: whether the way back begins after the end of the migration.
    """
    return tuple(
        _step(rules, Place(inventory, node, group, reopens))
        for rules in WAYS[direction]
        if rules.is_there(inventory) and (reopens or not rules.only_reopening)
        for node, group in _nodes(rules.who, inventory, canary)
    )


def _nodes(who: Who, inventory: Inventory, canary: str) -> Iterator[tuple[Node | None, tuple[Node, ...]]]:
    """The nodes that a phase has steps for, each with the brokers that may be down at the same time."""
    controllers = inventory.controllers.nodes
    if who is Who.CLUSTER:
        yield None, ()
    elif who is Who.FIRST_CONTROLLER:
        yield controllers[0], ()
    elif who is Who.CONTROLLERS:
        yield from ((node, ()) for node in controllers)
    elif who is Who.BROKERS:
        yield from ((node, tuple(group)) for group in _groups(inventory, canary) for node in group)
    else:
        yield from ((node, ()) for node in inventory.gone if node.role is NodeKind.BROKER)


def _step(rules: PhaseRules, place: Place) -> Step:
    inventory, node = place.inventory, place.node
    is_one = rules.who in (Who.CLUSTER, Who.FIRST_CONTROLLER)
    return Step(
        rules.name or (rules.phase.value if is_one or node is None else f"{rules.phase.value}/{node.name}"),
        rules,
        tuple(act for act in rules.acts if not (act is rules.proof and inventory.left_out.verify)),
        node,
        inventory.controllers.stock[node.node_id] if node is not None and rules.mode is FileMode.STOCK else None,
        rules.before(place),
        rules.after(place),
        place.group if len(place.group) > 1 else (),
    )


def _groups(inventory: Inventory, canary: str) -> list[list[Node]]:
    """Brokers rack by rack, in the order of the inventory. The canary is a separate group, and first."""
    brokers = inventory.brokers.nodes
    racks: dict[str, list[Node]] = {}
    for node in brokers:
        racks.setdefault(node.rack, []).append(node)
    chosen = [node for node in brokers if canary and canary in (node.name, str(node.node_id))]
    others = [[node for node in rack if node not in chosen] for rack in racks.values()]
    if inventory.brokers.roll is Roll.BROKER:
        others = [[node] for rack in others for node in rack]
    return [group for group in (chosen, *others) if group]


def has_canary(inventory: Inventory, canary: str) -> bool:
    """Whether a broker of the inventory has this name or id."""
    return any(canary in (node.name, str(node.node_id)) for node in inventory.brokers.nodes)


def refuse_canary(inventory: Inventory, canary: str) -> None:
    """
    :param canary: as the operator has just typed it; "" for none.
    :raises OperatorError: there is no such broker.
    """
    if canary and not has_canary(inventory, canary):
        names = ", ".join(node.name for node in inventory.brokers.nodes)
        raise OperatorError(f"there is no broker {canary}", where="--canary", remedy=f"Name one of {names}")


def is_same_canary(inventory: Inventory, one: str, other: str) -> bool:
    """Whether both name the same broker, by name or id, or both are ""."""
    return one == other or any({one, other} <= {node.name, str(node.node_id)} for node in inventory.brokers.nodes)


def refuse_step(steps: Sequence[Step], name: str) -> None:
    """
    :param name: as the operator has just typed it; "" for none.
    :raises OperatorError: there is no such step.
    """
    if name and name not in [step.name for step in steps]:
        known = ", ".join(step.name for step in steps)
        raise OperatorError(f"there is no step {name}", where="--pause-after", remedy=f"Name one of {known}")


def canary_steps(steps: Sequence[Step], canary: str) -> set[str]:
    """The names of the steps after which a rollout with this canary waits for the operator."""
    return {
        step.name
        for step in steps
        if canary and step.phase in (Phase.MIGRATE, Phase.KRAFT)
        if step.node is not None and canary in (step.node.name, str(step.node.node_id))
    }
