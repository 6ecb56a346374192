"""Reads the metadata of a directory that a controller may be writing to: the newest snapshot and the log behind it.

Nothing is locked, cut or repaired. An incomplete batch at the very end counts as being written by a running node if the
file changes. Any other damage is an error, so a verdict never rests on half of a log.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_fixed

from migrator.errors import InvariantViolation, OperatorError
from migrator.image.loader import ImageLoader
from migrator.image.model import MetadataImage
from migrator.image.replay import replay, snapshot_image
from migrator.log.errors import storage_errors
from migrator.log.files import iter_file_batches
from migrator.log.listing import LogListing, list_log
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.log.recovery import voter_history
from migrator.log.snapshots import SnapshotStore, iter_snapshot
from migrator.raft.messages import EpochOffset
from migrator.raft.voter_set import Membership
from migrator.records.batch import HEADER_SIZE, LENGTH_END, Batch, BatchHeader, read_header
from migrator.records.control import VotersRecord, voters_records
from migrator.records.errors import CorruptRecordsError
from migrator.verify.live_files import goes_on, stamp

T = TypeVar("T")

ATTEMPTS = 3
"""A running controller may remove a file after it was listed."""

NAME_DIRECTORY = "Give the metadata directory of a controller: metadata.log.dir, or the first directory of log.dirs"
COMPARE = "Compare with another controller's directory"
_TORN = (
    f"If this controller crashed, the end of its log is incomplete: start the controller once, which cuts the "
    f"incomplete end, and stop it with SIGTERM. Otherwise: {COMPARE.lower()}"
)
UNKNOWN = "If the controller is newer than this tool, use a newer tool. Otherwise the log is damaged"


class EmptyLogError(OperatorError):
    """The log has no metadata, but perhaps records of elections."""

    def __init__(self, log_directory: Path) -> None:
        super().__init__("the metadata log is empty", where=str(log_directory), remedy=NAME_DIRECTORY)


def read_image(directory: Path, until: int | None = None) -> MetadataImage:
    """The image at the end of a directory's log, without what belongs to an open transaction.

    :param directory: a metadata directory, or its ``__cluster_metadata-0``.
    :param until: the last offset to read; None for all that is there.
    :raises OperatorError: the directory can't be read, or its log is damaged; names file and offset.
    """
    return patiently(lambda: _read_image(log_directory_of(directory), until))


def end_of_log(directory: Path) -> int:
    """The offset after the last whole batch at this moment; errors as in `read_image`."""
    return patiently(lambda: _end_of_log(log_directory_of(directory)))


def last_of_log(directory: Path) -> EpochOffset:
    """The epoch of the last whole batch at this moment, and the offset after it; errors as in `read_image`."""
    return patiently(lambda: _last_of_log(log_directory_of(directory)))


def membership_of(directory: Path) -> Membership:
    """The voters of the last such record in a directory's log, committed or not; errors as in `read_image`."""
    return patiently(lambda: _membership_of(log_directory_of(directory)))


def patiently(attempt: Callable[[], T]) -> T:
    """Call ``attempt`` again when a listed file has disappeared."""
    retrying = Retrying(
        retry=retry_if_exception(lambda error: isinstance(error.__cause__, FileNotFoundError)),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_fixed(0.2),
        reraise=True,
    )
    return retrying(attempt)


def log_directory_of(directory: Path) -> Path:
    """The ``__cluster_metadata-0`` of a metadata directory, which may be that already.

    :raises OperatorError: the directory does not exist, or can't be read.
    """
    log_directory = directory if directory.name == DIRECTORY_NAME else directory / DIRECTORY_NAME
    with storage_errors("cannot read", log_directory):
        if not log_directory.is_dir():
            raise OperatorError("there is no metadata log", where=str(log_directory), remedy=NAME_DIRECTORY)
    return log_directory


def _read_image(log_directory: Path, until: int | None) -> MetadataImage:
    try:
        listing = list_log(log_directory)
        newest = listing.newest_snapshot(until)
        check_begin(listing, newest)
        loader = ImageLoader() if newest is None else ImageLoader(_image_of(newest, listing.snapshots[newest]))
        start = loader.end_offset
        for path, _, batch in checked(listing, newest, iter_file_batches, lambda batch: batch.header):
            if until is not None and batch.header.base_offset > until:
                break
            if batch.header.base_offset < start:
                continue
            with _named(path, batch):
                replay(loader, batch)
            loader.commit(loader.end_offset)  # otherwise the loader keeps what a truncation would need
        loader.apply()
        loader.commit(max(loader.end_offset, loader.published.provenance.offset + 1))
    except InvariantViolation as error:
        raise OperatorError(str(error), where=str(log_directory), remedy=COMPARE) from error
    image = loader.published
    if image.provenance.offset < 0:
        raise EmptyLogError(log_directory)
    return image


def _end_of_log(log_directory: Path) -> int:
    return _last_of_log(log_directory).offset


def _last_of_log(log_directory: Path) -> EpochOffset:
    listing = list_log(log_directory)
    last = listing.newest_snapshot() or EpochOffset(0, 0)
    for path in reversed(listing.segments):  # the newest segment with a batch: a new one may have none
        headers = deque[tuple[int, BatchHeader]](maxlen=1)
        with suppress(CorruptRecordsError):  # other damage is found when the file is read
            headers.extend(headers_of(path))
        for _, header in headers:
            return max(last, EpochOffset(header.leader_epoch, header.next_offset), key=lambda one: one.offset)
    return last


