"""The inventory: YAML, checked against the published schema -> frozen values. Every error names its place in the file.

`site` parses it for each command. After `parse_inventory` the values agree with each other; nothing else checks them
again. A variable that looks like a secret is refused, because variables get into command lines. The schema is what
operators' editors use.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import cache
from importlib import resources
from pathlib import PurePosixPath
from typing import Any

import fastjsonschema

from migrator.config.keys import BROKER_ID, CONNECT, FLAG, NODE_ID, ROLES, SERVERS, VOTERS
from migrator.config.sensitive import PASSWORD, broker_type, is_sensitive
from migrator.errors import OperatorError
from migrator.rollout.inventory_yaml import InventoryFault, load, said_of
from migrator.rollout.inventory_yaml import shown as _shown
from migrator.rollout.nodes import ExecutorChoice, Node, NodeKind
from migrator.rollout.target_release import TargetRelease, parse_target
from migrator.values import value

SCHEMA_FILE = "inventory.schema.json"
BYTES_MAX = 1 << 20
DEFAULT_EXECUTOR = "default"
OWN_KEYS = (FLAG, CONNECT, ROLES, NODE_ID, BROKER_ID)
"""Keys of a broker's file that decide in which mode the broker runs, and which id it has."""
KAFKA_FORMAT = (
    *("kafka-storage.sh", "format", "--ignore-formatted", "-t", "{cluster_id}", "-c", "{path}"),
    *("--release-version", "{release_version}"),
)
SECRET_NAME = re.compile(
    r"passw|passphrase|secret|token|credential|(^|_)(pass|pw|pwd|pin)(_|$)|(api|private|access)_?key"
)
PLACES = ("_file", "_path", "_dir", "_directory", "_name")
"""Ends of the names of variables that hold the place of a secret, not the secret."""
FIND_QUORUM = (VOTERS, SERVERS)


class ControllerKind(Enum):
    """Whose controllers migrate the cluster: ours or Kafka's."""

    MIGRATOR = "migrator"
    STOCK = "stock"


class Roll(Enum):
    """How many brokers are restarted before the rollout waits for their return."""

    BROKER = "broker"
    RACK = "rack"


@value
class GateTimes:
    """Times in seconds. ``command``: the bound on preflight, rehearse, verify and the like. ``verify``: the time
    between two comparisons during the soak; 0 for one comparison at its end."""

    gate: float = 600.0
    poll: float = 1.0
    soak: float = 0.0
    command: float = 3600.0
    verify: float = 0.0


@value
class Controllers:
    """``release_version``: the metadata.version for the quorum; "" for that of the brokers. ``stock``: by node id, the
    controllers of Kafka that take over; empty without a hand-over. ``format``: the words of the command that formats.
    """

    kind: ControllerKind
    program: str
    release_version: str
    format: tuple[str, ...]
    nodes: tuple[Node, ...]
    stock: Mapping[int, Node]


@value
class Brokers:
    """``settings``: what each file gets for the migration. ``controller_protocol``: the protocol of the controllers'
    listener."""

    roll: Roll
    settings: Mapping[str, str]
    controller_protocol: str
    nodes: tuple[Node, ...]


@value
class LeftOut:
    """Steps that the operator leaves out."""

    preflight: bool = False
    rehearse: bool = False
    verify: bool = False


