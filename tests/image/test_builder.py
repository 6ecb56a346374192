from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from immutables import Map

from migrator.errors import InvariantViolation
from migrator.image.builder import ImageBuilder
from migrator.image.changes import merge_changes
from migrator.image.model import EMPTY_IMAGE, Changes, MetadataImage, PartitionCounts, Provenance
from migrator.records import metadata as rec
from migrator.records.uuid import ZERO_UUID
from tests.image.support.differences import changes_between
from tests.image.support.rows import image_rows, naive_rows
from tests.image.support.strategies import image_of, record_sequences, small_uuid

TOPIC = small_uuid(1)
PARTITION = rec.PartitionRecord(0, TOPIC, (1, 2), (1, 2), (), (), 1, 0, 0, 0)


def build(base: MetadataImage, records: list[rec.MetadataRecord]) -> tuple[MetadataImage, Changes]:
    builder = ImageBuilder(base)
    for record in records:
        builder.replay(record)
    return builder.build(Provenance(base.provenance.offset + len(records), 1, 0))


def covers(changes: Changes, exact: Changes) -> bool:
    """Whether ``changes`` names at least what ``exact`` names."""
    sets = ("brokers", "controllers", "topics", "configs", "quotas", "acls", "scram", "tokens")
    flags = ("features", "zk_migration_state", "producer_ids")
    return (
        all(getattr(exact, name) <= getattr(changes, name) for name in sets)
        and all(getattr(exact, name) <= getattr(changes, name) for name in flags)
        and all(numbers <= changes.partitions.get(key, frozenset()) for key, numbers in exact.partitions.items())
    )


def counted(image: MetadataImage) -> PartitionCounts:
    """One by one."""
    partitions = [each for topic in image.topics.by_id.values() for each in topic.partitions.values()]
    preferred = [each.leader == (each.replicas[0] if each.replicas else -1) for each in partitions]
    offline = [each.leader == -1 for each in partitions]
    return PartitionCounts(len(partitions), sum(offline), preferred.count(False))


@given(record_sequences(), st.data())
def test_replayed_in_any_portions_an_image_equals_the_obvious_model(
    records: list[rec.MetadataRecord], data: st.DataObject
) -> None:
    image, parts, images = EMPTY_IMAGE, [], []
    position = 0
    while position < len(records):
        size = data.draw(st.integers(1, len(records) - position))
        images.append((image, image_rows(image)))
        image, changes = build(image, records[position : position + size])
        assert covers(changes, changes_between(images[-1][0], image))
        parts.append(changes)
        position += size
        assert image.topics.counts == counted(image)
    assert image_rows(image) == naive_rows(records)
    merged = merge_changes(parts)
    assert covers(merged, changes_between(EMPTY_IMAGE, image))
    assert merged.records == len(records)
    assert all(image_rows(older) == rows for older, rows in images), "an older image changed"


@given(record_sequences())
def test_the_difference_of_equal_images_is_nothing(records: list[rec.MetadataRecord]) -> None:
    assert changes_between(image_of(records), image_of(records)) == Changes(partitions={})


@pytest.mark.parametrize(
    ("known", "record", "reason"),
    [
        ([], PARTITION, "no topic with id AAAAAAAAAAAAAAAAAAAD6Q"),
        ([], rec.RemoveTopicRecord(TOPIC), "no topic with id"),
        ([rec.TopicRecord("t", TOPIC)], rec.TopicRecord("t", small_uuid(2)), "exists already"),
        ([rec.TopicRecord("t", TOPIC)], rec.PartitionChangeRecord(3, TOPIC), "no partition 3"),
        (
            [rec.TopicRecord("t", TOPIC), PARTITION],
            rec.PartitionChangeRecord(0, TOPIC, directories=(small_uuid(5),)),
            "1 directories for 2 replicas",
        ),
        ([], rec.FenceBrokerRecord(1, 5), "broker 1 is not registered"),
        (
            [rec.RegisterBrokerRecord(1, True, ZERO_UUID, 4, (), (), None)],
            rec.UnregisterBrokerRecord(1, 5),
            "registered with epoch 4, not 5",
        ),
        (
            [rec.RegisterBrokerRecord(1, True, ZERO_UUID, 4, (), (), None)],
            rec.BrokerRegistrationChangeRecord(1, 4, fenced=2),
            "unknown change of broker 1",
        ),
        ([], rec.RemoveAccessControlEntryRecord(TOPIC), "no access control entry"),
        ([], rec.RemoveUserScramCredentialRecord("alice", 1), "user 'alice' has no credential"),
        ([], rec.ZkMigrationStateRecord(9), "unknown ZooKeeper migration state 9"),
        ([], rec.ClearElrRecord("t"), "no topic 't'"),
        ([], rec.BeginTransactionRecord(), "cannot hold this record"),
    ],
)
def test_a_record_that_does_not_fit_is_refused(
    known: list[rec.MetadataRecord], record: rec.MetadataRecord, reason: str
) -> None:
    builder = ImageBuilder(image_of(known))
    with pytest.raises(InvariantViolation, match=reason):
        builder.replay(record)


