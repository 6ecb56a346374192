"""Which other nodes have said where they are, as far as one node knows in one life.

It is what a node asks before it stands for election, and nothing else: messages go to everybody. A node that never
hears of a majority therefore shows that the wait for addresses ends.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from migrator.raft import effects as fx
from migrator.raft import events as ev
from migrator.raft.states import Role
from migrator.raft.votes import majority
from tests.simulation import invariants as rules
from tests.simulation.invariants import check

if TYPE_CHECKING:
    from tests.simulation.node import SimulatedNode

LEARNED_WITHIN_MS = 600.0
NEVER_LEARNED = 0.3


class Places:
    """Of one life of a node; some of the others are unknown in the beginning, and some of those stay so."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._is_told = False
        """Whether the missing addresses were named since a leader was followed, or a majority was known."""
        self.unknown: set[int] = set()
        random = Random(f"{node.world.options.seed} places {node.node_id} {node.life}")
        for other in node.world.nodes:
            if other != node.node_id and random.random() < node.world.options.unknown_share:
                self.unknown.add(other)
                if random.random() >= NEVER_LEARNED:
                    self._learn_later(other, random.uniform(0.0, LEARNED_WITHIN_MS))

    def is_known(self, node_id: int) -> bool:
        """What the core asks."""
        if not self._lacks_majority():
            self._is_told = False
        return node_id not in self.unknown

    def role_changed(self, role: Role) -> None:
        """Who follows a leader, or leads, needs no addresses."""
        if role in {Role.FOLLOWER, Role.LEADER}:
            self._is_told = False

    def missing(self, effect: fx.AddressesMissing) -> None:
        """The core names whom it waits for: once, for a bounded time, and only when a majority is unknown."""
        node = self._node
        node.world.count("waits for addresses")
        left = effect.deadline - node.local_time()
        check(rules.waits_for_addresses_are_bounded, self._is_told, self._lacks_majority(), left, node.timeouts[1])
        self._is_told = True

    def _lacks_majority(self) -> bool:
        voters = self._node.voter_set.ids
        return len(voters - self.unknown) < majority(len(voters))

    def _learn_later(self, other: int, delay: float) -> None:
        node, life = self._node, self._node.life

        def learn() -> None:
            if node.life == life:
                self.unknown.discard(other)
                node.hear(ev.Tick())

        node.world.after(delay, learn)
