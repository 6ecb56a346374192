"""Reads the metadata of a directory that a controller may be writing to: the newest snapshot and the log behind it.

Nothing is locked, cut or repaired. An incomplete batch at the very end is what a running node is about to write, if
the file goes on growing; any other damage is an error, so that a verdict never rests on half of a log.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_fixed

from migrator.errors import InvariantViolation, OperatorError
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.image.replay import Decode, every_record, replay, snapshot_image
from migrator.log.errors import storage_errors
from migrator.log.files import iter_file_batches
from migrator.log.listing import list_log
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.recovery import voter_history
from migrator.log.snapshots import SnapshotStore, iter_snapshot
from migrator.raft.messages import EpochOffset
from migrator.raft.voter_set import Membership
from migrator.records.batch import HEADER_SIZE, LENGTH_END, Batch, BatchHeader, read_header
from migrator.records.codec import SPEC_OF
from migrator.records.control import VotersRecord, voters_records
from migrator.records.errors import CorruptRecordsError
from migrator.records.metadata import MetadataRecord, PartitionChangeRecord, PartitionRecord
from migrator.verify.live_files import goes_on, stamp

T = TypeVar("T")
_PARTITION_KEYS = frozenset({SPEC_OF[PartitionRecord].api_key, SPEC_OF[PartitionChangeRecord].api_key})
_TOPIC_ID = 7
"""Where both have the topic's id: behind frame version, key, version and the partition's number."""

ATTEMPTS = 3
"""A running controller may remove a file after it was listed."""

_REMEDY = "Give the metadata directory of a controller: metadata.log.dir, or the first directory of log.dirs"
COMPARE = "Compare with another controller's directory"
_TORN = (
    f"If this controller crashed, the end of its log is incomplete: start the controller once, which cuts the "
    f"incomplete end, and stop it with SIGTERM. Otherwise: {COMPARE.lower()}"
)
_UNKNOWN = "If the controller is newer than this tool, use a newer tool. Otherwise the log is damaged"


def share_of_partitions(number: int, count: int) -> Decode:
    """`Decode` that passes over the partitions of all topics but those of one of ``count`` shares (`in_share`)."""

    def wanted(buffer: bytes, start: int) -> bool:
        if buffer[start + 1] not in _PARTITION_KEYS:
            return True
        return in_share(buffer[start + _TOPIC_ID : start + _TOPIC_ID + 16], number, count)

    return lambda batch: [record for record, _ in batch.records(wanted)]


def in_share(topic_id: bytes, number: int, count: int) -> bool:
    """Whether a topic belongs to that share."""
    return zlib.crc32(topic_id) % count == number


class EmptyLogError(OperatorError):
    """There is no metadata in the log, though perhaps elections."""


def read_image(directory: Path, until: int | None = None, decode: Decode = every_record) -> MetadataImage:
    """The image at the end of a directory's log, without what belongs to an open transaction.

    :param directory: a metadata directory, or its ``__cluster_metadata-0``.
    :param until: the last offset to read; None for all that is there.
    :param decode: what to take of each batch.
    :raises OperatorError: it can't be read, or holds damage; names file and offset.
    """
    return _patiently(lambda: _read_image(log_directory_of(directory), until, decode))


def end_of_log(directory: Path) -> int:
    """The offset behind the last whole batch that is there now; errors as `read_image`."""
    return _patiently(lambda: _end_of_log(log_directory_of(directory)))


def last_of_log(directory: Path) -> EpochOffset:
    """The epoch of the last whole batch that is there now, and the offset behind it; errors as `read_image`."""
    return _patiently(lambda: _last_of_log(log_directory_of(directory)))


def membership_of(directory: Path) -> Membership:
    """Who votes by the last record of a directory's log, committed or not; errors as `read_image`."""
    return _patiently(lambda: _membership_of(log_directory_of(directory)))


def log_bytes(directory: Path) -> int:
    """The size of what `read_image` would read; errors as `read_image`."""
    log_directory = log_directory_of(directory)
    listing = list_log(log_directory)
    with storage_errors("cannot read", log_directory):
        return sum(path.stat().st_size for path in (*listing.segments, *listing.snapshots.values()))


def _patiently(attempt: Callable[[], T]) -> T:
    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error.__cause__, FileNotFoundError)),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_fixed(0.2),
        reraise=True,
    )
    return retrying(attempt)


def log_directory_of(directory: Path) -> Path:
    """The ``__cluster_metadata-0`` of a metadata directory, which may be that already.

    :raises OperatorError: there is none, or it can't be looked at.
    """
    log_directory = directory if directory.name == DIRECTORY_NAME else directory / DIRECTORY_NAME
    with storage_errors("cannot read", log_directory):
        if not log_directory.is_dir():
            raise OperatorError("there is no metadata log", where=str(log_directory), remedy=_REMEDY)
    return log_directory


