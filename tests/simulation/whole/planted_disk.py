"""Bugs on purpose: what is durable, and when."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

from migrator.log import files, metadata_log, quorum_state, recovery, segment, snapshots
from migrator.log.epochs import EpochTable
from migrator.log.errors import StorageError
from migrator.log.files import PRIVATE_FILE, opened
from migrator.log.metadata_log import MetadataLog
from migrator.log.segment import Segment
from migrator.log.snapshots import SnapshotReceiver
from migrator.machine import machine
from migrator.node.quorum.storage import NodeStorage
from migrator.observe.journal import Journal
from migrator.raft import snapshot
from migrator.raft.messages import EpochOffset
from migrator.raft.quorum import Quorum
from migrator.raft.states import Follower
from migrator.raft.voter_set import NO_MEMBERSHIP, VoterHistory
from migrator.records.batch import Batch
from tests.simulation.whole.planting import ALONE, CRASHES, ELECTIONS, Patches, bug

FAILING = {
    "fault_rate": 1,
    "fails_at": "fsyncs",
    "dynamic": "no",
    "chaos_seconds": 30,
    "blackout_rate": 0.15,
    "writes": 20,
}


@bug(**CRASHES)
def log_is_not_fsynced() -> Patches:
    """Acknowledged before it is durable (Redis-Raft and others, Jepsen)."""
    return [(Segment, "sync", lambda _self: None)]


@bug(**CRASHES)
def renamed_file_is_not_fsynced() -> Patches:
    """The file is empty after a power cut, though it has its name (ext4's delayed allocation, 2009)."""
    return [(files, "sync_file", lambda _descriptor: None)]


@bug(chaos_seconds=12, **(CRASHES | ELECTIONS | {"power_rate": 1}))
def renamed_file_is_not_durable_in_its_directory() -> Patches:
    """After a power cut the old content is there again: an epoch falls (Pillai et al., OSDI 2014)."""
    return [(files, "sync_directory", lambda _directory: None)]


@bug(segment_bytes=1_000, **CRASHES)
def new_segment_is_not_durable_in_its_directory() -> Patches:
    """The directory is not fsynced (LevelDB and others: Pillai et al., OSDI 2014)."""
    return [(metadata_log, "sync_directory", lambda _directory: None)]


@bug(segment_bytes=1_000, writes=40, sync_ms_max=20)
def full_segment_is_not_fsynced_before_its_successor() -> Patches:
    """The last records of a file are lost, those in the next one are not (KAFKA-3919: no start any more)."""
    original = MetadataLog._segment_for

    def segment_for(self: MetadataLog, run: Any) -> Segment:
        with patch.object(self._segments[-1], "sync", lambda: None):
            return original(self, run)

    return [(MetadataLog, "_segment_for", segment_for)]


@bug(chaos_seconds=25, big_share=0.5, writes=10, power_rate=0.5, sync_ms_max=20)
def checksum_is_not_looked_at_at_the_start() -> Patches:
    """A torn batch counts as whole (etcd 14102; Alagappan et al., FAST 2018)."""
    return [(Batch, "check_crc", lambda _self: None)]


@bug(segment_bytes=1_000, power_rate=0.5, big_share=0.3, writes=10, sync_ms_max=20, chaos_seconds=25)
def torn_end_is_not_cut() -> Patches:
    """The next boot finds damage in the middle, as the next segment was begun behind it. Big batches leave a torn end
    that the next batches do not cover."""
    original = recovery._cut

    def cut(segment: Segment, damage: Any, synced: int | None) -> recovery.Recovery:
        return original(segment, damage, synced) if synced is None else recovery.Recovery()

    return [(recovery, "_cut", cut)]


@bug(full_rate=1)
def short_write_counts_as_whole() -> Patches:
    """A file system that is nearly full takes a part (PostgreSQL and SQLite have had to handle it, too)."""

    def write_all(descriptor: int, data: Any, position: int) -> None:
        machine().write(descriptor, data, position)

    return [(segment, "write_all", write_all)]


@bug(chaos_seconds=8, crash_rate=4, cut_rate=1)
def election_state_is_overwritten_in_place() -> Patches:
    """A crash in the middle of it leaves a file that nobody can read (ZOOKEEPER-2354, ZOOKEEPER-4269)."""

    def write(path: Path, data: bytes) -> None:
        with opened(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as descriptor:
            machine().chmod(descriptor, PRIVATE_FILE)
            files.write_all(descriptor, data, 0)
            files.sync_file(descriptor)

    return [(quorum_state, "write_durably", write)]


# Snapshots.


@bug(dynamic="yes", observers=2, change_rate=3, snapshot_bytes=3_000, stop_rate=0.5, wipe_rate=0.5, retention_bytes=1)
def snapshot_names_no_voters() -> Patches:
    """A node that begins with the snapshot does not know who votes (KIP-630 says nothing of them, KIP-853 does)."""
    return [(MetadataLog, "membership_at", lambda _self, _end: NO_MEMBERSHIP)]


@bug(snapshot_bytes=3_000, kill_rate=0.5, crash_rate=1)
def snapshot_has_its_name_before_it_is_whole() -> Patches:
    """A process that starts meanwhile reads half of it (etcd 10219: a snapshot without its other files)."""
    original = snapshots._PartFile.__init__

    def begin(self: Any, directory: Any, snapshot_id: Any, name: str = "") -> None:
        original(self, directory, snapshot_id, name)
        machine().rename(self.path, self._final)
        self.path = self._final

    return [(snapshots._PartFile, "__init__", begin)]


@bug(
    chaos_seconds=15,
    snapshot_bytes=1_500,
    retention_bytes=1,
    segment_bytes=100,
    clean_seconds=3,
    kill_rate=0.6,
    writes=20,
)
def more_of_the_log_is_dropped_than_a_snapshot_holds() -> Patches:
    """The records between the two are nowhere (ZOOKEEPER-1797: the purge takes logs that a snapshot needs)."""
    original = MetadataLog._forget_before

    def forget_before(self: MetadataLog, snapshot_id: EpochOffset, now_ms: int) -> None:
        original(self, EpochOffset(snapshot_id.epoch, self._segments[-1].base_offset), now_ms)

    return [(MetadataLog, "_forget_before", forget_before)]


@bug(
    dynamic="no",
    chaos_seconds=15,
    snapshot_bytes=3_000,
    retention_bytes=1,
    segment_bytes=1_000,
    clean_seconds=1,
    writes=20,
    pause_ms_max=800,
    stop_rate=0.5,
    crash_rate=2,
    cut_rate=0.3,
)
def log_behind_a_newer_snapshot_is_kept() -> Patches:
    """The process ended between the two, and the log goes on from an offset that it does not reach (camunda 3573;
    hashicorp/raft 248)."""
    original = MetadataLog._settle

    def settle(self: MetadataLog, found: Any) -> None:
        with patch.object(EpochTable, "latest", 1 << 30):
            original(self, found)

    return [(MetadataLog, "_settle", settle)]


@bug(
    dynamic="yes",
    observers=2,
    chunk_bytes=100,
    delay_ms_max=20,
    snapshot_bytes=1_500,
    retention_bytes=1,
    segment_bytes=1_000,
    clean_seconds=1,
    writes=20,
    kill_rate=0.5,
    chaos_seconds=15,
)
def download_goes_on_with_the_next_snapshot() -> Patches:
    """The leader has dropped the snapshot meanwhile: the file holds parts of two (KIP-630: each names its own)."""
    forget, begin, write = snapshot.forget_download, snapshot.begin_download, NodeStorage.write_snapshot_chunk
    kept: dict[Quorum, int] = {}

    def forget_download(quorum: Quorum) -> None:
        if isinstance(quorum.state, Follower) and quorum.state.download is not None:
            kept[quorum] = quorum.state.download.position
        forget(quorum)

    def begin_download(quorum: Quorum, follower: Follower, snapshot_id: EpochOffset) -> bool:
        accepted = begin(quorum, follower, snapshot_id)
        if follower.download is not None:
            follower.download.position = kept.pop(quorum, 0)
        return accepted

    def write_snapshot_chunk(self: NodeStorage, snapshot_id: EpochOffset, position: int, data: bytes) -> None:
        receiver = self._receiver
        if position and receiver is not None and receiver.snapshot_id != snapshot_id:
            named = SnapshotReceiver(self.directory, snapshot_id)
            machine().rename(receiver.path, named.path)
            named._descriptor, receiver._descriptor = receiver._descriptor, named._descriptor
            named.size = receiver.size
            receiver._close()
            self._receiver = named
        write(self, snapshot_id, position, data)

    return [
        (snapshot, "forget_download", forget_download),
        (snapshot, "begin_download", begin_download),
        (NodeStorage, "write_snapshot_chunk", write_snapshot_chunk),
    ]


# What is cut together.


@bug(**(ALONE | {"alone_rate": 2, "kill_rate": 0.3, "writes": 30}))
def epochs_are_not_cut_with_the_log() -> Patches:
    """Leader and follower never agree where their logs part (KAFKA-10706)."""
    return [(EpochTable, "truncate_from_end", lambda _self, _end: None)]


@bug(dynamic="yes", observers=2, change_rate=5, **ALONE)
def voters_are_not_cut_with_the_log() -> Patches:
    """A voter set that was never committed stays in force (canonical/raft 250; the etcd of 2016, issue 5004)."""
    return [(VoterHistory, "truncate_to", lambda _self, _end: None)]


@bug(dynamic="no", writes=40, snapshot_bytes=40_000, **ALONE)
def index_is_not_cut_with_the_log() -> Patches:
    """Look-ups lead to where other batches begin now (Kafka's "Found a corrupted index file")."""
    original = Segment.truncate_to

    def truncate_to(self: Segment, offset: int) -> None:
        offsets, positions = self._offsets[:], self._positions[:]
        original(self, offset)
        self._offsets, self._positions = offsets, positions

    return [(Segment, "truncate_to", truncate_to)]


# Disks that fail, and the journal beside the log.


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


@bug(full_rate=2, dynamic="yes", observers=2, change_rate=5, writes=0.5, chaos_seconds=15)
def news_stop_a_controller_whose_disk_is_full() -> Patches:
    """This program had it."""

    def note(self: Journal, *args: Any, **details: Any) -> None:
        self.append(*args, **details)

    return [(Journal, "note", note)]
