"""The images of a real runtime against a replay of its log, after random events in random order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from migrator import turns
from migrator.errors import require
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, Changes, ImageDelta, MetadataImage
from migrator.image.replay import replay, snapshot_image
from migrator.node import metadata
from migrator.node.metadata import MetadataRuntime
from migrator.observe.loop_health import TurnGauge
from migrator.raft.messages import EpochOffset
from migrator.records import metadata as rec
from migrator.records.batch import Batch, build_batch, iter_batches, read_header
from migrator.records.codec import encode_all
from migrator.records.contents import Decoded
from migrator.records.control import LeaderChange, SnapshotHeader, build_control_batch
from tests.image.support.differences import changes_between
from tests.image.support.rows import image_rows
from tests.image.support.snapshots import snapshot_records
from tests.image.support.strategies import small_uuid
from tests.image.test_builder import covers
from tests.lanes import examples
from tests.node.support.freed import Freed

LEVEL = 21
BEGIN, END, ABORT = rec.BeginTransactionRecord(), rec.EndTransactionRecord(), rec.AbortTransactionRecord()
OLD_RECORDS = 30
"""In every snapshot, so that it takes many turns to apply one."""

texts = st.sampled_from(["a", "b", "c"])
values = st.integers(0, 99).map(str)
configs = st.builds(rec.ConfigRecord, st.just(4), texts, texts, st.none() | values)
contents = st.lists(st.one_of(configs, configs, st.sampled_from([BEGIN, END, ABORT])), min_size=1, max_size=4)
histories = st.lists(contents, min_size=1, max_size=4)
few = st.sampled_from([0, 0, 0, 1, 2, 5, 40])
"""Turns of the event loop: mostly none, so that the next thing happens while the last one is under way."""


def fitting(records: Iterable[rec.MetadataRecord], *, is_open: bool) -> list[rec.MetadataRecord]:
    """Without the markers of transactions that do not fit."""
    kept: list[rec.MetadataRecord] = []
    for record in records:
        if record in (BEGIN, END, ABORT):
            if is_open is (record == BEGIN):
                continue
            is_open = record == BEGIN
        kept.append(record)
    return kept


class Log:
    """A log and its newest snapshot."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.base: EpochOffset | None = None
        self.held: list[Batch] = []

    @property
    def start(self) -> int:
        return 0 if self.base is None else self.base.offset

    @property
    def end(self) -> int:
        return self.batches[-1].header.next_offset if self.batches else self.start

    def read(self, offset: int) -> Iterator[Batch]:
        """As `NodeStorage.some_batches`."""
        require(offset >= self.start, f"read at {offset} below the log's start {self.start}")
        return iter([batch for batch in self.batches if batch.header.next_offset > offset][:2])

    def read_snapshot(self, snapshot_id: EpochOffset) -> list[Batch]:
        assert snapshot_id == self.base
        return self.held

    def append(self, data: bytes) -> None:
        (batch,) = iter_batches(data)
        assert batch.header.base_offset == self.end
        self.batches.append(batch)

    def cut(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.header.next_offset <= offset]

    def replace(self, image: MetadataImage) -> EpochOffset:
        at = image.provenance
        header = build_control_batch([SnapshotHeader(at.timestamp_ms)], timestamp_ms=1, leader_epoch=at.epoch)
        self.held = list(iter_batches(header))
        for record in snapshot_records(image):
            self.held += iter_batches(build_batch(encode_all([record], LEVEL), timestamp_ms=1, leader_epoch=at.epoch))
        self.base, self.batches = EpochOffset(at.epoch, at.offset + 1), []
        return self.base

    def replayed(self, committed: int) -> ImageLoader:
        """The oracle: the snapshot, and all of the log behind it."""
        image = EMPTY_IMAGE if self.base is None else snapshot_image(self.base.offset, self.base.epoch, self.held)
        loader = ImageLoader(image)
        for batch in self.batches:
            replay(loader, batch)
        loader.commit(max(committed, image.provenance.offset + 1))
        return loader


