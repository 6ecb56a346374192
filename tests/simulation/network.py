"""A network that loses, doubles, delays and reorders messages, and cuts links in one or both directions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from tests.simulation.options import Options

STRAGGLE_FACTOR = 20
CALM_DELAY_MS = 2


class SimulatedNetwork:
    """Decides per message whether and when it arrives; ``schedule(delay_ms, action)`` is the world's clock."""

    def __init__(self, options: Options, random: Random, schedule: Callable[[float, Callable[[], None]], None]) -> None:
        self._options = options
        self._random = random
        self._schedule = schedule
        self._blocked: Counter[tuple[int, int]] = Counter()
        self.is_calm = False

    def block(self, links: list[tuple[int, int]]) -> None:
        """Cut links, each from its first to its second node."""
        self._blocked.update(links)

    def unblock(self, links: list[tuple[int, int]]) -> None:
        """Undo `block` with the same links."""
        self._blocked.subtract(links)

    def is_blocked(self, source: int, target: int) -> bool:
        """Whether nothing gets through at present."""
        return not self.is_calm and self._blocked[source, target] > 0

    def send(self, source: int, target: int, arrive: Callable[[], None]) -> bool:
        """Let a message travel. Returns False when it is lost."""
        random, options = self._random, self._options
        if self.is_blocked(source, target) or (not self.is_calm and random.random() < options.loss):
            return False
        self._schedule(self._delay(), arrive)
        if not self.is_calm and random.random() < options.duplication:
            self._schedule(self._delay(), arrive)
        return True

    def _delay(self) -> float:
        if self.is_calm:
            return self._random.uniform(0.1, CALM_DELAY_MS)
        delay = self._random.uniform(0.1, self._options.delay_max_ms)
        is_straggler = self._random.random() < self._options.straggler_share
        return delay * STRAGGLE_FACTOR if is_straggler else delay
