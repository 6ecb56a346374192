"""A comparison of all of ZooKeeper beside the writes of every change. Pure.

Its reading takes long, and ZooKeeper goes on meanwhile: what it finds different may have been changed since. So a
finding is a doubt. Doubts are read again once everything was compared; a difference that is still there is a real one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from migrator.image.model import MetadataImage
from migrator.migration.translate.entity import EntityKind, EntityWrite
from migrator.migration.translate.touched import znodes_of
from migrator.migration.write_behind.messages import ReconcileWrites

MAX_ENTITIES = 1_000
MAX_ZNODES = 100_000
"""Bounds of what is read again, before the first write and after the comparison. Nothing is written meanwhile, for a
few seconds. Of more, a reconcile is the better reader: its worker reads many topics at a time."""
EXAMPLES = 3
TOO_MANY = "since the comparison began, more has changed than can be read again beside the writes"


def are_too_many(image: MetadataImage, entities: Collection[str]) -> bool:
    """Whether these are too many to be read again beside the writes."""
    return len(entities) > MAX_ENTITIES or znodes_of(image, entities) > MAX_ZNODES


@dataclass(slots=True)
class Comparison:
    """One per takeover. ``number``: of the worker's messages; ``ended``: everything was compared."""

    number: int
    doubts: set[str] = field(default_factory=set)
    ended: bool = False

    def heard(self, event: ReconcileWrites) -> str:
        """Take findings in; why the comparison is given up, or nothing."""
        if event.number != self.number:
            return ""
        self.doubts.update(write.entity for write in event.writes)
        self.ended = event.last
        if event.held is not None:
            return differing(event.held.examples, event.held.count)
        return TOO_MANY if len(self.doubts) > MAX_ENTITIES else ""

    def wrote(self, entities: Iterable[EntityWrite]) -> None:
        """These were written meanwhile. A config, but of a topic, may have znodes beside the canonical one, of which
        nobody knows before the comparison has listed them."""
        config, topic = f"{EntityKind.CONFIG.value} ", f"{EntityKind.CONFIG.value} topics/"
        every = (write.entity for write in entities)
        self.doubts.update(name for name in every if name.startswith(config) and not name.startswith(topic))


def differing(entities: Iterable[str], count: int = 0) -> str:
    """That ZooKeeper is not what its mark says, in words."""
    names = sorted(entities)
    count = count or len(names)
    named = ", ".join(names[:EXAMPLES]) + (", ..." if count > EXAMPLES else "")
    return f"the comparison beside the writes has found {count} entities that differ from the log ({named})"
