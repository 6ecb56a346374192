"""Opening a log after a crash: whole batches stay, a torn end is cut off, any other damage is refused.

A segment is fsynced before its successor is created, so a crash can tear only the end of the last segment. Damage
elsewhere has another cause, and cutting there would silently drop records that this voter has acknowledged. After a
clean stop no end can be torn (`migrator.log.synced_end`).

Without a clean stop, an fsync of the last segment may have failed. Then a batch that can be read may be in the page
cache only. So the last segment is written and fsynced again before its records count as durable.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from migrator.log.epochs import EpochTable
from migrator.log.errors import StorageError
from migrator.log.files import TEMPORARY_SUFFIX, iter_file_batches, remove_file, sync_directory
from migrator.log.segment import COMPANION_SUFFIXES, Segment, close_all
from migrator.log.snapshots import SnapshotStore
from migrator.log.synced_end import SyncedEnd
from migrator.machine import machine
from migrator.raft.voter_set import VoterHistory
from migrator.records.batch import Batch
from migrator.records.control import VotersRecord, voters_records
from migrator.records.errors import CorruptRecordsError
from migrator.values import value

_SEGMENT = re.compile(r"(\d{20})\.log")
_NUMBERED = re.compile(r"\d{20}[-.].*")
_UNFINISHED_SUFFIXES = (".part", ".deleted", TEMPORARY_SUFFIX)
_REMEDY = (
    "Look at the kernel log (dmesg) for faults of the disk. Then, while a majority of the other voters runs, empty "
    "this node's metadata directory and format it again for the same cluster.id and node.id: the leader brings it up "
    "to date (one node at a time). If this is the only voter, restore the directory from a copy"
)


@value
class Recovery:
    """The changes that opening the log has made: ``cut_bytes`` bytes after the last whole batch were cut off, with the
    reason."""

    cut_bytes: int = 0
    cut_reason: str = ""


@value
class RecoveredLog:
    """The segments, oldest first, and their content: the epochs, and the voters records with their offsets."""

    segments: list[Segment]
    epochs: EpochTable
    voters: list[tuple[int, VotersRecord]]
    recovery: Recovery


def recover(directory: Path) -> RecoveredLog:
    """Read every batch of every segment and cut off the torn end of the last one, durably.

    Afterwards the note of a clean stop is gone.

    :raises StorageError: damage that is not a torn end, a gap between segments, or a disk that refuses.
    """
    synced_end = SyncedEnd(directory)
    synced = synced_end.read()
    if synced is None:
        synced_end.remove()  # first: the index files that `remove_leftovers` removes show that the note is outdated
    remove_leftovers(directory)
    bases = sorted(int(match[1]) for path in machine().names(directory) if (match := _SEGMENT.fullmatch(path.name)))
    log = RecoveredLog([], EpochTable(), [], Recovery())
    try:
        for base in bases:
            log = _add_segment(log, directory, base, synced or 0 if base == bases[-1] else None)
        _check_end(log, directory, synced or 0)
        if log.segments and synced is None:
            log.segments[-1].write_again()
            log.segments[-1].sync()
        synced_end.remove()
    except StorageError:
        close_all(log.segments)
        raise
    return log


def _check_end(log: RecoveredLog, directory: Path, synced: int) -> None:
    """Refuse a log that ends below the noted end: whole batches, or a whole segment, are missing."""
    end_offset = log.segments[-1].next_offset if log.segments else 0
    if end_offset < synced:
        reason = (
            f"the log ends at offset {end_offset}, but it was complete up to offset {synced} when this "
            f"controller was last stopped cleanly: records that the other voters count on are missing"
        )
        raise StorageError(reason, where=str(directory), remedy=_REMEDY)


def _add_segment(log: RecoveredLog, directory: Path, base_offset: int, synced: int | None) -> RecoveredLog:
    """:param synced: nothing may be cut off below this offset; None when nothing may be cut off at all."""
    if log.segments and log.segments[-1].next_offset != base_offset:
        reason = f"the log has a gap from offset {log.segments[-1].next_offset} to {base_offset}"
        raise StorageError(reason, where=str(directory), remedy=_REMEDY)
    segment = Segment.open(directory, base_offset)
    log.segments.append(segment)
    damage = _scan(segment, log)
    recovery = Recovery() if damage is None else _cut(segment, damage, synced)
    return RecoveredLog(log.segments, log.epochs, log.voters, recovery)


def voter_history(store: SnapshotStore, found: Iterable[tuple[int, VotersRecord]]) -> VoterHistory:
    """The voter sets by offset, from snapshots and log. The latest snapshot stands for the log before it, and replaces
    the voters that the quorum was formatted with.

    :raises StorageError: the latest snapshot, or without one the file of offset 0, cannot be read or is damaged.
    """
    latest = store.latest()
    if latest is None:
        history, known_to = VoterHistory(store.bootstrap_membership()), 0
    else:
        history, known_to = VoterHistory(), latest.offset
        history.begin_at(latest.offset, store.membership(latest))
    for offset, record in found:
        if offset >= known_to:
            history.note(offset, record)
    return history


def remove_leftovers(directory: Path) -> None:
    """Remove unfinished and deleted files, and the index files of stock Kafka, which Kafka makes anew at each start.

    :raises StorageError: when that fails.
    """
    disposable = (*_UNFINISHED_SUFFIXES, *COMPANION_SUFFIXES)
    leftovers = [path for path in machine().names(directory) if path.name.endswith(disposable)]
    for path in leftovers:
        if _NUMBERED.fullmatch(path.name) or path.name.endswith(TEMPORARY_SUFFIX):
            remove_file(path)
    if leftovers:
        sync_directory(directory)


def _scan(segment: Segment, log: RecoveredLog) -> CorruptRecordsError | None:
    """Note every whole batch of a segment. Returns the first fault; its position is the end of the good part."""
    try:
        for position, batch in iter_file_batches(segment.path):
            header = batch.header
            if header.base_offset != segment.next_offset:
                what = f"a batch starts at offset {header.base_offset} instead of {segment.next_offset}"
                return CorruptRecordsError(what, position)
            if header.leader_epoch < (log.epochs.latest or 0):
                return CorruptRecordsError(f"the leader epoch falls to {header.leader_epoch}", position)
            log.epochs.assign(header.leader_epoch, header.base_offset)
            if header.is_control:
                log.voters.extend(_voters(segment, batch))
            segment.note(header)
    except CorruptRecordsError as error:
        return error
    return None


def _voters(segment: Segment, batch: Batch) -> list[tuple[int, VotersRecord]]:
    """The voters records in a batch. The batch's checksum is right, so a fault in a record was written so by a program,
    and is no torn end."""
    try:
        return voters_records(batch)
    except CorruptRecordsError as error:
        raise StorageError(
            f"the log does not say who votes: {error}",
            where=str(segment.path),
            remedy="Start this directory with the release of Kafka that wrote it, or restore it from a copy",
        ) from error


def _cut(segment: Segment, damage: CorruptRecordsError, synced: int | None) -> Recovery:
    if synced is None:
        raise StorageError(f"the segment is damaged: {damage}", where=str(segment.path), remedy=_REMEDY)
    if segment.next_offset < synced:
        reason = (
            f"the segment is damaged: {damage}, after offset {segment.next_offset}, but the log was complete up to "
            f"offset {synced} when this controller was last stopped cleanly, so a crash is not the cause"
        )
        raise StorageError(reason, where=str(segment.path), remedy=_REMEDY)
    torn = machine().file_size(segment.path) - segment.size
    segment.cut_at(segment.size)
    segment.sync()
    return Recovery(torn, str(damage))