def _read_image(log_directory: Path, until: int | None, decode: Decode) -> MetadataImage:
    try:
        loader = newest_snapshot(log_directory, until, decode)
        segments = list_log(log_directory).segments
        start = loader.end_offset
        if segments and int(segments[0].stem) > start:
            what = f"the log begins at offset {int(segments[0].stem)}, and no snapshot holds what was before"
            raise OperatorError(what, where=str(log_directory), remedy=COMPARE)
        for path, batch in _batches(segments, start):
            if until is not None and batch.header.base_offset > until:
                break
            replay(loader, batch, _decoded(path, decode))
            loader.commit(loader.end_offset)  # or it keeps what it would need to go back
        loader.apply()
        loader.commit(max(loader.end_offset, loader.published.provenance.offset + 1))
    except InvariantViolation as error:
        raise OperatorError(str(error), where=str(log_directory), remedy=COMPARE) from error
    image = loader.published
    if image.provenance.offset < 0:
        raise EmptyLogError("the metadata log is empty", where=str(log_directory), remedy=_REMEDY)
    return image


def _end_of_log(log_directory: Path) -> int:
    return _last_of_log(log_directory).offset


def _last_of_log(log_directory: Path) -> EpochOffset:
    listing = list_log(log_directory)
    last = listing.newest_snapshot() or EpochOffset(0, 0)
    for path in reversed(listing.segments):  # the newest one with a batch: one that was just begun has none
        headers = deque(_headers(path), maxlen=1)
        if headers:
            return max(last, EpochOffset(headers[0].leader_epoch, headers[0].next_offset), key=lambda one: one.offset)
    return last


def _membership_of(log_directory: Path) -> Membership:
    def found() -> Iterator[tuple[int, VotersRecord]]:
        for path, batch in _batches(list_log(log_directory).segments, 0):
            if batch.header.is_control:
                try:
                    yield from voters_records(batch)
                except CorruptRecordsError as error:
                    raise damaged(path, error) from error

    with storage_errors("cannot read", log_directory):
        return voter_history(SnapshotStore(log_directory), found()).latest


def _headers(path: Path) -> Iterator[BatchHeader]:
    """Headers of the whole batches of a segment; whatever else it holds is found when it is read."""
    with storage_errors("cannot read", path), path.open("rb") as file:
        left = path.stat().st_size
        try:
            while left >= HEADER_SIZE and (header := read_header(file.read(HEADER_SIZE))).size <= left:
                yield header
                file.seek(header.size - HEADER_SIZE, os.SEEK_CUR)
                left -= header.size
        except CorruptRecordsError:
            return


def newest_snapshot(log_directory: Path, until: int | None = None, decode: Decode = every_record) -> ImageLoader:
    """What the newest snapshot holds, of those that end at ``until`` at the latest; nothing without one."""
    listing = list_log(log_directory)
    newest = listing.newest_snapshot(until)
    if newest is None:
        return ImageLoader()
    path = listing.snapshots[newest]
    image = snapshot_image(newest.offset, newest.epoch, iter_snapshot(path), _decoded(path, decode))
    return ImageLoader(image)


def _batches(segments: Sequence[Path], start: int) -> Iterator[tuple[Path, Batch]]:
    """Batches from ``start`` on, with the segment that they are in. All are checked: sums, offsets, epochs."""
    expected, epoch = int(segments[0].stem) if segments else 0, 0
    for path in segments:
        for batch in _segment(path, is_last=path is segments[-1]):
            header = batch.header
            if header.base_offset != expected or header.leader_epoch < epoch:
                place = f"a batch of offset {header.base_offset} and epoch {header.leader_epoch}"
                what = f"{place} follows offset {expected - 1} of epoch {epoch}"
                raise OperatorError(what, where=str(path), remedy=COMPARE)
            expected, epoch = header.next_offset, header.leader_epoch
            if header.base_offset >= start:
                yield path, batch


def _segment(path: Path, *, is_last: bool) -> Iterator[Batch]:
    """Every batch of a segment. The last one of the log may end with half a batch, if somebody is writing it."""
    since = stamp(path)
    try:
        for _, batch in iter_file_batches(path):
            yield batch
    except CorruptRecordsError as error:
        cut = error.position is not None and _is_cut(path, error.position)
        if not (cut and is_last and goes_on(path, since)):
            raise damaged(path, error, _TORN if cut and is_last else COMPARE) from error


def _is_cut(path: Path, position: int) -> bool:
    """Whether the file ends within the batch at that position."""
    with storage_errors("cannot read", path), path.open("rb") as file:
        file.seek(position)
        head = file.read(LENGTH_END)
        length = int.from_bytes(head[8:], "big", signed=True)
        return len(head) < LENGTH_END or position + LENGTH_END + length > path.stat().st_size


def _decoded(path: Path, decode: Decode) -> Decode:
    """As ``decode``, with an `OperatorError` that names the file."""

    def decoded(batch: Batch) -> Sequence[MetadataRecord]:
        try:
            return decode(batch)
        except CorruptRecordsError as error:
            what = f"the batch at offset {batch.header.base_offset} does not decode: {error.what}"
            raise OperatorError(what, where=str(path), remedy=_UNKNOWN) from error

    return decoded


def damaged(path: Path, error: CorruptRecordsError, remedy: str = COMPARE) -> OperatorError:
    """The error for a segment that does not decode."""
    return OperatorError(str(error), where=str(path), remedy=remedy)
