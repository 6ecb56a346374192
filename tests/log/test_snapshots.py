"""Snapshot files: what has the final name is whole, whatever happened on the way there."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from migrator.errors import InvariantViolation
from migrator.log import snapshots
from migrator.log.errors import StorageError
from migrator.log.snapshots import SnapshotReceiver, SnapshotStore, SnapshotWriter, iter_snapshot, snapshot_id_of
from migrator.raft.messages import EpochOffset
from migrator.records.batch import restamp
from tests.log.support.builders import NO_OP, batch
from tests.patience import PATIENCE_SECONDS

ID = EpochOffset(3, 40)
NAME = f"{40:020d}-{3:010d}"


def writer_in(folder: Path) -> SnapshotWriter:
    return SnapshotWriter(folder, ID, last_contained_log_timestamp_ms=7, now_ms=9)


def written(folder: Path, count: int = 3) -> Path:
    folder.mkdir(exist_ok=True)
    with writer_in(folder) as writer:
        writer.append([NO_OP] * count, now_ms=9)
        return writer.freeze(now_ms=9)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_snapshot_has_header_records_footer_in_bounded_batches(tmp_path: Path) -> None:
    batches = list(iter_snapshot(written(tmp_path, count=2500)))
    assert [one.header.count for one in batches] == [1, 1024, 1024, 452, 1]
    assert [one.header.is_control for one in batches] == [True, False, False, False, True]
    assert {one.header.leader_epoch for one in batches} == {3}
    assert names(tmp_path) == [f"{NAME}.checkpoint"]


def test_an_abandoned_snapshot_leaves_nothing(tmp_path: Path) -> None:
    with writer_in(tmp_path) as writer:
        writer.append([NO_OP], now_ms=9)
        assert names(tmp_path)[0].startswith(f"{NAME}-")
        assert names(tmp_path)[0].endswith(".checkpoint.part")
        assert snapshot_id_of(writer.path) == ID
    assert names(tmp_path) == []


def test_a_disk_that_is_full_at_the_first_byte_leaves_no_file_and_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller tries again and again for as long as its disk is full."""
    descriptors = []

    def full(descriptor: int, _data: bytes, _position: int) -> None:
        descriptors.append(descriptor)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(snapshots, "write_all", full)
    with pytest.raises(StorageError):
        writer_in(tmp_path)
    assert names(tmp_path) == []
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(descriptors[0])


def test_who_gives_up_waits_for_an_end_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncing, go_on = Event(), Event()

    def slow(descriptor: int) -> None:
        syncing.set()
        assert go_on.wait(PATIENCE_SECONDS)
        os.fsync(descriptor)

    monkeypatch.setattr(snapshots, "sync_file", slow)
    with ThreadPoolExecutor(2) as threads:
        writer = writer_in(tmp_path)
        ending = threads.submit(writer.freeze, now_ms=9)
        assert syncing.wait(PATIENCE_SECONDS)
        giving_up = threads.submit(writer.abort)
        go_on.set()
        assert list(iter_snapshot(ending.result(PATIENCE_SECONDS)))
        giving_up.result(PATIENCE_SECONDS)
    assert names(tmp_path) == [f"{NAME}.checkpoint"]
    with pytest.raises(InvariantViolation, match="was given up"):
        writer.publish()


@pytest.mark.parametrize("step", ["sync_file", "sync_directory"])
def test_a_crash_at_any_step_leaves_nothing_or_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(snapshots, step, fail)
    writer = writer_in(tmp_path)
    writer.append([NO_OP], now_ms=9)
    with pytest.raises((StorageError, OSError)):
        writer.freeze(now_ms=9)
    finals = [path for path in tmp_path.iterdir() if path.name.endswith(".checkpoint")]
    assert len(finals) == (step == "sync_directory")
    for path in finals:
        assert list(iter_snapshot(path))
    writer.abort()
    assert SnapshotStore(tmp_path).ids() == [ID] * len(finals)


def test_only_a_whole_snapshot_is_taken_over(tmp_path: Path) -> None:
    whole = written(tmp_path / "source").read_bytes()
    target = tmp_path / "target"
    target.mkdir()
    flipped = bytearray(whole)
    flipped[-3] ^= 1
    other_epoch, _ = restamp(whole, 0, 4)
    log_batch, _ = restamp(batch(0), 0, 3)
    for bad in (whole[:-1], whole[:166], b"", bytes(flipped), whole + whole, other_epoch, log_batch):
        with SnapshotReceiver(target, ID) as receiver:
            receiver.write(0, bad)
            with pytest.raises(StorageError):
                receiver.finish()
        assert names(target) == []
    with SnapshotReceiver(target, ID) as receiver:
        receiver.write(0, whole[:50])
        with pytest.raises(InvariantViolation, match="part at 60"):
            receiver.write(60, whole[60:])
        receiver.write(50, whole[50:])
        assert receiver.finish().read_bytes() == whole


def test_the_store_lists_reads_and_gives_up(tmp_path: Path) -> None:
    path = written(tmp_path)
    for name in (
        f"{NAME}-1.checkpoint.part",
        f"{NAME}.checkpoint.deleted",
        f"{0:020d}-{0:010d}.checkpoint",
        "x.checkpoint",
    ):
        (tmp_path / name).write_bytes(b"")
    store = SnapshotStore(tmp_path)
    assert (store.ids(), store.latest()) == ([ID], ID)
    assert store.last_contained_log_timestamp_ms(ID) == 7
    content = path.read_bytes()
    assert store.read(ID, 10, 20) == (content[10:30], len(content))
    assert store.read(ID, len(content), 20) == (b"", len(content))
    later = EpochOffset(3, 100)
    store.add(later)
    store.add(EpochOffset(2, 20))
    assert [snapshot_id.offset for snapshot_id in store.ids()] == [20, 40, 100]
    with pytest.raises(StorageError, match="No such file"):
        store.read(later, 0, 1)
    assert store.mark_deleted(ID).read_bytes() == content
    assert ID not in store.ids()


def test_a_position_far_behind_the_end_is_behind_the_end(tmp_path: Path) -> None:
    """The system call refuses it, and the snapshot is there all the same."""
    with SnapshotWriter(tmp_path, EpochOffset(1, 5), last_contained_log_timestamp_ms=0, now_ms=1) as writer:
        writer.freeze(now_ms=1)
    store = SnapshotStore(tmp_path)
    assert store.read(EpochOffset(1, 5), 2**63 - 1, 100) == (b"", store.size(EpochOffset(1, 5)))


def test_a_snapshot_with_a_record_that_does_not_decode_is_not_taken_over(tmp_path: Path) -> None:
    """A log that began with it would be loaded by nobody."""
    source, target = tmp_path / "leader", tmp_path / "follower"
    source.mkdir()
    target.mkdir()
    with SnapshotWriter(source, EpochOffset(1, 5), last_contained_log_timestamp_ms=0, now_ms=1) as writer:
        writer.append([b"\x01\x7f\x00"], now_ms=1)
        data = writer.freeze(now_ms=1).read_bytes()
    with SnapshotReceiver(target, EpochOffset(1, 5)) as receiver:
        receiver.write(0, data)
        with pytest.raises(StorageError, match="unknown"):
            receiver.finish()
    assert not list(target.iterdir())
