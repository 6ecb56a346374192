"""Brokers in KRaft mode as scripts, and the one copy of the metadata log that all of them have."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.light.broker import LightBroker, LightBrokerMode, LightBrokerOptions
from migrator.errors import MigratorError
from migrator.records.batch import Batch, iter_batches
from migrator.records.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from migrator.records.uuid import Uuid
from migrator.wire.observer import NoAnswerError, Observer
from migrator.wire.raft_codec import ListenerEndpoint
from migrator.wire.raft_transport import KafkaRaftTransport

NODE_ID = -1
"""Who reads the log is no replica."""
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 60.0
FENCED = 1


class LogWatch:
    """Follows the log as a broker does, and notes when what was committed. Records are decoded only when somebody asks,
    because to decode them takes longer than to write them.

    :param ports: of the controllers, by id.
    """

    def __init__(self, ports: Mapping[int, int]) -> None:
        endpoints = {node: ListenerEndpoint("CONTROLLER", "127.0.0.1", port) for node, port in ports.items()}
        self._transport = KafkaRaftTransport(NODE_ID, endpoints.get)
        self._observer = Observer(self._transport, tuple(ports), CLUSTER_ID, patience_seconds=PATIENCE_SECONDS)
        self._offset, self._epoch = 0, 0
        self.committed = 0
        """The offset behind the last committed record that has come."""
        self._task = asyncio.create_task(self._follow())
        self.begin()

    def begin(self) -> None:
        """Forget what was counted; count from here on."""
        self.records = 0
        """That have come, of any kind."""
        self.partitions: Counter[tuple[Uuid, int]] = Counter()
        """How many records changed each partition; see `decode`."""
        self.fenced: Counter[int] = Counter()
        """How often each broker was fenced; see `decode`."""
        self._batches: list[Batch] = []
        self._last_change = -1
        self._commits: list[tuple[int, float]] = []

    @property
    def last_change_at(self) -> float:
        """When the last record that changes a partition was committed, of those that are decoded."""
        return next(at for committed, at in self._commits if committed > self._last_change)

    def decode(self) -> None:
        """Count what has come since the last time. Takes seconds; for a thread."""
        count = sum(batch.header.next_offset <= self.committed for batch in self._batches)
        batches, self._batches = self._batches[:count], self._batches[count:]
        for batch in batches:
            for number, (record, _) in enumerate(batch.iter_records()):
                if isinstance(record, PartitionChangeRecord):
                    self.partitions[record.topic_id, record.partition_id] += 1
                    self._last_change = batch.header.base_offset + number
                elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced == FENCED:
                    self.fenced[record.broker_id] += 1

    def check(self) -> None:
        """:raises MigratorError: the log can no longer be followed."""
        if self._task.done():
            self._task.result()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._transport.close()

    async def _follow(self) -> None:
        while True:
            try:
                response = await self._observer.fetch(self._offset, self._epoch)
            except NoAnswerError:
                continue
            if response.snapshot_id is not None:
                if self._offset > 0:
                    raise MigratorError(f"the log begins behind offset {self._offset}, which was not read yet")
                self._offset, self._epoch = response.snapshot_id.offset, response.snapshot_id.epoch
                continue
            if response.diverging is not None:
                self._offset, self._epoch = response.diverging.offset, response.diverging.epoch
                self._batches = [batch for batch in self._batches if batch.header.next_offset <= self._offset]
                continue
            for batch in iter_batches(response.records, partial_tail=True):
                self._offset, self._epoch = batch.header.next_offset, batch.header.leader_epoch
                if not batch.header.is_control:
                    self._batches.append(batch)
                    self.records += batch.header.count
            committed = min(response.high_watermark, self._offset)
            if committed > self.committed:
                self.committed = committed
                self._commits.append((committed, time.monotonic()))
            if not response.records:
                await asyncio.sleep(LOOK_SECONDS)


class ScriptedBroker(LightBroker):
    """Registers in KRaft mode, sends heartbeats, and has what the watch has."""

    def __init__(self, options: LightBrokerOptions, watch: LogWatch) -> None:
        super().__init__(options)
        self._watch = watch
        self.heard_at = 0.0
        """When it sent its last heartbeat that was answered."""

    async def start(self, mode: LightBrokerMode = LightBrokerMode.KRAFT) -> None:
        """See `LightBroker`."""
        await super().start(mode)

    async def shut_down(self) -> None:
        """Ask for it until a controller agrees."""
        self._shutdown_wanted.set()
        await self._may_stop.wait()

    async def _heartbeat(self, *, want_fence: bool) -> Any:
        began = time.monotonic()
        answer = await super()._heartbeat(want_fence=want_fence)
        if answer is not None:
            self.heard_at = began
        return answer

    async def _metadata_offset(self) -> int:
        return self._watch.committed - 1
