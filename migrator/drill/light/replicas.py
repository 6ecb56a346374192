"""The replicas on a broker in ZooKeeper mode, as LeaderAndIsr and StopReplica make them.

`LightBroker` passes it each request. It refuses old epochs, sets strays aside and remembers losses as a real broker
does, so a fault of the controllers shows as a lost log. Source: ``ReplicaManager``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from migrator.drill.light.metadata_cache import FULL
from migrator.values import value

NO_EPOCH = -1
EPOCH_DURING_DELETE = -2

Key = tuple[str, int]
"""Topic name and partition."""


@value
class LightReplica:
    """One partition on this broker. ``topic_id`` None: its log has none yet."""

    topic_id: UUID | None
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class HostedReplicas:
    """The logs on the disk of one broker and the partitions that it serves."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self.logs: dict[Key, UUID | None] = {}
        """The logs on disk; they survive a restart."""
        self.hosted: dict[Key, LightReplica] = {}
        self.strays: dict[Key, UUID | None] = {}
        """Logs that a full LeaderAndIsr did not name."""
        self.heard = False
        """Whether a LeaderAndIsr has come since the start."""

    def restart(self) -> None:
        """Forget everything except the disk."""
        self.hosted.clear()
        self.heard = False

    def become_leader_or_follower(self, request: Any) -> dict[tuple[str, UUID | None], dict[int, ErrorCode]]:
        """Apply a LeaderAndIsr that passed the epoch checks; gives each partition's error by topic."""
        self.heard = True
        if request.is_k_raft_controller and request.type_ == FULL:
            self._find_strays(request)
        errors: dict[tuple[str, UUID | None], dict[int, ErrorCode]] = {}
        for topic in request.topic_states:
            answers = errors.setdefault((topic.topic_name, topic.topic_id), {})
            for state in topic.partition_states:
                answers[state.partition_index] = self._become(topic, state, is_kraft=request.is_k_raft_controller)
        return errors

    def stop(self, request: Any) -> Iterator[tuple[str, int, ErrorCode]]:
        """Apply a StopReplica that passed the epoch checks; gives each partition's error."""
        for topic in request.topic_states:
            for state in topic.partition_states:
                yield topic.topic_name, state.partition_index, self._stop(topic.topic_name, state)

    def missing_from(self, request: Any) -> list[Key]:
        """Logs on disk that a LeaderAndIsr does not name."""
        named = {(topic.topic_name, state.partition_index) for topic, state in _partitions(request)}
        return sorted(key for key in self.logs if key not in named)

    def _find_strays(self, request: Any) -> None:
        named = {(topic.topic_name, state.partition_index): topic.topic_id for topic, state in _partitions(request)}
        for key, topic_id in list(self.logs.items()):
            if key not in named or named[key] != topic_id:
                self.strays[key] = self.logs.pop(key)
                self.hosted.pop(key, None)

    def _become(self, topic: Any, state: Any, *, is_kraft: bool) -> ErrorCode:
        key = (topic.topic_name, state.partition_index)
        log_id = self.logs.get(key)
        if topic.topic_id is not None and log_id is not None and topic.topic_id != log_id:
            return ErrorCode.inconsistent_topic_id
        known = self.hosted.get(key)
        current = NO_EPOCH if known is None else known.leader_epoch
        if state.leader_epoch < current or (state.leader_epoch == current and not is_kraft):
            return ErrorCode.stale_controller_epoch
        if self._broker_id not in state.replicas:
            return ErrorCode.unknown_topic_or_partition
        self.logs[key] = topic.topic_id or log_id
        self.hosted[key] = LightReplica(
            topic_id=topic.topic_id,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=tuple(state.isr),
            replicas=tuple(state.replicas),
        )
        return ErrorCode.none

    def _stop(self, topic: str, state: Any) -> ErrorCode:
        key = (topic, state.partition_index)
        known = self.hosted.get(key)
        sentinel = state.leader_epoch in (NO_EPOCH, EPOCH_DURING_DELETE)
        if known is not None and not sentinel and state.leader_epoch < known.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        self.hosted.pop(key, None)
        if state.delete_partition:
            self.logs.pop(key, None)
        return ErrorCode.none


def _partitions(request: Any) -> Iterator[tuple[Any, Any]]:
    return ((topic, state) for topic in request.topic_states for state in topic.partition_states)
