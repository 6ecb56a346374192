"""Comparing all of ZooKeeper with an image, with a bound on what may be deleted unasked. Pure over a `ZkSource`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from migrator.migration.translate.entity import Effect, EntityWrite
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.translate.target import Spellings, Target
from migrator.migration.write_behind.messages import HeldDeletes
from migrator.values import value
from migrator.zookeeper.ops import ZkSource

CHUNK = 200
"""Entities in one message."""
EXAMPLES = 5
REMOVALS = frozenset({Effect.DELETE, Effect.REPLACE})


@value
class WriteChunk:
    """What has to be written, in order. ``spellings``: those seen since the last message."""

    writes: tuple[EntityWrite, ...]
    spellings: Spellings = field(default_factory=dict)


@value
class ReconcileEnd:
    """Nothing follows. ``held``: these removals were left out; ``spellings`` as in `WriteChunk`."""

    held: HeldDeletes | None
    spellings: Spellings = field(default_factory=dict)


def compare(zookeeper: ZkSource, target: Target, max_deletes: int | None) -> Iterator[WriteChunk | ReconcileEnd]:
    """What is not a removal goes out at once; removals wait until it is known that there are not too many.

    :param max_deletes: None lets all through.
    """
    chunk: list[EntityWrite] = []
    removals: list[EntityWrite] = []
    examples: list[str] = []
    count = 0
    for write in reconcile(zookeeper, target):
        if write.effect in REMOVALS and max_deletes is not None:
            count += 1
            examples += [write.entity] * (count <= EXAMPLES)
            removals = [*removals, write] if count <= max_deletes else []
            continue
        chunk.append(write)
        if len(chunk) >= CHUNK:
            yield WriteChunk(tuple(chunk), target.take_spellings())
            chunk = []
    if chunk:
        yield WriteChunk(tuple(chunk), target.take_spellings())
    if max_deletes is not None and count > max_deletes:
        yield ReconcileEnd(HeldDeletes(count, max_deletes, tuple(examples)), target.take_spellings())
        return
    if removals:
        yield WriteChunk(tuple(removals), target.take_spellings())
    yield ReconcileEnd(None, target.take_spellings())
