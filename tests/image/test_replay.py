"""Batches of a log, and of a snapshot, on their way to the image."""

from __future__ import annotations

from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE
from migrator.image.replay import replay, replay_snapshot, snapshot_image
from migrator.records.batch import Batch, build_batch, iter_batches
from migrator.records.codec import encode_all
from migrator.records.control import SnapshotFooter, SnapshotHeader, build_control_batch
from migrator.records.metadata import NoOpRecord, TopicRecord
from migrator.records.uuid import Uuid
from migrator.records.versions import LATEST_SUPPORTED

TOPICS = [TopicRecord(f"topic-{n}", Uuid(n.to_bytes(16, "big"))) for n in range(1, 4)]


def batch_of(*records: TopicRecord | NoOpRecord, offset: int, timestamp_ms: int) -> Batch:
    values = encode_all(records, LATEST_SUPPORTED)
    (batch,) = iter_batches(build_batch(values, timestamp_ms=timestamp_ms, base_offset=offset, leader_epoch=3))
    return batch


def test_the_append_time_of_an_image_is_that_of_its_last_batch() -> None:
    loader = ImageLoader()
    replay(loader, batch_of(*TOPICS, offset=0, timestamp_ms=17))
    replay(loader, batch_of(NoOpRecord(), offset=3, timestamp_ms=23))
    loader.commit(4)
    assert loader.published.provenance.timestamp_ms == 23
    assert loader.published.provenance.offset == 3


def test_a_control_batch_leaves_the_image_as_it_is() -> None:
    loader = ImageLoader()
    control = build_control_batch([SnapshotHeader(5)], timestamp_ms=1, base_offset=0, leader_epoch=3)
    for batch in iter_batches(control):
        replay(loader, batch)
    assert loader.end_offset == 0


def test_a_snapshot_carries_its_append_time_and_its_topics() -> None:
    batches = [
        *iter_batches(build_control_batch([SnapshotHeader(99)], timestamp_ms=1, leader_epoch=3)),
        batch_of(*TOPICS, offset=1, timestamp_ms=1),
        *iter_batches(build_control_batch([SnapshotFooter()], timestamp_ms=1, base_offset=4, leader_epoch=3)),
    ]
    image = snapshot_image(50, 3, batches)
    assert (image.provenance.offset, image.provenance.epoch, image.provenance.timestamp_ms) == (49, 3, 99)
    assert [*replay_snapshot(50, 3, batches)][-1] == image
    assert sorted(image.topics.ids) == ["topic-1", "topic-2", "topic-3"]


def test_no_snapshot_at_all_is_the_empty_image() -> None:
    image = snapshot_image(0, -1, ())
    assert image.topics == EMPTY_IMAGE.topics
    assert image.provenance.timestamp_ms == -1


def test_a_snapshot_without_its_header_loses_no_record() -> None:
    image = snapshot_image(50, 3, [batch_of(*TOPICS, offset=0, timestamp_ms=1)])
    assert sorted(image.topics.ids) == ["topic-1", "topic-2", "topic-3"]
    assert image.provenance.timestamp_ms == -1
