"""The order of fsyncs, renames and removals on the disk, watched from outside."""

from __future__ import annotations

import contextvars
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import pytest

from migrator.log import files, metadata_log, segment, snapshots
from migrator.log.errors import StorageError
from migrator.log.files import make_directory, write_durably
from migrator.log.metadata_log import DIRECTORY_NAME, LogLimits, MetadataLog
from migrator.log.snapshots import SnapshotWriter
from migrator.machine import Machine, running_on
from migrator.raft.messages import EpochOffset
from migrator.values import value
from tests.log.support.builders import NO_OP, batch, write_snapshot


@value
class Synced:
    """One fsync: of which inode, how large it was, and the names that the watched directory held at that time."""

    inode: int
    size: int
    names: frozenset[str]


class Watch:
    """Every fsync, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        self.seen: list[Synced] = []
        self._directory = directory
        for module in (files, segment, snapshots):
            monkeypatch.setattr(module, "sync_file", self._sync)

    def _sync(self, descriptor: int) -> None:
        stat = os.fstat(descriptor)
        names = frozenset(path.name for path in self._directory.iterdir())
        self.seen.append(Synced(stat.st_ino, stat.st_size, names))

    def of(self, path: Path) -> list[Synced]:
        """Fsyncs of what is at that path now."""
        inode = path.stat().st_ino
        return [one for one in self.seen if one.inode == inode]


def test_a_replaced_file_is_durable_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, tmp_path)
    write_durably(tmp_path / "file", b"content")
    (content,) = watch.of(tmp_path / "file")
    assert (content.size, sorted(content.names)) == (7, ["file.tmp"])
    assert [one.names for one in watch.of(tmp_path)] == [{"file"}]


def test_a_snapshot_is_durable_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, tmp_path)
    with SnapshotWriter(tmp_path, EpochOffset(1, 5), last_contained_log_timestamp_ms=0, now_ms=0) as writer:
        writer.append([NO_OP], now_ms=0)
        path = writer.freeze(now_ms=0)
    (content,) = watch.of(path)
    assert content.size == path.stat().st_size
    assert path.name not in content.names
    assert watch.of(tmp_path)[-1].names == {path.name}


def test_a_stop_in_order_is_noted_behind_the_last_fsync_and_forgotten_before_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = MetadataLog.open(tmp_path)
    log.append(batch(0))
    segment_path, note = log.directory / f"{0:020d}.log", log.directory / "synced-end"
    watch = Watch(monkeypatch, log.directory)
    log.close()
    (noted,) = watch.of(note)
    assert watch.seen.index(watch.of(segment_path)[-1]) < watch.seen.index(noted)
    assert "synced-end" not in noted.names, "it is durable before it has its name"
    assert "synced-end" in watch.of(log.directory)[-1].names
    watch.seen.clear()
    again = MetadataLog.open(tmp_path)
    forgotten = [one for one in watch.of(log.directory) if "synced-end" not in one.names]
    assert watch.seen[0] == forgotten[0], "nothing is done before"
    again.close()


def test_every_new_parent_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, tmp_path)
    make_directory(tmp_path / "a" / "b" / "c")
    assert all(watch.of(tmp_path / parent) for parent in ("", "a", "a/b"))


def test_a_full_segment_is_durable_before_its_successor_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MetadataLog.open(tmp_path, LogLimits(segment_bytes=150))
    first, second = log.directory / f"{0:020d}.log", f"{2:020d}.log"
    watch = Watch(monkeypatch, log.directory)
    log.append(batch(0))
    log.append(batch(1))
    assert watch.seen == []
    log.append(batch(2))
    assert [(one.size, second in one.names) for one in watch.of(first)] == [(144, False)]
    assert watch.of(log.directory)[-1].names >= {second}
    log.close()


def test_truncation_is_durable_newest_segment_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MetadataLog.open(tmp_path, LogLimits(segment_bytes=150))
    for offset in range(6):
        log.append(batch(offset))
    watch = Watch(monkeypatch, log.directory)
    log.truncate_to(1)
    segments = [sorted(name for name in one.names if name.endswith(".log")) for one in watch.of(log.directory)]
    assert segments == [[f"{0:020d}.log", f"{2:020d}.log"], [f"{0:020d}.log"]]
    assert watch.of(log.directory / f"{0:020d}.log")[-1].size == 72
    log.close()


def test_a_replaced_log_is_gone_before_the_new_one_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MetadataLog.open(tmp_path)
    log.append(batch(0))
    snapshot_id = write_snapshot(tmp_path, 9, 3)
    log.store.add(snapshot_id)
    watch = Watch(monkeypatch, tmp_path / DIRECTORY_NAME)
    log.truncate_fully_to_snapshot(snapshot_id)
    segments = [[name for name in one.names if name.endswith(".log")] for one in watch.of(log.directory)]
    assert segments == [[], [f"{9:020d}.log"]]
    log.close()


def test_a_log_that_a_failing_disk_left_without_segments_still_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader got an IndexError while the process stopped. Seed 296 of whole controllers found it."""
    log = MetadataLog.open(tmp_path)
    log.append(batch(0))
    snapshot_id = write_snapshot(tmp_path, 9, 3)
    log.store.add(snapshot_id)

    def refuse(directory: Path) -> None:
        raise StorageError("planted", where=str(directory))

    monkeypatch.setattr(metadata_log, "sync_directory", refuse)
    with pytest.raises(StorageError, match="planted"):
        log.truncate_fully_to_snapshot(snapshot_id)
    assert (log.start_offset(), log.end_offset(), log.size()) == (0, 0, 0)
    log.close()


