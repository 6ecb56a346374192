"""The metadata log of one node on its disk: segments, snapshots, epochs.

`append` writes without fsync. `sync` makes durable everything that was appended before it began; it may run in another
thread while this one appends and reads. Every other change is durable when its method returns. After a failed fsync the
content of the disk is unknown: every later call raises, and the process has to stop. Source:
``kafka.raft.KafkaMetadataLog``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from migrator.errors import require
from migrator.log.epochs import CHECKPOINT_FILE
from migrator.log.errors import NoSpaceError, StorageError
from migrator.log.files import close_to_others, make_directory, remove_file, sync_directory, write_durably
from migrator.log.lock import FILE_NAME as LOCK_NAME
from migrator.log.recovery import RecoveredLog, Recovery, recover, voter_history
from migrator.log.retention import Retention, oldest_may_go
from migrator.log.segment import Segment, close_all
from migrator.log.snapshots import SUFFIX, SnapshotStore
from migrator.log.synced_end import SyncedEnd
from migrator.machine import machine
from migrator.raft.messages import EpochOffset
from migrator.raft.voter_set import Membership, VoterHistory
from migrator.records.batch import BatchHeader
from migrator.records.control import VotersRecord
from migrator.records.errors import CorruptRecordsError
from migrator.records.runs import BatchRun, check_run
from migrator.values import value

DIRECTORY_NAME = "__cluster_metadata-0"
PARTITION_METADATA_FILE = "partition.metadata"
_PARTITION_METADATA = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
DELETE_DELAY_MS = 60_000
READ_BYTES = 1024 * 1024


@value
class LogLimits:
    """The limits at which a new segment begins: metadata.log.segment.bytes and metadata.log.segment.ms."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000


