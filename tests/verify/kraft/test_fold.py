"""A log that is replayed entity by entity says what the loader says, which replays all of it in one process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from migrator.errors import InvariantViolation
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.image.tracked import Interner
from migrator.records import metadata as m
from migrator.records.codec import SPEC_OF, encode
from migrator.records.uuid import Uuid
from migrator.verify.canonical import Row
from migrator.verify.kraft.changes import Batches, changes_of
from migrator.verify.kraft.entities import Placed, partition_key, placed
from migrator.verify.kraft.fold import SNAPSHOT, SharedRecords, folded_rows, shared_records
from migrator.verify.kraft.image_rows import other_rows, topic_rows
from tests.image.support.strategies import image_of, record_sequences, small_uuid, transactional_sequences
from tests.lanes import examples

SALT = b"salt"
T0, T1 = small_uuid(1), small_uuid(2)


def partition(topic_id: Uuid = T0, elr: tuple[int, ...] = (2,)) -> m.PartitionRecord:
    return m.PartitionRecord(0, topic_id, (1, 2), (1,), (), (), 1, 0, 0, 0, eligible_leader_replicas=elr)


@st.composite
def logs(draw: DrawFn) -> list[m.MetadataRecord]:
    """Random logs; in some, partitions have eligible leader replicas, which other records forget."""
    records = draw(transactional_sequences())
    if not draw(st.booleans()):
        return records
    found: list[m.MetadataRecord] = []
    names: dict[Uuid, str] = {}
    marks = (m.BeginTransactionRecord, m.EndTransactionRecord, m.AbortTransactionRecord)
    outside = True
    for record in records:
        if isinstance(record, m.PartitionRecord | m.PartitionChangeRecord):
            found.append(replace(record, eligible_leader_replicas=(1,)))
        else:
            found.append(record)
        outside = outside if not isinstance(record, marks) else not isinstance(record, m.BeginTransactionRecord)
        if isinstance(record, m.TopicRecord) and outside:
            names[record.topic_id] = record.name
        elif isinstance(record, m.RemoveTopicRecord):
            names.pop(record.topic_id, None)
        if draw(st.integers(0, 3)) == 0:
            found.append(m.ClearElrRecord(draw(st.sampled_from(["", *names.values()]))))
    return found


def each(order: int, content: bytes) -> Placed:
    key = partition_key(content)
    return placed(order, content, SALT) if key is None else Placed(order, (key,), content)


def by_the_loader(before: Sequence[m.MetadataRecord], records: Sequence[m.MetadataRecord]) -> list[Row]:
    """Rows of the image that one process makes of everything."""
    loader = ImageLoader(image_of(before))
    start = loader.end_offset
    for offset, record in enumerate(records, start):
        loader.append(offset, 1, 0, [record])
    loader.apply()
    loader.commit(start + len(records))
    return rows_of(loader.published)


def rows_of(image: MetadataImage) -> list[Row]:
    rows = [row for topic in image.topics.by_id.values() for row in topic_rows(topic)]
    return sorted([*rows, *other_rows(image, SALT)])


Entities = dict[bytes, list[tuple[int, bytes]]]


def entities_of(
    before: Sequence[m.MetadataRecord], records: Sequence[m.MetadataRecord]
) -> tuple[Entities, SharedRecords]:
    """The records of each entity, and those that others need, too."""
    contents = [encode(record, SPEC_OF[type(record)].latest) for record in (*before, *records)]
    orders = [*(SNAPSHOT + number for number in range(len(before))), *range(len(before), len(contents))]
    entities: defaultdict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
    found = [each(order, content) for order, content in zip(orders, contents, strict=True)]
    for one in found:
        for key in one.keys:
            entities[key].append((one.order, one.content))
    shared = shared_records((one.order, one.content) for one in reversed(found) if one.is_shared)
    return entities, shared


def by_entities(before: Sequence[m.MetadataRecord], records: Sequence[m.MetadataRecord]) -> list[Row]:
    """Rows of each entity, replayed by itself."""
    entities, shared = entities_of(before, records)
    return sorted(row for key, part in entities.items() for row in folded_rows(key, part, shared, Interner()))


@settings(max_examples=examples(200))
@given(record_sequences(15), logs())
@example(
    [],
    [m.TopicRecord("t", T0), partition(), m.ClearElrRecord("t"), m.RemoveTopicRecord(T0), m.TopicRecord("t", T1),
     m.ClearElrRecord(), partition(T1), m.ConfigRecord(2, "t", "retention.ms", "1")],
)  # fmt: skip
@example(
    [m.TopicRecord("t", T0), m.ConfigRecord(2, "t", "retention.ms", "1"), partition()],
    [m.BeginTransactionRecord(), m.RemoveTopicRecord(T0), m.AbortTransactionRecord(), m.BeginTransactionRecord(),
     m.RemoveTopicRecord(T0), m.EndTransactionRecord(), m.TopicRecord("t", T0), m.BeginTransactionRecord(),
     m.ConfigRecord(2, "t", "retention.ms", "2")],
)  # fmt: skip
@example([], [m.TopicRecord("t", T0), partition(), m.TopicRecord("u", T1), partition(T1), m.ClearElrRecord("u")])
def test_the_rows_are_those_of_the_loader(before: list[m.MetadataRecord], records: list[m.MetadataRecord]) -> None:
    try:
        expected = by_the_loader(before, records)
    except InvariantViolation:  # what the log does does not fit what was before it
        return
    assert by_entities(before, records) == expected


@settings(max_examples=examples(100))
@given(record_sequences(10), logs(), st.data())
def test_the_changes_lead_to_the_state_after_each_batch(
    before: list[m.MetadataRecord], records: list[m.MetadataRecord], data: st.DataObject
) -> None:
    try:
        by_the_loader(before, records)
    except InvariantViolation:
        return
    lasts = sorted({*data.draw(st.sets(st.integers(0, max(0, len(records) - 1)))), len(records) - 1})
    batches = Batches()
    for last in lasts:
        batches.add(len(before) + last, 1000 + last)
    entities, shared = entities_of(before, records)
    changes = [one for key, part in entities.items() for one in changes_of(key, part, shared, batches, Interner())]
    rows = Counter(by_entities(before, []))
    for last in lasts:
        for offset, time_ms, kind, entity, name, old, new in changes:
            if offset == len(before) + last:
                assert time_ms == 1000 + last
                assert old != new
                rows.subtract([(kind, entity, name, old)] if old is not None else [])
                rows.update([(kind, entity, name, new)] if new is not None else [])
        assert {row: count for row, count in rows.items() if count} == Counter(
            by_the_loader(before, records[: last + 1])
        )


def test_a_partition_whose_eligible_leader_replicas_are_forgotten_has_another_epoch() -> None:
    """The loader counts that as a change of the partition, as Kafka's ``PartitionRegistration`` does."""
    records: list[m.MetadataRecord] = [m.TopicRecord("t", T0), partition(), m.ClearElrRecord("t")]
    batches = Batches()
    batches.add(1, 1001)
    batches.add(2, 1002)
    entities, shared = entities_of([], records)
    changes = [one for key, part in entities.items() for one in changes_of(key, part, shared, batches, Interner())]
    assert [one for one in changes if one[0] == 2] == [(2, 1002, "partition", "t-0", "epoch", "0", "1")]


