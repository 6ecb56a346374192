"""Brokers as the controllers see them: they register, send heartbeats, ask for producer ids, change ISRs, fall silent.

They hold no data. So topics have somewhere to be, and leaders that fail. What a broker knows of its partitions is as
old as its last request.
"""

from __future__ import annotations

import asyncio
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from migrator.controller.context import KRAFT_VERSION
from migrator.image.model import EMPTY_IMAGE
from migrator.records.versions import FEATURE_NAME, LATEST_SUPPORTED, MINIMUM_SUPPORTED
from migrator.wire.schemas import build, request_type
from tests.simulation.whole.breach import check
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
        self._name = f"broker {broker_id}"
        self._epoch: int | None = None
        self._view = EMPTY_IMAGE
        self._heard_by: int | None = None
        """Who gave a good answer to its last heartbeat; None without one, and while it is silent."""

    @property
    def is_heard(self) -> bool:
        """Whether the quorum hears it: replicas that were given up may hear brokers, too, and lead their old quorum."""
        return self._heard_by is not None and not self.world.controllers[self._heard_by].is_given_up

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
                self._heard_by = None
                await asyncio.sleep(self._random.uniform(*SILENCE_SECONDS))
            else:
                await self._heartbeat(self._epoch)
                await self._ask(self._epoch)

    async def _ask(self, epoch: int | None) -> None:
        if epoch is None:
            return
        if self._random.random() < 0.5:
            await self._ask_for_producer_ids(epoch)
        if self._random.random() < 0.5:
            await self._change_isr(epoch)

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
        await self.world.client.write(Write(request, claims), self._name)

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
        response, node_id = await self.world.client.ask(request, self._name)
        self._heard_by = node_id if response is not None and response.error_code == ErrorCode.none else None
        if response is not None and self._heard_by is None:
            self._epoch = None

    async def _ask_for_producer_ids(self, epoch: int) -> None:
        def claims(response: Any) -> Iterable[Claim]:
            if response.error_code == ErrorCode.none:
                yield "producer ids", self.broker_id, response.producer_id_start + response.producer_id_len

        request = build(request_type(67, 0), broker_id=self.broker_id, broker_epoch=epoch)
        await self.world.client.write(Write(request, claims), self._name)

    async def _change_isr(self, epoch: int) -> None:
        """Of one partition that it led when it looked last. It may have changed since: then nothing is changed."""
        view, self._view = self._view, self.world.watch.committed.image.image
        led = [
            (topic.topic_id, index, partition)
            for _, topic in sorted(view.topics.by_id.items())
            for index, partition in topic.partitions.items()
            if partition.leader == self.broker_id
        ]
        if not led:
            return
        topic_id, index, partition = self._random.choice(led)
        others = [one for one in partition.replicas if one != self.broker_id and self._random.random() < 0.7]
        wanted = {
            "partition_index": index,
            "leader_epoch": partition.leader_epoch,
            "new_isr": (self.broker_id, *others),
            "leader_recovery_state": 0,
            "partition_epoch": partition.partition_epoch,
        }
        topic = {"topic_id": UUID(bytes=topic_id), "partitions": (wanted,)}
        request = build(request_type(56, 2), broker_id=self.broker_id, broker_epoch=epoch, topics=(topic,))
        response = await self.world.client.ask_leader(request, self._name)
        if response is None or response.error_code != ErrorCode.none:
            return
        answer = response.topics[0].partitions[0]
        if answer.error_code == ErrorCode.none:
            self.world.count("changes of an ISR")
            is_next = answer.partition_epoch in {partition.partition_epoch, partition.partition_epoch + 1}
            what = f"broker {self.broker_id} knew {partition}, and is told {answer}"
            holds = partial(check, "an_isr_changes_only_as_it_was_known", is_next, what)
            self.world.after(0.0, holds)  # a task of the client raises nothing
