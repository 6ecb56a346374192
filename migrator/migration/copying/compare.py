"""Compares all of ZooKeeper with an image, with a bound on deletions that no operator has allowed. Pure over a
`ZkSource`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from hashlib import sha256

from migrator.migration.translate.entity import Effect, EntityWrite
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.translate.target import Spellings, Target
from migrator.migration.write_behind.messages import HeldDeletes
from migrator.values import value
from migrator.zookeeper.ops import ZkSource

CHUNK = 200
"""Entities in one message."""
EXAMPLES = 5
DIGEST_BYTES = 8
"""Size of a digest: the sum of the hashes of all names, so their order does not matter."""
REMOVALS = frozenset({Effect.DELETE, Effect.REPLACE})


@value
class WriteChunk:
    """Entities to write, in order. ``spellings``: the names of config znodes that were seen since the last message."""

    writes: tuple[EntityWrite, ...]
    spellings: Spellings = field(default_factory=dict)


@value
class ReconcileEnd:
    """The last message. ``held``: the removals that were left out; ``spellings`` as in `WriteChunk`."""

    held: HeldDeletes | None
    spellings: Spellings = field(default_factory=dict)


def compare(
    zookeeper: ZkSource, target: Target, max_deletes: int, allowed: str = ""
) -> Iterator[WriteChunk | ReconcileEnd]:
    """Yield the differences. Removals come last, once it is known that there are not too many of them.

    :param allowed: the digest of the removals that an operator has allowed: these are yielded, however many there are.
    """
    chunk: list[EntityWrite] = []
    removals: list[EntityWrite] = []
    examples: list[str] = []
    count = digest = 0
    for write in reconcile(zookeeper, target):
        if write.effect in REMOVALS:
            count += 1
            digest += int.from_bytes(sha256(write.entity.encode()).digest()[:DIGEST_BYTES])
            examples += [write.entity] * (count <= EXAMPLES)
            if count > max_deletes and not allowed:
                removals.clear()
            else:
                removals.append(write)
            continue
        chunk.append(write)
        if len(chunk) >= CHUNK:
            yield WriteChunk(tuple(chunk), target.take_spellings())
            chunk = []
    if chunk:
        yield WriteChunk(tuple(chunk), target.take_spellings())
    found = f"{digest % (1 << 8 * DIGEST_BYTES):0{2 * DIGEST_BYTES}x}"
    if count > max_deletes and found != allowed:
        yield ReconcileEnd(HeldDeletes(count, max_deletes, tuple(examples), found), target.take_spellings())
        return
    if removals:
        yield WriteChunk(tuple(removals), target.take_spellings())
    yield ReconcileEnd(None, target.take_spellings())
