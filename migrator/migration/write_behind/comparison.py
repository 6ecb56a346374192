"""A comparison of all of ZooKeeper while changes are written. Pure.

Its reading takes long, and ZooKeeper changes meanwhile: a difference may come from such a change. So a finding is only
a doubt. Doubts are read again once everything was compared; a difference that still exists is real.
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
"""The most znodes that are read again, before the first write and after the comparison. Nothing is written during these
few seconds. For more znodes a reconcile is better: its worker reads many topics at a time."""
EXAMPLES = 3
TOO_MANY = "since the comparison began, more has changed than can be read again beside the writes"


def are_too_many(image: MetadataImage, entities: Collection[str]) -> bool:
    """Whether there are too many entities to read them again beside the writes."""
    return len(entities) > MAX_ENTITIES or znodes_of(image, entities) > MAX_ZNODES


@dataclass(slots=True)
class TakeoverComparison:
    """The comparison of one takeover. ``number``: as in the worker's messages; ``ended``: all was compared."""

    number: int
    doubts: set[str] = field(default_factory=set)
    ended: bool = False

    def heard(self, event: ReconcileWrites) -> str:
        """Take findings. Returns the reason to give the comparison up, or nothing."""
        if event.number != self.number:
            return ""
        self.doubts.update(write.entity for write in event.writes)
        self.ended = event.last
        if event.held is not None:
            return differing(event.held.examples, event.held.count)
        return TOO_MANY if len(self.doubts) > MAX_ENTITIES else ""

    def wrote(self, entities: Iterable[EntityWrite]) -> None:
        """Note that these entities were written meanwhile. A config of another kind than a topic's may have znodes
        beside the canonical one, which are unknown until the comparison has listed them."""
        config, topic = f"{EntityKind.CONFIG.value} ", f"{EntityKind.CONFIG.value} topics/"
        every = (write.entity for write in entities)
        self.doubts.update(name for name in every if name.startswith(config) and not name.startswith(topic))


def differing(entities: Iterable[str], count: int = 0) -> str:
    """The sentence which says that ZooKeeper does not hold the log up to its mark."""
    names = sorted(entities)
    count = count or len(names)
    named = ", ".join(names[:EXAMPLES]) + (", ..." if count > EXAMPLES else "")
    return f"the comparison beside the writes has found {count} entities that differ from the log ({named})"
