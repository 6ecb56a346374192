"""Compares all of ZooKeeper with an image, and holds removals back if there are too many. Pure over a `ZkSource`.

A worker process of the executor, and `rehearse`, call `compare`. It yields chunks of writes that make ZooKeeper equal
to the image, and a last message. Removals come at the end, after they were counted. More than ``max_deletes`` of them
are left out until an operator allows exactly this set, which its digest names: an image that lacks much may be a wrong
one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from hashlib import sha256

from migrator.migration.translate.entity import Effect, EntityWrite
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.translate.target import Spellings, Target
from migrator.migration.write_behind.messages import HeldDeletes
from migrator.turns import TURN_RECORDS
from migrator.values import value
from migrator.zookeeper.ops import ZkSource

CHUNK = 2 * TURN_RECORDS
"""One message has about so many operations, or one entity. The controller decodes a message in one call, and no other
thread runs Python meanwhile."""
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
    """The last message. ``held``: the removals that were left out; ``spellings`` as in `WriteChunk`; ``behind`` as in
    `Target`."""

    held: HeldDeletes | None
    spellings: Spellings = field(default_factory=dict)
    behind: Mapping[str, int] = field(default_factory=dict)


def compare(
    zookeeper: ZkSource, target: Target, max_deletes: int, allowed: str = ""
) -> Iterator[WriteChunk | ReconcileEnd]:
    """Yield the differences. Removals come last, once it is known that there are not too many of them. A version of a
    partition state alone is no difference (`ReconcileEnd`).

    :param allowed: the digest of the removals that an operator has allowed: these are yielded, however many there are.
    """
    removals = _Removals(max_deletes, allowed)
    behind: dict[str, int] = {}
    target.behind = behind
    for chunk in _chunks(removals.taken_out_of(reconcile(zookeeper, target))):
        yield WriteChunk(chunk, target.take_spellings())
    held = removals.held()
    if held is None:
        for chunk in _chunks(removals.writes):
            yield WriteChunk(chunk, target.take_spellings())
    yield ReconcileEnd(held, target.take_spellings(), behind)


class _Removals:
    """The removals that were found and may be written."""

    def __init__(self, bound: int, allowed: str) -> None:
        self._bound = bound
        self._allowed = allowed
        self._count = self._digest = 0
        self._examples: list[str] = []
        self.writes: list[EntityWrite] = []

    def taken_out_of(self, writes: Iterable[EntityWrite]) -> Iterator[EntityWrite]:
        """Keep the removals among these writes, and yield all other writes."""
        for write in writes:
            if write.effect in REMOVALS:
                self._take(write)
            else:
                yield write

    def _take(self, write: EntityWrite) -> None:
        self._count += 1
        self._digest += int.from_bytes(sha256(write.entity.encode()).digest()[:DIGEST_BYTES])
        if self._count <= EXAMPLES:
            self._examples.append(write.entity)
        if self._count > self._bound and not self._allowed:
            self.writes.clear()
        else:
            self.writes.append(write)

    def held(self) -> HeldDeletes | None:
        """The removals that need an operator's order: more than the bound, and other ones than the order allowed."""
        digest = f"{self._digest % (1 << 8 * DIGEST_BYTES):0{2 * DIGEST_BYTES}x}"
        if self._count <= self._bound or digest == self._allowed:
            return None
        return HeldDeletes(self._count, self._bound, tuple(self._examples), digest)


def _chunks(writes: Iterable[EntityWrite]) -> Iterator[tuple[EntityWrite, ...]]:
    chunk, size = list[EntityWrite](), 0
    for write in writes:
        chunk.append(write)
        size += max(1, len(write.ops))
        if size >= CHUNK:
            yield tuple(chunk)
            chunk, size = [], 0
    if chunk:
        yield tuple(chunk)