def _membership_of(log_directory: Path) -> Membership:
    def found() -> Iterator[tuple[int, VotersRecord]]:
        for path, _, batch in checked(list_log(log_directory), None, iter_file_batches, lambda batch: batch.header):
            if batch.header.is_control:
                try:
                    yield from voters_records(batch)
                except CorruptRecordsError as error:
                    raise damaged(path, error) from error

    with storage_errors("cannot read", log_directory):
        return voter_history(SnapshotStore(log_directory), found()).latest


def headers_of(path: Path) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each batch of a file; the records between headers are not read.

    :raises CorruptRecordsError: at the first header that is cut or damaged; names its position.
    :raises OperatorError: the file cannot be read.
    """
    with storage_errors("cannot read", path), path.open("rb", buffering=0) as file:
        size, position = path.stat().st_size, 0
        while position < size:
            try:
                header = read_header(file.read(HEADER_SIZE))
            except CorruptRecordsError as error:
                raise CorruptRecordsError(error.what, position) from error
            if header.size > size - position:
                raise CorruptRecordsError(f"a batch of {header.size} bytes is cut after {size - position}", position)
            yield position, header
            position = file.seek(header.size - HEADER_SIZE, os.SEEK_CUR)


def _image_of(snapshot: EpochOffset, path: Path) -> MetadataImage:
    try:
        return snapshot_image(snapshot.offset, snapshot.epoch, iter_snapshot(path))
    except CorruptRecordsError as error:
        raise OperatorError(str(error), where=str(path), remedy=UNKNOWN) from error


def checked(
    listing: LogListing,
    base: EpochOffset | None,
    read: Callable[[Path], Iterator[tuple[int, T]]],
    header_of: Callable[[T], BatchHeader],
) -> Iterator[tuple[Path, int, T]]:
    """Yield what ``read`` finds in each segment, with file and position. Offsets and epochs are checked.

    :param base: the snapshot that the log continues: where it ends, the log must have its epoch.
    :raises OperatorError: a check fails, or a segment is damaged; names file and offset.
    """
    segments = listing.segments
    expected, epoch = int(segments[0].stem) if segments else 0, 0
    if base is not None and segments and expected >= base.offset:
        epoch = base.epoch
    for path in segments:
        for position, found in _segment(path, read, is_last=path is segments[-1]):
            header = header_of(found)
            if base is not None and header.base_offset < base.offset <= header.next_offset:
                _check_epoch(path, header, base)
            if header.base_offset != expected or header.leader_epoch < epoch:
                place = f"a batch of offset {header.base_offset} and epoch {header.leader_epoch}"
                what = f"{place} follows offset {expected - 1} of epoch {epoch}"
                raise OperatorError(what, where=str(path), remedy=COMPARE)
            expected, epoch = header.next_offset, header.leader_epoch
            yield path, position, found


def check_begin(listing: LogListing, base: EpochOffset | None) -> None:
    """Check that the log begins where its snapshot ends, or before.

    :raises OperatorError: records between both are missing.
    """
    if listing.segments and (first := int(listing.segments[0].stem)) > (0 if base is None else base.offset):
        what = f"the log begins at offset {first}, and no snapshot holds what was before"
        raise OperatorError(what, where=str(listing.segments[0].parent), remedy=COMPARE)


def _check_epoch(path: Path, header: BatchHeader, base: EpochOffset) -> None:
    if header.leader_epoch != base.epoch:
        what = (
            f"the batch at offset {header.base_offset} is of epoch {header.leader_epoch}, but the snapshot that ends "
            f"at offset {base.offset} is of epoch {base.epoch}: these are files of two logs"
        )
        raise OperatorError(what, where=str(path), remedy=COMPARE)


def _segment(path: Path, read: Callable[[Path], Iterator[tuple[int, T]]], *, is_last: bool) -> Iterator[tuple[int, T]]:
    """Yield every batch of a segment. The last segment may end with half a batch if a controller is writing it."""
    since = stamp(path)
    try:
        yield from read(path)
    except CorruptRecordsError as error:
        cut = error.position is not None and _is_cut(path, error.position)
        if not (cut and is_last and goes_on(path, since)):
            raise damaged(path, error, _TORN if cut and is_last else COMPARE) from error


def _is_cut(path: Path, position: int) -> bool:
    """Whether the file ends within the batch that begins at that position."""
    with storage_errors("cannot read", path), path.open("rb") as file:
        file.seek(position)
        head = file.read(LENGTH_END)
        length = int.from_bytes(head[8:], "big", signed=True)
        return len(head) < LENGTH_END or position + LENGTH_END + length > path.stat().st_size


@contextmanager
def _named(path: Path, batch: Batch) -> Iterator[None]:
    """Name the file and the batch in an error of decoding the batch's records."""
    try:
        yield
    except CorruptRecordsError as error:
        raise undecoded(path, batch.header, error) from error


def undecoded(path: Path, header: BatchHeader, error: CorruptRecordsError) -> OperatorError:
    what = f"the batch at offset {header.base_offset} does not decode: {error.what}"
    return OperatorError(what, where=str(path), remedy=UNKNOWN)


def damaged(path: Path, error: CorruptRecordsError, remedy: str = COMPARE) -> OperatorError:
    """The error for a segment that does not decode."""
    return OperatorError(str(error), where=str(path), remedy=remedy)
