from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from migrator.errors import InvariantViolation
from migrator.image import changes
from migrator.image.changes import merge_changes
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, Changes, MetadataImage
from migrator.records import metadata as rec
from migrator.records.uuid import Uuid
from migrator.turns import TURN_RECORDS
from tests.image.support.differences import changes_between
from tests.image.support.rows import image_rows, naive_rows
from tests.image.support.strategies import image_of, small_uuid, transactional_sequences
from tests.image.test_builder import counted, covers
from tests.lanes import examples

BEGIN, END, ABORT = rec.BeginTransactionRecord(), rec.EndTransactionRecord(), rec.AbortTransactionRecord()
MARKERS = (rec.BeginTransactionRecord, rec.EndTransactionRecord, rec.AbortTransactionRecord)


def closed_prefix(records: list[rec.MetadataRecord]) -> int:
    """The length of the longest prefix that ends outside a transaction, Begin itself being inside."""
    end, inside = 0, False
    for position, record in enumerate(records, 1):
        if isinstance(record, rec.BeginTransactionRecord):
            inside = True
        elif isinstance(record, MARKERS):
            inside = False
        if not inside:
            end = position
    return end


def effective(records: list[rec.MetadataRecord], *, with_open: bool) -> list[rec.MetadataRecord]:
    """The records that count: outside transactions, of ended ones, and of an open one if asked."""
    kept: list[rec.MetadataRecord] = []
    held: list[rec.MetadataRecord] | None = None
    for record in records:
        if isinstance(record, rec.BeginTransactionRecord):
            held = []
        elif isinstance(record, rec.EndTransactionRecord):
            kept += held or []
            held = None
        elif isinstance(record, rec.AbortTransactionRecord):
            held = None
        else:
            (kept if held is None else held).append(record)
    return kept + (held or []) if with_open else kept


