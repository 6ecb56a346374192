"""The machines and processes of a rollout, as the inventory names them. Values only.

The inventory makes them, and all rooms of a rollout use them. A node is one process on one host; its name is unique in
the inventory.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from migrator.values import value


class NodeKind(Enum):
    """The kind of a node. In a hand-over, a controller becomes another node: Kafka's, on the same directory."""

    BROKER = "broker"
    CONTROLLER = "controller"
    STOCK_CONTROLLER = "stock-controller"


@value
class Node:
    """One process on one host.

    ``properties``: path of its property file on that host. ``executor``: the name of an entry of `Inventory.executors`.
    ``variables``: what the operator gives the executor's command templates, beside ``host``, ``name``, ``node_id`` and
    ``path``. ``rack`` is "" without racks.
    """

    name: str
    role: NodeKind
    node_id: int
    host: str
    properties: str
    executor: str
    rack: str
    variables: Mapping[str, str]

    @property
    def place(self) -> str:
        """Its name and host, for messages."""
        return f"{self.name} on {self.host}"

    @property
    def file_place(self) -> str:
        """Its property file, for messages."""
        return self.at(self.properties)

    def at(self, path: str) -> str:
        """A path on its host, for messages; the node alone where it is ""."""
        return f"{self.place}: {path}" if path else self.place


@value
class ExecutorChoice:
    """One entry of the inventory's ``executors``: a preset by its name, and the commands that replace the preset's.

    ``commands``: a command template by action (``read``, ``write``, ``stop``, ``start``, ``restart``, ``incarnation``,
    ``run``). ``seconds``: the time limit of one command.
    """

    name: str
    preset: str
    commands: Mapping[str, str]
    variables: Mapping[str, str]
    seconds: float
