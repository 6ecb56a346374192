"""Counts over topics while they are read: running reassignments, inconsistent partitions, and the size of requests to
brokers.

Pure. It takes one topic at a time, so memory does not grow with the partitions. The sizes are those of
`migrator.wire.legacy.encode` (LeaderAndIsr 7, UpdateMetadata 8); a test compares them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from migrator.migration.translate.source import TopicReading
from migrator.preflight.evidence import EXAMPLES_MAX, Endurance, Sample, TopicFacts
from migrator.preflight.lost_states import Lost
from migrator.records.metadata import NO_LEADER, ConfigRecord, MetadataRecord, PartitionRecord
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.partition_state import decode_partition_state

MIN_ISR = "min.insync.replicas"
LOST_MAX = 1_000
"""The most partitions without a state that brokers are asked about."""
STATE_BYTES = 16
"""Bytes of partition, controller epoch, leader and leader epoch."""
PARTITION_EPOCH_BYTES = 4
TOPIC_BYTES = 24
"""The most bytes of topic id, name length, number of partitions and tags."""
REQUEST_BYTES = 64

_Shape = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Replicas, in-sync replicas, adding, removing. A cluster has few different shapes."""


class Tally:
    """Counts names, and keeps the first few."""

    def __init__(self) -> None:
        self.count = 0
        self.examples: list[str] = []

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(name)

    def sample(self) -> Sample:
        """The count, and the names that were kept."""
        return Sample(self.count, tuple(self.examples))


def sample_of(names: Iterable[str]) -> Sample:
    """The sample of names that are all known already."""
    tally = Tally()
    for name in names:
        tally.add(name)
    return tally.sample()


def merged(samples: Iterable[Sample]) -> Sample:
    all_of_them = tuple(samples)
    names = (name for sample in all_of_them for name in sample.examples)
    return Sample(sum(sample.count for sample in all_of_them), tuple(names)[:EXAMPLES_MAX])


class TopicCensus:
    """Counts topics one by one. ``controller_epoch``: the epoch in ZooKeeper; ``racks``: the racks of brokers."""

    def __init__(self, controller_epoch: int | None, racks: Mapping[int, str] | None = None) -> None:
        self._controller_epoch = controller_epoch
        self._racks = racks or {}
        self._without_a_rack: dict[tuple[int, ...], int] = {}
        self._endurance: dict[Endurance, Tally] = {}
        self._topics = 0
        self._shapes: Counter[_Shape] = Counter()
        self._name_bytes: Counter[int] = Counter()
        self._all_name_bytes = 0
        self._moving, self._stateless, self._leaderless = Tally(), Tally(), Tally()
        self._inconsistent, self._newer = Tally(), Tally()
        self._lost: list[Lost] = []

    def add(self, reading: TopicReading, records: list[MetadataRecord]) -> None:
        """Add one topic.

        :param reading: the topic as it was read.
        :param records: as it would be copied; empty when it does not decode.
        """
        if not records:
            return
        name = reading.znodes.name
        self._topics += 1
        assignments: set[tuple[int, ...]] = set()
        min_isr = _own_min_isr(records)
        for record in records:
            if isinstance(record, PartitionRecord):
                self._partition(name, record, min_isr)
                assignments.add(record.replicas)
        size = len(name.encode()) + TOPIC_BYTES
        self._all_name_bytes += size
        for broker in set().union(*assignments):
            self._name_bytes[broker] += size
        self._states(reading)

    def facts(self) -> TopicFacts:
        """The facts about all topics so far."""
        replicas: Counter[int] = Counter()
        sizes: Counter[int] = Counter()
        update_metadata = REQUEST_BYTES + self._all_name_bytes
        for shape, count in self._shapes.items():
            update_metadata += count * update_metadata_bytes(shape)
            for broker in shape[0]:
                replicas[broker] += count
                sizes[broker] += count * leader_and_isr_bytes(shape)
        return TopicFacts(
            topics=self._topics,
            partitions=self._shapes.total(),
            moving=self._moving.sample(),
            lost=tuple(self._lost),
            without_state=self._stateless.sample(),
            without_leader=self._leaderless.sample(),
            inconsistent=self._inconsistent.sample(),
            newer_epochs=self._newer.sample(),
            replicas=replicas,
            leader_and_isr_bytes={
                broker: REQUEST_BYTES + size + self._name_bytes[broker] for broker, size in sizes.items()
            },
            update_metadata_bytes=update_metadata,
            endurance={it: tally.sample() for it, tally in self._endurance.items()},
        )

    def _partition(self, topic: str, record: PartitionRecord, min_isr: int) -> None:
        endurance = Endurance(len(record.replicas), self._left_without_a_rack(record.replicas), min_isr)
        self._endurance.setdefault(endurance, Tally()).add(f"{topic}-{record.partition_id}")
        self._shapes[record.replicas, record.isr, record.adding_replicas, record.removing_replicas] += 1
        if record.adding_replicas or record.removing_replicas:
            self._moving.add(f"{topic}-{record.partition_id}")
        if record.leader == NO_LEADER:
            self._leaderless.add(f"{topic}-{record.partition_id}")
        strangers = sorted(set(record.isr).difference(record.replicas))
        if strangers:  # the copy takes the value unchanged, as Kafka does
            self._inconsistent.add(f"{topic}-{record.partition_id} (in sync without being a replica: {strangers})")
        elif not record.isr or record.leader not in (NO_LEADER, *record.isr):
            self._inconsistent.add(f"{topic}-{record.partition_id}")

    def _left_without_a_rack(self, replicas: tuple[int, ...]) -> int:
        left = self._without_a_rack.get(replicas)
        if left is None:
            racks = Counter(self._racks.get(broker) or f"broker {broker}" for broker in replicas)
            left = self._without_a_rack[replicas] = len(replicas) - max(racks.values(), default=0)
        return left

    def _states(self, reading: TopicReading) -> None:
        for partition, znode in reading.znodes.states.items():
            if znode is None:
                self._stateless.add(f"{reading.znodes.name}-{partition}")
                if reading.assignment is not None and len(self._lost) < LOST_MAX:
                    self._lost.append(Lost(reading.znodes.name, partition, reading.assignment.partitions[partition]))
                continue
            try:
                state = decode_partition_state(znode.path, znode.data)
            except ZnodeError:  # the fault was noted when the topic was read
                continue
            if self._controller_epoch is not None and state.controller_epoch > self._controller_epoch:
                self._newer.add(f"{reading.znodes.name}-{partition}")


def _own_min_isr(records: Iterable[MetadataRecord]) -> int:
    """The topic's own ``min.insync.replicas``; 0 if it has none, or a text that brokers ignore."""
    texts = (it.value or "" for it in records if isinstance(it, ConfigRecord) and it.name == MIN_ISR)
    return next((int(text) for text in texts if text.isdecimal()), 0)


def leader_and_isr_bytes(shape: _Shape) -> int:
    """The bytes of one partition; the last ones are two flags and the tags."""
    return STATE_BYTES + PARTITION_EPOCH_BYTES + sum(map(_array_bytes, shape)) + 3


def update_metadata_bytes(shape: _Shape) -> int:
    """The bytes of one partition without offline replicas."""
    replicas, isr, _, _ = shape
    return STATE_BYTES + PARTITION_EPOCH_BYTES + _array_bytes(replicas) + _array_bytes(isr) + 2


def _array_bytes(ids: tuple[int, ...]) -> int:
    return 1 + 4 * len(ids)