class LoaderMachine(RuleBasedStateMachine):
    """A loader beside a plain list of records: appends, slices, commits, truncations and repeated appends."""

    @initialize(
        log=transactional_sequences(),
        max_states=st.sampled_from([1, 2, 1000]),
        sizes=st.lists(st.integers(1, 6), min_size=1),
    )
    def start(self, log: list[rec.MetadataRecord], max_states: int, sizes: list[int]) -> None:
        self.log = log
        self.max_states = max_states
        self.starts = [0]
        while self.starts[-1] < len(log):
            self.starts.append(min(len(log), self.starts[-1] + sizes[len(self.starts) % len(sizes)]))
        self.follower = EMPTY_IMAGE
        self.loader = ImageLoader(max_states=max_states, on_step=self.follow)
        self.appended = 0  # index into starts: how many batches the loader was given
        self.committed = 0  # likewise: how many are committed
        self.subscriber = EMPTY_IMAGE

    def follow(self, before: MetadataImage, after: MetadataImage, found: Changes) -> None:
        assert before is self.follower
        assert covers(found, changes_between(before, after))
        self.follower = after

    def next_batch(self) -> None:
        start, end = self.starts[self.appended], self.starts[self.appended + 1]
        self.loader.append(start, 1, 0, self.log[start:end])
        self.appended += 1

    @rule(count=st.integers(1, 3), slices=st.none() | st.integers(1, 4))
    def append(self, count: int, slices: int | None) -> None:
        for _ in range(min(count, len(self.starts) - 1 - self.appended)):
            self.next_batch()
            self.loader.apply(slices)
        self.publish()  # the high watermark may have been beyond what was applied

    @rule(count=st.integers(1, 5))
    def apply(self, count: int) -> None:
        before = self.loader.backlog
        left = self.loader.apply(count)
        assert left == self.loader.backlog
        assert max(0, before - count) <= left <= before, "partitions that are removed with their topic count, too"
        self.publish()

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.committed = data.draw(st.integers(self.committed, self.appended))
        self.publish()

    def publish(self) -> None:
        delta = self.loader.commit(self.starts[self.committed])
        if delta is not None:
            assert delta.before is self.subscriber
            assert covers(delta.changes, changes_between(delta.before, delta.after))
            self.subscriber = delta.after

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(self.committed, self.appended))
        offset = self.starts[kept]
        replay_from = self.loader.truncate(offset)
        assert replay_from <= offset
        assert replay_from == self.loader.end_offset
        self.appended = kept
        for start, end in zip(self.starts[:kept], self.starts[1 : kept + 1], strict=True):
            if end > replay_from:
                self.loader.append(start, 1, 0, self.log[start:end])

    @precondition(lambda self: self.committed > 0)
    @rule()
    def load_snapshot(self) -> None:
        self.loader.apply()
        self.publish()
        image = self.loader.snapshot_image
        if image is not None:
            assert image.provenance.offset + 1 in self.starts
            fresh = ImageLoader(image, max_states=self.max_states)
            end = image.provenance.offset + 1
            fresh.append(end, 1, 0, self.log[end : self.starts[self.appended]])
            fresh.apply()
            assert image_rows(fresh.speculative) == image_rows(self.loader.speculative)

    @invariant()
    def images_are_right(self) -> None:
        if not hasattr(self, "loader"):
            return
        published = self.subscriber.provenance.offset + 1
        assert image_rows(self.loader.published) == naive_rows(effective(self.log[:published], with_open=False))
        assert published == closed_prefix(self.log[:published])
        assert published <= self.starts[self.committed]
        if self.loader.backlog == 0:
            appended = self.log[: self.starts[self.appended]]
            assert image_rows(self.loader.speculative) == naive_rows(effective(appended, with_open=True))
            assert self.loader.speculative.topics.counts == counted(self.loader.speculative)
            assert self.follower is self.loader.speculative

    @invariant()
    def stable_is_committed_and_closed(self) -> None:
        if not hasattr(self, "loader") or self.loader.backlog:
            return
        committed = self.log[: self.starts[self.committed]]
        stable = self.loader.last_stable_offset + 1
        if self.max_states == 1000:
            assert stable == closed_prefix(committed)
            delta = self.loader.commit(self.starts[self.committed])
            assert (self.loader if delta is None else delta.after) is not None
            self.subscriber = self.loader.published
            assert self.subscriber.provenance.offset + 1 == stable
        else:
            assert stable <= closed_prefix(committed)

    def teardown(self) -> None:
        if hasattr(self, "loader"):
            while self.appended < len(self.starts) - 1:
                self.next_batch()
            self.loader.apply()
            self.committed = self.appended
            self.publish()
            assert image_rows(self.subscriber) == naive_rows(effective(self.log, with_open=False))


TestLoader = LoaderMachine.TestCase
TestLoader.settings = settings(max_examples=examples(60), stateful_step_count=20)


def topic(number: int) -> rec.TopicRecord:
    return rec.TopicRecord(f"t{number}", small_uuid(number))


def names(image_ids: object) -> set[str]:
    assert hasattr(image_ids, "topics")
    return set(image_ids.topics.ids)


def test_what_precedes_begin_in_its_batch_is_published_and_the_rest_waits_for_end() -> None:
    loader = ImageLoader()
    loader.append(0, 3, 70, [topic(0), BEGIN, topic(1)])
    loader.append(3, 3, 80, [topic(2)])
    loader.apply()
    delta = loader.commit(4)
    assert delta is not None
    assert names(delta.after) == {"t0"}
    assert (delta.after.provenance.offset, delta.after.provenance.epoch, delta.after.provenance.timestamp_ms) == (
        0,
        3,
        70,
    )
    assert loader.snapshot_image is None, "a snapshot cannot end within a batch"
    assert names(loader.speculative) == {"t0", "t1", "t2"}
    assert (loader.transaction_start, loader.last_stable_offset) == (1, 0)
    loader.append(4, 3, 90, [END, topic(3)])
    loader.apply()
    assert loader.commit(4) is None
    assert loader.last_stable_offset == 0, "the End is not committed"
    delta = loader.commit(6)
    assert delta is not None
    assert names(delta.after) == {"t0", "t1", "t2", "t3"}
    assert delta.changes.topics == {small_uuid(1), small_uuid(2), small_uuid(3)}
    assert loader.snapshot_image is delta.after


