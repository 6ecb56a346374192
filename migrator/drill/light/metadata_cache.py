"""The metadata that a broker in ZooKeeper mode has received by UpdateMetadata.

`LightBroker` updates it, and comparisons read it. It follows the broker's own rules, also the odd ones, because the
controllers must be right for real brokers. Source: ``ZkMetadataCache``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from migrator.values import value

LEADER_DURING_DELETE = -2
FULL = 2
"""Type of an UpdateMetadata or LeaderAndIsr that is all there is (KIP-866)."""


@value
class CachedPartition:
    """A partition as the broker would answer it; ``partition_epoch`` travels as ``zkVersion``."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@value
class CachedBroker:
    """A broker of the last request. ``endpoints``: listener name, host, port."""

    endpoints: frozenset[tuple[str, str, int]]
    rack: str | None


class MetadataCache:
    """Follows the broker's own rules, the odd ones included."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[int, CachedPartition]] = {}
        self.topic_ids: dict[str, UUID] = {}
        self.brokers: Mapping[int, CachedBroker] = {}
        self.controller_id: int | None = None

    def update(self, request: Any) -> set[tuple[str, UUID | None]]:
        """Apply a request that passed the epoch checks.

        :returns: topics that lost partitions, with the ids they had: the broker drops the committed group offsets of
            such partitions.
        """
        before = self._partitions()
        if request.is_k_raft_controller and request.type_ == FULL:
            self._drop_what_is_not_in(request)
        self.controller_id = request.controller_id if request.controller_id >= 0 else None
        self.brokers = {
            broker.id_: CachedBroker(
                frozenset((end.listener, end.host, end.port) for end in broker.endpoints), broker.rack
            )
            for broker in request.live_brokers
        }
        for topic in request.topic_states:
            if topic.topic_id is None:
                self.topic_ids.pop(topic.topic_name, None)
            else:
                self.topic_ids[topic.topic_name] = topic.topic_id
        for topic in request.topic_states:
            self._apply(topic)
        return {(name, topic_id) for name, topic_id, _ in before - self._partitions()}

    def _partitions(self) -> set[tuple[str, UUID | None, int]]:
        return {
            (name, self.topic_ids.get(name), partition)
            for name, partitions in self.topics.items()
            for partition in partitions
        }

    def _drop_what_is_not_in(self, request: Any) -> None:
        """A full update deletes the topics, by id, that it does not name."""
        named = {topic.topic_id for topic in request.topic_states}
        for name, topic_id in list(self.topic_ids.items()):
            if topic_id not in named and name in self.topics:
                del self.topics[name]
                del self.topic_ids[name]

    def _apply(self, topic: Any) -> None:
        for state in topic.partition_states:
            if state.leader == LEADER_DURING_DELETE:
                self._remove(topic.topic_name, state.partition_index)
                continue
            partitions = self.topics.setdefault(topic.topic_name, {})
            partitions[state.partition_index] = CachedPartition(
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=tuple(state.isr),
                partition_epoch=state.zk_version,
                replicas=tuple(state.replicas),
                offline_replicas=tuple(state.offline_replicas),
            )

    def _remove(self, topic: str, partition: int) -> None:
        partitions = self.topics.get(topic)
        if partitions is None:
            return
        partitions.pop(partition, None)
        if not partitions:
            del self.topics[topic]
            self.topic_ids.pop(topic, None)
