"""The workload of light brokers: what clients ask for, and what only brokers do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kio.schema.errors import ErrorCode

from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.light.broker import LightBroker
from migrator.drill.workload.workload import Workload
from migrator.wire.schemas import build, request_type

ALLOCATE_PRODUCER_IDS = (67, 0)


class LightWorkload(Workload):
    """Real brokers shrink ISRs and ask for producer ids by themselves; light ones have to be told."""

    def __init__(self, channel: ControllerChannel, brokers: Sequence[LightBroker], seed: int) -> None:
        super().__init__(channel, [broker.options.broker_id for broker in brokers], seed)
        self._brokers = brokers

    def actions(self) -> list[Callable[[], Awaitable[None]]]:
        """The actions that `run` does in turn (see `Workload`)."""
        return [*super().actions(), self._allocate_producer_ids, self._shrink_isr]

    async def _allocate_producer_ids(self) -> None:
        broker = self._random.choice(self._brokers)
        request = build(
            request_type(*ALLOCATE_PRODUCER_IDS), broker_id=broker.options.broker_id, broker_epoch=broker.epoch
        )
        answer = await self._send(request)
        if answer is not None and self._accepted("AllocateProducerIds", answer, frozenset()):
            self.producer_ids.append(answer.producer_id_start)

    async def _shrink_isr(self) -> None:
        broker = self._random.choice(self._brokers)
        keys = [
            key
            for key, replica in broker.replicas.hosted.items()
            if replica.leader == broker.options.broker_id and len(replica.isr) > 1
        ]
        if keys and await broker.shrink_isr(self._random.choice(sorted(keys))) is ErrorCode.none:
            self.acknowledged["AlterPartition"] += 1
