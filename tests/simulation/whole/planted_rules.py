"""Bugs on purpose that break the rules about images, elections, queues, what is told, stops, and disks that fail."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from migrator.log.errors import StorageError
from migrator.log.metadata_log import MetadataLog
from migrator.log.segment import Segment
from migrator.node.metadata import MetadataRuntime
from migrator.node.quorum.runner import QuorumRunner
from migrator.observe.journal import Journal
from migrator.raft import votes
from migrator.raft.core import QuorumInfo, RaftNode
from migrator.records.batch import Batch
from migrator.wire.book import Charge
from tests.simulation.whole.planted import FOUND, Patches, bug

FOUND |= {
    "boot_forgets_the_last_batch": 1,
    "charge_is_not_given_back": 0,
    "high_watermark_that_is_told_is_the_logs_end": 1,
    "journal_stays_open": 0,
    "leader_of_an_older_epoch_is_told": 0,
    "name_of_the_journal_is_not_durable": 2,
    "reply_is_never_forgotten": 0,
    "stop_leaves_a_thread": 0,
    "what_an_fsync_failed_for_counts_after_a_restart": 0,
}
FAILING: dict[str, Any] = {
    "fault_rate": 1,
    "fails_at": "fsyncs",
    "controllers": 3,
    "dynamic": "no",
    "chaos_seconds": 60,
    "blackout_rate": 0.15,
    "power_rate": 0,
    "kill_rate": 0,
    "stop_rate": 0,
    "cut_rate": 0,
    "hang_rate": 0,
    "slow_rate": 0,
    "calm_rate": 0,
    "writes": 20,
    "wipe_rate": 0,
    "full_rate": 0,
    "crash_rate": 0,
    "segment_bytes": 1_000_000_000,
    "snapshot_bytes": 10_000_000,
}


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


@bug(controllers=3, calm_rate=0.5, kill_rate=1, stop_rate=0, wipe_rate=0, change_rate=0, minority_stays_dead="no")
def everybody_has_to_answer() -> Patches:
    """Nobody leads while one voter is down."""
    return [(votes, "majority", lambda voters: voters)]


@bug(calm_rate=0)
def charge_is_not_given_back() -> Patches:
    """Memory that is counted and gone: at last nobody is served (Envoy, Kafka's MemoryPool)."""
    original, calls = Charge.close, [0]

    def close(self: Charge) -> None:
        calls[0] += 1
        if calls[0] % 10:
            original(self)

    return [(Charge, "close", close)]


@bug(calm_rate=0)
def reply_is_never_forgotten() -> Patches:
    """Each fetch leaves an entry (KAFKA-8933 and others: a purgatory that grows)."""
    original = QuorumRunner._expect

    def expect(self: QuorumRunner, context: Any) -> asyncio.Future[Any]:
        self._replies["left", next(self._contexts)] = self._loop.create_future()
        return original(self, context)

    return [(QuorumRunner, "_expect", expect)]


@bug(kill_rate=0.5, cut_rate=0.5)
def leader_of_an_older_epoch_is_told() -> Patches:
    """The status names whoever led last, in the epoch of now (KAFKA-13724 and others)."""
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


# Disks.


@bug(**FAILING)
def failed_fsync_is_tried_again() -> Patches:
    """PostgreSQL's "fsyncgate" (2018): the second one succeeds, and has written nothing."""
    original = MetadataLog.sync

    def sync(self: MetadataLog) -> int:
        for _ in range(20):
            try:
                return original(self)
            except StorageError:
                self._failure = None
        return original(self)

    return [(MetadataLog, "sync", sync)]


@bug(**FAILING)
def what_an_fsync_failed_for_counts_after_a_restart() -> Patches:
    """LevelDB, Redis and others (Rebello et al., ATC 2020). This program had it."""
    return [(Segment, "write_again", lambda _self: None)]


@bug(dynamic="yes", observers=2, change_rate=1, power_rate=0.5)
def name_of_the_journal_is_not_durable() -> Patches:
    """This program had it."""
    return [(Journal, "_sync_names", lambda _self: None)]


@bug(full_rate=0.5, dynamic="yes", observers=2, change_rate=1)
def news_stop_a_controller_whose_disk_is_full() -> Patches:
    """This program had it."""

    def note(self: Journal, *args: Any, **details: Any) -> None:
        self.append(*args, **details)

    return [(Journal, "note", note)]
