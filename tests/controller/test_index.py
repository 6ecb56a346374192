"""The index follows the image, forward and back, and is the same whichever way it got there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.controller import index as index_module
from migrator.controller.index import SWEPT_ENTRIES, ControllerIndex, PartitionSet
from migrator.controller.token_index import token_hmac
from migrator.image.builder import ImageBuilder
from migrator.image.changes import undo_changes
from migrator.image.model import EMPTY_IMAGE, Acl, Changes, MetadataImage, Provenance
from migrator.image.security import acl_record
from migrator.records.metadata import (
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.turns import TURN_RECORDS
from tests.calls import CallCounter
from tests.image.support.strategies import record_sequences
from tests.lanes import examples

SECRET = b"of delegation tokens"
GONE = Uuid(b"a deleted topic.")


@given(st.sets(st.integers(0, 200)), st.sets(st.integers(0, 200)))
def test_partition_set_behaves_like_a_set(added: set[int], removed: set[int]) -> None:
    partitions = PartitionSet()
    for number in added:
        partitions.add(ZERO_UUID, 1 << number)
    for number in removed:
        partitions.discard(ZERO_UUID, 1 << number)
    for gone, expected in ((set[Uuid](), added - removed), ({GONE}, added - removed), ({GONE, ZERO_UUID}, set[int]())):
        some = PartitionSet(gone)
        some.update(partitions)
        if gone:
            some.add(GONE, 1)
        for like in (some, some.copy(), some.without(PartitionSet())):
            assert [number for _, number in like] == sorted(expected)
            assert len(like) == len(expected)
            assert bool(like) == bool(expected)


@settings(max_examples=examples(60))
@given(record_sequences(), st.integers(1, 7), st.sampled_from([0, SWEPT_ENTRIES]))
def test_index_follows_batches_forward_and_back(records: list[MetadataRecord], size: int, swept: int) -> None:
    steps: list[tuple[MetadataImage, MetadataImage, Changes]] = []
    index, image = ControllerIndex(SECRET), EMPTY_IMAGE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "SWEPT_ENTRIES", swept)
        for start in range(0, len(records), size):
            builder = ImageBuilder(image)
            for record in records[start : start + size]:
                builder.replay(record)
            after, changes = builder.build(Provenance(start, 1, 0))
            index.apply(image, after, changes)
            steps.append((image, after, changes))
            image = after
            assert index == ControllerIndex.of(image, SECRET)
            assert all(index.tokens.find(token_hmac(SECRET, token_id)) == token_id for token_id in image.tokens)
        for before, after, changes in reversed(steps):
            index.apply(after, before, changes)
    assert index == ControllerIndex(SECRET)


BROKERS = range(30)
TOPICS = [Uuid(number.to_bytes(16, "big")) for number in range(1, 101)]


def test_an_undone_deletion_leaves_nothing_of_a_change_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "SWEPT_ENTRIES", 0)
    image, _ = built(EMPTY_IMAGE, created())
    changed, first = built(image, [PartitionChangeRecord(0, topic_id, (7,), 7) for topic_id in TOPICS])
    after, second = built(changed, [RemoveTopicRecord(topic_id) for topic_id in TOPICS])
    index = ControllerIndex.of(image)
    index.apply(image, changed, first)
    index.apply(changed, after, second)
    index.apply(after, image, undo_changes([first, second], image))
    assert index == ControllerIndex.of(image)


@pytest.mark.parametrize("is_same_id", [True, False])
def test_topics_that_are_made_anew_in_one_step_are_those_of_the_image(is_same_id: bool) -> None:
    """A copy does that with a topic that changed in ZooKeeper meanwhile. The order of the ids is that of their hashes,
    so there are many topics."""
    image, _ = built(EMPTY_IMAGE, created())
    ids = TOPICS if is_same_id else [Uuid(topic_id[::-1]) for topic_id in TOPICS]
    index = ControllerIndex.of(image)
    removed, first = built(image, map(RemoveTopicRecord, TOPICS))
    again = [record for record in created(ids) if isinstance(record, TopicRecord) or not is_same_id]
    after, changes = built(image, [*map(RemoveTopicRecord, TOPICS), *again])
    index.apply(image, after, changes)
    assert index == ControllerIndex.of(after)

    after, second = built(removed, again)
    index = ControllerIndex.of(after)
    index.apply(after, image, undo_changes([first, second], image))
    assert index == ControllerIndex.of(image)


def test_the_order_of_a_set_depends_on_no_hash() -> None:
    """It is that of the records about its partitions. The bytes of an id have another hash in each process."""
    image, changes = built(EMPTY_IMAGE, created())
    made, followed = ControllerIndex.of(image), ControllerIndex()
    followed.apply(EMPTY_IMAGE, image, changes)
    assert list(made.in_sync(0)) == list(followed.in_sync(0)) == [(topic_id, 0) for topic_id in TOPICS]
    after, changes = built(image, [PartitionChangeRecord(0, topic_id, (7,), 7) for topic_id in reversed(TOPICS)])
    made.apply(image, after, changes)
    assert [topic_id for topic_id, number in made.led_by(7) if number == 0] == TOPICS


def test_a_batch_that_deletes_topics_takes_no_turn_of_all_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the topics is on each broker. What a step does is counted in entries that leave a set."""
    image, _ = built(EMPTY_IMAGE, created())
    index, swept = ControllerIndex.of(image), list[int]()
    forget = PartitionSet.forget

    def counted(self: PartitionSet, topic_ids: Collection[Uuid]) -> bool:
        swept[-1] += len(topic_ids)
        return forget(self, topic_ids)

    monkeypatch.setattr(PartitionSet, "forget", counted)
    monkeypatch.setattr(index_module, "SWEPT_ENTRIES", 600)
    after, changes = built(image, [RemoveTopicRecord(topic_id) for topic_id in TOPICS])
    steps = [(image, after, changes)] + [(after, after, Changes())] * len(TOPICS)
    for step in steps:
        swept.append(0)
        index.apply(*step)
        assert index == ControllerIndex.of(after)
        assert not index.in_sync(0)
    most = 600 + 2 * len(BROKERS) + 2
    assert max(swept) <= most < sum(swept)
    assert swept[-1] == 0, "nothing is left to sweep"


