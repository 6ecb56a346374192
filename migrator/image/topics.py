"""Topics and partitions of an image under change.

`builder` replays topic and partition records here. A topic's partitions are copied once, at their first change, and the
image at the bottom stays as it was. A partition's epoch rises with each change, its leader epoch when a record names a
leader, as in Kafka's ``PartitionRegistration.merge``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from migrator.errors import InvariantViolation
from migrator.image.model import PartitionCounts, PartitionRegistration, TopicImage, TopicsImage
from migrator.image.tracked import Interner, TrackedMap
from migrator.records.metadata import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    NO_RECOVERY_CHANGE,
    ClearElrRecord,
    LeaderRecoveryState,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from migrator.records.uuid import DIRECTORY_MIGRATING, Uuid, uuid_to_text

T = TypeVar("T")

_RECOVERING = int(LeaderRecoveryState.RECOVERING)


class TopicsBuilder:
    """Replays topic and partition records. A topic's partitions are copied once, at their first change."""

    __slots__ = ("_all", "_by_id", "_ids", "_intern", "_leaving", "_offline", "_open", "_topics", "_without_preferred")

    def __init__(self, base: TopicsImage, intern: Interner) -> None:
        self._by_id = TrackedMap(base.by_id)
        self._ids = TrackedMap(base.ids)
        self._intern: Callable[[T], T] = intern.__getitem__  # type: ignore[assignment]  # equal objects of one type
        self._open: dict[Uuid, tuple[dict[int, PartitionRegistration], set[int]]] = {}
        self._topics: set[Uuid] = set()
        self._leaving: Iterator[PartitionRegistration] | None = None
        """The partitions that are still counted of the topic that is removed next."""
        self._all = base.counts.all
        self._offline = base.counts.offline
        self._without_preferred = base.counts.without_preferred_leader

    def create(self, record: TopicRecord) -> None:
        """A new topic without partitions."""
        topic_id, name = record.topic_id, record.name
        if self._by_id.get(topic_id) is not None or self._ids.get(name) is not None:
            raise InvariantViolation(f"topic {name!r} ({uuid_to_text(topic_id)}) exists already")
        partitions: dict[int, PartitionRegistration] = {}
        self._by_id.put(topic_id, TopicImage(name, topic_id, partitions))
        self._ids.put(name, topic_id)
        self._open[topic_id] = (partitions, set())
        self._topics.add(topic_id)

    def remove_some(self, record: RemoveTopicRecord, at_most: int) -> int:
        """Begin or continue to remove a topic of any size. `remove` has to follow when this returns 0.

        :param at_most: how many partitions to do now.
        :return: how many partitions were done.
        """
        if self._leaving is None:
            self._leaving = iter(self._partitions(record.topic_id).values())
        some = tuple(islice(self._leaving, at_most))
        for partition in some:
            self._count(partition, -1)
        return len(some)

    def remove(self, record: RemoveTopicRecord) -> str:
        """Remove a topic with all partitions, and return its name."""
        topic = self._by_id.get(record.topic_id)
        if topic is None:
            raise InvariantViolation(_no_topic(record.topic_id))
        self.remove_some(record, len(self._partitions(record.topic_id)))
        self._leaving = None
        self._by_id.remove(record.topic_id)
        self._ids.remove(topic.name)
        self._open.pop(record.topic_id, None)
        self._topics.add(record.topic_id)
        return topic.name

    def put_partition(self, record: PartitionRecord) -> None:
        """Set the whole state of a partition, new or not."""
        partitions, changed = self._open.get(record.topic_id) or self._open_topic(record.topic_id)
        intern, number, replicas = self._intern, record.partition_id, record.replicas
        changed.add(number)
        if number in partitions:
            self._count(partitions[number], -1)
        interned = intern(replicas)
        partitions[number] = new = PartitionRegistration(
            interned,
            interned if record.isr is replicas else intern(record.isr),
            intern(record.removing_replicas) if record.removing_replicas else (),
            intern(record.adding_replicas) if record.adding_replicas else (),
            record.leader,
            record.leader_recovery_state == _RECOVERING,
            record.leader_epoch,
            record.partition_epoch,
            self._directories(record.directories, replicas) if record.directories else (),
            intern(record.eligible_leader_replicas) if record.eligible_leader_replicas else (),
            intern(record.last_known_elr) if record.last_known_elr else (),
        )
        self._count(new, 1)

    def change_partition(self, record: PartitionChangeRecord) -> None:
        """Change an existing partition. Its partition epoch rises by one. Its leader epoch rises, too, when the record
        names a leader, even the same one."""
        opened = self._open.get(record.topic_id) or self._open_topic(record.topic_id)
        old = opened[0].get(record.partition_id)
        if old is None:
            raise InvariantViolation(f"topic {uuid_to_text(record.topic_id)} has no partition {record.partition_id}")
        opened[1].add(record.partition_id)
        opened[0][record.partition_id] = new = self._changed(old, record)
        if new.leader != old.leader or new.replicas is not old.replicas:
            self._count(old, -1)
            self._count(new, 1)

    def clear_elr(self, record: ClearElrRecord) -> None:
        """Forget the eligible leader replicas of one topic, or of all."""
        if record.topic_name:
            topic_id = self._ids.get(record.topic_name)
            if topic_id is None:
                raise InvariantViolation(f"there is no topic {record.topic_name!r}")
            topic_ids = [topic_id]
        else:
            topic_ids = list(self._by_id.snapshot())
        for topic_id in topic_ids:
            for number, partition in list(self._partitions(topic_id).items()):
                if partition.elr or partition.last_known_elr:
                    self.change_partition(
                        PartitionChangeRecord(number, topic_id, eligible_leader_replicas=(), last_known_elr=())
                    )

    def finish(self) -> TopicsImage:
        """The resulting topics. Nothing may be changed afterwards."""
        counts = PartitionCounts(self._all, self._offline, self._without_preferred)
        return TopicsImage(self._by_id.snapshot(), self._ids.snapshot(), counts)

    def changed_topics(self) -> frozenset[Uuid]:
        """Ids of the topics created or removed."""
        return frozenset(self._topics)

    def changed_partitions(self) -> Mapping[Uuid, frozenset[int]]:
        """Partitions created or changed, by topic id; equal sets are one object."""
        intern = Interner()
        return {topic_id: intern(frozenset(changed)) for topic_id, (_, changed) in self._open.items() if changed}

    def _count(self, partition: PartitionRegistration, one: int) -> None:
        """Count a partition with ``one`` 1, or take back its count with -1."""
        replicas, leader = partition.replicas, partition.leader
        self._all += one
        if leader == NO_LEADER:
            self._offline += one
        if leader != (replicas[0] if replicas else NO_LEADER):
            self._without_preferred += one

    def _partitions(self, topic_id: Uuid) -> Mapping[int, PartitionRegistration]:
        opened = self._open.get(topic_id)
        if opened is not None:
            return opened[0]
        topic = self._by_id.get(topic_id)
        return {} if topic is None else topic.partitions

    def _open_topic(self, topic_id: Uuid) -> tuple[dict[int, PartitionRegistration], set[int]]:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise InvariantViolation(_no_topic(topic_id))
        opened: tuple[dict[int, PartitionRegistration], set[int]] = (dict(topic.partitions), set())
        self._open[topic_id] = opened
        self._by_id.put(topic_id, TopicImage(topic.name, topic_id, opened[0]))
        return opened

    def _changed(self, old: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
        intern = self._intern
        replicas = old.replicas if record.replicas is None else intern(record.replicas)
        directories = old.directories if record.directories is None else record.directories
        if directories is not old.directories or replicas is not old.replicas:
            directories = self._directories(directories, replicas) if directories else ()
        elects = record.leader != NO_LEADER_CHANGE
        recovery = record.leader_recovery_state
        return PartitionRegistration(
            replicas,
            old.isr if record.isr is None else intern(record.isr),
            old.removing_replicas if record.removing_replicas is None else intern(record.removing_replicas),
            old.adding_replicas if record.adding_replicas is None else intern(record.adding_replicas),
            record.leader if elects else old.leader,
            old.recovering if recovery == NO_RECOVERY_CHANGE else recovery == _RECOVERING,
            old.leader_epoch + 1 if elects else old.leader_epoch,
            old.partition_epoch + 1,
            directories,
            old.elr if record.eligible_leader_replicas is None else intern(record.eligible_leader_replicas),
            old.last_known_elr if record.last_known_elr is None else intern(record.last_known_elr),
        )

    def _directories(self, directories: tuple[Uuid, ...], replicas: tuple[int, ...]) -> tuple[Uuid, ...]:
        """The directories in the image's form: empty when every one is MIGRATING."""
        if DIRECTORY_MIGRATING in directories and directories.count(DIRECTORY_MIGRATING) == len(directories):
            return ()
        if len(directories) != len(replicas):
            raise InvariantViolation(f"{len(directories)} directories for {len(replicas)} replicas")
        return self._intern(directories)


def removed_partitions(topics: TopicsImage, records: Iterable[MetadataRecord]) -> int:
    """The number of partitions that the records remove together with their topics."""
    gone = (topics.by_id.get(record.topic_id) for record in records if type(record) is RemoveTopicRecord)
    return sum(len(topic.partitions) for topic in gone if topic is not None)


def _no_topic(topic_id: Uuid) -> str:
    return f"there is no topic with id {uuid_to_text(topic_id)}"