@settings(max_examples=examples(100))
@given(record_sequences(), st.data())
def test_a_log_that_lacks_a_record_is_refused_as_the_loader_does(
    records: list[m.MetadataRecord], data: st.DataObject
) -> None:
    kept = records[:]
    if kept:
        del kept[data.draw(st.integers(0, len(kept) - 1))]
    try:
        expected = by_the_loader([], kept)
    except InvariantViolation:
        with pytest.raises(InvariantViolation):
            by_entities([], kept)
    else:
        assert by_entities([], kept) == expected


@pytest.mark.parametrize(
    "record",
    [
        m.UserScramCredentialRecord("user", 1, b"pepper", b"secret-1", b"secret-2", 4096),
        m.ConfigRecord(m.ConfigResourceType.BROKER, "1", "ssl.keystore.password", "secret-3"),
        m.ConfigRecord(m.ConfigResourceType.BROKER, "1", "listener.name.x.ssl.key.password", "secret-4"),
        m.ConfigRecord(m.ConfigResourceType.TOPIC, "t", "of.somebody", "secret-5"),
    ],
    ids=repr,
)
def test_a_secret_does_not_leave_the_process_that_decodes_it(record: m.MetadataRecord) -> None:
    content = placed(0, encode(record, 0), SALT).content
    assert b"secret" not in content
    assert b"pepper" not in content
    assert by_entities([], [record]) == by_the_loader([], [record])


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ([m.TopicRecord("t", T0), m.TopicRecord("t", T1)], "the TopicRecord at offset 1 does not fit: topic 't'"),
        ([m.ClearElrRecord("t")], "the ClearElrRecord at offset 0 does not fit: there is no topic 't'"),
        ([m.BeginTransactionRecord(), m.BeginTransactionRecord()], "began at 0 is still open"),
        (
            [m.NoOpRecord(), m.EndTransactionRecord()],
            "the EndTransactionRecord at offset 1 does not fit: no transaction",
        ),
    ],
    ids=str,
)
def test_what_only_several_entities_contradict_is_found(records: list[m.MetadataRecord], said: str) -> None:
    for read in (by_the_loader, by_entities):
        with pytest.raises(InvariantViolation, match=said):
            read([], records)
