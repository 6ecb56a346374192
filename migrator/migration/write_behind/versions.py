"""Partition states whose version in ZooKeeper is below the partition epoch that brokers know (ADR 60). Pure.

The version matters to a ZooKeeper controller only: brokers skip what it sends with an older partition epoch
(``Partition.makeLeader``). So these sets can wait until the cluster is in dual-write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from migrator.values import value

SETS_AT_ONCE = 10_000
"""About so many sets are made between two batches of changes: well below a second."""


@value
class VersionsMissing:
    """``sets``: how many sets of partition states are still to be made. ``seconds``: about how long that takes; None
    before the first of them has been made."""

    sets: int
    seconds: int | None


class Versions:
    """The work that a comparison has found, topic by topic."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, int]] = deque()
        self._missing = self._under_way = self._done = 0
        self._began_ms: int | None = None

    def found(self, behind: Mapping[str, int]) -> None:
        """Take what the comparison has found: missing sets by the name of the entity."""
        self._waiting.extend(behind.items())
        self._missing += sum(behind.values())

    def __bool__(self) -> bool:
        """Whether there is work that has not begun."""
        return bool(self._waiting)

    def begin(self, now_ms: int) -> tuple[str, ...]:
        """The entities to read again and to raise next."""
        if self._began_ms is None:
            self._began_ms = now_ms
        names = list[str]()
        while self._waiting and (not names or self._under_way + self._waiting[0][1] <= SETS_AT_ONCE):
            name, sets = self._waiting.popleft()
            names.append(name)
            self._under_way += sets
        return tuple(names)

    def ended(self) -> None:
        """What was begun is done."""
        self._missing, self._done, self._under_way = self._missing - self._under_way, self._done + self._under_way, 0

    def missing(self, now_ms: int) -> VersionsMissing:
        """What is still to be done, and about how long it takes."""
        if not self._missing:
            return VersionsMissing(0, 0)
        if self._began_ms is None or not self._done:
            return VersionsMissing(self._missing, None)
        return VersionsMissing(self._missing, (now_ms - self._began_ms) * self._missing // (1000 * self._done) + 1)
