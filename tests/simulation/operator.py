"""The simulated operator: sets, replaces and cancels targets, and asks for single changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.raft.states import Role
from tests.simulation.planning import keys

if TYPE_CHECKING:
    from tests.simulation.node import SimulatedNode
    from tests.simulation.world import World

TURN_MS = 40
JOURNEYS: dict[str, list[tuple[int, ...]]] = {
    "grow and shrink": [(1, 2, 3), (1, 2, 3, 4, 5), (3, 4, 5), (4,)],
    "move": [(4, 5, 6), (1, 2, 3)],
}


class Operator:
    """Sees one leader at a time, as a client that asks for the quorum's state does."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._ahead = list(JOURNEYS.get(world.options.journey, ()))
        self._last: tuple[int, ...] | None = None
        """The target that has to be reached in the end."""

    def begin(self) -> None:
        """Take a turn every now and then, as long as the world lasts."""
        world = self._world
        for node in world.nodes.values():
            if node.raft is not None and world.options.dynamic:
                node.planning.turn()
        if not world.network.is_calm and self._random.random() < world.options.change_rate * TURN_MS / 1000:
            self._random.choice(list(world.nodes.values())).ask_for_change()
        leader = self._leader()
        if leader is not None and world.options.dynamic:
            self._direct(leader)
        world.after(self._random.uniform(0.5, 1.5) * TURN_MS, self.begin)

    def end(self) -> None:
        """Faults have ended: the leader gets the last target."""
        self._last = self._ahead[-1] if self._ahead else self._some_nodes()

    def is_done(self) -> bool:
        """Whether the last plan has ended where it should."""
        leader = self._leader()
        if leader is None or self._last is None or leader.image.target is not None:
            return False
        wanted = [self._world.nodes[node_id].key for node_id in self._last]
        return keys(leader.voter_set) == wanted

    def _leader(self) -> SimulatedNode | None:
        leaders = [node for node in self._world.nodes.values() if node.raft and node.raft.role is Role.LEADER]
        return self._random.choice(leaders) if leaders else None

    def _direct(self, leader: SimulatedNode) -> None:
        if not leader.controller.may_write_target:
            return
        target = leader.planning.target()
        if self._last is not None:
            self._replace(leader)
            if target != self._last and not self.is_done():
                leader.planning.set_target(self._last)
        elif target is None:
            self._set_out(leader)
        elif self._random.random() < 0.03:
            self._world.count("targets replaced")
            leader.planning.set_target(self._some_nodes())
        elif self._random.random() < 0.02:
            self._world.count("plans cancelled")
            leader.planning.set_target(None)

    def _replace(self, leader: SimulatedNode) -> None:
        """A voter that was removed while it stood for election may be in a higher epoch than the others. It hears of no
        leader of a lower one, so it gets an empty disk, as docs/quorum.md says."""
        log, committed = leader.disk.log, self._world.history.end.offset
        if log.membership() != log.membership_at(committed):
            return  # the removal could still be undone
        for node in self._world.nodes.values():
            is_voter = leader.voter_set.has(node.node_id, node.key.directory_id)
            is_ahead = node.raft is not None and leader.raft is not None and node.raft.epoch > leader.raft.epoch
            if is_ahead and not is_voter:
                self._world.count("removed voters in a higher epoch that were wiped")
                self._world.wipe(node)

    def _set_out(self, leader: SimulatedNode) -> None:
        if self._world.options.journey == "random":
            if self._random.random() < 0.1:
                leader.planning.set_target(self._some_nodes())
        elif self._ahead:
            if sorted(leader.voter_set.ids) == list(self._ahead[0]):
                self._world.count("journeys' stages reached")
                self._ahead.pop(0)
            elif self._random.random() < 0.5:
                leader.planning.set_target(self._ahead[0])

    def _some_nodes(self) -> tuple[int, ...]:
        ids = sorted(self._world.nodes)
        return tuple(sorted(self._random.sample(ids, self._random.randint(1, len(ids)))))
