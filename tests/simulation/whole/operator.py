"""An operator who changes the voters, by Kafka's requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.whole.world import World


class Operator:
    """Orders one change after the other."""

    def __init__(self, world: World) -> None:
        self.world = world

    def order(self) -> None:
        """Add, remove or move a voter."""
