"""Pieces that need neither ZooKeeper nor a network: records, image, index, snapshot, requests to brokers."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Self

import psutil

from migrator.controller.index import ControllerIndex
from migrator.image.loader import ImageLoader
from migrator.image.model import EMPTY_IMAGE, Changes, MetadataImage
from migrator.image.snapshot import load_snapshot
from migrator.log.snapshots import SnapshotWriter, iter_snapshot
from migrator.migration.broker_rpcs.requests import Addressed, RequestPlan, Terms, first_updates, plan_takeover
from migrator.raft.messages import EpochOffset
from migrator.records import metadata as m
from migrator.records.batch import build_batch, iter_batches, split_values
from migrator.records.codec import encode_all
from migrator.records.uuid import random_uuid
from migrator.wire.legacy.encode import RequestEncoder
from migrator.wire.legacy.messages import LeaderAndIsr, SendingController, UpdateMetadata
from tests.bench.piece import Piece
from tests.image.support.snapshots import snapshot_records

LEVEL = 21
BROKERS = (1, 2, 3)
PARTITIONS_PER_TOPIC = 10
BATCH_RECORDS = 1_000
LISTENER = "PLAINTEXT"
_NOW_MS = 1_700_000_000_000


class Sample:
    """A cluster's metadata in the forms that it takes on its way, each made when it is first asked for."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self._directory = tempfile.TemporaryDirectory(prefix="migrator-pieces-")
        self.directory = Path(self._directory.name)

    @cached_property
    def records(self) -> list[m.MetadataRecord]:
        """As a copy makes them: every second topic with two configs."""
        level = m.FeatureLevelRecord("metadata.version", LEVEL)
        return [level, *map(_broker, BROKERS), *_records(self.partitions)]

    @cached_property
    def log(self) -> bytes:
        return encode_log(self.records)

    @property
    def batches(self) -> list[tuple[int, list[m.MetadataRecord]]]:
        """Base offset and decoded records of each batch."""
        return [
            (batch.header.base_offset, [record for record, _ in batch.records()]) for batch in iter_batches(self.log)
        ]

    @cached_property
    def image(self) -> MetadataImage:
        return replay(self.log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.cleanup()


def _broker(broker_id: int) -> m.RegisterBrokerRecord:
    return m.RegisterBrokerRecord(
        broker_id=broker_id,
        is_migrating_zk_broker=True,
        incarnation_id=random_uuid(random.Random(broker_id)),
        broker_epoch=broker_id,
        end_points=(m.Endpoint(LISTENER, "127.0.0.1", 9000 + broker_id, m.SecurityProtocol.PLAINTEXT),),
        features=(m.FeatureRange("metadata.version", LEVEL, LEVEL),),
        rack=None,
        fenced=False,
        in_controlled_shutdown=False,
        log_dirs=(),
    )


def _records(partitions: int) -> Iterator[m.MetadataRecord]:
    generator = random.Random(0)
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        name, topic_id = f"drill.topic-{number:06}", random_uuid(generator)
        yield m.TopicRecord(name, topic_id)
        if number % 2 == 0:
            yield m.ConfigRecord(m.ConfigResourceType.TOPIC, name, "retention.ms", "3600000")
            yield m.ConfigRecord(m.ConfigResourceType.TOPIC, name, "cleanup.policy", "compact,delete")
        for partition in range(PARTITIONS_PER_TOPIC):
            first = (number + partition) % len(BROKERS)
            replicas = BROKERS[first:] + BROKERS[:first]
            yield m.PartitionRecord(partition, topic_id, replicas, replicas, (), (), replicas[0], 0, 0, 0)


def encode_log(records: list[m.MetadataRecord]) -> bytes:
    """Batches from offset 0."""
    batches, offset = [], 0
    for group in split_values(encode_all(records, LEVEL), records_max=BATCH_RECORDS):
        batches.append(build_batch(group, timestamp_ms=_NOW_MS, base_offset=offset, leader_epoch=1))
        offset += len(group)
    return b"".join(batches)


def replay(log: bytes) -> MetadataImage:
    """Decode and apply."""
    loader = ImageLoader()
    for batch in iter_batches(log):
        loader.append(batch.header.base_offset, 1, _NOW_MS, [record for record, _ in batch.records()])
        loader.apply()
    loader.commit(loader.end_offset)
    return loader.published


def _encode(sample: Sample) -> Callable[[], str]:
    records = sample.records

    def run() -> str:
        return f"{len(records):,} records, {len(encode_log(records)) / 1e6:.1f} MB"

    return run


def _decode(sample: Sample) -> Callable[[], str]:
    log = sample.log

    def run() -> str:
        count = 0
        for batch in iter_batches(log):
            batch.check_crc()
            count += len(batch.records())
        return f"{count / 1000:,.0f} thousand records"

    return run


def _replay(sample: Sample) -> Callable[[], str]:
    decoded = [
        (batch.header.base_offset, [record for record, _ in batch.records()]) for batch in iter_batches(sample.log)
    ]
    end = decoded[-1][0] + len(decoded[-1][1])

    def run() -> str:
        loader = ImageLoader()
        loader.append(0, 1, _NOW_MS, [m.BeginTransactionRecord("copy")])
        for offset, records in decoded:
            loader.append(offset + 1, 1, _NOW_MS, records)
            loader.apply()
        loader.append(end + 1, 1, _NOW_MS, [m.EndTransactionRecord()])
        loader.apply()
        loader.commit(end + 2)
        return f"{len(loader.published.topics.by_id):,} topics, in one transaction"

    return run


def _memory(sample: Sample) -> Callable[[], str]:
    log = sample.log
    process = psutil.Process()

    def run() -> str:
        before = process.memory_info().rss
        image = replay(log)
        grown = process.memory_info().rss - before
        return (
            f"{grown / sample.partitions:.0f} bytes a partition, {grown / 1e6:.0f} MB ({len(image.topics.ids)} topics)"
        )

    return run


def _index_fill(sample: Sample) -> Callable[[], str]:
    image = sample.image

    def run() -> str:
        return f"broker 1 leads {len(ControllerIndex.of(image).led_by(1)):,}"

    return run


def _index_apply(sample: Sample) -> Callable[[], str]:
    decoded = [
        (batch.header.base_offset, [record for record, _ in batch.records()]) for batch in iter_batches(sample.log)
    ]
    steps: list[tuple[MetadataImage, MetadataImage, Changes]] = []
    loader = ImageLoader(on_step=lambda before, after, changes: steps.append((before, after, changes)))
    for offset, records in decoded:
        loader.append(offset, 1, _NOW_MS, records)
        loader.apply()

    def run() -> str:
        index = ControllerIndex()
        for before, after, changes in steps:
            index.apply(before, after, changes)
        return f"{len(steps)} batches followed"

    return run


def _snapshot_write(sample: Sample) -> Callable[[], str]:
    image, directory = sample.image, sample.directory

    def run() -> str:
        return f"{_write_snapshot(image, directory).stat().st_size / 1e6:.1f} MB, fsynced"

    return run


def _write_snapshot(image: MetadataImage, directory: Path) -> Path:
    snapshot_id = EpochOffset(1, image.provenance.offset + 1)
    with SnapshotWriter(directory, snapshot_id, last_contained_log_timestamp_ms=_NOW_MS, now_ms=_NOW_MS) as writer:
        writer.append(encode_all(snapshot_records(image), LEVEL), now_ms=_NOW_MS)
        return writer.freeze(now_ms=_NOW_MS)


def _snapshot_load(sample: Sample) -> Callable[[], str]:
    path = _write_snapshot(sample.image, sample.directory)
    provenance = sample.image.provenance

    def records() -> Iterator[tuple[m.MetadataRecord, int]]:
        for batch in iter_snapshot(path):
            if not batch.header.is_control:
                yield from batch.sized_records()

    def run() -> str:
        image = EMPTY_IMAGE
        for some in load_snapshot(records(), provenance):
            image = some or image
        return f"{len(image.topics.ids):,} topics"

    return run


def _takeover(sample: Sample) -> Callable[[], str]:
    image = sample.image

    def run() -> str:
        sends = _sends(image)
        return (
            f"{len({sent.broker_id for sent in sends})} brokers, {sum(len(sent.requests) for sent in sends)} requests"
        )

    return run


def _sends(image: MetadataImage) -> list[Addressed]:
    terms = Terms(LISTENER)
    sends = [sent for part in first_updates(image, terms) for sent in part]
    work = plan_takeover(image, terms, frozenset(image.topics.ids), image.provenance.offset)
    while True:
        try:
            next(work)
        except StopIteration as end:
            plan: RequestPlan = end.value
            return [*sends, *plan.sends]


def _requests(sample: Sample, wanted: type) -> Callable[[], str]:
    encoder = RequestEncoder(SendingController(3001, 8, 1))
    first, *others = _sends(sample.image)
    to_first = [first, *(sent for sent in others if sent.broker_id == first.broker_id)]
    requests = [request for sent in to_first for request in sent.requests if isinstance(request, wanted)]

    def run() -> str:
        size = 0
        for request in requests:
            if isinstance(request, UpdateMetadata):
                size += sum(map(len, encoder.update_metadata_body(request)))
            elif isinstance(request, LeaderAndIsr):
                size += sum(map(len, encoder.leader_and_isr(request, first.broker_epoch)))
        return f"{len(requests)} requests, {size / 1e6:.1f} MB"

    return run


MEMORY_PIECES: tuple[Piece[Sample], ...] = (
    Piece("image: memory (decode and replay)", None, _memory),
    Piece("records: encode into batches", 0.8, _encode),
    Piece("records: decode, checksums too", 0.5, _decode),
    Piece("image: replay", 0.6, _replay),
    Piece("index: follow every batch", 0.3, _index_apply),
    Piece("index: fill at election", 0.3, _index_fill),
    Piece("snapshot: write", None, _snapshot_write),
    Piece("snapshot: load", None, _snapshot_load),
    Piece("takeover: plan for 3 brokers", 0.5, _takeover),
    Piece("UpdateMetadata, full: encode once", 0.5, lambda sample: _requests(sample, UpdateMetadata)),
    Piece("LeaderAndIsr, full: encode for one broker", 0.5, lambda sample: _requests(sample, LeaderAndIsr)),
)