class Follower:
    """As the index of a controller: it is made of an image in some turns, and follows the image from then on."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self.has_begun = False
        self._follows = False

    def replace(self, image: MetadataImage) -> Iterator[None]:
        self.has_begun = True
        yield from (None,) * 3
        self.image, self._follows = image, True

    def step(self, before: MetadataImage, after: MetadataImage, changes: Changes) -> Iterator[None] | None:
        """A change of two entities or more takes some turns, too."""
        if not self._follows:
            return None
        assert before is self.image
        if changes.records < 2:
            self.image = after
            return None
        return self._take(after)

    def _take(self, after: MetadataImage) -> Iterator[None]:
        yield from (None,) * 2
        self.image = after

    def leap(self, _before: MetadataImage, _after: MetadataImage) -> None:
        self._follows = False


class ImagesMachine(RuleBasedStateMachine):
    """A node that follows, leads, is truncated, is sent a snapshot and starts again."""

    @initialize()
    def start(self) -> None:
        self.small = pytest.MonkeyPatch()
        self.small.setattr(turns, "TURN_RECORDS", 1)
        self.loop = asyncio.new_event_loop()
        self.log = Log()
        self.failures: list[BaseException] = []
        self.epoch = 1
        self.told = EMPTY_IMAGE
        self.runtime = self.loop.run_until_complete(self.make_runtime())
        self.append([rec.ConfigRecord(4, str(number), "x", "1") for number in range(OLD_RECORDS)])
        self.committed = self.log.end
        self.run(lambda: self.runtime.committed(self.committed))

    async def make_runtime(self) -> MetadataRuntime:
        self.follower = Follower()
        runtime = MetadataRuntime(
            self.log.read_snapshot,
            self.log.read,
            lambda: self.log.end,
            on_step=self.follower.step,
            on_leap=self.follower.leap,
            on_replace=self.follower.replace,
            on_failure=self.failures.append,
            gauge=TurnGauge(),
        )
        runtime.subscribers.append(self.hear)
        return runtime

    def hear(self, delta: ImageDelta) -> None:
        assert delta.before is self.told
        assert covers(delta.changes, changes_between(delta.before, delta.after))
        self.told = delta.after

    def run(self, act: Callable[[], object] = lambda: None, turns: int = 0) -> None:
        """In the event loop, and let so many of its turns pass afterwards."""

        async def acting() -> None:
            act()
            for _ in range(turns):
                await asyncio.sleep(0)

        self.loop.run_until_complete(acting())

    def ends(self) -> list[int]:
        """Where the log may end, or be committed to."""
        ends = [self.log.start, *(batch.header.next_offset for batch in self.log.batches)]
        return [end for end in ends if end >= self.committed]

    def batch(self, records: Sequence[rec.MetadataRecord]) -> bytes:
        encoded = encode_all(records, LEVEL)
        return build_batch(encoded, timestamp_ms=1, base_offset=self.log.end, leader_epoch=self.epoch)

    def append(self, records: Iterable[rec.MetadataRecord], *, is_own: bool = False, is_decoded: bool = False) -> None:
        kept = fitting(records, is_open=self.log.replayed(0).transaction_start is not None)
        if not kept:
            return
        data = self.batch(kept)
        decoded = [(read_header(data), kept)] if is_decoded else []
        tell = partial(self.runtime.appended_own, data, kept) if is_own else partial(self.runtime.appended, decoded)
        self.grow(data, tell)

    @rule(batches=histories, turns=few, is_decoded=st.booleans())
    def fetch(self, batches: list[list[rec.MetadataRecord]], turns: int, *, is_decoded: bool = False) -> None:
        for records in batches:
            self.append(records, is_decoded=is_decoded)
        self.run(turns=turns)

    @rule(turns=few)
    def hear_of_a_new_leader(self, turns: int) -> None:
        self.grow(self.opening(), self.runtime.appended, turns)

    def opening(self) -> bytes:
        self.epoch += 1
        opening = [LeaderChange(1, (), ())]
        return build_control_batch(opening, timestamp_ms=1, base_offset=self.log.end, leader_epoch=self.epoch)

    @rule(before=histories, turns=few, commits=st.booleans())
    def fetch_up_to_an_election(self, before: list[list[rec.MetadataRecord]], turns: int, *, commits: bool) -> None:
        """All of it in one answer, decoded."""
        decoded: list[Decoded] = []
        for wanted in [*before, []]:
            records = self.fits(wanted) if wanted else []
            end, data = self.log.end, self.batch(records) if records else self.opening()
            self.log.append(data)
            decoded.append((read_header(data), records))
        self.committed = end if commits else self.committed

        def act() -> None:
            self.runtime.appended(decoded)
            self.runtime.committed(self.committed)
            self.what_is_covered_is_published()

        self.run(act, turns)

    def fits(self, records: Iterable[rec.MetadataRecord]) -> list[rec.MetadataRecord]:
        is_open = self.log.replayed(0).transaction_start is not None
        return fitting(records, is_open=is_open) or [rec.NoOpRecord()]

    def grow(self, data: bytes, tell: Callable[[], object], turns: int = 0) -> None:
        def act() -> None:
            self.log.append(data)
            tell()

        self.run(act, turns)

    @rule(data=st.data(), turns=few)
    def commit(self, data: st.DataObject, turns: int) -> None:
        self.committed = data.draw(st.sampled_from(self.ends()))
        self.run(lambda: self.runtime.committed(self.committed), turns)

    @rule(data=st.data(), turns=few)
    def truncate(self, data: st.DataObject, turns: int) -> None:
        offset = data.draw(st.sampled_from(self.ends()))
        self.epoch += 1

        def act() -> None:
            self.log.cut(offset)
            self.runtime.truncated(offset)

        self.run(act, turns)

    @rule(records=contents, ahead=st.integers(0, 3), turns=few)
    def install(self, records: list[rec.MetadataRecord], ahead: int, turns: int) -> None:
        """A leader has committed more, and no longer holds what comes next here; what else is here is lost."""
        self.epoch += 1
        leader = ImageLoader(self.log.replayed(self.committed).published)
        closed = [record for record in records if record not in (BEGIN, END, ABORT)]
        leader.append(self.committed + ahead, self.epoch, 1, [*closed, rec.NoOpRecord()])
        leader.apply()
        leader.commit(leader.end_offset)
        self.committed = leader.end_offset

        def act() -> None:
            self.runtime.installed(self.log.replace(leader.published))
            self.runtime.committed(self.committed)

        self.run(act, turns)

    @rule(lost=histories, committed=st.lists(configs, max_size=1), meanwhile=histories, data=st.data())
    def follow_two_leaders_while_installing(
        self,
        lost: list[list[rec.MetadataRecord]],
        committed: list[rec.MetadataRecord],
        meanwhile: list[list[rec.MetadataRecord]],
        data: st.DataObject,
    ) -> None:
        """The tail that is lost reaches beyond the snapshot; what the first leader makes behind it is lost in part."""
        self.fetch(lost, 40)
        self.install(committed, 0, 0)
        self.fetch(meanwhile, 0)
        self.truncate(data, 0)

    @rule(turns=few)
    def let_time_pass(self, turns: int) -> None:
        self.run(turns=turns)

    @rule(turns=few)
    def boot_again(self, turns: int) -> None:
        """With what is on disk; the quorum may say what is committed before all of that is loaded."""
        self.loop.run_until_complete(self.runtime.close())
        self.runtime, self.told = self.loop.run_until_complete(self.make_runtime()), EMPTY_IMAGE
        self.run(lambda: self.runtime.boot(self.log.base, self.log.start, 0), turns)
        self.run(lambda: self.runtime.committed(self.committed))

    @rule(lost=histories, data=st.data())
    def be_cut_while_the_index_is_made(self, lost: list[list[rec.MetadataRecord]], data: st.DataObject) -> None:
        self.fetch(lost, 0)
        self.boot_again(0)
        while not (self.follower.has_begun or self.failures):
            self.run(turns=1)
        self.truncate(data, 0)

    @rule()
    def lead(self) -> None:
        """Wait until all is applied, and write."""
        self.run_until_caught_up()
        self.hear_of_a_new_leader(0)
        self.append([END, rec.ConfigRecord(4, "a", "x", str(self.epoch))], is_own=True)

    def run_until_caught_up(self) -> None:
        while not self.runtime.is_caught_up and not self.failures:
            self.run()
        assert not self.failures

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert not self.failures
        assert self.told is self.runtime.published

    @invariant()
    def what_is_covered_is_published(self) -> None:
        if self.runtime.covers(self.committed):
            assert image_rows(self.runtime.published) == image_rows(self.log.replayed(self.committed).published)

    @invariant()
    def images_are_a_replay_of_the_log(self) -> None:
        if self.runtime.is_caught_up:
            oracle = self.log.replayed(self.committed)
            assert image_rows(self.runtime.image) == image_rows(oracle.speculative)
            assert self.follower.image is self.runtime.image
            assert self.runtime.published.provenance == oracle.published.provenance
            assert self.runtime.transaction_start == oracle.transaction_start

    def teardown(self) -> None:
        if not hasattr(self, "runtime"):
            return
        try:
            self.run_until_caught_up()
            self.images_are_a_replay_of_the_log()
        finally:
            self.loop.run_until_complete(self.runtime.close())
            self.loop.close()
            self.small.undo()


def test_a_control_batch_behind_records_that_wait_makes_none_of_them_applied() -> None:
    machine = ImagesMachine()
    machine.start()
    machine.run_until_caught_up()
    try:
        machine.fetch_up_to_an_election([[rec.ConfigRecord(4, "a", "x", "2")]], 0, commits=True)
    finally:
        machine.teardown()


def test_topics_that_are_removed_one_by_one_take_as_many_turns_as_their_partitions() -> None:
    machine = ImagesMachine()
    machine.start()
    machine.small.undo()
    try:
        for number in range(4):
            ids = range(turns.TURN_RECORDS // 2)
            partitions = [rec.PartitionRecord(one, small_uuid(number), (1,), (1,), (), (), 1, 0, 0, 0) for one in ids]
            machine.append([rec.TopicRecord(f"t{number}", small_uuid(number)), *partitions])
        machine.run_until_caught_up()
        for number in range(4):
            machine.log.append(machine.batch([rec.RemoveTopicRecord(small_uuid(number))]))
        left = [4]

        async def follow() -> None:
            machine.runtime.appended()
            while machine.runtime.image.topics.by_id and not machine.failures:
                await asyncio.sleep(0)
                left.append(len(machine.runtime.image.topics.by_id))

        machine.loop.run_until_complete(follow())
        assert left[-1] == 0
        assert all(before - after <= 2 for before, after in pairwise(left)), left
    finally:
        machine.teardown()


def test_an_image_that_a_leaders_snapshot_replaces_is_freed_over_many_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """To free 2,000,000 partitions takes half a second."""
    freed = Freed()
    machine = ImagesMachine()
    machine.start()
    machine.small.setattr(turns, "TURN_RECORDS", 10)
    topics = [rec.TopicRecord(f"t{number}", small_uuid(number)) for number in range(1, 101)]

    async def follow() -> None:
        while not machine.runtime.is_caught_up and not machine.failures:
            freed.turn += 1
            await asyncio.sleep(0)

    try:
        machine.run_until_caught_up()
        with monkeypatch.context() as patch:
            patch.setattr(metadata, "replay_snapshot", freed.replay_snapshot)
            machine.install(topics, 0, 0)
            machine.run_until_caught_up()
        assert not freed.topics
        machine.install([], 0, 0)
        machine.loop.run_until_complete(follow())
        assert freed.topics.total() == len(topics)
        assert max(freed.topics.values()) <= turns.TURN_RECORDS
    finally:
        machine.teardown()


TestImages = ImagesMachine.TestCase
TestImages.settings = settings(max_examples=examples(100), stateful_step_count=20)
