"""Both sides of a big migrated cluster as files, made fast: ZooKeeper's snapshot, and the log that says the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from migrator.drill.cluster import CLUSTER_ID
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.segment import segment_name
from migrator.records import metadata as m
from migrator.records.batch import build_batch, split_values
from migrator.records.codec import encode_all
from migrator.records.uuid import Uuid, random_uuid, uuid_to_text
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.verify.zookeeper.support.writer import Node, write_nodes

LEVEL = 21
PARTITIONS_PER_TOPIC = 10
BATCH_RECORDS = 1_000
RECORDS_AT_ONCE = 50_000
_BROKERS = (1, 2, 3)
_RINGS = [_BROKERS[first:] + _BROKERS[:first] for first in range(3)]
_STATES = [
    f'{{"controller_epoch":7,"leader":{ring[0]},"version":1,"leader_epoch":0,"isr":{list(ring)}}}'.encode()
    for ring in _RINGS
]
_CONFIG = {"retention.ms": "3600000", "cleanup.policy": "compact,delete"}
_CONFIG_JSON = b'{"version":1,"config":{"retention.ms":"3600000","cleanup.policy":"compact,delete"}}'


def write_inputs(directory: Path, partitions: int) -> tuple[Path, Path]:
    """A ``dataDir`` and a metadata directory."""
    write_nodes(directory / "data", _nodes(partitions))
    write_log(directory / "metadata", _records(partitions))
    return directory / "data", directory / "metadata"


def write_log(directory: Path, records: Iterator[m.MetadataRecord]) -> Path:
    """A metadata log of one segment, of epoch 1, in a metadata directory; gives the segment."""
    segment, offset = directory / DIRECTORY_NAME / segment_name(0), 0
    segment.parent.mkdir(parents=True, exist_ok=True)
    with segment.open("wb") as file:
        while some := list(islice(records, RECORDS_AT_ONCE)):
            for group in split_values(encode_all(some, LEVEL), records_max=BATCH_RECORDS):
                file.write(build_batch(group, timestamp_ms=1, base_offset=offset, leader_epoch=1))
                offset += len(group)
    return segment


def partition_changes(partitions: int) -> list[m.MetadataRecord]:
    """A replica of each partition leaves the ISR."""
    return [
        m.PartitionChangeRecord(partition, topic_id, isr=_RINGS[(number + partition) % 3][:2])
        for number, _, topic_id in _topics(partitions)
        for partition in range(PARTITIONS_PER_TOPIC)
    ]


def config_records(partitions: int, text: str | None = None) -> list[m.MetadataRecord]:
    """The configs of all topics as they are, or with another value."""
    return [
        m.ConfigRecord(m.ConfigResourceType.TOPIC, name, key, value if text is None else text)
        for number, name, _ in _topics(partitions)
        if number % 2 == 0
        for key, value in _CONFIG.items()
    ]


def _topics(partitions: int) -> Iterator[tuple[int, str, Uuid]]:
    generator = random.Random(0)
    for number in range(partitions // PARTITIONS_PER_TOPIC):
        yield number, f"bench.topic-{number:06}", random_uuid(generator)


def _nodes(partitions: int) -> Iterator[Node]:
    for root in (paths.TOPICS, paths.TOPIC_CONFIGS, paths.DELETE_TOPICS):
        yield from ((path, None, 0) for path in (*paths.ancestors(root), root))
    yield paths.parent_of(paths.CLUSTER_ID), None, 0
    yield paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), 0
    yield paths.CONTROLLER_EPOCH, b"7", 0
    for number, name, topic_id in _topics(partitions):
        rings = [(number + partition) % 3 for partition in range(PARTITIONS_PER_TOPIC)]
        assignment = ",".join(f'"{partition}":{list(_RINGS[ring])}' for partition, ring in enumerate(rings))
        text = f'{{"version":3,"topic_id":"{uuid_to_text(topic_id)}","partitions":{{{assignment}}}}}'
        root = f"{paths.TOPICS}/{name}"
        yield root, text.encode(), 0
        yield f"{root}/partitions", None, 0
        for partition, ring in enumerate(rings):
            yield f"{root}/partitions/{partition}", None, 0
            yield f"{root}/partitions/{partition}/state", _STATES[ring], 0
        yield f"{paths.TOPIC_CONFIGS}/{name}", b'{"version":1,"config":{}}' if number % 2 else _CONFIG_JSON, 0


def _records(partitions: int) -> Iterator[m.MetadataRecord]:
    yield m.FeatureLevelRecord("metadata.version", LEVEL)
    for number, name, topic_id in _topics(partitions):
        yield m.TopicRecord(name, topic_id)
        for partition in range(PARTITIONS_PER_TOPIC):
            ring = _RINGS[(number + partition) % 3]
            yield m.PartitionRecord(partition, topic_id, ring, ring, (), (), ring[0], 0, 0, 0)
        if number % 2 == 0:
            for key, text in _CONFIG.items():
                yield m.ConfigRecord(m.ConfigResourceType.TOPIC, name, key, text)
