"""Brokers as the controllers see them: they register, send heartbeats, ask for producer ids, and fall silent.

They hold no partitions and read no metadata. So topics have somewhere to be, and leaders that fail.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from migrator.controller.context import KRAFT_VERSION
from migrator.records.versions import FEATURE_NAME, LATEST_SUPPORTED, MINIMUM_SUPPORTED
from migrator.wire.schemas import build, request_type
from tests.simulation.whole.controller import CLUSTER_ID
from tests.simulation.whole.writes import Claim, Write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.simulation.whole.world import World

FIRST_ID = 101
HEARTBEAT_SECONDS = 1.0
SILENCE_SECONDS = (3.0, 8.0)
"""Longer than a session (`tests.simulation.whole.controller.SESSION_MS`)."""


class Broker:
    """One, from its first registration on."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self._random = Random(f"broker {broker_id} {world.options.seed}")
        self._epoch: int | None = None

    def start(self) -> None:
        loop = self.world.client.machine.loop
        loop.from_outside(lambda: loop.create_task(self._run()))

    async def _run(self) -> None:
        while not self.world.client.is_done:
            await asyncio.sleep(self._random.uniform(0.5, 1) * HEARTBEAT_SECONDS)
            if self._epoch is None:
                await self._register()
            elif self._random.random() < 0.05:
                self.world.count("silent brokers")
                await asyncio.sleep(self._random.uniform(*SILENCE_SECONDS))
            elif self._random.random() < 0.1:
                await self._ask_for_producer_ids(self._epoch)
            else:
                await self._heartbeat(self._epoch)

    async def _register(self) -> None:
        """As a new process of this broker."""
        listener = {"name": "PLAINTEXT", "host": "broker", "port": 9092, "security_protocol": 0}
        ranges = ((FEATURE_NAME, MINIMUM_SUPPORTED, LATEST_SUPPORTED), (KRAFT_VERSION, 0, 1))
        features = tuple(
            {"name": name, "min_supported_version": low, "max_supported_version": high} for name, low, high in ranges
        )

        def claims(response: Any) -> Iterable[Claim]:
            if response.error_code == ErrorCode.none:
                self._epoch = response.broker_epoch
                yield "broker", self.broker_id, response.broker_epoch

        request = build(
            request_type(62, 4),
            broker_id=self.broker_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=self._new_id(),
            listeners=(listener,),
            features=features,
            log_dirs=(self._new_id(),),
        )
        await self.world.client.write(Write(request, claims))

    def _new_id(self) -> UUID:
        return UUID(bytes=self._random.randbytes(16))

    async def _heartbeat(self, epoch: int) -> None:
        request = build(
            request_type(63, 1),
            broker_id=self.broker_id,
            broker_epoch=epoch,
            current_metadata_offset=self.world.watch.committed.end,
            want_fence=False,
            want_shut_down=False,
        )
        response = await self.world.client.ask_leader(request)
        if response is not None and response.error_code != ErrorCode.none:
            self._epoch = None

    async def _ask_for_producer_ids(self, epoch: int) -> None:
        def claims(response: Any) -> Iterable[Claim]:
            if response.error_code == ErrorCode.none:
                yield "producer ids", self.broker_id, response.producer_id_start + response.producer_id_len

        request = build(request_type(67, 0), broker_id=self.broker_id, broker_epoch=epoch)
        await self.world.client.write(Write(request, claims))
