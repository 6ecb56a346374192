"""LeaderAndIsr, UpdateMetadata and StopReplica as values that refer to an image instead of copying it.

`migrator.migration.broker_rpcs` makes them, and `encode` turns them into bytes for brokers in ZooKeeper mode. Kafka
removed these requests in 4.0. Two rules of brokers: each UpdateMetadata replaces the whole list of brokers, and a
request of the full type removes every topic that it does not name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from migrator.image.model import BrokerRegistration, PartitionRegistration, TopicImage
from migrator.values import value

LEADER_AND_ISR: Final = (4, 7)
"""API key and a version that every broker in migration supports; likewise below. Stock controllers send these versions
from metadata.version 3.4-IV0 on; they are the first with ``isKRaftController``."""
STOP_REPLICA: Final = (5, 4)
UPDATE_METADATA: Final = (6, 8)

LEADER_DURING_DELETE: Final = -2
"""The leader that UpdateMetadata names for the partitions of a deleted topic."""
EPOCH_DURING_DELETE: Final = -2
"""The leader epoch in StopReplica for a deleted topic: it overrides any that the broker knows."""


class UpdateType(IntEnum):
    """``AbstractControlRequest.Type``: whether a request names all partitions, so that a broker removes all others."""

    UNKNOWN = 0
    INCREMENTAL = 1
    FULL = 2
    """The request names everything: a broker moves aside logs and forgets topics that it does not name."""


@value
class SendingController:
    """The controller that sends a request. ``controller_epoch``: that of its claim in ZooKeeper; ``kraft_epoch``: the
    quorum's leader epoch, which is in every partition."""

    controller_id: int
    controller_epoch: int
    kraft_epoch: int


@value
class TopicPartitions:
    """Some partitions of a topic; all of them when ``numbers`` is None."""

    topic: TopicImage
    numbers: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.topic.partitions if self.numbers is None else self.numbers)

    def states(self) -> Iterable[tuple[int, PartitionRegistration]]:
        partitions = self.topic.partitions
        if self.numbers is None:
            return partitions.items()
        return ((number, partitions[number]) for number in self.numbers)


@value
class UpdateMetadata:
    """The metadata that brokers give to clients. ``brokers``: all registered brokers, because each request replaces the
    list; replicas on other brokers are reported offline."""

    type: UpdateType
    topics: tuple[TopicPartitions, ...]
    brokers: tuple[BrokerRegistration, ...]


@value
class LiveLeader:
    """A live leader with its endpoint on the inter-broker listener, where followers fetch."""

    broker_id: int
    host: str
    port: int


@value
class LeaderAndIsr:
    """The partitions that a broker hosts, with their leaders."""

    type: UpdateType
    topics: tuple[TopicPartitions, ...]
    live_leaders: tuple[LiveLeader, ...]


@value
class StoppedPartition:
    """A partition that a broker no longer hosts; ``delete``: whether it deletes the log, too."""

    number: int
    leader_epoch: int
    delete: bool


@value
class StoppedTopic:
    name: str
    partitions: tuple[StoppedPartition, ...]


@value
class StopReplica:
    topics: tuple[StoppedTopic, ...]


LegacyRequest = UpdateMetadata | LeaderAndIsr | StopReplica
