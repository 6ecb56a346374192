"""Connections between nodes as their kernels have them, and ports that are closed though their process runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from migrator.raft.events import Failure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.node import SimulatedNode
    from tests.simulation.world import World

MACHINE_OFF_SHARE = 0.5
"""Of the ends of a process: its machine ends, too, and says nothing. Else its kernel breaks what was established."""


class Doors:
    """Who has a connection to whom, and whose port is closed to whom though its process runs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._established: set[tuple[int, int]] = set()
        self._closed: Counter[tuple[int, int]] = Counter()
        self._off: set[int] = set()
        """Nodes that are down together with their machine."""

    def is_off(self, target: SimulatedNode) -> bool:
        """Whether peers get no sign that the process is down."""
        return target.node_id in self._off

    def refuses(self, source: SimulatedNode, target: SimulatedNode) -> bool:
        """Whether the target's port is closed to the source, or to all."""
        return target.raft is None or self._closed[source.node_id, target.node_id] > 0

    def fails(self, source: SimulatedNode, target: SimulatedNode) -> Failure:
        """What the source hears whose request finds the port closed: at first that its connection is gone."""
        pair = source.node_id, target.node_id
        if pair in self._established:
            self._established.discard(pair)
            return Failure.CONNECTION_LOST
        return Failure.REFUSED

    def answered(self, source: SimulatedNode, target_id: int) -> None:
        self._established.add((source.node_id, target_id))

    def process_gone(self, node: SimulatedNode, *, may_be_off: bool) -> None:
        """What it had open as a client is gone; its peers hear of it, if its machine is still there."""
        self._established = {pair for pair in self._established if pair[0] != node.node_id}
        self._off.discard(node.node_id)
        if may_be_off and self._world.random.random() < MACHINE_OFF_SHARE:
            self._off.add(node.node_id)
        else:
            self._break(node, self._world.nodes)

    def close(self, node: SimulatedNode, others: Iterable[int]) -> None:
        """A live process closes its connections to some, and takes no new ones of them: a listener that is opened anew,
        a sidecar that restarts, a firewall."""
        others = set(others)
        self._closed.update((other, node.node_id) for other in others)
        self._break(node, others)

    def open(self, node: SimulatedNode, others: Iterable[int]) -> None:
        self._closed.subtract((other, node.node_id) for other in others)

    def open_all(self) -> None:
        self._closed.clear()

    def _break(self, node: SimulatedNode, others: Iterable[int]) -> None:
        """Requests that wait for an answer on such a connection fail; other connections are found broken later."""
        for context in [context for context in node.unanswered if context.source in set(others)]:
            asker = self._world.nodes[context.source]
            self._world.fail_request(node, context, self.fails(asker, node))