def test_abort_brings_the_speculative_image_back_to_begin() -> None:
    loader = ImageLoader()
    loader.append(0, 1, 0, [topic(0)])
    loader.append(1, 1, 0, [BEGIN, topic(1), rec.RemoveTopicRecord(small_uuid(0))])
    loader.apply()
    assert names(loader.speculative) == {"t1"}
    loader.append(4, 1, 0, [ABORT])
    loader.apply()
    assert names(loader.speculative) == {"t0"}
    delta = loader.commit(5)
    assert delta is not None
    assert (names(delta.after), delta.after.provenance.offset) == ({"t0"}, 4)
    assert delta.changes.topics == {small_uuid(0)}, "what was aborted is no change"


def test_the_way_back_names_the_partitions_of_topics_that_are_there_again() -> None:
    steps: list[Changes] = []
    loader = ImageLoader(on_step=lambda _before, _after, changes: steps.append(changes))
    partition = rec.PartitionRecord(3, small_uuid(0), (1,), (1,), (), (), 1, 0, 0, 0)
    loader.append(0, 1, 0, [topic(0), partition])
    loader.append(2, 1, 0, [rec.RemoveTopicRecord(small_uuid(0))])
    loader.apply()
    loader.truncate(2)
    loader.append(2, 2, 0, [BEGIN, rec.RemoveTopicRecord(small_uuid(0))])
    loader.append(4, 2, 0, [ABORT])
    loader.apply()
    assert [step.partitions for step in (steps[2], steps[4])] == [{small_uuid(0): frozenset({3})}] * 2


def test_nothing_of_a_transaction_is_stable_while_its_end_is_only_half_applied() -> None:
    loader = ImageLoader()
    loader.append(0, 1, 0, [BEGIN, topic(0)])
    loader.append(2, 1, 0, [END, topic(1)])
    assert loader.apply(3) == 1
    loader.commit(4)
    assert loader.last_stable_offset == -1
    loader.apply()
    assert loader.last_stable_offset == -1, "it is not published"
    loader.commit(4)
    assert loader.last_stable_offset == 3


def test_a_state_that_absorbs_a_transaction_is_stable_only_as_a_whole() -> None:
    loader = ImageLoader(max_states=1)
    loader.append(0, 1, 0, [BEGIN, topic(0)])
    loader.append(2, 1, 0, [END])
    loader.append(3, 1, 0, [rec.NoOpRecord()])
    loader.apply()
    loader.commit(2)
    assert loader.last_stable_offset == -1


def test_truncating_a_batch_that_is_half_applied_forgets_it() -> None:
    loader = ImageLoader()
    loader.append(0, 1, 0, [topic(0), topic(1)])
    loader.apply(1)
    assert loader.truncate(0) == 0
    loader.append(0, 2, 0, [topic(5)])
    loader.apply()
    assert names(loader.speculative) == {"t5"}


def test_a_batch_is_given_twice_only_when_truncation_asked_for_it() -> None:
    loader = ImageLoader()
    batch: list[rec.MetadataRecord] = [topic(0), BEGIN, topic(1)]
    loader.append(0, 1, 0, batch)
    loader.apply()
    with pytest.raises(InvariantViolation, match="a batch at offset 0 was appended after records up to 2"):
        loader.append(0, 1, 0, batch)
    assert loader.truncate(2) == 1
    loader.append(0, 1, 0, batch)
    loader.apply()
    assert names(loader.speculative) == {"t0", "t1"}


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([BEGIN, BEGIN], "BeginTransactionRecord at offset 11 does not fit: the transaction that began at 10 is still"),
        ([topic(0), END], "EndTransactionRecord at offset 11 does not fit: no transaction is open"),
        ([BEGIN, END, ABORT], "AbortTransactionRecord at offset 12 does not fit: no transaction is open"),
        ([topic(0), rec.RemoveTopicRecord(small_uuid(4))], "RemoveTopicRecord at offset 11 does not fit"),
    ],
)
def test_what_does_not_fit_is_named_with_its_offset(records: list[rec.MetadataRecord], reason: str) -> None:
    loader = ImageLoader(image_of([rec.NoOpRecord()] * 10))
    loader.append(10, 1, 0, records)
    with pytest.raises(InvariantViolation, match=reason):
        loader.apply()