class FailingFsync(Machine):
    """As Linux: what an fsync could not write counts as written. Memory shows it, and the next power cut takes it."""

    def __init__(self) -> None:
        self.fails = False
        self._written: dict[int, list[tuple[int, bytes]]] = {}
        self._disk: dict[int, bytearray] = {}

    def write(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        self._written.setdefault(os.fstat(descriptor).st_ino, []).append((position, bytes(data)))
        return super().write(descriptor, data, position)

    def sync(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        written = self._written.pop(found.st_ino, [])
        if self.fails:
            raise OSError(errno.EIO, "Input/output error")
        disk = self._disk.setdefault(found.st_ino, bytearray())
        disk[:] = disk[: found.st_size].ljust(found.st_size, b"\0")
        for position, data in written:
            disk[position : position + len(data)] = data

    def lose_power(self, directory: Path) -> None:
        for path in directory.glob("*.log"):
            path.write_bytes(self._disk[path.stat().st_ino])


def test_what_an_fsync_has_failed_for_is_durable_before_the_next_process_counts_it(tmp_path: Path) -> None:
    """The next process reads it from memory, and its own fsync has nothing to do ("fsyncgate")."""
    machine = FailingFsync()
    with running_on(machine):
        log = MetadataLog.open(tmp_path)
        log.append(batch(0))
        log.sync()
        log.append(batch(1))
        machine.fails = True
        with pytest.raises(StorageError):
            log.sync()
        machine.fails = False
        with pytest.raises(StorageError, match="closed for writing"):
            log.sync()
        log.close()
        log = MetadataLog.open(tmp_path)
        counted = log.sync()
        assert counted == 2
        machine.lose_power(log.directory)
        assert MetadataLog.open(tmp_path).end_offset() == counted


class TellsOnce(Machine):
    """An fsync that fails tells its error to one caller, as Linux does for each open file."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.has_failed, self.is_told = threading.Event(), threading.Event()

    def sync(self, descriptor: int) -> None:
        if not self.fails:
            return super().sync(descriptor)
        self.fails = False
        self.has_failed.set()
        self.is_told.wait()
        raise OSError(errno.EIO, "Input/output error")


def test_no_segment_follows_one_whose_fsync_fails_in_that_moment(tmp_path: Path) -> None:
    """Only the last segment is written again at the next start."""
    machine = TellsOnce()
    with running_on(machine):
        log = MetadataLog.open(tmp_path, limits=LogLimits(segment_bytes=2 * len(batch(0)) + 5))
        log.append(batch(0))
        log.sync()
        log.append(batch(1))
        machine.fails = True
        with ThreadPoolExecutor(2) as threads:
            synced = threads.submit(contextvars.copy_context().run, log.sync)
            machine.has_failed.wait()
            appended = threads.submit(contextvars.copy_context().run, log.append, batch(2))
            wait((appended,), timeout=0.2)
            machine.is_told.set()
            for failed in (synced.exception(), appended.exception()):
                assert isinstance(failed, StorageError)
        assert len(list(log.directory.glob("*.log"))) == 1
        with suppress(StorageError):
            log.close()
