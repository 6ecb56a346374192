"""Partition states whose version in ZooKeeper is below the partition epoch that brokers know (ADR 60). Pure.

The version matters to a ZooKeeper controller only: brokers skip what it sends with an older partition epoch
(``Partition.makeLeader``). So these sets can wait until the cluster is in dual-write.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from migrator.image.model import MetadataImage
from migrator.migration.translate.entity import EntityWrite
from migrator.migration.translate.touched import znodes_of
from migrator.values import value

SETS_AT_ONCE = 10_000
"""The most sets that are made between two batches of changes: well below a second."""
ZNODES_AT_ONCE = 20_000
"""About so many znodes are read for them."""


@value
class VersionsMissing:
    """``sets``: how many sets of partition states are still to be made. ``seconds``: about how long that takes; None
    before the first of them has been made."""

    sets: int
    seconds: int | None


class Versions:
    """The work that a comparison has found, topic by topic."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, int] = OrderedDict()
        self._missing = self._under_way = self._done = 0
        self._began_ms: int | None = None

    def found(self, behind: Mapping[str, int], begun: Iterable[EntityWrite] | None = None) -> None:
        """Take what a comparison, or a second reading, has found: missing sets by the name of the entity.

        :param begun: what is made now of that which has begun; None when it was not read.
        """
        if begun is not None:
            sets = sum(len(write.ops) for write in begun)
            self._missing, self._under_way = self._missing + sets - self._under_way, sets
        for name, sets in behind.items():
            known = self._waiting.get(name, 0)
            self._waiting[name] = max(known, sets)
            self._missing += self._waiting[name] - known

    def __bool__(self) -> bool:
        """Whether there is work that has not begun."""
        return bool(self._waiting)

    def begin(self, now_ms: int, image: MetadataImage) -> tuple[str, ...]:
        """The entities to read again and to raise next. The last of them may have more than is made at once: then the
        reading finds the rest."""
        if self._began_ms is None:
            self._began_ms = now_ms
        names, znodes = list[str](), 0
        while self._waiting and self._under_way < SETS_AT_ONCE and znodes < ZNODES_AT_ONCE:
            name, sets = self._waiting.popitem(last=False)
            names.append(name)
            self._under_way += sets
            znodes += znodes_of(image, (name,))
        return tuple(names)

    def ended(self) -> None:
        """The begun turn is done."""
        self._missing, self._done, self._under_way = self._missing - self._under_way, self._done + self._under_way, 0
        if not self._missing:  # what is found later has a rate of its own
            self._began_ms, self._done = None, 0

    def missing(self, now_ms: int) -> VersionsMissing:
        """The sets that are left, and about how long they take."""
        if not self._missing:
            return VersionsMissing(0, 0)
        if self._began_ms is None or not self._done:
            return VersionsMissing(self._missing, None)
        return VersionsMissing(self._missing, (now_ms - self._began_ms) * self._missing // (1000 * self._done) + 1)
