"""A broker in ZooKeeper mode, as far as controllers can tell: metadata cache, logs, and what it makes of requests.

After Kafka's ``ZkMetadataCache.updateMetadata`` and ``ReplicaManager.becomeLeaderOrFollower`` and ``stopReplicas``.
"""

from __future__ import annotations

from migrator.image.model import PartitionRegistration
from migrator.records.uuid import ZERO_UUID, Uuid
from migrator.wire.legacy.messages import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    LeaderAndIsr,
    LegacyRequest,
    StopReplica,
    UpdateMetadata,
    UpdateType,
)

Replica = tuple[str, int]


class ZkBroker:
    """``logs`` outlive a restart, everything else does not."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.logs: dict[Replica, Uuid] = {}
        self.dropped: list[tuple[str, int, Uuid]] = []
        """Logs moved aside or deleted, with their topic ids."""
        self.refused: set[Replica] = set()
        """Partitions whose log here belongs to a topic of the same name, until that log is moved aside."""
        self.restart(-1)

    def restart(self, epoch: int) -> None:
        """Begin anew with that broker epoch."""
        self.epoch = epoch
        self.cache: dict[str, dict[int, PartitionRegistration]] = {}
        self.ids: dict[str, Uuid] = {}
        self.brokers: set[int] = set()
        self.hosted: dict[Replica, PartitionRegistration] = {}
        self.knows_controller = False
        self.heard_leader_and_isr = False

    def handle(self, request: LegacyRequest) -> None:
        """Do what the broker would, and fail where it would complain."""
        if isinstance(request, UpdateMetadata):
            self._update_metadata(request)
            return
        assert self.knows_controller, "no request may precede the first UpdateMetadata"
        if isinstance(request, LeaderAndIsr):
            self._leader_and_isr(request)
        else:
            self._stop_replica(request)

    def _update_metadata(self, request: UpdateMetadata) -> None:
        self.knows_controller = True
        self.brokers = {broker.broker_id for broker in request.brokers}
        if request.type is UpdateType.FULL:
            named = {part.topic.topic_id for part in request.topics}
            for name in [name for name, topic_id in self.ids.items() if topic_id not in named]:
                self._forget(name, list(self.cache.get(name, {})))
        for part in request.topics:
            if part.topic.topic_id == ZERO_UUID:
                self.ids.pop(part.topic.name, None)
            else:
                self.ids[part.topic.name] = part.topic.topic_id
        for part in request.topics:
            for number, state in part.states():
                if state.leader == LEADER_DURING_DELETE:
                    self._forget(part.topic.name, [number])
                else:
                    self.cache.setdefault(part.topic.name, {})[number] = state

    def _forget(self, name: str, numbers: list[int]) -> None:
        for number in numbers:
            self.cache.get(name, {}).pop(number, None)
        if name in self.cache and not self.cache[name]:
            del self.cache[name]
            self.ids.pop(name, None)

    def _leader_and_isr(self, request: LeaderAndIsr) -> None:
        named = {
            (part.topic.name, number): part.topic.topic_id for part in request.topics for number, _ in part.states()
        }
        if request.type is UpdateType.FULL:
            for replica, topic_id in list(self.logs.items()):
                if named.get(replica) != topic_id:
                    self._drop(replica)
        for part in request.topics:
            for number, state in part.states():
                replica = (part.topic.name, number)
                assert self.broker_id in state.replicas, "told of a partition that it does not host"
                if self.logs.get(replica, part.topic.topic_id) != part.topic.topic_id:
                    self.refused.add(replica)  # INCONSISTENT_TOPIC_ID
                    continue
                self.refused.discard(replica)
                self.logs[replica] = part.topic.topic_id
                self.hosted[replica] = state
        self.heard_leader_and_isr = True

    def _stop_replica(self, request: StopReplica) -> None:
        for topic in request.topics:
            for stopped in topic.partitions:
                replica = (topic.name, stopped.number)
                known = self.hosted.get(replica)
                fits = known is None or stopped.leader_epoch in {EPOCH_DURING_DELETE, *range(known.leader_epoch, 1000)}
                if fits and stopped.delete:
                    self._drop(replica)

    def _drop(self, replica: Replica) -> None:
        topic_id = self.logs.pop(replica, None)
        self.hosted.pop(replica, None)
        self.refused.discard(replica)
        if topic_id is not None:
            self.dropped.append((*replica, topic_id))