def test_truncating_inside_a_transaction_asks_for_it_from_its_begin() -> None:
    loader = ImageLoader()
    loader.append(0, 1, 0, [topic(0)])
    for offset in range(1, 6):
        loader.append(offset, 1, 0, [BEGIN if offset == 1 else topic(offset)])
    loader.apply()
    assert loader.truncate(4) == 1
    assert names(loader.speculative) == {"t0"}
    loader.append(1, 1, 0, [BEGIN, topic(2), topic(3)])
    loader.append(4, 2, 0, [END])
    loader.apply()
    assert names(loader.speculative) == {"t0", "t2", "t3"}


def test_impossible_calls_are_refused() -> None:
    loader = ImageLoader()
    loader.append(0, 1, 0, [topic(0)])
    loader.append(1, 1, 0, [topic(1)])
    with pytest.raises(InvariantViolation, match="a batch at offset 1 was appended after records up to 1"):
        loader.append(1, 1, 0, [topic(2)])
    loader.apply()
    loader.commit(2)
    with pytest.raises(InvariantViolation, match="the high watermark fell from 2 to 1"):
        loader.commit(1)
    with pytest.raises(InvariantViolation, match="below the high watermark 2"):
        loader.truncate(1)
    with pytest.raises(InvariantViolation, match="an image up to -1 is older than the published one up to 1"):
        loader.reset(EMPTY_IMAGE)


def test_a_snapshot_replaces_everything() -> None:
    loader = ImageLoader()
    loader.append(0, 1, 0, [topic(0)])
    loader.append(1, 1, 0, [topic(1)])
    loader.apply()
    loader.commit(1)
    snapshot = image_of([topic(1), topic(2), *[rec.NoOpRecord()] * 5])
    before = loader.published
    loader.reset(snapshot)
    assert loader.speculative is loader.published is snapshot
    assert loader.end_offset == 7
    assert names(before) == {"t0"}
    assert changes_between(before, snapshot).topics == {small_uuid(number) for number in range(3)}


def test_unpublished_states_are_bounded_and_still_published() -> None:
    loader = ImageLoader(max_states=3)
    for offset in range(50):
        loader.append(offset, 1, 0, [topic(offset)])
        loader.apply()
    assert len(loader._states) == 3
    delta = loader.commit(50)
    assert delta is not None
    assert len(delta.after.topics.by_id) == 50
    assert delta.changes.topics == {Uuid(small_uuid(number)) for number in range(50)}


def test_a_record_of_a_log_that_nobody_says_is_committed_is_merged_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    merged, add = [0], changes._Merged.add

    def counted(self: changes._Merged, part: Changes) -> None:
        merged[0] += part.records
        add(self, part)

    monkeypatch.setattr(changes._Merged, "add", counted)
    batches, loader = 6_000, ImageLoader(max_states=10)
    for offset in range(batches):
        loader.append(offset, 1, 0, [topic(offset)])
        loader.apply()
    assert merged[0] < 12 * batches
    assert len(loader._states[-1].parts) < batches // 100
    delta = loader.commit(batches)
    assert delta is not None
    assert len(delta.changes.topics) == batches


