"""Snapshots: checkpoint files named after the end offset and the epoch of the log that they replace.

A snapshot is written to a ``.part`` file, fsynced, made read-only and renamed: a file with the final name is whole. A
snapshot that is no longer needed is renamed to ``.deleted`` and removed later, so that its readers can finish.
Source: ``org.apache.kafka.snapshot``, KIP-630.
"""

from __future__ import annotations

import os
import re
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Self

from migrator.errors import require
from migrator.log.errors import StorageError, storage_errors
from migrator.log.files import FROZEN_FILE, iter_file_batches, opened, remove_file, sync_directory, sync_file, write_all
from migrator.machine import machine
from migrator.raft.messages import EpochOffset
from migrator.raft.voter_set import DYNAMIC_VERSION, NO_MEMBERSHIP, Membership, VoterSet
from migrator.records.batch import Batch, build_batch, split_values
from migrator.records.contents import check_batch
from migrator.records.control import (
    ControlRecord,
    KRaftVersion,
    KRaftVoters,
    SnapshotFooter,
    SnapshotHeader,
    build_control_batch,
    control_records,
    voters_records,
)
from migrator.records.errors import CorruptRecordsError

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"
BATCH_RECORDS_MAX = 1024
FORMATTED = EpochOffset(0, 0)
"""The id of the file that only names the voters of a new quorum. No replica fetches it."""
_NAME = re.compile(r"(\d{20})-(\d{10})(-\w+)?\.checkpoint(\.part|\.deleted)?")


def snapshot_name(snapshot_id: EpochOffset) -> str:
    """File name without its suffix."""
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}"


def snapshot_id_of(path: Path) -> EpochOffset | None:
    """The id in the name of a checkpoint, finished, unfinished or deleted; None for any other name."""
    match = _NAME.fullmatch(path.name)
    return EpochOffset(int(match[2]), int(match[1])) if match else None


def iter_snapshot(path: Path) -> Iterator[Batch]:
    """Every batch of a snapshot, control batches included. Checks the form on the way: header first, footer last,
    offsets from 0 without a gap.

    :raises StorageError: the file cannot be read, is damaged, or is incomplete.
    """
    expected, ended = 0, False
    try:
        for position, batch in iter_file_batches(path):
            ended = check_place(batch, position, expected=expected, ended=ended)
            expected = batch.header.next_offset
            yield batch
    except CorruptRecordsError as error:
        raise _damaged(path, str(error)) from error
    if not ended:
        raise _damaged(path, "it does not end with its footer")


def check_place(batch: Batch, position: int, *, expected: int, ended: bool) -> bool:
    """Check that the batch may be at this position of a snapshot. Returns whether it is the footer.

    :raises CorruptRecordsError: it may not.
    """
    kinds = [type(record) for record, _ in control_records(batch)] if batch.header.is_control else []
    if batch.header.base_offset != expected or ended:
        raise CorruptRecordsError("its batches do not follow on", position)
    if (expected == 0) != (kinds[:1] == [SnapshotHeader]):
        raise CorruptRecordsError("it does not begin with its one header", position)
    return SnapshotFooter in kinds


def snapshot_membership(path: Path) -> Membership:
    """The voters in a snapshot's control records, which precede all others. ``offset`` is that of the last record
    before the snapshot's end, -1 in the file of offset 0.

    :raises StorageError: the file cannot be read or is damaged, or its voters are not a possible set.
    """
    snapshot_id, found = snapshot_id_of(path), NO_MEMBERSHIP
    try:
        for batch in iter_snapshot(path):
            if not batch.header.is_control:
                break
            for _, record in voters_records(batch):
                if isinstance(record, KRaftVersion):
                    found = replace(found, kraft_version=record.k_raft_version)
                else:
                    offset = snapshot_id.offset - 1 if snapshot_id else -1
                    found = replace(found, voters=VoterSet.of(record.voters), offset=offset)
    except CorruptRecordsError as error:
        raise _damaged(path, str(error)) from error
    return found


def _damaged(path: Path, reason: str) -> StorageError:
    remedy = (
        "If an older snapshot and the complete log after it exist, delete this file. Otherwise restore the "
        "directory from a copy"
    )
    return StorageError(f"the snapshot is damaged: {reason}", where=str(path), remedy=remedy)


