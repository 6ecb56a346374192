"""Bugs on purpose in the real controller: each has to be found by a seed.

The first ones are those that this program had, and that people found by reading or with slow tests. The names of the
reports of other systems stand beside the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from migrator.image import loader, replay
from migrator.image.tracked import TrackedDicts
from migrator.log import files, metadata_log, recovery, segment, snapshots
from migrator.log.metadata_log import MetadataLog
from migrator.log.segment import Segment
from migrator.machine import machine
from migrator.node import active, metadata
from migrator.node.active import ActiveController
from migrator.node.metadata import MetadataRuntime
from migrator.node.quorum.runner import QuorumRunner
from migrator.node.quorum.storage import NodeStorage
from migrator.raft import election, follower, replication, votes
from migrator.raft.departure import Departure
from migrator.raft.messages import EpochOffset
from migrator.raft.quorum import Quorum
from migrator.raft.voter_set import NO_MEMBERSHIP
from migrator.records.batch import restamp
from migrator.records.metadata import ClientQuotaRecord
from migrator.turns import TURN_RECORDS
from migrator.wire.aside import lanes
from migrator.wire.server import KafkaListener
from tests.simulation.whole.watch import Watch

Patches = list[tuple[object, str, object]]
BUGS: dict[str, Callable[[], Patches]] = {}
LIKELIER: dict[str, Mapping[str, str]] = {}
"""Options that make the situation of a bug frequent."""
FOUND = {
    "answer_before_commit": 0,
    "half_is_a_majority": 0,
    "image_is_not_cut_with_the_log": 1,
    "image_of_one_controller_is_wrong": 0,
    "listener_is_not_closed": 0,
    "log_is_not_fsynced": 0,
    "stop_leaves_a_task": 0,
    "vote_without_log_check": 0,
}
"""Which seed finds it, with these options: run again in ``make test-all``."""

Plant = Callable[[], Patches]
CRASHES = {"power_rate": "0.5", "blackout_rate": "0.2", "kill_rate": "0"}


def bug(**options: object) -> Callable[[Plant], Plant]:
    """Register a bug under its function's name; the function returns (object, attribute, replacement)."""

    def register(plant: Plant) -> Plant:
        BUGS[plant.__name__] = plant
        LIKELIER[plant.__name__] = {name: str(value) for name, value in options.items()}
        return plant

    return register


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Have a bug while the context lasts; None: none."""
    with ExitStack() as stack:
        for target, attribute, replacement in BUGS[name]() if name else ():
            stack.enter_context(patch.object(target, attribute, replacement))
        yield


# What this program had.


@bug(
    big_share=0.5,
    big_groups=6,
    writes=10,
    snapshot_bytes=3_000,
    retention_bytes=1,
    stop_rate=0.5,
    cut_rate=1,
    turn_ms_max=80,
    power_rate=0,
    blackout_rate=0,
    wipe_rate=0,
)
def image_keeps_what_a_snapshot_has_replaced() -> Patches:
    """Records of the new log were passed over in silence, when it was cut while the snapshot was being applied."""

    def installed(self: MetadataRuntime, snapshot: EpochOffset) -> None:
        self._go_on_from(snapshot.offset)
        self._work = self._install(snapshot)
        self._wake()

    return [(MetadataRuntime, "installed", installed)]


@bug(dynamic="yes", observers=2, change_rate=4, big_share=0.6, writes=20, delay_ms_max=1, kill_rate=0.1, full_rate=0)
def batch_is_encoded_for_an_offset_that_a_voter_change_takes() -> Patches:
    """The leader resigned, as its own batch did not fit its log."""

    async def append_whole(self: ActiveController, epoch: int, records: Any) -> None:
        if len(records) <= TURN_RECORDS:
            if records:
                self._append(epoch, records)
            return
        base = self._end_offset()
        batch = await lanes().decisions.run(partial(active._batch, self._metadata.image, records))
        self._check_still(epoch)
        stamped = restamp(batch, base, epoch)[0]
        with patch.object(NodeStorage, "stamped", lambda _self, _batches, _epoch: stamped):
            self._taken(epoch, self._quorum.append(epoch, batch))
        await self._metadata.caught_up()
        self._check_still(epoch)

    async def change_voters(self: ActiveController, change: Any, look: Any = lambda: None, **_: Any) -> int:
        look()
        return self._quorum.change_voters(change)

    return [(ActiveController, "_append_whole", append_whole), (ActiveController, "change_voters", change_voters)]


@bug(dynamic="no", controllers=3, wipe_rate=0.3, wiped_at_once=2, requires_bootstrap="yes", kill_rate=1)
def mark_of_an_empty_disk_is_forgotten_at_the_second_start() -> Patches:
    """Whoever had an election state beside its empty log counted as a voter: wiped voters began anew."""

    def mark_if_empty(self: NodeStorage) -> bool:
        is_empty = not self.log.end_offset() and not self.log.snapshots()
        return is_empty and self._quorum_state.read() is None

    return [
        (NodeStorage, "mark_if_empty", mark_if_empty),
        (NodeStorage, "must_fetch_first", property(lambda _self: False)),
    ]


# What the controllers find themselves.


@bug(compare_seconds=2, controllers=3, without_grpc=0)
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


# What is durable, and when.


@bug(**CRASHES)
def log_is_not_fsynced() -> Patches:
    """etcd, MongoDB, Redis-Raft: acknowledged before it is durable."""
    return [(Segment, "sync", lambda _self: None)]


@bug(**CRASHES)
def renamed_file_is_not_fsynced() -> Patches:
    """The file is empty after a power cut, though it has its name (ext4's delayed allocation, 2009)."""
    return [(files, "sync_file", lambda _descriptor: None)]


@bug(segment_bytes=1_000, **CRASHES)
def new_segment_is_not_durable_in_its_directory() -> Patches:
    """LevelDB's and others' (Pillai et al., OSDI 2014): the directory is not fsynced."""
    return [(metadata_log, "sync_directory", lambda _directory: None)]


@bug(segment_bytes=1_000, **CRASHES)
def full_segment_is_not_fsynced_before_its_successor() -> Patches:
    original = MetadataLog._segment_for

    def segment_for(self: MetadataLog, run: Any) -> Segment:
        with patch.object(self._segments[-1], "sync", lambda: None):
            return original(self, run)

    return [(MetadataLog, "_segment_for", segment_for)]


@bug(crash_rate=1, power_rate=0.5)
def torn_end_is_not_cut() -> Patches:
    """The next boot finds damage in the middle."""
    return [(recovery, "_cut", lambda _segment, _damage, _synced: recovery.Recovery())]


@bug(full_rate=1)
def short_write_counts_as_whole() -> Patches:
    """A file system that is nearly full takes a part."""

    def write_all(descriptor: int, data: Any, position: int) -> None:
        machine().write(descriptor, data, position)

    return [(segment, "write_all", write_all)]


# What is told, and when.


@bug(cut_rate=0.5, kill_rate=0.3)
def answer_before_commit() -> Patches:
    """Elasticsearch, RethinkDB (Jepsen): acknowledged, then lost."""

    async def stable(_self: MetadataRuntime, _offset: int) -> None:
        await asyncio.sleep(0)

    return [(MetadataRuntime, "stable", stable)]


@bug(kill_rate=0.3, cut_rate=0.5)
def image_is_published_before_it_is_committed() -> Patches:
    original = loader.ImageLoader.committed

    def committed(self: loader.ImageLoader, high_watermark: int) -> None:
        original(self, max(high_watermark, self.end_offset))

    return [(loader.ImageLoader, "committed", committed)]


@bug(kill_rate=0.3, cut_rate=0.5)
def image_is_not_cut_with_the_log() -> Patches:
    """An old leader's records stay in the image (TiKV, etcd: apply beside truncate)."""
    return [(MetadataRuntime, "truncated", lambda _self, _offset: None)]


@bug()
def image_is_changed_in_place() -> Patches:
    """A part that the next image shares with this one is written to."""

    def not_copied(self: TrackedDicts[Any, Any], key: Any) -> Any:
        items = self._entries.get(key)
        if items is None:
            items = {}
            self._entries.put(key, items)
        return items

    return [(TrackedDicts, "_copy", not_copied)]


@bug(dynamic="yes", observers=2, change_rate=1, snapshot_bytes=3_000, stop_rate=0.5)
def snapshot_names_no_voters() -> Patches:
    """A node that begins with the snapshot does not know who votes."""
    return [(MetadataLog, "membership_at", lambda _self, _end: NO_MEMBERSHIP)]


@bug(snapshot_bytes=3_000)
def snapshot_has_its_name_before_it_is_whole() -> Patches:
    original = snapshots._PartFile.__init__

    def begin(self: Any, directory: Any, snapshot_id: Any, name: str = "") -> None:
        original(self, directory, snapshot_id, name)
        machine().rename(self.path, self._final)
        self.path = self._final

    return [(snapshots._PartFile, "__init__", begin)]


# Consensus, in the whole program.


@bug(controllers=5, cut_rate=1)
def half_is_a_majority() -> Patches:
    return [(votes, "majority", lambda voters: voters // 2)]


@bug(cut_rate=1, kill_rate=0.3)
def vote_without_log_check() -> Patches:
    return [(votes, "is_up_to_date", lambda _candidate, _ours: True)]


@bug(**CRASHES)
def leader_counts_unsynced() -> Patches:
    original = replication._durable_end

    def durable_end(books: Any, leader: Any, voter: int) -> int | None:
        return books.log.end_offset() if voter == books.node_id else original(books, leader, voter)

    return [(replication, "_durable_end", durable_end)]


@bug(kill_rate=0.5, hang_rate=0.3)
def answer_of_the_leader_leaves_the_evidence() -> Patches:
    return [(Quorum, "leader_answers", lambda _self: None)]


@bug(kill_rate=0.5, stop_rate=0.5)
def refused_port_alone_is_evidence() -> Patches:
    """What this program had: kube-proxy, and listeners that are opened anew, refuse for a moment."""
    original = Departure.refused

    def refused(self: Departure, now: int) -> bool:
        self.is_connection_lost = True
        return original(self, now)

    return [(Departure, "refused", refused)]


@bug(cut_rate=1, kill_rate=0.5)
def vote_is_not_persisted() -> Patches:
    return [(NodeStorage, "persist_election_state", lambda _self, _state: None)]


@bug(cut_rate=1, kill_rate=0.3)
def truncation_goes_too_far() -> Patches:
    original = follower.truncation_offset
    return [(follower, "truncation_offset", lambda log, end: max(log.start_offset(), original(log, end) - 3))]


# Life of the process.


@bug(stop_rate=0.3)
def timer_is_not_set_again() -> Patches:
    """A node waits for an event that nobody sends (many systems' lost wakeups)."""
    original = QuorumRunner._schedule

    def schedule(self: QuorumRunner) -> None:
        if self.high_watermark < 20 or self.role.value == "leader":
            original(self)

    return [(QuorumRunner, "_schedule", schedule)]


@bug(stop_rate=0.3)
def listener_is_not_closed() -> Patches:
    async def close(_self: KafkaListener, _grace: float = 1.0) -> None:
        await asyncio.sleep(0)

    return [(KafkaListener, "close", close)]


@bug(cut_rate=0.5)
def stale_candidates_get_votes_of_this_epoch() -> Patches:
    original = election._grant

    def grant(books: Any, request: Any) -> bool:
        if hasattr(books.state, "voted_id"):
            books.state.voted_id = None
        return original(books, request)

    return [(election, "_grant", grant)]


@bug(hang_rate=0.3)
def stop_leaves_a_task() -> Patches:
    original = QuorumRunner.start

    def start(self: QuorumRunner) -> None:
        original(self)
        asyncio.get_running_loop().create_task(asyncio.sleep(10_000))

    return [(QuorumRunner, "start", start)]
