"""Every change that a metadata log holds: the canonical rows of an entity before and after each step of the log.

A step is a batch, or a transaction: the log has no state within either. So ``offset`` is the last one of the step, and
the state at an offset is the state at an earlier one with the changes between.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import groupby

from migrator.image.model import EMPTY_IMAGE, MetadataImage
from migrator.image.tracked import Interner
from migrator.records.metadata import MetadataRecord, PartitionChangeRecord, PartitionRecord
from migrator.values import value
from migrator.verify.kraft.fold import SharedRecords, in_effect, replayed, rows_of

Change = tuple[int, int, str, str, str, str | None, str | None]
"""(offset, time in ms since 1970, kind, entity, field, old value, new value); None: there is no such row."""

_OF_ONE_PARTITION = (PartitionRecord, PartitionChangeRecord)


@value
class Batches:
    """The batches of a log, in order: the last offset of each, and when it was appended (ms since 1970)."""

    ends: array[int] = field(default_factory=lambda: array("q"))
    times: array[int] = field(default_factory=lambda: array("q"))

    def add(self, end: int, time_ms: int) -> None:
        """Take the next batch."""
        self.ends.append(end)
        self.times.append(time_ms)

    def step_of(self, order: int) -> tuple[int, int]:
        """Last offset and time of the batch that holds this offset."""
        index = bisect_left(self.ends, order)
        return self.ends[index], self.times[index]


def changes_of(
    key: bytes, records: Iterable[tuple[int, bytes]], shared: SharedRecords, batches: Batches, intern: Interner
) -> Iterator[Change]:
    """Yield the changes of one entity; a snapshot makes no change: it is the state before the log.

    :param records: in the order of the log, each with its place.
    :raises InvariantViolation: as `fold.folded`.
    """

    def step_of(placed: tuple[int, MetadataRecord]) -> tuple[int, int] | None:
        order = placed[0]
        return None if order < 0 else batches.step_of(shared.in_effect_from(order))

    image = EMPTY_IMAGE
    for step, found in groupby(in_effect(key, records, shared), step_of):
        part = list(found)
        after = replayed(image, part, intern)
        if step is not None:
            only = _partitions_of(record for _, record in part)
            for leaf, old, new in _different(_leaves(key, image, only), _leaves(key, after, only)):
                yield (*step, *leaf, old, new)
        image = after


def _partitions_of(records: Iterable[MetadataRecord]) -> set[int] | None:
    """The partitions that these records can have changed; None for all of the topic."""
    found: set[int] = set()
    for record in records:
        if not isinstance(record, _OF_ONE_PARTITION):
            return None
        found.add(record.partition_id)
    return found


def _leaves(key: bytes, image: MetadataImage, only: set[int] | None) -> dict[tuple[str, str, str], str]:
    return {row[:3]: row[3] for row in rows_of(key, image, only)}


def _different(
    before: dict[tuple[str, str, str], str], after: dict[tuple[str, str, str], str]
) -> Iterator[tuple[tuple[str, str, str], str | None, str | None]]:
    for leaf in dict.fromkeys((*before, *after)):
        old, new = before.get(leaf), after.get(leaf)
        if old != new:
            yield leaf, old, new
