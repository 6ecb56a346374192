"""A leader's way to change its ISRs: AlterPartition.

`LightBroker` asks an `IsrKeeper` for a new ISR; one request is under way at a time. The replica's state changes only
when the controller has granted it, as in Kafka. Source: ``AlterPartitionManager``, ``Partition``.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from migrator.drill.light.replicas import HostedReplicas, Key, LightReplica
from migrator.wire.schemas import ALTER_PARTITION, build, request_type


class IsrKeeper:
    """Requests new ISRs of one broker's partitions, one request at a time.

    :param ask: sends a request to the active controller; gives None when there was no answer.
    """

    def __init__(self, broker_id: int, replicas: HostedReplicas, ask: Callable[[Any], Awaitable[Any]]) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._ask = ask
        self._one_at_a_time = asyncio.Lock()

    async def alter(self, broker_epoch: int, wanted: Mapping[Key, Sequence[int]]) -> dict[Key, ErrorCode]:
        """Request these ISRs and apply the granted ones; return each partition's error."""
        async with self._one_at_a_time:
            asked: dict[UUID, dict[Key, LightReplica]] = defaultdict(dict)
            for key in wanted:
                replica = self._replicas.hosted.get(key)
                if replica is not None and replica.topic_id is not None:
                    asked[replica.topic_id][key] = replica
            if not asked or broker_epoch < 0:
                return {}
            request = build(
                request_type(ALTER_PARTITION, 3),
                broker_id=self._broker_id,
                broker_epoch=broker_epoch,
                topics=[
                    {
                        "topic_id": topic_id,
                        "partitions": [_alteration(key, replica, wanted[key]) for key, replica in held.items()],
                    }
                    for topic_id, held in asked.items()
                ],
            )
            response = await self._ask(request)
            return {} if response is None else self._apply(response, asked)

    def _apply(self, response: Any, asked: Mapping[UUID, Mapping[Key, LightReplica]]) -> dict[Key, ErrorCode]:
        errors: dict[Key, ErrorCode] = {}
        for topic in response.topics:
            held = asked.get(topic.topic_id, {})
            keys = {key[1]: key for key in held}
            for state in topic.partitions:
                key = keys[state.partition_index]
                errors[key] = state.error_code
                if state.error_code is ErrorCode.none:
                    self._grant(key, held[key], state)
        return errors

    def _grant(self, key: Key, asked: LightReplica, state: Any) -> None:
        """Apply a granted ISR, unless a LeaderAndIsr has changed the partition meanwhile."""
        known = self._replicas.hosted.get(key)
        if known is not None and known.leader_epoch == asked.leader_epoch and known.topic_id == asked.topic_id:
            self._replicas.hosted[key] = LightReplica(
                topic_id=known.topic_id,
                leader=state.leader_id,
                leader_epoch=state.leader_epoch,
                partition_epoch=max(known.partition_epoch, state.partition_epoch),
                isr=tuple(state.isr),
                replicas=known.replicas,
            )


def _alteration(key: Key, replica: LightReplica, isr: Sequence[int]) -> dict[str, Any]:
    return {
        "partition_index": key[1],
        "leader_epoch": replica.leader_epoch,
        "new_isr_with_epochs": [{"broker_id": member, "broker_epoch": -1} for member in isr],
        "leader_recovery_state": 0,
        "partition_epoch": replica.partition_epoch,
    }
