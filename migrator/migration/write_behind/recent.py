"""The latest changes of the log, as entities of ZooKeeper. Pure.

Every controller keeps this list, also while another one leads. So a new leader knows at once what its predecessor may
not have written.
"""

from __future__ import annotations

from collections.abc import Callable

from migrator.image.model import Changes, ImageDelta
from migrator.migration.write_behind.comparison import MAX_ENTITIES


class RecentChanges:
    """Remembers the entities that changed lately; one object per process.

    :param touched: returns the names of the entities that a change touches; None when some names are unknown.
    :param touched_at_most: returns an upper bound of their number.
    """

    def __init__(
        self, touched: Callable[[ImageDelta], frozenset[str] | None], touched_at_most: Callable[[Changes], int]
    ) -> None:
        self._touched = touched
        self._touched_at_most = touched_at_most
        self._known_from = self._end = -1
        """The changes after the first of these offsets, up to the second, are known."""
        self._entries: tuple[tuple[int, frozenset[str]], ...] = ()
        """The last offset of each change, and the entities that it touches; the oldest first. Replaced, never
        changed."""
        self._count = 0
        """The number of entities in all of these."""

    def add(self, delta: ImageDelta) -> None:
        """Take one more committed image. A snapshot's image hides what was changed and changed back before it."""
        if delta.before.provenance.offset != self._end:
            self._begin(delta.before.provenance.offset)
        offset = self._end = delta.after.provenance.offset
        is_listed = delta.changes.records > 0 and self._touched_at_most(delta.changes) <= MAX_ENTITIES
        entities = self._touched(delta) if is_listed else None
        if entities is None:
            self._begin(offset)
        elif entities:
            self._entries = (*self._entries, (offset, entities))
            self._count += len(entities)
            self._forget()

    def since(self, offset: int) -> tuple[str, ...] | None:
        """The entities that were changed after that offset; None when that is no longer known."""
        if not 0 <= self._known_from <= offset:
            return None
        every = (entities for last, entities in self._entries if last > offset)
        return tuple(sorted(frozenset().union(*every)))

    def _begin(self, offset: int) -> None:
        """Forget the changes up to this offset."""
        self._entries, self._count, self._known_from = (), 0, offset

    def _forget(self) -> None:
        """Forget the oldest changes while there are too many."""
        while self._count > MAX_ENTITIES:
            (self._known_from, entities), *rest = self._entries
            self._entries = tuple(rest)
            self._count -= len(entities)