class MetadataLog:
    """Implements `migrator.raft.storage.LogView`. `open` makes one."""

    def __init__(self, directory: Path, limits: LogLimits, recovered: RecoveredLog, store: SnapshotStore) -> None:
        self.directory = directory
        self.store = store
        self.recovery: Recovery = recovered.recovery
        self._limits = limits
        self._segments = recovered.segments
        self._epochs = recovered.epochs
        self._start_offset = self._segments[0].base_offset if self._segments else 0
        self._epochs_dirty = True
        self._voters = VoterHistory()
        self._marked: list[tuple[int, Path]] = []
        self._sync_lock = Lock()
        """Held during an fsync, and during every change that must not happen at the same time."""
        self._failure: StorageError | None = None
        self._closed = False

    @classmethod
    def open(cls, metadata_directory: Path, limits: LogLimits | None = None) -> MetadataLog:
        """Open ``__cluster_metadata-0`` below the metadata directory, create it if necessary, and recover the log.

        Afterwards everything in the log is durable. A snapshot beyond the log's end has replaced the log.

        :raises StorageError: the directory cannot be used, or the log has damage that a crash does not cause.
        """
        directory = metadata_directory / DIRECTORY_NAME
        make_directory(directory)
        names = machine().names
        beside = [path for path in names(metadata_directory) if path.suffix == SUFFIX or path.name == LOCK_NAME]
        close_to_others(directory, [*names(directory), *beside])
        if not machine().exists(directory / PARTITION_METADATA_FILE):
            write_durably(directory / PARTITION_METADATA_FILE, _PARTITION_METADATA)
        recovered = recover(directory)
        log = cls(directory, limits or LogLimits(), recovered, SnapshotStore(directory))
        try:
            log._settle(recovered.voters)
            for segment in log._segments:
                segment.sync()
            log.sync()
        except StorageError:
            close_all(log._segments)
            raise
        return log

    # Reads of the consensus core (`LogView`).

    def start_offset(self) -> int:
        return self._start_offset

    def end_offset(self) -> int:
        """The start, while the log has no segment: at its first start, and when the disk refuses amid a replacement."""
        return self._segments[-1].next_offset if self._segments else self._start_offset

    def last_epoch(self) -> int:
        if self._epochs.latest is not None:
            return self._epochs.latest
        latest = self.store.latest()
        return latest.epoch if latest else 0

    def end_of_epoch(self, epoch: int) -> EpochOffset:
        found = self._epochs.end_of(epoch, self.end_offset())
        if found is not None:
            return EpochOffset(found.epoch, found.start_offset)
        earliest = self._epochs.earliest
        if earliest is None:
            return EpochOffset(self.last_epoch(), self.end_offset())
        oldest = self.store.ids()[:1]
        if oldest and oldest[0].offset == earliest.start_offset:
            return oldest[0]
        return EpochOffset(epoch, earliest.start_offset)

    def epoch_at(self, offset: int) -> int | None:
        inside = self._start_offset <= offset < self.end_offset()
        return self._epochs.epoch_at(offset) if inside else None

    def batch_start(self, offset: int) -> int:
        """See `LogView`.

        :raises StorageError: when the disk refuses.
        """
        header = self.header_at(offset)
        return offset if header is None else header.base_offset

    def snapshots(self) -> list[EpochOffset]:
        return self.store.ids()

    def membership(self) -> Membership:
        return self._voters.latest

    def membership_at(self, end_offset: int) -> Membership:
        """The voters in force at ``end_offset``, as a snapshot of that offset has to name them. The offset must not be
        below the latest snapshot that the log was opened with."""
        return self._voters.at(end_offset)

    # Writes.

    def append(self, batches: bytes | BatchRun) -> int:
        """Write whole batches that start at the end offset, and return the new end offset. No fsync.

        :param batches: a `BatchRun` has been checked already; in bytes each batch is checked here.
        :raises CorruptRecordsError: a batch is damaged, leaves a gap, or has an older epoch; nothing was written.
        :raises NoSpaceError: the disk is full; the log ends where it ended before.
        :raises StorageError: another failure of the disk; the log cannot be used any more.
        """
        self._require_usable()
        run = batches if isinstance(batches, BatchRun) else check_run(batches, self.end_offset())
        if run is None:
            return self.end_offset()
        if run.base_offset != self.end_offset():
            raise CorruptRecordsError(f"a batch starts at offset {run.base_offset} instead of {self.end_offset()}")
        if run.epochs[0][0] < self.last_epoch():
            raise CorruptRecordsError(f"leader epoch {run.epochs[0][0]} comes after {self.last_epoch()}")
        with self._fatal(but=NoSpaceError):
            self._segment_for(run).append(run)
        for epoch, first_offset in run.epochs:
            self._epochs_dirty |= self._epochs.assign(epoch, first_offset)
        for offset, record in run.voters:
            self._voters.note(offset, record)
        return self.end_offset()

    def sync(self) -> int:
        """Make durable everything that was appended before this call, and return its end offset. Any thread may call
        this.

        :raises StorageError: the fsync failed; it is never tried again.
        """
        with self._sync_lock, self._fatal():
            self._require_usable()
            # In this order: if a new segment begins in between, the old one was fsynced for that.
            end_offset = self.end_offset()
            self._segments[-1].sync()
            if self._epochs_dirty:
                self._write_epochs()
            return end_offset

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that holds ``offset`` and all later batches. Durable on return; waits for a running fsync.

        :raises StorageError: the disk refused; the log cannot be used any more.
        """
        require(offset >= self._start_offset, f"truncation to {offset} below the log's start {self._start_offset}")
        if offset >= self.end_offset():
            return
        with self._sync_lock, self._fatal():
            self._require_usable()
            while len(self._segments) > 1 and self._segments[-1].base_offset >= offset:
                self._drop_last_segment()
            self._segments[-1].truncate_to(offset)
            self._epochs.truncate_from_end(self.end_offset())
            self._voters.truncate_to(self.end_offset())
            self._epochs_dirty = True

    def truncate_fully_to_snapshot(self, snapshot_id: EpochOffset) -> None:
        """Replace the whole log by a snapshot that the store has. Durable on return; waits for a running fsync.

        :raises StorageError: the disk refused; the log cannot be used any more.
        """
        require(snapshot_id in self.store.ids(), f"no snapshot {snapshot_id} to start the log at")
        with self._sync_lock, self._fatal():
            self._require_usable()
            membership = self.store.membership(snapshot_id)
            # Segments go from the end: after a crash in between the log has no gap, and the snapshot replaces the rest.
            while self._segments:
                self._drop_last_segment()
            self._epochs.clear()
            self._epochs_dirty = True
            self._start_at(snapshot_id.offset)
            self._voters.begin_at(snapshot_id.offset, membership)
            self._forget_before(snapshot_id, now_ms=0)

    def close(self) -> None:
        """Make everything durable, unless the disk has failed, note the end in `SyncedEnd`, and close the files. A
        second call does nothing.

        :raises StorageError: the last fsync failed; the files are closed nevertheless.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if self._failure is None:
                SyncedEnd(self.directory).write(self.sync())
        finally:
            with self._sync_lock:
                close_all(self._segments)

    # Reads.

    def read(self, offset: int, max_bytes: int, up_to: int | None = None) -> bytes:
        """Whole batches from the one that holds ``offset``, of one segment: at most ``max_bytes``, at least one batch.

        :param up_to: leave out batches that reach beyond this offset. Nothing is returned at or beyond it.
        :raises StorageError: when the disk refuses.
        """
        return self._read(offset, max_bytes, self.end_offset() if up_to is None else min(up_to, self.end_offset()))[0]

    def size_of_read(self, offset: int, max_bytes: int) -> int:
        """The number of bytes that `read` would return; errors as there."""
        require(offset >= self._start_offset, f"read at {offset} below the log's start {self._start_offset}")
        end = self.end_offset()
        return 0 if offset >= end else self._segment_of(offset).size_of_read(offset, max_bytes, end)

    def header_at(self, offset: int) -> BatchHeader | None:
        """The header of the batch that holds ``offset``, None outside the log.

        :raises StorageError: when the disk refuses.
        """
        if not self._start_offset <= offset < self.end_offset():
            return None
        return self._segment_of(offset).header_of(offset)

    def epoch_start(self, epoch: int) -> int | None:
        """The first offset of that leader epoch in the log, None when it holds no record of it."""
        return next((start.start_offset for start in self._epochs.starts if start.epoch == epoch), None)

    def chunks(self, offset: int, up_to: int, max_bytes: int = READ_BYTES) -> Iterator[bytes]:
        """The log from the batch that holds ``offset`` up to the offset ``up_to``, in parts as `read` returns them."""
        while True:
            data, offset = self._read(offset, max_bytes, min(up_to, self.end_offset()))
            if not data:
                return
            yield data

    def _read(self, offset: int, max_bytes: int, end: int) -> tuple[bytes, int]:
        """Like `read`; also returns the offset after the last batch read."""
        require(offset >= self._start_offset, f"read at {offset} below the log's start {self._start_offset}")
        if offset >= end:
            return b"", offset
        return self._segment_of(offset).read_batches(offset, max_bytes, end)

    def _segment_of(self, offset: int) -> Segment:
        return self._segments[bisect_right(self._segments, offset, key=lambda segment: segment.base_offset) - 1]

    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def size_from(self, offset: int) -> int:
        """Bytes of the batches from the one that holds ``offset`` on; errors as `read`."""
        if offset >= self.end_offset():
            return 0
        first = self._segment_of(offset)
        later = sum(segment.size for segment in self._segments if segment.base_offset > first.base_offset)
        return first.size - first.position_of(offset) + later

    # Retention.

    def clean(self, retention: Retention, now_ms: int, needed_from: int | None = None) -> Iterator[EpochOffset]:
        """Drop the oldest snapshots beyond the limits, and the segments that only they needed. Each step of the
        iterator drops one snapshot, because each takes fsyncs, and yields its id.

        :param now_ms: milliseconds of the wall clock, as in the timestamps of records.
        :param needed_from: see `oldest_may_go`.
        :raises StorageError: the disk refused.
        """
        while oldest_may_go(self.store, self.size(), retention, now_ms, needed_from):
            oldest, following = self.store.ids()[:2]
            self._forget_before(following, now_ms)
            yield oldest

    def is_due(self, retention: Retention, now_ms: int) -> bool:
        """Whether `clean` without ``needed_from`` would drop anything; errors as there."""
        return oldest_may_go(self.store, self.size(), retention, now_ms)

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the files that were dropped from the end of the log, and those that `clean` renamed a minute ago or
        earlier. Any thread may call this, one at a time.

        :raises StorageError: the disk refused.
        """
        for entry in [entry for entry in self._marked if now_ms - entry[0] >= DELETE_DELAY_MS]:
            remove_file(entry[1])
            self._marked.remove(entry)

    # Internals.

    def _settle(self, found: list[tuple[int, VotersRecord]]) -> None:
        """The last part of `open`: make snapshots and recovered segments consistent.

        :param found: the voters records in the segments, with their offsets.
        """
        latest = self.store.latest()
        if latest is not None and (latest.epoch, latest.offset) > (self._epochs.latest or 0, self.end_offset()):
            while self._segments:
                self._drop_last_segment()
            self._epochs.clear()
            self._start_at(latest.offset)
            found = []
        if not self._segments:
            self._start_at(0)
        if self._start_offset > (latest.offset if latest else 0):
            raise StorageError(
                f"the log starts at offset {self._start_offset}, and no snapshot holds what was before",
                where=str(self.directory),
                remedy="Restore the missing .checkpoint file from a copy, or empty the directory and format it again",
            )
        for snapshot_id in self.store.ids():
            if snapshot_id.offset < self._start_offset:
                remove_file(self.store.mark_deleted(snapshot_id))
        self._voters = voter_history(self.store, found)

    def _write_epochs(self) -> None:
        """Write ``leader-epoch-checkpoint``. Every start makes it anew from the log, so a full disk is no failure."""
        self._epochs_dirty = False
        try:
            write_durably(self.directory / CHECKPOINT_FILE, self._epochs.to_text().encode())
        except NoSpaceError:
            self._epochs_dirty = True

    def _segment_for(self, run: BatchRun) -> Segment:
        """The segment to append to: the last one, or a new one when that is full or old."""
        last = self._segments[-1]
        first_ms = last.first_timestamp_ms
        if first_ms is None or (
            last.size + run.size <= self._limits.segment_bytes
            and run.base_timestamp - first_ms < self._limits.segment_ms
        ):
            return last
        with self._sync_lock:  # Linux reports an fsync error once, and another thread's fsync may get that report
            self._require_usable()
            last.sync()
        self._add_segment(last.next_offset)
        return self._segments[-1]

    def _add_segment(self, base_offset: int) -> None:
        self._segments.append(Segment.open(self.directory, base_offset))
        sync_directory(self.directory)

    def _start_at(self, offset: int) -> None:
        self._add_segment(offset)
        self._start_offset = offset

    def _drop_last_segment(self) -> None:
        """The file only gets another name: to free a gigabyte takes long, and `remove_deleted` does it elsewhere."""
        segment = self._segments.pop()
        segment.close()
        self._mark(segment.mark_deleted(), now_ms=0)

    def _forget_before(self, snapshot_id: EpochOffset, now_ms: int) -> None:
        """Let the log begin at a snapshot: drop older snapshots, and segments that end before it."""
        self._start_offset = max(self._start_offset, snapshot_id.offset)
        # The oldest goes first, each durably, so that a crash leaves no gap.
        while len(self._segments) > 1 and self._segments[1].base_offset <= self._start_offset:
            segment = self._segments.pop(0)
            segment.close()
            self._mark(segment.mark_deleted(), now_ms)
        self._epochs.truncate_from_start(self._start_offset)
        self._voters.forget_before(self._start_offset)
        self._epochs_dirty = True
        for older in self.store.ids():
            if older.offset < snapshot_id.offset:
                self._mark(self.store.mark_deleted(older), now_ms)

    def _mark(self, path: Path, now_ms: int) -> None:
        sync_directory(self.directory)
        self._marked.append((now_ms, path))

    def _require_usable(self) -> None:
        if self._failure is not None:
            raise StorageError(
                f"the log is closed for writing since this error: {self._failure}",
                where=str(self.directory),
                remedy="Repair the disk and start the controller again",
            ) from self._failure

    @contextmanager
    def _fatal(self, *, but: type[StorageError] | None = None) -> Iterator[None]:
        """A `StorageError` within the context makes the log unusable, except for an error of the class ``but``."""
        try:
            yield
        except StorageError as error:
            if but is None or not isinstance(error, but):
                self._failure = self._failure or error
            raise
