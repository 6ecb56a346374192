"""The log on its disk: append, read, truncate, recover, clean."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import InvariantViolation
from migrator.log import files, segment
from migrator.log.errors import NoSpaceError, StorageError
from migrator.log.metadata_log import DIRECTORY_NAME, LogLimits, MetadataLog
from migrator.log.recovery import Recovery
from migrator.log.retention import HELD_BACK, Retention
from migrator.log.segment import RECENT, close_all
from migrator.raft.messages import EpochOffset
from migrator.raft.storage import LogView
from migrator.records.errors import CorruptRecordsError
from tests.log.support.builders import batch, log_files, write_snapshot

SMALL = LogLimits(segment_bytes=200, segment_ms=10**12)
FIRST = f"{0:020d}.log"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[MetadataLog]:
    opened = MetadataLog.open(tmp_path, SMALL)
    yield opened
    opened.close()


def reopened(log: MetadataLog, limits: LogLimits = SMALL) -> MetadataLog:
    log.close()
    return MetadataLog.open(log.directory.parent, limits)


def state_of(log: MetadataLog) -> tuple[Any, ...]:
    content = b"".join(log.chunks(log.start_offset(), log.end_offset()))
    epochs = [log.epoch_at(offset) for offset in range(log.start_offset(), log.end_offset())]
    return log.start_offset(), log.end_offset(), log.last_epoch(), epochs, content, log.snapshots()


def test_an_empty_log(log: MetadataLog) -> None:
    view: LogView = log
    assert (view.start_offset(), view.end_offset(), view.last_epoch(), list(view.snapshots())) == (0, 0, 0, [])
    assert view.end_of_epoch(5) == EpochOffset(0, 0)
    assert view.epoch_at(0) is None
    assert log.read(0, 1000) == b""


def test_what_is_appended_is_read_back_across_segments_and_boots(log: MetadataLog) -> None:
    batches = [batch(offset, epoch=1 + offset // 6, count=2) for offset in range(0, 20, 2)]
    for data in batches:
        log.append(data)
    assert log.sync() == 20
    assert len([name for name in log_files(log.directory.parent) if name.endswith(".log")]) > 3
    before = state_of(log)
    assert before[:3] == (0, 20, 4)
    assert before[4] == b"".join(batches)
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n4\n1 0\n2 6\n3 12\n4 18\n"
    again = reopened(log)
    assert state_of(again) == before
    assert again.recovery == Recovery()
    again.close()


def test_a_batch_is_found_with_few_reads_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some 57 small batches lie between two marks of the index."""
    log = MetadataLog.open(tmp_path)
    for offset in range(500):
        log.append(batch(offset))
    reads = counted_reads(monkeypatch)
    for offset in range(500):
        reads.clear()
        header = log.header_at(offset)
        assert header is not None
        assert header.base_offset == offset
        assert len(reads) <= 2
        reads.clear()
        assert log.read(offset, 300, offset + 1) == batch(offset)
        assert len(reads) <= 3
    reads.clear()
    log.truncate_to(499)
    assert log.end_offset() == 499
    assert len(reads) <= 3
    log.close()


