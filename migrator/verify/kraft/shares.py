"""Reads one share of a metadata log: a part of its entities, with all their records.

A source of Spark cannot pass records from one task to another. So the task of a share reads the whole log, and keeps
only what is about its entities (ADR 66).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from zlib import crc32

from migrator.image.tracked import Interner
from migrator.values import value
from migrator.verify.canonical import Row
from migrator.verify.kraft.changes import Batches, Change, changes_of
from migrator.verify.kraft.entities import KINDS_OF
from migrator.verify.kraft.fold import SharedRecords, folded_rows, shared_records
from migrator.verify.kraft.splits import Split, batches_of, placed_in


@value
class Wanted:
    """One of ``count`` shares of all entities; of these, those that make rows of ``kinds`` (all, if it is empty)."""

    number: int
    count: int
    kinds: frozenset[str] = frozenset()

    def has(self, key: bytes) -> bool:
        """Whether this entity belongs to the share."""
        return crc32(key) % self.count == self.number and (
            not self.kinds or not self.kinds.isdisjoint(KINDS_OF.get(key[:1], ()))
        )


@value
class LogShare:
    """The records of the entities of a share, each with its place, in the order of the log."""

    entities: dict[bytes, list[tuple[int, bytes]]]
    shared: SharedRecords
    batches: Batches
    kinds: frozenset[str]

    def rows(self) -> Iterator[Row]:
        """The canonical rows at the end of the log that was read.

        :raises InvariantViolation: records contradict one another.
        """
        intern = Interner()
        for key, records in self.entities.items():
            rows = folded_rows(key, records, self.shared, intern)
            yield from (row for row in rows if not self.kinds or row[0] in self.kinds)

    def changes(self) -> Iterator[Change]:
        """All changes of the share's entities; errors as in `rows`."""
        intern = Interner()
        for key, records in self.entities.items():
            found = changes_of(key, records, self.shared, self.batches, intern)
            yield from (change for change in found if not self.kinds or change[2] in self.kinds)


def read_share(splits: Iterable[Split], wanted: Wanted, salt: bytes) -> LogShare:
    """Read all parts of a log.

    :raises OperatorError: a part is damaged; names file and offset.
    :raises InvariantViolation: marks of transactions contradict each other.
    """
    entities: defaultdict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
    shared: list[tuple[int, bytes]] = []
    batches = Batches()
    for split in splits:
        for order, batch in batches_of(split):
            if order >= 0:
                batches.add(batch.header.last_offset, batch.header.max_timestamp)
            for one in placed_in(split, order, batch, salt, wanted.has):
                for key in one.keys:
                    if wanted.has(key):
                        entities[key].append((one.order, one.content))
                if one.is_shared:
                    shared.append((one.order, one.content))
    return LogShare(dict(entities), shared_records(shared), batches, wanted.kinds)