def test_a_batch_of_many_acls_takes_no_turn_of_all_of_them() -> None:
    """What a turn does is counted in calls; first the entries are added, then removed."""
    turns = 5
    acls = [Acl(2, f"topic-{number % 7}", 3, f"User:{number}", "*", 3, 3) for number in range(turns * TURN_RECORDS)]
    after, changes = built(EMPTY_IMAGE, [acl_record(Uuid(n.to_bytes(16, "big")), acl) for n, acl in enumerate(acls)])
    index = ControllerIndex()
    for step in ((EMPTY_IMAGE, after, changes), (after, EMPTY_IMAGE, changes)):
        with CallCounter() as counter:
            rest = index.apply(*step)
        costs, is_over = [counter.calls], rest is None
        while rest is not None and not is_over:
            with CallCounter() as counter:
                is_over = next(rest, rest) is rest
            costs.append(counter.calls)
        assert max(costs) < 1.2 * sum(costs) / turns
        assert index == ControllerIndex.of(step[1])


def created(topic_ids: Iterable[Uuid] = TOPICS) -> Iterator[MetadataRecord]:
    """Each topic has a partition on each broker."""
    for place, topic_id in enumerate(topic_ids):
        yield TopicRecord(f"t.{place}", topic_id)
        for number in BROKERS:
            yield PartitionRecord(number, topic_id, (number,), (number,), (), (), number, 0, 0, 0)


def built(image: MetadataImage, records: Iterable[MetadataRecord]) -> tuple[MetadataImage, Changes]:
    builder = ImageBuilder(image)
    for record in records:
        builder.replay(record)
    return builder.build(Provenance(image.provenance.offset + 1, 1, 0))
