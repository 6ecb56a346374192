"""The shape of an operator's cluster, from the inventory and its file 'access': a drill rehearses this shape. Pure.

Only names, numbers, racks, listeners and protocols are taken. Hosts, paths and executors are not: a drill has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from migrator.config.endpoints import PROTOCOL_NAMES
from migrator.config.keys import BETWEEN, CONTROLLERS, PROTOCOLS
from migrator.config.types import split_list
from migrator.errors import OperatorError
from migrator.observe.printable import number_of
from migrator.rollout.inventory import ControllerKind, Inventory, Roll
from migrator.rollout.nodes import Node
from migrator.rollout.plan.listeners import DEFAULT_PROTOCOLS
from migrator.values import value

BROKERS_MAX, CONTROLLERS_MAX = 30, 7
BROKER_BYTES, CONTROLLER_BYTES, OTHERS_BYTES = 550 << 20, 160 << 20, 2 << 30
"""The peak memory in bytes of one node; and of ZooKeeper, clients and Spark together."""
BETWEEN_PROTOCOL = "security.inter.broker.protocol"
MECHANISM = "sasl.mechanism.inter.broker.protocol"
OWN_MECHANISM = "SCRAM-SHA-512"


@value
class NodeShape:
    """One node; ``rack`` is "" without racks."""

    node_id: int
    name: str
    rack: str


@value
class ListenerShape:
    """``protocol``: one of `PROTOCOL_NAMES`."""

    name: str
    protocol: str


@value
class Shape:
    """``brokers`` are in the order in which a rollout takes them, rack by rack. ``by_rack``: a rack at a time.

    ``notes``: differences between the drill and the operator's cluster, one sentence each.
    """

    cluster: str
    controllers: tuple[NodeShape, ...]
    brokers: tuple[NodeShape, ...]
    by_rack: bool
    for_controllers: ListenerShape
    between_brokers: ListenerShape
    for_clients: ListenerShape
    zookeeper_tls: bool
    notes: tuple[str, ...]

    @property
    def figures(self) -> dict[str, str]:
        """The rehearsed shape, in words."""
        racks = {each.rack for each in self.brokers if each.rack}
        numbers = {"controller": len(self.controllers), "broker": len(self.brokers), "rack": len(racks)}
        nodes = ", ".join(number_of(count, what) for what, count in numbers.items())
        listeners = ", ".join(f"{name} {protocol}" for name, protocol in self.listeners.items())
        return {
            f"as in the inventory of {self.cluster}": nodes,
            "listeners": f"{listeners}; ZooKeeper {'with TLS' if self.zookeeper_tls else 'in clear'}",
            **({"otherwise than there": "; ".join(self.notes)} if self.notes else {}),
        }

    @property
    def listeners(self) -> dict[str, str]:
        """Protocols by name, each listener once."""
        return {each.name: each.protocol for each in (self.for_controllers, self.between_brokers, self.for_clients)}


def shape_of(inventory: Inventory, access: Mapping[str, str], source: str) -> Shape:
    """
    :param access: keys and values of the file that ``access`` names.
    :param source: the inventory's name, for messages.
    :raises OperatorError: a drill cannot have this shape.
    """
    if inventory.controllers.kind is ControllerKind.STOCK:
        raise OperatorError(
            "the controllers are Kafka's own, and the drill rehearses those of this program",
            where=f"{source}: controllers.kind",
            remedy="Set kind to migrator in a copy of the inventory",
        )
    for what, nodes, most in (
        ("brokers", inventory.brokers.nodes, BROKERS_MAX),
        ("controllers", inventory.controllers.nodes, CONTROLLERS_MAX),
    ):
        if len(nodes) > most:
            raise OperatorError(
                f"{len(nodes)} {what} are more than one machine can rehearse: the drill takes {most} at most",
                where=f"{source}: {what}.nodes",
                remedy="Leave some out of a copy of the inventory, as many of each rack",
            )
    settings = inventory.brokers.settings
    protocols = _protocols(access.get(PROTOCOLS) or settings.get(PROTOCOLS) or DEFAULT_PROTOCOLS)
    names = split_list(access.get(CONTROLLERS, "") or settings.get(CONTROLLERS, ""))
    of_controllers = {name.strip().upper() for name in names}
    for_controllers = _listener(names[0] if names else "CONTROLLER", protocols, inventory.brokers.controller_protocol)
    between = _listener(access.get(BETWEEN) or access.get(BETWEEN_PROTOCOL) or "PLAINTEXT", protocols)
    others = [name for name in protocols if name not in {*of_controllers, for_controllers.name, between.name}]
    given = bool(access.get(PROTOCOLS) or settings.get(PROTOCOLS))
    shape = Shape(
        cluster=inventory.cluster,
        controllers=tuple(map(_node, inventory.controllers.nodes)),
        brokers=tuple(map(_node, _rack_by_rack(inventory.brokers.nodes))),
        by_rack=inventory.brokers.roll is Roll.RACK,
        for_controllers=for_controllers,
        between_brokers=between,
        for_clients=_listener(others[0], protocols) if given and others else between,
        zookeeper_tls=access.get("zookeeper.ssl.client.enable", "").strip().lower() == "true",
        notes=tuple(_notes(access, others[1:] if given else ())),
    )
    wrong = next((name for name, protocol in shape.listeners.items() if protocol not in PROTOCOL_NAMES), None)
    if wrong is not None:
        raise OperatorError(
            f"the listener {wrong} has the protocol {shape.listeners[wrong]}, which Kafka does not have",
            where=f"{source}: access, {PROTOCOLS}",
            remedy=f"Name one of {', '.join(PROTOCOL_NAMES)}",
        )
    return shape


def bytes_of(shape: Shape) -> int:
    """About how many bytes of memory a drill of this shape takes."""
    return len(shape.brokers) * BROKER_BYTES + len(shape.controllers) * CONTROLLER_BYTES + OTHERS_BYTES


def refuse_too_large(shape: Shape, available_bytes: int, source: str) -> None:
    """
    :param available_bytes: memory that this machine can give.
    :raises OperatorError: the memory is not enough.
    """
    wanted = bytes_of(shape)
    if wanted > available_bytes:
        raise OperatorError(
            f"{number_of(len(shape.brokers), 'broker')} and {number_of(len(shape.controllers), 'controller')} take "
            f"about {_gigabytes(wanted)} of memory, and this machine has {_gigabytes(available_bytes)} left",
            where=source,
            remedy="Take a larger machine, or leave brokers out of a copy of the inventory, as many of each rack",
        )


def _gigabytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GB"


def _node(node: Node) -> NodeShape:
    return NodeShape(node.node_id, node.name, node.rack)


def _rack_by_rack(nodes: Sequence[Node]) -> Iterable[Node]:
    racks = list(dict.fromkeys(node.rack for node in nodes))
    return sorted(nodes, key=lambda node: racks.index(node.rack))


def _protocols(text: str) -> dict[str, str]:
    entries = (entry.partition(":") for entry in split_list(text) if entry)
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in entries}


def _listener(name: str, protocols: Mapping[str, str], default: str = "") -> ListenerShape:
    upper = name.strip().upper()
    return ListenerShape(upper, protocols.get(upper) or default or upper)


def _notes(access: Mapping[str, str], left_out: Sequence[str]) -> Iterable[str]:
    if left_out:
        yield f"clients come to one listener; the drill has none for {', '.join(left_out)}"
    mechanism = access.get(MECHANISM, "").strip()
    if mechanism and mechanism != OWN_MECHANISM:
        yield f"brokers and clients log in with {OWN_MECHANISM}, not with {mechanism}"