def test_a_removed_topic_takes_its_configuration_along_and_leaves_its_namesake_none() -> None:
    config = rec.ConfigRecord(rec.ConfigResourceType.TOPIC, "t", "retention.ms", "1")
    again = rec.TopicRecord("t", small_uuid(2))
    base = image_of([rec.TopicRecord("t", TOPIC), PARTITION, config])
    image, changes = build(base, [rec.RemoveTopicRecord(TOPIC), again])
    assert not image.configs
    assert changes.topics == {TOPIC, small_uuid(2)}
    assert image.topics.ids == Map({"t": small_uuid(2)})


def test_clearing_the_elr_changes_only_partitions_that_have_one() -> None:
    with_elr = rec.PartitionRecord(1, TOPIC, (1, 2), (1,), (), (), 1, 0, 0, 0, eligible_leader_replicas=(2,))
    known: list[rec.MetadataRecord] = [rec.TopicRecord("t", TOPIC), PARTITION, with_elr]
    base = image_of(known)
    for name in ("", "t"):
        image, changes = build(base, [rec.ClearElrRecord(name)])
        partitions = image.topics.by_id[TOPIC].partitions
        assert partitions[1].elr == ()
        assert [partitions[number].partition_epoch for number in (0, 1)] == [0, 1]
        assert changes.partitions == {TOPIC: frozenset({1})}


def test_equal_assignments_are_one_object() -> None:
    def fresh() -> tuple[int, ...]:
        return tuple(range(1, 4))

    records: list[rec.MetadataRecord] = [rec.TopicRecord("t", TOPIC)]
    records += [rec.PartitionRecord(n, TOPIC, fresh(), fresh(), (), (), 1, 0, 0, 0) for n in range(5)]
    partitions = image_of(records).topics.by_id[TOPIC].partitions.values()
    assert len({id(partition.replicas) for partition in partitions} | {id(p.isr) for p in partitions}) == 1


def test_untouched_parts_are_shared_with_the_image_before() -> None:
    base = image_of([rec.TopicRecord("t", TOPIC), PARTITION, rec.TopicRecord("u", small_uuid(2))])
    image, _ = build(base, [rec.PartitionChangeRecord(0, TOPIC, leader=2)])
    assert image.topics.by_id[small_uuid(2)] is base.topics.by_id[small_uuid(2)]
    assert image.configs is base.configs
    assert base.topics.by_id[TOPIC].partitions[0].leader == 1


def test_a_topic_removed_a_moment_ago_takes_no_more_partitions() -> None:
    builder = ImageBuilder(EMPTY_IMAGE)
    for record in (rec.TopicRecord("t", TOPIC), PARTITION, rec.RemoveTopicRecord(TOPIC)):
        builder.replay(record)
    with pytest.raises(InvariantViolation, match="no topic with id"):
        builder.replay(PARTITION)


def test_topics_may_follow_when_the_elr_of_all_was_cleared() -> None:
    records: list[rec.MetadataRecord] = [rec.TopicRecord("t", TOPIC), PARTITION]
    records += [rec.ClearElrRecord(), rec.TopicRecord("u", small_uuid(2))]
    assert set(image_of(records).topics.ids) == {"t", "u"}
