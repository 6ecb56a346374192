"""Bugs on purpose: what the node tells, its images, and the life of its process."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from migrator.image import loader, replay
from migrator.image.tracked import TrackedDicts
from migrator.machine import machine
from migrator.node import metadata
from migrator.node.metadata import MetadataRuntime, OffsetWaiters
from migrator.node.quorum.runner import QuorumRunner
from migrator.observe.journal import Journal
from migrator.raft import events as ev
from migrator.raft.core import QuorumInfo, RaftNode
from migrator.records.batch import Batch
from migrator.records.metadata import ClientQuotaRecord
from migrator.wire.book import Charge
from migrator.wire.server import KafkaListener
from tests.simulation.whole.planting import ALONE, Patches, bug
from tests.simulation.whole.watch import Watch


@bug(cut_rate=0.5, kill_rate=0.3)
def answer_before_commit() -> Patches:
    """Acknowledged, then lost (elasticsearch 20031)."""

    async def stable(_self: MetadataRuntime, _offset: int) -> None:
        await asyncio.sleep(0)

    return [(MetadataRuntime, "stable", stable)]


@bug(**ALONE)
def whoever_waits_hears_of_success_when_the_leadership_is_lost() -> Patches:
    """What was not committed is confirmed (RethinkDB 5289: Jepsen on changed members)."""
    return [(OffsetWaiters, "fail", lambda self: self.reached(1 << 62))]


@bug(kill_rate=0.3, cut_rate=0.5)
def image_is_published_before_it_is_committed() -> Patches:
    """Readers see what never was (dirty reads: elasticsearch 20031)."""
    original = loader.ImageLoader.committed

    def committed(self: loader.ImageLoader, high_watermark: int) -> None:
        original(self, max(high_watermark, self.end_offset))

    return [(loader.ImageLoader, "committed", committed)]


@bug(kill_rate=0.3, cut_rate=0.5)
def image_is_not_cut_with_the_log() -> Patches:
    """An old leader's records stay in the image (TiKV, etcd: apply beside truncate)."""
    return [(MetadataRuntime, "truncated", lambda _self, _offset: None)]


@bug(compare_seconds=2, without_grpc=0)
def image_of_one_controller_is_wrong() -> Patches:
    """Memory or the program: etcd's data inconsistency of 3.5 (2022), which nobody compared. Nobody looks from outside
    here, and a replay of the log is right."""

    def append_records(loader: Any, header: Any, records: Any) -> None:
        if getattr(machine(), "number", None) == 2:
            records = [
                replace(record, value=record.value + 0.5) if isinstance(record, ClientQuotaRecord) else record
                for record in records
            ]
        replay.append_records(loader, header, records)

    return [(metadata, "append_records", append_records), (Watch, "_published", lambda *_: None)]


@bug(other_share=0.5)
def image_is_changed_in_place() -> Patches:
    """A part that the next image shares with this one is written to."""

    def not_copied(self: TrackedDicts[Any, Any], key: Any) -> Any:
        items = self._entries.get(key)
        if items is None:
            items = {}
            self._entries.put(key, items)
        return items

    return [(TrackedDicts, "_copy", not_copied)]


@bug(chaos_seconds=8, minority_stays_dead="yes")
def timer_is_not_set_again() -> Patches:
    """A node waits for an event that nobody sends (KAFKA-16563: a poll that is not scheduled again)."""
    original = QuorumRunner._schedule

    def schedule(self: QuorumRunner) -> None:
        if self.high_watermark < 20 or self.role.value == "leader":
            original(self)

    return [(QuorumRunner, "_schedule", schedule)]


@bug(chaos_seconds=2, turn_ms_max=0.02)
def timer_fires_again_and_again() -> Patches:
    """A loop that is busy with nothing (KAFKA-10134: a poll that returns at once)."""

    def schedule(self: QuorumRunner) -> None:
        if not self._is_closed and not self._is_stepping:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(0, self._step, ev.Tick())

    return [(QuorumRunner, "_schedule", schedule)]


@bug(stop_rate=0.3)
def listener_is_not_closed() -> Patches:
    """The next start finds its port in use (a controller that is stopped and started in one process)."""

    async def close(_self: KafkaListener, _grace: float = 1.0) -> None:
        await asyncio.sleep(0)

    return [(KafkaListener, "close", close)]


@bug(hang_rate=0.3)
def stop_leaves_a_task() -> Patches:
    """Something runs on after the stop (many systems' leaked threads)."""
    original = QuorumRunner.start

    def start(self: QuorumRunner) -> None:
        original(self)
        asyncio.get_running_loop().create_task(asyncio.sleep(10_000))

    return [(QuorumRunner, "start", start)]


@bug(kill_rate=0.5)
def boot_forgets_the_last_batch() -> Patches:
    """The image is behind its log from the start (KAFKA-14857 and others: a loader that skips)."""
    original = MetadataRuntime._next_batch

    def next_batch(self: MetadataRuntime) -> Batch | None:
        batch = original(self)
        if batch is None or batch.header.is_control or self._is_followed:
            return batch
        if batch.header.next_offset == self._load_end:
            self._taken = self._load_end
            return None
        return batch

    return [(MetadataRuntime, "_next_batch", next_batch)]


@bug(kill_rate=1, cut_rate=0.5, controllers=5, delay_ms_max=100)
def leader_of_an_older_epoch_is_told() -> Patches:
    """The status names the last leader, in the present epoch (KAFKA-13724 and others)."""
    original = RaftNode.status
    last: dict[int, int | None] = {}

    def status(self: RaftNode, now_ms: int) -> QuorumInfo:
        found = original(self, now_ms)
        last[id(self)] = leader = last.get(id(self)) if found.leader_id is None else found.leader_id
        return replace(found, leader_id=leader, has_leader=True)

    return [(RaftNode, "status", status)]


@bug(cut_rate=0.5, kill_rate=0.3)
def high_watermark_that_is_told_is_the_logs_end() -> Patches:
    original = RaftNode.status

    def status(self: RaftNode, now_ms: int) -> QuorumInfo:
        return replace(original(self, now_ms), high_watermark=self._quorum.log.end_offset())

    return [(RaftNode, "status", status)]


@bug()
def charge_is_not_given_back() -> Patches:
    """Memory stays counted after it was freed: in the end no request is served (Envoy, Kafka's MemoryPool)."""
    original, calls = Charge.close, [0]

    def close(self: Charge) -> None:
        calls[0] += 1
        if calls[0] % 10:
            original(self)

    return [(Charge, "close", close)]


@bug()
def reply_is_never_forgotten() -> Patches:
    """Each fetch leaves an entry (KAFKA-8933 and others: a purgatory that grows)."""
    original = QuorumRunner._expect

    def expect(self: QuorumRunner, context: Any) -> asyncio.Future[Any]:
        self._replies["left", next(self._contexts)] = self._loop.create_future()
        return original(self, context)

    return [(QuorumRunner, "_expect", expect)]


@bug(stop_rate=0.3)
def stop_leaves_a_thread() -> Patches:
    original = QuorumRunner.close

    async def close(self: QuorumRunner) -> None:
        self._syncer.shutdown = lambda **_: None  # type: ignore[method-assign]
        await original(self)

    return [(QuorumRunner, "close", close)]


@bug(stop_rate=0.3)
def journal_stays_open() -> Patches:
    return [(Journal, "close", lambda _self: None)]