class _PartFile:
    """An unfinished snapshot: a file without its final name.

    Finishing it takes fsyncs, so another thread may do that; `abort` then waits for it.
    """

    def __init__(self, directory: Path, snapshot_id: EpochOffset, name: str = "") -> None:
        self.snapshot_id = snapshot_id
        self.size = 0
        stem = name or snapshot_name(snapshot_id)
        self._final = directory / f"{stem}{SUFFIX}"
        with storage_errors("cannot begin a snapshot", directory):
            self._descriptor, self.path = machine().open_new(directory, f"{stem}-", PART_SUFFIX)
        self._ending = Lock()
        self._open = True

    def _write(self, data: bytes) -> None:
        with storage_errors("cannot write the snapshot", self.path):
            write_all(self._descriptor, data, self.size)
        self.size += len(data)

    def publish(self) -> Path:
        """Make the complete file durable and read-only, and give it its final name. Any thread may call this.

        :raises StorageError: when the disk refuses.
        """
        with self._ending, storage_errors("cannot finish the snapshot", self.path):
            require(self._open, f"{self.path} was given up")
            sync_file(self._descriptor)
            machine().chmod(self._descriptor, FROZEN_FILE)
            self._close()
            machine().rename(self.path, self._final)
        sync_directory(self._final.parent)
        return self._final

    def _close(self) -> None:
        if self._open:
            self._open = False
            machine().close(self._descriptor)

    def abort(self) -> None:
        """Remove the unfinished file. After a successful end this does nothing."""
        with self._ending:
            self._close()
            remove_file(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class SnapshotWriter(_PartFile):
    """Writes a snapshot of encoded values. If the context ends without `freeze`, the file is removed.

    :param last_contained_log_timestamp_ms: append time of the last record before the snapshot's end.
    :param now_ms: the timestamp of the header.
    :param name: file name without suffix, if it is not the id's.
    :param membership: the voters in force at the snapshot's end; written from kraft.version 1 on.
    :raises StorageError: from every method, when the disk refuses.
    """

    def __init__(
        self,
        directory: Path,
        snapshot_id: EpochOffset,
        *,
        last_contained_log_timestamp_ms: int,
        now_ms: int,
        name: str = "",
        membership: Membership = NO_MEMBERSHIP,
    ) -> None:
        super().__init__(directory, snapshot_id, name)
        self._next_offset = 0
        records: list[ControlRecord] = [SnapshotHeader(last_contained_log_timestamp_ms)]
        if membership.kraft_version >= DYNAMIC_VERSION:
            records.append(KRaftVersion(membership.kraft_version))
            if membership.voters is not None:
                records.append(KRaftVoters(membership.voters.voters))
        header = build_control_batch(records, timestamp_ms=now_ms, leader_epoch=snapshot_id.epoch)
        try:
            self._add(header, len(records))
        except StorageError:
            self.abort()  # the context has not begun, so its end would not close the file
            raise

    def append(self, values: Sequence[bytes], *, now_ms: int) -> None:
        """Add records, as one batch or several."""
        for group in split_values(values, records_max=BATCH_RECORDS_MAX):
            offset, epoch = self._next_offset, self.snapshot_id.epoch
            self._add(build_batch(group, timestamp_ms=now_ms, base_offset=offset, leader_epoch=epoch), len(group))

    def freeze(self, *, now_ms: int) -> Path:
        """Add the footer and give the file its final name; it is durable when this returns."""
        self.end(now_ms=now_ms)
        return self.publish()

    def end(self, *, now_ms: int) -> None:
        """Add the footer. The file is complete then, but a start removes it until `publish`."""
        epoch = self.snapshot_id.epoch
        footer = [SnapshotFooter()]
        self._add(
            build_control_batch(footer, timestamp_ms=now_ms, base_offset=self._next_offset, leader_epoch=epoch), 1
        )

    def _add(self, data: bytes, count: int) -> None:
        self._write(data)
        self._next_offset += count


class SnapshotReceiver(_PartFile):
    """Writes the parts of a snapshot that a leader sends."""

    def write(self, position: int, data: bytes) -> None:
        """Add the next part.

        :raises StorageError: when the disk refuses.
        """
        require(position == self.size, f"part at {position} of a snapshot that has {self.size} bytes")
        self._write(data)

    def finish(self) -> Path:
        """Check the whole file and give it its final name; it is durable when this returns.

        :raises StorageError: the disk refuses, or the file is not a whole snapshot.
        """
        for batch in iter_snapshot(self.path):
            if batch.header.leader_epoch != self.snapshot_id.epoch:
                self._refuse(f"a snapshot of epoch {self.snapshot_id.epoch} has a batch of another", batch)
            try:
                check_batch(batch)
            except CorruptRecordsError as error:
                self._refuse(str(error), batch)
        return self.publish()

    def _refuse(self, what: str, batch: Batch) -> None:
        raise StorageError(
            f"{what} (batch at offset {batch.header.base_offset}, epoch {batch.header.leader_epoch})",
            where=str(self.path),
            remedy="The snapshot is fetched again. If this repeats, check the log of the leader",
        )


class SnapshotStore:
    """The complete snapshots of a directory, oldest first."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ids: list[tuple[int, int]] = []
        for path in machine().names(directory):
            snapshot_id = snapshot_id_of(path)
            if snapshot_id is not None and path.suffix == SUFFIX:
                self.add(snapshot_id)

    def ids(self) -> list[EpochOffset]:
        """The ids, without `FORMATTED`."""
        return [EpochOffset(epoch, offset) for offset, epoch in self._ids]

    def latest(self) -> EpochOffset | None:
        """The newest id; None without a snapshot."""
        ids = self.ids()
        return ids[-1] if ids else None

    def add(self, snapshot_id: EpochOffset) -> None:
        """Add a snapshot whose file has its final name."""
        key = (snapshot_id.offset, snapshot_id.epoch)
        if snapshot_id.offset > 0 and key not in self._ids:
            insort(self._ids, key)

    def path(self, snapshot_id: EpochOffset) -> Path:
        """The path of a snapshot, whether it exists or not."""
        return self._directory / f"{snapshot_name(snapshot_id)}{SUFFIX}"

    def size(self, snapshot_id: EpochOffset) -> int:
        """Bytes of a snapshot.

        :raises StorageError: when it is not there.
        """
        path = self.path(snapshot_id)
        with storage_errors("cannot look at the snapshot", path):
            return machine().file_size(path)

    def last_contained_log_timestamp_ms(self, snapshot_id: EpochOffset) -> int:
        """Append time of the last record before the snapshot's end.

        :raises StorageError: when it cannot be read.
        """
        header, _ = control_records(next(iter_snapshot(self.path(snapshot_id))))[0]
        require(isinstance(header, SnapshotHeader), "a snapshot begins with its header")
        return header.last_contained_log_timestamp if isinstance(header, SnapshotHeader) else -1

    def membership(self, snapshot_id: EpochOffset) -> Membership:
        """See `snapshot_membership`."""
        return snapshot_membership(self.path(snapshot_id))

    def bootstrap_membership(self) -> Membership:
        """The voters that a new quorum was formatted with, in the file of offset 0; errors as `snapshot_membership`."""
        path = self.path(FORMATTED)
        return snapshot_membership(path) if machine().exists(path) else NO_MEMBERSHIP

    def read(self, snapshot_id: EpochOffset, position: int, max_bytes: int) -> tuple[bytes, int]:
        """A part of a snapshot's bytes, and the size of the whole.

        :raises StorageError: the snapshot does not exist (any more) or cannot be read.
        """
        path = self.path(snapshot_id)
        with storage_errors("cannot read the snapshot", path), opened(path, os.O_RDONLY) as descriptor:
            size = machine().size(descriptor)
            return machine().read(descriptor, max_bytes, position) if position < size else b"", size

    def mark_deleted(self, snapshot_id: EpochOffset) -> Path:
        """Drop a snapshot: rename its file and return the new path. The caller removes the file later.

        :raises StorageError: the file cannot be renamed.
        """
        path = self.path(snapshot_id)
        marked = path.with_name(f"{snapshot_name(snapshot_id)}{DELETED_SUFFIX}")
        with storage_errors("cannot rename the snapshot", path):
            machine().rename(path, marked)
        self._ids.remove((snapshot_id.offset, snapshot_id.epoch))
        return marked
