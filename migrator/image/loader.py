"""Turns the records of the log into images: the speculative one at the log's end, and the published one.

Leaders and followers apply every appended batch at once to the speculative image. A part that is committed and outside
a transaction (KIP-868) is published as an `ImageDelta`. A part that the log truncates is dropped. Source: Kafka's
``MetadataBatchLoader`` and ``OffsetControlManager``.

The log, as the loader sees it::

    ... published | state | state | region being applied | batches appended, not yet applied
                   <-- appended, applied, uncommitted -->

A state is the image after a batch, or before the Begin of a transaction. A transaction never has states within:
if the log is truncated there, it is replayed from before its Begin, which costs time but no memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from itertools import accumulate
from sys import maxsize

from migrator.errors import InvariantViolation, require
from migrator.image.builder import ImageBuilder
from migrator.image.changes import join_changes, merge_changes, merge_steps, undo_changes
from migrator.image.model import EMPTY_IMAGE, Changes, ImageDelta, MetadataImage, Provenance
from migrator.image.tracked import Interner
from migrator.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    NoOpRecord,
    RemoveTopicRecord,
)
from migrator.turns import TURN_RECORDS
from migrator.values import value

MAX_STATES = 1024
"""The most unpublished states that are held. When there are more, a new one absorbs the one before it."""

Step = Callable[[MetadataImage, MetadataImage, Changes], None]
"""(image before, image after, the entities that may differ)."""
Leap = Callable[[MetadataImage, MetadataImage], None]
"""(image before, image after)."""

_MARKERS = frozenset({BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord})
_NO_OP = NoOpRecord()


@value
class _Batch:
    base_offset: int
    epoch: int
    timestamp_ms: int
    records: Sequence[MetadataRecord]

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.records)

    def provenance(self, end_offset: int) -> Provenance:
        return Provenance(end_offset - 1, self.epoch, self.timestamp_ms)


@value
class _State:
    """An image outside transactions; ``parts`` lead to it from the state before.

    ``transaction_start`` is the offset of the Begin that lies between the two, None without one.
    """

    end_offset: int
    image: MetadataImage
    parts: list[Changes] = field(default_factory=list)
    transaction_start: int | None = None
    ends_batch: bool = True

    @property
    def records(self) -> int:
        return sum(part.records for part in self.parts)


class ImageLoader:
    """Holds the images of one log. Offsets named "end" are exclusive.

    :param image: the image before the first batch: that of the latest snapshot, or the empty one.
    :param max_states: bound of the unpublished states, at least 1.
    :param on_step: called for each move of the speculative image, also backwards, but not for `reset`.
    :param on_leap: called instead for a move back over more records than one turn can name.
    """

    def __init__(
        self,
        image: MetadataImage = EMPTY_IMAGE,
        *,
        max_states: int = MAX_STATES,
        on_step: Step = lambda _before, _after, _changes: None,
        on_leap: Leap | None = None,
    ) -> None:
        self._max_states = max_states
        self._on_step = on_step
        self._on_leap = on_leap
        self._intern = Interner()
        self.last_applied = 0
        """The work of the last `apply`: records, and partitions that were removed with their topics."""
        self._start(image)

    def _start(self, image: MetadataImage) -> None:
        self._published = _State(image.provenance.offset + 1, image)
        self._states: deque[_State] = deque()
        self._batches: deque[_Batch] = deque()
        self._high_watermark = self._published.end_offset
        self._restore(self._published)

    def _restore(self, state: _State) -> None:
        """Go back to a state, which becomes the end of the log."""
        self._batches.clear()
        self._next = 0  # index of the first record of the first batch that is not applied
        self._backlog = 0
        self._builder: ImageBuilder | None = None
        self._image = state.image
        self._applied_end = state.end_offset
        self._parts: list[Changes] = []
        self._open_transaction: int | None = None
        self._region_transaction: int | None = None

    @property
    def published(self) -> MetadataImage:
        """The image that subscribers know: committed, and outside transactions."""
        return self._published.image

    @property
    def speculative(self) -> MetadataImage:
        """The image after the last applied batch, including an open transaction."""
        return self._image

    @property
    def end_offset(self) -> int:
        """The offset after the last record appended."""
        return self._batches[-1].end_offset if self._batches else self._applied_end

    @property
    def backlog(self) -> int:
        """The number of appended records that are not applied yet."""
        return self._backlog

    @property
    def waits_from(self) -> int | None:
        """The offset of the first record that is appended and not yet applied; None without one."""
        return self._batches[0].base_offset + self._next if self._batches else None

    @property
    def transaction_start(self) -> int | None:
        """The offset of BeginTransaction of the open transaction in the applied records; None without one."""
        return self._open_transaction

    @property
    def snapshot_image(self) -> MetadataImage | None:
        """The image for a snapshot: the published one; None when its end is within a batch."""
        return self._published.image if self._published.ends_batch else None

    @property
    def last_stable_offset(self) -> int:
        """The last offset (inclusive) that is committed and published, outside transactions without a committed end.
        Requests with records up to here may be answered."""
        if self.has_unpublished:
            return self._published.end_offset - 1
        last = min(self._high_watermark, self._applied_end) - 1
        start = self._states[0].transaction_start if self._states else self._region_transaction
        return last if start is None else min(last, start - 1)

    @property
    def has_unpublished(self) -> bool:
        """Whether `publish` has something to publish."""
        return bool(self._states) and self._states[0].end_offset <= self._high_watermark

    def append(self, base_offset: int, epoch: int, timestamp_ms: int, records: Sequence[MetadataRecord]) -> None:
        """Take one data batch that the log has appended; `apply` has to follow.

        Control batches are not given here, so there may be gaps between batches. After `truncate` the first batch may
        begin before the requested offset, which is then that of a Begin within the batch: earlier records are skipped.

        :param timestamp_ms: the batch's append time.
        """
        end_offset = self.end_offset
        if base_offset < end_offset and self._stands_within_batch():
            records, base_offset = records[end_offset - base_offset :], end_offset
        require(
            base_offset >= end_offset,
            f"a batch at offset {base_offset} was appended after records up to {end_offset - 1}",
        )
        if records:
            self._batches.append(_Batch(base_offset, epoch, timestamp_ms, records))
            self._backlog += len(records)

    def apply(self, max_records: int | None = None) -> int:
        """Apply at most ``max_records`` appended records; returns the number that remains. It takes some 5 µs a record.

        A partition that is removed with its topic counts as a record here.

        :raises InvariantViolation: a record does not fit; the message names its offset and type. The loader is then
            unusable.
        """
        budget = whole = maxsize if max_records is None else max_records
        while self._batches and budget > 0:
            batch = self._batches[0]
            count, removed = self._replay(batch, budget)
            self._next += count
            self._backlog -= count
            budget -= count + removed
            if self._next == len(batch.records):
                self._close_batch(batch)
        self.last_applied = whole - budget
        return self._backlog

    def commit(self, high_watermark: int) -> ImageDelta | None:
        """The records below the high watermark are committed: publish them in one call. Returns None when nothing is
        new. This is for tools; a node calls `committed` and `publish`, in turns.

        The high watermark may be beyond the applied records; then call again after `apply`.
        """
        self.committed(high_watermark)
        deltas = [delta for delta in self.publish() if delta is not None]
        if not deltas:
            return None
        return ImageDelta(deltas[0].before, deltas[-1].after, merge_changes(delta.changes for delta in deltas))

    def committed(self, high_watermark: int) -> None:
        """The records below the high watermark are committed; `publish` has to follow."""
        require(
            high_watermark >= self._high_watermark,
            f"the high watermark fell from {self._high_watermark} to {high_watermark}",
        )
        self._high_watermark = high_watermark

    def publish(self, stop_at: Callable[[], int | None] = lambda: None) -> Iterator[ImageDelta | None]:
        """Publish what is committed, in deltas of one turn's size. Yields each delta, and None where a turn is over
        within a delta. Between two steps any method but `reset` may be called.

        :param stop_at: an offset, or None; a delta ends at the first image that ends there or later.
        """
        while self.has_unpublished:
            ready = self._next_to_publish(stop_at())
            changes = yield from merge_steps([part for state in ready for part in state.parts])
            before = self._published
            for _ in ready:
                self._published = self._states.popleft()
            yield ImageDelta(before.image, self._published.image, changes)

    def _next_to_publish(self, stop_at: int | None) -> list[_State]:
        ready, records = list[_State](), 0
        for state in self._states:
            records += state.records
            if state.end_offset > self._high_watermark or (ready and records > TURN_RECORDS):
                break
            ready.append(state)
            if stop_at is not None and state.end_offset >= stop_at:
                break
        return ready

    def truncate(self, offset: int) -> int:
        """The log was truncated to ``offset``. Returns the offset from which its data batches have to be appended
        again:
        ``offset``, or a smaller one when no state is held for it."""
        require(
            offset >= self._high_watermark,
            f"the log was cut at {offset}, below the high watermark {self._high_watermark}",
        )
        while len(self._batches) > 1 and self._batches[-1].end_offset > offset:
            self._backlog -= len(self._batches.pop().records)
        if self._batches and self._batches[0].end_offset > offset and self._next == 0:
            self._backlog = 0
            self._batches.clear()
            self._builder = None  # the first record may be a topic's removal, which is partly applied
        if self.end_offset > offset:
            undone = list(self._parts)
            while self._states and self._states[-1].end_offset > offset:
                undone.extend(self._states.pop().parts)
            before, state = self._image, self._last_state()
            self._restore(state)
            self._step_back(before, undone)
        return self.end_offset

    def reset(self, image: MetadataImage) -> None:
        """A snapshot has replaced the log: begin anew with its image, which becomes the published one."""
        require(
            image.provenance.offset >= self.published.provenance.offset,
            f"an image up to {image.provenance.offset} is older than the published one up to "
            f"{self.published.provenance.offset}",
        )
        self._start(image)

    def _last_state(self) -> _State:
        return self._states[-1] if self._states else self._published

    def _stands_within_batch(self) -> bool:
        last = self._last_state()
        return not self._batches and not last.ends_batch and self._applied_end == last.end_offset

    def _open_builder(self) -> ImageBuilder:
        if self._builder is None:
            self._builder = ImageBuilder(self._image, self._intern)
        return self._builder

    def _replay(self, batch: _Batch, budget: int) -> tuple[int, int]:
        """Replay the next records of a batch. Returns how many, and how many partitions were removed after them: the
        record that removes these is replayed when none of them is left."""
        builder, records, index = self._open_builder(), batch.records, self._next
        stop = min(len(records), index + budget)
        while index < stop:
            record, before = records[index], builder.records
            try:
                if type(record) in _MARKERS:
                    self._mark(record, batch, batch.base_offset + index)
                    builder = self._open_builder()
                    builder.replay(_NO_OP)
                    index += 1
                elif type(record) is RemoveTopicRecord:
                    removed = builder.remove_some(record, self._next + budget - index)
                    if removed:
                        return index - self._next, removed
                    builder.replay(record)
                    index += 1
                else:
                    builder.replay_alike(records, index, stop)
                    index += builder.records - before
            except InvariantViolation as error:
                index += builder.records - before
                offset, kind = batch.base_offset + index, type(records[index]).__name__
                raise InvariantViolation(f"the {kind} at offset {offset} does not fit: {error}") from error
        return stop - self._next, 0

    def _mark(self, record: MetadataRecord, batch: _Batch, offset: int) -> None:
        is_begin = isinstance(record, BeginTransactionRecord)
        if is_begin and self._open_transaction is not None:
            raise InvariantViolation(f"the transaction that began at {self._open_transaction} is still open")
        if not is_begin and self._open_transaction is None:
            raise InvariantViolation("no transaction is open")
        if is_begin:
            if self._open_builder().records:
                self._close_region(batch, offset)
            self._open_transaction = self._region_transaction = offset
            return
        self._open_transaction = None
        if isinstance(record, AbortTransactionRecord):
            before, undone = self._image, self._parts
            self._image = self._last_state().image
            self._builder = None
            self._parts = []
            self._step_back(before, undone)

    def _step_back(self, before: MetadataImage, undone: Sequence[Changes]) -> None:
        topics = self._image.topics.by_id
        so_far = accumulate(
            part.records + sum(len(topics[topic_id].partitions) for topic_id in part.topics if topic_id in topics)
            for part in undone
        )
        if self._on_leap is not None and any(records > TURN_RECORDS for records in so_far):
            self._on_leap(before, self._image)
        else:
            self._on_step(before, self._image, undo_changes(undone, self._image))

    def _close_batch(self, batch: _Batch) -> None:
        self._batches.popleft()
        self._next = 0
        if self._open_transaction is None:
            self._close_region(batch, batch.end_offset)
        else:
            self._build(batch, batch.end_offset)

    def _build(self, batch: _Batch, end_offset: int) -> None:
        before = self._image
        self._image, changes = self._open_builder().build(batch.provenance(end_offset))
        self._builder = None
        join_changes(self._parts, (changes,))
        self._applied_end = end_offset
        self._on_step(before, self._image, changes)

    def _close_region(self, batch: _Batch, end_offset: int) -> None:
        """Make a state of the records applied since the last state."""
        self._build(batch, end_offset)
        parts, start = self._parts, self._region_transaction
        if len(self._states) >= self._max_states and self._states[-1].end_offset > self._high_watermark:
            absorbed = self._states.pop()
            parts = absorbed.parts
            join_changes(parts, self._parts)
            start = start if absorbed.transaction_start is None else absorbed.transaction_start
        ends_batch = end_offset == batch.end_offset
        self._states.append(_State(end_offset, self._image, parts, start, ends_batch))
        self._parts = []
        self._region_transaction = None