def test_much_is_published_in_parts_and_a_long_way_back_is_a_leap() -> None:
    leaps: list[tuple[MetadataImage, MetadataImage]] = []
    loader = ImageLoader(max_states=5_000, on_leap=lambda before, after: leaps.append((before, after)))
    for offset in range(3_000):
        loader.append(offset, 1, 0, [topic(offset)])
        loader.apply()
    loader.committed(2_500)
    assert (loader.published, loader.last_stable_offset) == (EMPTY_IMAGE, -1)
    published = [delta for delta in loader.publish() if delta is not None]
    assert max(delta.changes.records for delta in published) <= TURN_RECORDS
    assert published[-1].after.provenance.offset == loader.last_stable_offset == 2_499
    assert all(one.after is next_one.before for one, next_one in pairwise(published))
    at_the_end = loader.speculative
    loader.truncate(2_500)
    assert leaps == []
    for offset in range(2_500, 4_000):
        loader.append(offset, 2, 0, [topic(offset)])
        loader.apply()
    assert at_the_end is not loader.speculative
    before = loader.speculative
    loader.truncate(2_500)
    assert leaps == [(before, loader.speculative)]


def test_a_topic_is_removed_over_several_turns_if_it_has_many_partitions() -> None:
    leaps: list[MetadataImage] = []
    loader = ImageLoader(on_leap=lambda _before, after: leaps.append(after))
    partitions = [
        rec.PartitionRecord(number, small_uuid(0), (1,), (1,), (), (), 1, 0, 0, 0) for number in range(TURN_RECORDS + 1)
    ]
    loader.append(0, 1, 0, [topic(0), *partitions])
    loader.apply()
    loader.committed(loader.end_offset)
    whole, end = loader.speculative, loader.end_offset
    loader.append(end, 1, 0, [topic(1), rec.RemoveTopicRecord(small_uuid(0)), topic(2)])
    assert [loader.apply(TURN_RECORDS // 2) for _ in range(3)] == [2, 2, 0]
    assert (names(loader.speculative), loader.speculative.topics.counts.all) == ({"t1", "t2"}, 0)
    loader.truncate(end)
    assert leaps == [whole], "all its partitions are there again"
    loader.append(end, 2, 0, [rec.RemoveTopicRecord(small_uuid(0))])
    assert loader.apply(TURN_RECORDS) == 1
    loader.truncate(end)
    assert loader.speculative is whole, "half of a removal is forgotten"
    loader.append(end, 3, 0, [topic(3), rec.RemoveTopicRecord(small_uuid(3))])
    loader.apply()
    assert loader.speculative.topics.counts == whole.topics.counts, "and the next removal begins at its own topic"


def test_merging_nothing_is_nothing() -> None:
    assert merge_changes([]).records == 0


def test_an_open_transaction_of_any_size_costs_little_more_than_its_result() -> None:
    topics, per_topic, batch = 2_000, 10, 500
    loader = ImageLoader()
    records: list[rec.MetadataRecord] = [BEGIN]
    tracemalloc.start()
    try:
        end = 0
        for number in range(topics):
            records.append(topic(number))
            for index in range(per_topic):
                replicas = tuple((number + index + step) % 6 for step in range(3))
                records.append(
                    rec.PartitionRecord(index, small_uuid(number), replicas, replicas, (), (), replicas[0], 0, 0, 0)
                )
            if len(records) >= batch:
                loader.append(end, 1, 0, records)
                loader.apply()
                end, records = end + len(records), []
        kept, peak = tracemalloc.get_traced_memory()
        per_partition = [size / (topics * per_topic) for size in (kept, peak)]
    finally:
        tracemalloc.stop()
    assert loader.transaction_start == 0
    assert len(loader.speculative.topics.by_id) >= topics - batch
    assert max(per_partition) < 350, "bytes a partition, topics included"


class CountedBatch(list[rec.MetadataRecord]):
    """Counts how often somebody asks how long it is."""

    asked = 0

    def __len__(self) -> int:
        CountedBatch.asked += 1
        return super().__len__()


def test_to_ask_what_waits_costs_the_same_however_many_batches_wait() -> None:
    loader, count = ImageLoader(), 200
    for offset in range(count):
        loader.append(offset, 1, 0, CountedBatch([rec.NoOpRecord()]))
        assert loader.backlog == offset + 1
    assert CountedBatch.asked < 10 * count
