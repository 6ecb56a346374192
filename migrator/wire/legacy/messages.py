"""LeaderAndIsr, UpdateMetadata and StopReplica as values that point into an image instead of copying it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final

from migrator.image.model import BrokerRegistration, PartitionRegistration, TopicImage
from migrator.values import value

LEADER_AND_ISR: Final = (4, 7)
"""API key and version that every broker in migration speaks; likewise below. The versions are those that stock
controllers send from metadata.version 3.4-IV0 on, the first with ``isKRaftController``."""
STOP_REPLICA: Final = (5, 4)
UPDATE_METADATA: Final = (6, 8)

LEADER_DURING_DELETE: Final = -2
"""The leader that UpdateMetadata names for the partitions of a deleted topic."""
EPOCH_DURING_DELETE: Final = -2
"""The leader epoch in StopReplica for a deleted topic: it overrides any that the broker knows."""


class UpdateType(IntEnum):
    """``AbstractControlRequest.Type``: what a broker may conclude from what a request leaves out."""

    UNKNOWN = 0
    INCREMENTAL = 1
    FULL = 2
    """All of it: a broker moves aside logs, and forgets topics, that the request does not name."""


@value
class SendingController:
    """The controller that sends a request. ``controller_epoch`` is that of the claim in ZooKeeper, ``kraft_epoch`` that
    of the quorum's leader, which every partition carries."""

    controller_id: int
    controller_epoch: int
    kraft_epoch: int


@value
class TopicPartitions:
    """Some partitions of a topic, or with ``numbers`` None all of them."""

    topic: TopicImage
    numbers: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.topic.partitions if self.numbers is None else self.numbers)

    def states(self) -> Iterable[tuple[int, PartitionRegistration]]:
        """Number and state of each."""
        partitions = self.topic.partitions
        if self.numbers is None:
            return partitions.items()
        return ((number, partitions[number]) for number in self.numbers)


@value
class UpdateMetadata:
    """What brokers tell clients. ``brokers`` are all that are registered, as each request replaces the list;
    replicas on others are reported offline."""

    type: UpdateType
    topics: tuple[TopicPartitions, ...]
    brokers: tuple[BrokerRegistration, ...]


@value
class LiveLeader:
    """Where followers reach a leader: its endpoint on the listener between brokers."""

    broker_id: int
    host: str
    port: int


@value
class LeaderAndIsr:
    """What a broker hosts and leads."""

    type: UpdateType
    topics: tuple[TopicPartitions, ...]
    live_leaders: tuple[LiveLeader, ...]


@value
class StoppedPartition:
    """A partition that a broker no longer hosts; ``delete`` says whether its log goes too."""

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