def counted_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where segments are read from now on."""
    reads: list[int] = []
    read = segment.Segment._read

    def counted(at: segment.Segment, position: int, size: int) -> bytes:
        reads.append(position)
        return read(at, position, size)

    monkeypatch.setattr(segment.Segment, "_read", counted)
    return reads


def test_read_gives_whole_batches_within_the_bounds(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path)
    batches = [batch(offset, count=3) for offset in range(0, 30, 3)]
    log.append(b"".join(batches))
    size = len(batches[0])
    assert log.read(4, 10_000) == b"".join(batches[1:])
    assert log.read(3, 2 * size) == b"".join(batches[1:3])
    assert log.read(3, 2 * size - 1) == batches[1]
    assert log.read(3, 1) == batches[1]
    assert log.read(0, 10_000, up_to=7) == b"".join(batches[:2])
    assert log.read(6, 10_000, up_to=7) == b"", "the first one reaches beyond it"
    assert log.read(29, 10_000) == batches[9]
    assert log.read(30, 10_000) == b""
    assert b"".join(log.chunks(0, 30, max_bytes=size)) == b"".join(batches)
    log.close()


def test_positions_are_found_in_a_large_segment(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path)
    for offset in range(2000):
        log.append(batch(offset, epoch=1 + offset // 700))
    for offset in range(0, 2000, 37):
        assert log.read(offset, 1) == batch(offset, epoch=1 + offset // 700)
    log.truncate_to(1234)
    assert log.end_offset() == 1234
    log.append(batch(1234, epoch=9))
    assert log.read(1233, 10_000) == batch(1233, epoch=2) + batch(1234, epoch=9)
    log.close()


def test_what_does_not_follow_on_changes_nothing(log: MetadataLog) -> None:
    log.append(batch(0, epoch=5))
    before = state_of(log)
    damaged = bytearray(batch(1, epoch=5))
    damaged[-1] ^= 1
    for bad in (batch(0, epoch=5), batch(2, epoch=5), batch(1, epoch=4), bytes(damaged), batch(1, epoch=5)[:-1]):
        with pytest.raises(CorruptRecordsError):
            log.append(bad)
    assert state_of(log) == before
    assert log.append(b"") == 1


def test_divergence_is_answered_by_epoch(log: MetadataLog) -> None:
    for offset, epoch in enumerate([1, 1, 3, 3, 3, 7]):
        log.append(batch(offset, epoch))
    assert [log.end_of_epoch(epoch) for epoch in (1, 2, 3, 6, 7, 9)] == [
        EpochOffset(1, 2),
        EpochOffset(1, 2),
        EpochOffset(3, 5),
        EpochOffset(3, 5),
        EpochOffset(7, 6),
        EpochOffset(7, 6),
    ]
    assert log.end_of_epoch(0) == EpochOffset(0, 0)
    assert [log.epoch_at(offset) for offset in (-1, 0, 2, 5, 6)] == [None, 1, 3, 7, None]


@pytest.mark.parametrize("offset", range(21))
def test_truncation_at_every_offset(tmp_path: Path, offset: int) -> None:
    log = MetadataLog.open(tmp_path, SMALL)
    for base in range(0, 20, 2):
        log.append(batch(base, epoch=1 + base // 6, count=2))
    files = len(log_files(tmp_path))
    log.truncate_to(offset)
    assert len(log_files(tmp_path)) == files, "no file is removed in this turn"
    log.remove_deleted(now_ms=60_000)
    assert not any(name.endswith(".deleted") for name in log_files(tmp_path))
    kept = offset // 2 * 2
    assert log.end_offset() == kept
    assert log.last_epoch() == (1 + (kept - 2) // 6 if kept else 0)
    log.append(batch(kept, epoch=9, count=3))
    again = reopened(log)
    assert (again.end_offset(), again.last_epoch(), again.recovery) == (kept + 3, 9, Recovery())
    assert (again.directory / "leader-epoch-checkpoint").read_text().endswith(f"9 {kept}\n")
    again.close()


def test_no_truncation_below_the_start(tmp_path: Path) -> None:
    write_snapshot(tmp_path, 10, 2)
    log = MetadataLog.open(tmp_path)
    with pytest.raises(InvariantViolation, match="below the log's start"):
        log.truncate_to(9)
    log.close()


def test_a_torn_tail_is_cut_wherever_it_is_torn(tmp_path: Path) -> None:
    whole = batch(0, count=2) + batch(2)
    torn = batch(3, epoch=2, count=2)
    for size in range(len(torn)):
        folder = tmp_path / str(size)
        (folder / DIRECTORY_NAME).mkdir(parents=True)
        (folder / DIRECTORY_NAME / FIRST).write_bytes(whole + torn[:size])
        log = MetadataLog.open(folder)
        assert (log.end_offset(), log.last_epoch(), log.recovery.cut_bytes) == (3, 1, size)
        assert (folder / DIRECTORY_NAME / FIRST).read_bytes() == whole
        assert log.append(torn) == 5
        log.close()


def test_a_batch_with_a_flipped_bit_at_the_end_is_cut(tmp_path: Path) -> None:
    whole, last = batch(0, count=2), batch(2, epoch=2)
    for position in range(16, len(last)):
        folder = tmp_path / str(position)
        (folder / DIRECTORY_NAME).mkdir(parents=True)
        flipped = bytearray(last)
        flipped[position] ^= 0x10
        (folder / DIRECTORY_NAME / FIRST).write_bytes(whole + flipped)
        log = MetadataLog.open(folder)
        assert (log.end_offset(), log.recovery.cut_bytes) == (2, len(last))
        assert log.recovery.cut_reason
        log.close()


def test_zeroes_behind_the_last_batch_are_cut(tmp_path: Path) -> None:
    (tmp_path / DIRECTORY_NAME).mkdir()
    (tmp_path / DIRECTORY_NAME / FIRST).write_bytes(batch(0) + bytes(4096))
    log = MetadataLog.open(tmp_path)
    assert (log.end_offset(), log.recovery.cut_bytes) == (1, 4096)
    log.close()


def test_damage_that_no_crash_explains_is_refused(log: MetadataLog) -> None:
    for offset in range(10):
        log.append(batch(offset))
    log.sync()
    path = log.directory / FIRST
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StorageError, match="is damaged") as caught:
        MetadataLog.open(log.directory.parent)
    assert caught.value.where == str(path)
    assert "format it again" in caught.value.remedy
    path.write_bytes(content)
    (log.directory / FIRST).unlink()
    with pytest.raises(StorageError, match="no snapshot holds what was before"):
        MetadataLog.open(log.directory.parent)
    path.write_bytes(content)
    names = sorted(name for name in log_files(log.directory.parent) if name.endswith(".log"))
    (log.directory / names[1]).unlink()
    with pytest.raises(StorageError, match="has a gap"):
        MetadataLog.open(log.directory.parent)


def test_leftovers_of_stock_kafka_and_of_a_crash_are_removed(tmp_path: Path) -> None:
    MetadataLog.open(tmp_path).close()
    folder = tmp_path / DIRECTORY_NAME
    number = f"{0:020d}"
    leftovers = [f"{number}.index", f"{number}.timeindex", f"{number}.snapshot", f"{number}.log.deleted"]
    leftovers += [f"{number}-{1:010d}-77.checkpoint.part", f"{number}-{1:010d}.checkpoint.deleted"]
    leftovers.append("leader-epoch-checkpoint.tmp")
    for name in leftovers:
        (folder / name).write_bytes(b"x")
    MetadataLog.open(tmp_path).close()
    assert log_files(tmp_path) == {FIRST, "leader-epoch-checkpoint", "partition.metadata", "synced-end"}
    assert (folder / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def test_a_snapshot_replaces_a_shorter_log(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path, SMALL)
    for offset in range(10):
        log.append(batch(offset))
    snapshot_id = write_snapshot(tmp_path, 50, 4)
    log.store.add(snapshot_id)
    log.truncate_fully_to_snapshot(snapshot_id)
    assert state_of(log) == (50, 50, 4, [], b"", [snapshot_id])
    assert log.end_of_epoch(3) == EpochOffset(4, 50)
    log.append(batch(50, epoch=6))
    assert log.end_of_epoch(5) == snapshot_id
    again = reopened(log)
    assert state_of(again) == (50, 51, 6, [6], batch(50, epoch=6), [snapshot_id])
    again.close()


@pytest.mark.parametrize("left", range(8))
def test_a_crash_anywhere_in_that_replacement_ends_the_same(tmp_path: Path, left: int) -> None:
    log = MetadataLog.open(tmp_path, SMALL)
    for offset in range(16):
        log.append(batch(offset))
    log.sync()
    close_all(log._segments)
    names = sorted(name for name in log_files(tmp_path) if name.endswith(".log"))
    for name in names[left:]:
        (log.directory / name).unlink()
    snapshot_id = write_snapshot(tmp_path, 10, 2)  # older than the log's end, but of a later epoch
    again = MetadataLog.open(tmp_path, SMALL)
    assert state_of(again) == (10, 10, 2, [], b"", [snapshot_id])
    again.close()


def test_a_snapshot_within_the_log_stays_beside_it(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path)
    for offset in range(10):
        log.append(batch(offset, epoch=2))
    snapshot_id = write_snapshot(tmp_path, 4, 2)
    again = reopened(log)
    assert (again.start_offset(), again.end_offset(), again.snapshots()) == (0, 10, [snapshot_id])
    again.close()


def test_cleaning_by_size_and_by_age(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path, SMALL)
    for offset in range(30):
        log.append(batch(offset, epoch=1 + offset // 10))
    for offset in (5, 15, 25):
        log.store.add(write_snapshot(tmp_path, offset, 1 + (offset - 1) // 10, timestamp_ms=offset * 1000))
    unlimited = Retention(max_bytes=-1, max_ms=-1)
    assert list(log.clean(unlimited, 10**9)) == []
    assert list(log.clean(Retention(max_bytes=-1, max_ms=5_000), 10_500)) == [EpochOffset(1, 5)]
    assert log.start_offset() == 15
    assert log.epoch_at(14) is None
    assert log.end_of_epoch(1) == EpochOffset(2, 15)
    assert log.read(15, 1) == batch(15, epoch=2)
    assert any(name.endswith(".log.deleted") for name in log_files(tmp_path))
    log.remove_deleted(10_500 + 59_999)
    assert any(name.endswith(".deleted") for name in log_files(tmp_path))
    log.remove_deleted(10_500 + 60_000)
    assert not any(name.endswith(".deleted") for name in log_files(tmp_path))
    assert list(log.clean(Retention(max_bytes=1, max_ms=-1), 10**9)) == [EpochOffset(2, 15)]
    assert log.snapshots() == [EpochOffset(3, 25)]
    again = reopened(log)
    assert (again.end_offset(), again.last_epoch(), again.snapshots()) == (30, 3, [EpochOffset(3, 25)])
    again.close()


def test_what_somebody_needs_stays_beyond_retention_up_to_a_bound(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path, SMALL)
    for offset in range(30):
        log.append(batch(offset))
    for offset in (5, 15, 25):
        log.store.add(write_snapshot(tmp_path, offset, 1))
    held = log.size() + sum(map(log.store.size, log.snapshots()))
    within = Retention(max_bytes=held // HELD_BACK + 1, max_ms=-1)
    assert log.is_due(within, 10**9)
    assert list(log.clean(within, 10**9, needed_from=14)) == []
    assert list(log.clean(within, 10**9, needed_from=15)) == [EpochOffset(1, 5)]
    assert (log.start_offset(), log.header_at(15) is None, log.header_at(14)) == (15, False, None)
    assert list(log.clean(Retention(max_bytes=-1, max_ms=1), 10**9, needed_from=15)) == []
    beyond = Retention(max_bytes=1, max_ms=-1)
    assert list(log.clean(beyond, 10**9, needed_from=15)) == [EpochOffset(1, 15)], "a full disk is worse"
    log.close()


def test_the_header_of_any_offset(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path, SMALL)
    for offset in range(0, 30, 3):
        log.append(batch(offset, count=3, epoch=1 + offset // 15))
    for offset in range(30):
        header = log.header_at(offset)
        assert header is not None
        assert (header.base_offset, header.leader_epoch) == (offset // 3 * 3, log.epoch_at(offset))
    assert [log.header_at(offset) for offset in (-1, 30)] == [None, None]
    assert [log.epoch_start(epoch) for epoch in (0, 1, 2, 3)] == [None, 0, 15, None]
    log.close()


def test_an_old_segment_is_rolled(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path, LogLimits(segment_bytes=10**6, segment_ms=1000))
    log.append(batch(0, timestamp_ms=5000))
    log.append(batch(1, timestamp_ms=5999))
    log.append(batch(2, timestamp_ms=6000))
    assert {f"{base:020d}.log" for base in (0, 2)} <= log_files(tmp_path)
    log.close()


def test_what_was_appended_last_is_read_without_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader looks how much there is for a follower, and reads that: one read of the disk for both."""
    log = MetadataLog.open(tmp_path)
    for offset in range(300):
        log.append(batch(offset))
    reads = counted_reads(monkeypatch)
    for offset in range(300 - RECENT, 300):
        log.read(offset, log.size_of_read(offset, 10**6))
    assert len(reads) == RECENT
    log.truncate_to(290)
    assert log.read(289, 10**6) == log.read(280, 10**6)[9 * len(batch(0)) :]
    log.close()