@value
class Inventory:
    """``access`` and ``state`` are paths as they stand in the file; ``state`` is "" for the default. ``gone``: nodes
    that are gone for good; they are in no other list."""

    cluster: str
    access: str
    state: str
    controllers: Controllers
    brokers: Brokers
    executors: Mapping[str, ExecutorChoice]
    left_out: LeftOut
    times: GateTimes
    handover: TargetRelease | None
    gone: tuple[Node, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes that run before a hand-over."""
        return (*self.controllers.nodes, *self.brokers.nodes)

    def words_for(self, node: Node) -> str:
        """A digest of everything that makes up the commands for a node. With other commands, the same process may get
        another name."""
        choice = self.executors[node.executor]
        said = [choice.preset, choice.commands, choice.variables, node.host, node.properties, node.variables]
        return hashlib.sha256(json.dumps(said, sort_keys=True, default=dict).encode()).hexdigest()

    def without(self, names: Collection[str]) -> Inventory:
        """The same inventory, with these nodes in ``gone``.

        :param names: names or ids of nodes.
        :raises OperatorError: there is no such node, or no node of its kind is left.
        """
        named = self.named(names, "--without-node")
        gone = (*self.gone, *(node for node in named if node not in self.gone))
        controllers = tuple(node for node in self.controllers.nodes if node not in gone)
        brokers = tuple(node for node in self.brokers.nodes if node not in gone)
        if not controllers or not brokers:
            kind = "broker" if controllers else "controller"
            raise OperatorError(f"no {kind} would be left", where="--without-node", remedy="Name fewer nodes")
        return replace(
            self,
            controllers=replace(self.controllers, nodes=controllers),
            brokers=replace(self.brokers, nodes=brokers),
            gone=gone,
        )

    def named(self, names: Collection[str], option: str) -> tuple[Node, ...]:
        """The nodes with these names.

        :param names: names or ids of nodes.
        :param option: of the command, for messages.
        :raises OperatorError: there is no such node.
        """
        everybody = (*self.nodes, *self.gone)
        for name in names:
            if not any(_is_called(node, name) for node in everybody):
                known = ", ".join(node.name for node in everybody)
                raise OperatorError(f"there is no node {name}", where=option, remedy=f"Name one of {known}")
        return tuple(node for node in everybody if any(_is_called(node, name) for name in names))


def _is_called(node: Node, name: str) -> bool:
    return name in (node.name, str(node.node_id))


def schema_text() -> str:
    return resources.files("migrator.rollout").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


def parse_inventory(text: str, source: str) -> Inventory:
    """Parse and check an inventory.

    :param source: the file's name, for messages.
    :raises OperatorError: the text is no YAML, does not follow the schema, or contradicts itself.
    """
    refuse_large(text.encode(), source)
    try:
        content = load(text)
        _valid(content)
        inventory = _inventory(content)
        trouble = next(_contradictions(inventory), None)
    except InventoryFault as error:
        trouble = error
    if trouble is not None:
        where = f"{source}: {trouble.path}" if trouble.path else source
        raise OperatorError(trouble.what, where=where, remedy=trouble.remedy)
    return inventory


def refuse_large(content: bytes, source: str) -> None:
    """:raises OperatorError: the content is larger than any inventory."""
    if len(content) > BYTES_MAX:
        what, remedy = f"it is larger than {BYTES_MAX} bytes", "Name the inventory, not another file"
        raise OperatorError(what, where=source, remedy=remedy)


def _valid(content: Any) -> None:
    try:
        _validator()(content)
    except fastjsonschema.JsonSchemaValueException as error:
        path = _path(error.path[1:])
        what = "the file is empty" if content is None else said_of(error)
        raise InventoryFault(
            path, what, "'migrator rollout schema' prints what may stand there. Quote text and versions, not numbers"
        ) from error


@cache
def _validator() -> Any:
    return fastjsonschema.compile(json.loads(schema_text()), use_default=False)


def _path(parts: Sequence[Any]) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) or str(part).isdecimal() else f".{part}" for part in parts)
    return text.removeprefix(".")


def _inventory(content: Mapping[str, Any]) -> Inventory:
    controllers, brokers = content["controllers"], content["brokers"]
    steps, times, handover = content.get("steps", {}), content.get("gates", {}), content.get("handover")
    nodes = tuple(_node(entry, NodeKind.CONTROLLER) for entry in controllers["nodes"])
    return Inventory(
        cluster=content["cluster"],
        access=content["access"],
        state=content.get("state", ""),
        controllers=Controllers(
            kind=ControllerKind(controllers.get("kind", "migrator")),
            program=controllers.get("program", "migrator"),
            release_version=controllers.get("release_version", ""),
            format=tuple(controllers.get("format", KAFKA_FORMAT)),
            nodes=nodes,
            stock={
                node.node_id: _stock(node, entry.get("stock", {}))
                for node, entry in zip(nodes, controllers["nodes"], strict=True)
                if handover is not None
            },
        ),
        brokers=Brokers(
            roll=Roll(brokers.get("roll", "broker")),
            settings=brokers["settings"],
            controller_protocol=brokers.get("controller_protocol", "PLAINTEXT"),
            nodes=tuple(_node(entry, NodeKind.BROKER) for entry in brokers["nodes"]),
        ),
        executors={
            name: ExecutorChoice(
                name,
                entry["preset"],
                entry.get("commands", {}),
                entry.get("variables", {}),
                float(entry.get("seconds", 120)),
            )
            for name, entry in content["executors"].items()
        },
        left_out=LeftOut(*(not steps.get(name, True) for name in ("preflight", "rehearse", "verify"))),
        times=GateTimes(
            float(times.get("seconds", 600)),
            float(times.get("poll_seconds", 1)),
            float(times.get("soak_seconds", 0)),
            float(times.get("command_seconds", 3600)),
            float(times.get("verify_seconds", 0)),
        ),
        handover=None if handover is None else _target(handover["release"]),
    )


def _node(entry: Mapping[str, Any], role: NodeKind) -> Node:
    node_id = int(entry["id"])  # 1.0 is a whole number for the schema
    return Node(
        name=entry.get("name", f"{role.value}-{node_id}"),
        role=role,
        node_id=node_id,
        host=entry.get("host", "localhost"),
        properties=entry["properties"],
        executor=entry.get("executor", DEFAULT_EXECUTOR),
        rack=entry.get("rack", "").strip(),
        variables=entry.get("variables", {}),
    )


def _stock(node: Node, entry: Mapping[str, Any]) -> Node:
    path = PurePosixPath(node.properties)
    return Node(
        name=f"{node.name}-stock",
        role=NodeKind.STOCK_CONTROLLER,
        node_id=node.node_id,
        host=node.host,
        properties=entry.get("properties", str(path.with_name(f"{path.stem}.stock{path.suffix}"))),
        executor=entry.get("executor", node.executor),
        rack=node.rack,
        variables={**node.variables, **entry.get("variables", {})},
    )


def _target(release: str) -> TargetRelease:
    try:
        target = parse_target(release)
    except ValueError as error:
        raise InventoryFault("handover.release", str(error), "Name a release, for example 3.9.1") from error
    if not target.rolling:
        raise InventoryFault(
            "handover.release",
            f"Kafka {release} cannot join a quorum of this program",
            "Hand over to 3.9 here; 'migrator handover --way directory' goes to 4.x afterwards",
        )
    return target


def _contradictions(inventory: Inventory) -> Iterator[InventoryFault]:
    everybody = (*inventory.nodes, *inventory.controllers.stock.values())
    ids = Counter(node.node_id for node in inventory.nodes)
    for node in inventory.nodes:
        if ids[node.node_id] > 1:
            names = ", ".join(each.name for each in inventory.nodes if each.node_id == node.node_id)
            what = f"{names} have one id, {node.node_id}"
            yield InventoryFault(f"{_room(node)}.nodes", what, "Give every controller and broker an id of its own")
    owners = {str(node.node_id): node for node in inventory.nodes}
    named = Counter(node.name for node in everybody)
    files = Counter((node.executor, node.host, node.properties) for node in everybody)
    for node in everybody:
        where = f"{_room(node)}.nodes, {node.name}"
        if named[node.name] > 1:
            yield InventoryFault(where, "two nodes have this name", "Give every node a name of its own")
        owner = owners.get(node.name)
        if owner is not None and owner.node_id != node.node_id:
            what = f"the name of this node is the id of {owner.name}"
            yield InventoryFault(where, what, "Give the node another name: commands take names and ids")
        if files[node.executor, node.host, node.properties] > 1 and not node.variables:
            what = f"another node has {node.properties} on {node.host}, too"
            yield InventoryFault(
                where, what, "Name each node's own property file, or give variables that tell them apart"
            )
        if node.executor not in inventory.executors:
            known = ", ".join(inventory.executors)
            yield InventoryFault(
                where, f"there is no executor {_shown(node.executor)}", f"Name one of executors: {known}"
            )
    yield from _contradictory_brokers(inventory)
    yield from _secrets(inventory)
    if inventory.handover is not None and inventory.controllers.kind is ControllerKind.STOCK:
        yield InventoryFault("handover", "the controllers are Kafka's own already", "Remove handover")


def _contradictory_brokers(inventory: Inventory) -> Iterator[InventoryFault]:
    brokers = inventory.brokers
    if brokers.roll is Roll.RACK:
        for node in brokers.nodes:
            if not node.rack:
                what = "roll is 'rack', and this broker has no rack"
                yield InventoryFault(f"brokers.nodes, {node.name}", what, "Give every broker its rack")
    if not any(brokers.settings.get(key) for key in FIND_QUORUM):
        what = f"neither {FIND_QUORUM[0]} nor {FIND_QUORUM[1]} is there"
        yield InventoryFault("brokers.settings", what, "Brokers need one of them to find the controllers")
    for key in (key for key in OWN_KEYS if key in brokers.settings):
        what = "the rollout itself sets and removes this key, at the right time for each broker"
        yield InventoryFault(f"brokers.settings.{key}", what, "Remove it from the inventory")
    yield from _other_voters(inventory)
    for key in brokers.settings:
        kind = broker_type(key)
        if is_sensitive(kind):
            what = "a password does" if kind == PASSWORD else "Kafka has no such key, and what may be a password does"
            remedy = "Put it into the brokers' own files before the rollout; the rollout leaves it there"
            yield InventoryFault(f"brokers.settings.{key}", f"{what} not belong into an inventory", remedy)


def _other_voters(inventory: Inventory) -> Iterator[InventoryFault]:
    """The inventory names other voters for the brokers than the controllers that it lists."""
    voters = inventory.brokers.settings.get(FIND_QUORUM[0], "").split(",")
    named = {text.strip().partition("@")[0] for text in voters} - {""}
    others = named - {str(node.node_id) for node in inventory.controllers.nodes}
    if others:
        what = f"controllers.nodes has no controller with the id {', '.join(map(_shown, sorted(others)))}"
        yield InventoryFault(f"brokers.settings.{FIND_QUORUM[0]}", what, "Name the controllers of the inventory")


def _secrets(inventory: Inventory) -> Iterator[InventoryFault]:
    """Variables that look like secrets: they are filled into command lines, which every user of a host can read."""
    everybody = (*inventory.nodes, *inventory.controllers.stock.values())
    places = [(f"executors.{name}", choice.variables) for name, choice in inventory.executors.items()]
    places += [(f"{_room(node)}.nodes, {node.name}", node.variables) for node in everybody]
    for where, variables in places:
        for name in variables:
            if SECRET_NAME.search(name) and not name.endswith(PLACES):
                what = f"by its name, the variable {name} is a secret, and a secret does not belong into an inventory"
                remedy = "Keep it in a file on the host, and let the command read it there"
                yield InventoryFault(f"{where}: variables.{name}", what, remedy)


def _room(node: Node) -> str:
    return "brokers" if node.role is NodeKind.BROKER else "controllers"
