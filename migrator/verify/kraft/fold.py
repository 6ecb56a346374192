"""Replays the records of one entity, as `image.loader` replays a whole log.

A few records concern entities that they do not name: marks of transactions, removals of topics, `ClearElrRecord`. They
are gathered from the whole log first (`SharedRecords`), and each entity's replay has them at their place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter

from immutables import Map

from migrator.errors import InvariantViolation
from migrator.image.builder import ImageBuilder
from migrator.image.model import EMPTY_IMAGE, MetadataImage, Provenance
from migrator.image.tracked import Interner
from migrator.records.codec import decode
from migrator.records.errors import CorruptRecordsError
from migrator.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ClearElrRecord,
    EndTransactionRecord,
    MetadataRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from migrator.records.uuid import Uuid
from migrator.values import value
from migrator.verify.canonical import Row
from migrator.verify.kraft.entities import MARKERS, NAME, TOPIC
from migrator.verify.kraft.image_rows import other_rows, topic_rows

SNAPSHOT = -(1 << 62)
"""The order of the first record of a snapshot: all its records come before the log, whose order is its offsets."""
ENDLESS = 1 << 62
_NOWHERE = Provenance(0, 0, 0)


@value
class SharedRecords:
    """``dropped``: first and last place of each transaction that was aborted or is still open; ``ended``: those of each
    transaction that came into effect; ``open_since``: the place of the record that began the open one. ``removals``:
    removals of topics, by id; ``cleared``: places of `ClearElrRecord`, by the topic's name, "" for all topics; both in
    order."""

    dropped: tuple[tuple[int, int], ...] = ()
    removals: Mapping[Uuid, tuple[int, ...]] = Map()
    cleared: tuple[tuple[int, str], ...] = ()
    open_since: int | None = None
    ended: tuple[tuple[int, int], ...] = ()

    def is_dropped(self, order: int) -> bool:
        """Whether the record at this place never came into effect."""
        return _last_of(self.dropped, order) is not None

    def in_effect_from(self, order: int) -> int:
        """The place where the record at this place came into effect: the end of its transaction, if it is in one."""
        last = _last_of(self.ended, order)
        return order if last is None else last


def _last_of(spans: Sequence[tuple[int, int]], order: int) -> int | None:
    """The last place of the span that contains this place."""
    index = bisect_right(spans, order, key=itemgetter(0)) - 1
    return spans[index][1] if index >= 0 and order <= spans[index][1] else None


def shared_records(found: Iterable[tuple[int, bytes]]) -> SharedRecords:
    """Build them from all shared records of the log, in any order.

    :raises InvariantViolation: marks of transactions contradict each other.
    """
    records = [(order, decode(content)[0]) for order, content in sorted(found)]
    effective = _transactions([(order, record) for order, record in records if isinstance(record, MARKERS)])
    removals: defaultdict[Uuid, list[int]] = defaultdict(list)
    cleared = list[tuple[int, str]]()
    for order, record in records:
        if effective.is_dropped(order):
            continue
        if isinstance(record, RemoveTopicRecord):
            removals[record.topic_id].append(order)
        elif isinstance(record, ClearElrRecord):
            cleared.append((order, record.topic_name))
    by_id = {topic_id: tuple(orders) for topic_id, orders in removals.items()}
    return replace(effective, removals=by_id, cleared=tuple(cleared))


def _transactions(marks: Sequence[tuple[int, MetadataRecord]]) -> SharedRecords:
    dropped: list[tuple[int, int]] = []
    ended: list[tuple[int, int]] = []
    begun: int | None = None
    for order, mark in marks:
        if order < 0:
            raise does_not_fit(order, mark, "an image cannot hold this record")
        if isinstance(mark, BeginTransactionRecord):
            if begun is not None:
                raise does_not_fit(order, mark, f"the transaction that began at {begun} is still open")
            begun = order
        elif begun is None:
            raise does_not_fit(order, mark, "no transaction is open")
        else:
            (dropped if isinstance(mark, AbortTransactionRecord) else ended).append((begun, order))
            begun = None
    if begun is not None:
        dropped.append((begun, ENDLESS))
    return SharedRecords(tuple(dropped), open_since=begun, ended=tuple(ended))


def folded_rows(
    key: bytes, records: Iterable[tuple[int, bytes]], shared: SharedRecords, intern: Interner
) -> Iterator[Row]:
    """The canonical rows of one entity, in whose records secrets are replaced; errors as in `folded`."""
    yield from rows_of(key, folded(key, records, shared, intern))


def rows_of(key: bytes, image: MetadataImage, only: Iterable[int] | None = None) -> Iterator[Row]:
    """The canonical rows of one entity; of the partitions of a topic, ``only`` these."""
    if key.startswith(TOPIC):
        for topic in image.topics.by_id.values():
            yield from topic_rows(topic, only)
    else:
        yield from other_rows(image, None)


def folded(key: bytes, records: Iterable[tuple[int, bytes]], shared: SharedRecords, intern: Interner) -> MetadataImage:
    """The image of one entity after all its records.

    :param records: in the order of the log, each with its place.
    :raises InvariantViolation: a record does not decode, or contradicts an earlier one; names its place and its type.
    """
    return replayed(EMPTY_IMAGE, in_effect(key, records, shared), intern)


def replayed(image: MetadataImage, records: Iterable[tuple[int, MetadataRecord]], intern: Interner) -> MetadataImage:
    """The image after more records; errors as in `folded`."""
    builder = ImageBuilder(image, intern)
    for order, record in records:
        try:
            builder.replay(record)
        except InvariantViolation as error:
            raise does_not_fit(order, record, str(error)) from error
    return builder.image(_NOWHERE)


def in_effect(
    key: bytes, records: Iterable[tuple[int, bytes]], shared: SharedRecords
) -> Iterator[tuple[int, MetadataRecord]]:
    """The records of one entity that came into effect, and those of other entities that concern it."""
    return _with_shared(key, _effective(records, shared), shared)


def _effective(records: Iterable[tuple[int, bytes]], shared: SharedRecords) -> Iterator[tuple[int, MetadataRecord]]:
    for order, content in records:
        if shared.dropped and shared.is_dropped(order):
            continue
        try:
            yield order, decode(content)[0]
        except CorruptRecordsError as error:
            place = f"record {order - SNAPSHOT} of the snapshot" if order < 0 else f"the record at offset {order}"
            raise InvariantViolation(f"{place} does not decode: {error.what}") from error


def _with_shared(
    key: bytes, records: Iterator[tuple[int, MetadataRecord]], shared: SharedRecords
) -> Iterator[tuple[int, MetadataRecord]]:
    if key.startswith(NAME) and shared.removals:
        return _removed(records, shared)
    if key.startswith(TOPIC) and shared.cleared:
        return _cleared(records, shared)
    return records


def _removed(
    records: Iterator[tuple[int, MetadataRecord]], shared: SharedRecords
) -> Iterator[tuple[int, MetadataRecord]]:
    """Records of a topic's name, together with the removal of each topic that had the name."""
    pending: tuple[int, Uuid] | None = None
    for order, record in records:
        if pending is not None and pending[0] < order:
            yield pending[0], RemoveTopicRecord(pending[1])
            pending = None
        yield order, record
        if isinstance(record, TopicRecord):
            orders = shared.removals.get(record.topic_id, ())
            index = bisect_right(orders, order)
            pending = (orders[index], record.topic_id) if index < len(orders) else None
    if pending is not None:
        yield pending[0], RemoveTopicRecord(pending[1])


def _cleared(
    records: Iterator[tuple[int, MetadataRecord]], shared: SharedRecords
) -> Iterator[tuple[int, MetadataRecord]]:
    """Records of a topic, together with those that clear its eligible leader replicas while the topic exists."""
    left = iter((*shared.cleared, (ENDLESS, "")))
    at, name = next(left)
    live: str | None = None
    for order, record in chain(records, ((ENDLESS, EndTransactionRecord()),)):
        while at < order:
            if live is not None and name in {"", live}:
                yield at, ClearElrRecord()
            at, name = next(left)
        if order == ENDLESS:
            return
        yield order, record
        if isinstance(record, TopicRecord):
            live = record.name
        elif isinstance(record, RemoveTopicRecord):
            live = None


def does_not_fit(order: int, record: MetadataRecord, why: str) -> InvariantViolation:
    """The error of a record that contradicts an earlier one, in the words of the loader."""
    kind = type(record).__name__
    if order < 0:
        return InvariantViolation(f"record {order - SNAPSHOT} of the snapshot, a {kind}, does not fit: {why}")
    return InvariantViolation(f"the {kind} at offset {order} does not fit: {why}")