def test_a_segment_that_changes_under_us_is_noticed(log: MetadataLog) -> None:
    log.append(batch(0) + batch(1))
    content = bytearray((log.directory / FIRST).read_bytes())
    content[16] = 1
    (log.directory / FIRST).write_bytes(content)
    with pytest.raises(StorageError, match="has changed: a batch has magic 1"):
        log.read(0, 1000)
    (log.directory / FIRST).write_bytes(b"")
    with pytest.raises(StorageError, match="has changed: 0 bytes are no batch header"):
        log.read(1, 1000)


def failing(code: int) -> Any:
    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def test_a_full_disk_leaves_the_log_as_it_was(log: MetadataLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(batch(0))

    def write_half(descriptor: int, data: bytes, position: int) -> None:
        os.pwrite(descriptor, data[: len(data) // 2], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(segment, "write_all", write_half)
        with pytest.raises(NoSpaceError, match=r"No space left.*Free space") as caught:
            log.append(batch(1))
    assert caught.value.where.endswith(FIRST)
    assert (log.directory / FIRST).read_bytes() == batch(0)
    assert log.append(batch(1)) == 2
    assert log.sync() == 2


FILL = """
import resource, sys
from pathlib import Path
from migrator.log.errors import NoSpaceError
from migrator.log.metadata_log import MetadataLog
from tests.log.support.builders import batch

log = MetadataLog.open(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
try:
    while True:
        log.append(batch(log.end_offset(), size=700))
except NoSpaceError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    print(log.append(batch(log.end_offset())), log.sync())
log.close()
"""


def test_the_kernel_itself_refuses_half_way(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FILL, str(tmp_path)]
    root = Path(__file__).parents[2]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    end = int(result.stdout.split()[0])
    assert end == 10_000 // len(batch(0, size=700)) + 1
    log = MetadataLog.open(tmp_path)
    assert (log.end_offset(), log.recovery) == (end, Recovery())
    log.close()


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_failed_write_ends_all_use(log: MetadataLog, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(segment, "write_all", failing(code))
        with pytest.raises(StorageError, match="cannot append") as caught:
            log.append(batch(0))
    assert "start the controller" not in caught.value.remedy, "other commands have files, too"
    with pytest.raises(StorageError, match=r"closed for writing since.*cannot append"):
        log.append(batch(0))


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_fsync_is_never_tried_again(log: MetadataLog, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    log.append(batch(0))
    with monkeypatch.context() as patch:
        patch.setattr(segment, "sync_file", failing(code))
        with pytest.raises(StorageError, match="cannot make the segment durable") as caught:
            log.sync()
    assert not isinstance(caught.value, NoSpaceError)
    for use in (log.sync, lambda: log.append(batch(1)), lambda: log.truncate_to(0)):
        with pytest.raises(StorageError, match="closed for writing"):
            use()


def test_no_room_for_the_epochs_does_not_stop_the_log(log: MetadataLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.append(batch(0, epoch=4))
    with monkeypatch.context() as patch:
        patch.setattr(files, "write_all", failing(errno.ENOSPC))
        assert log.sync() == 1
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n0\n"
    assert log.sync() == 1
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n1\n4 0\n"


def test_a_failed_directory_fsync_counts_too(log: MetadataLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for offset in range(6):
        log.append(batch(offset))
    with monkeypatch.context() as patch:
        patch.setattr(files, "sync_file", failing(errno.EIO))
        with pytest.raises(StorageError, match="directory durable"):
            log.truncate_to(0)
    with pytest.raises(StorageError, match="closed for writing"):
        log.sync()
