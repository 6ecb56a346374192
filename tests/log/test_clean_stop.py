"""After a stop in order nothing is torn: what is damaged or missing was acknowledged, and is never cut in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.log import recovery
from migrator.log.errors import NoSpaceError, StorageError
from migrator.log.metadata_log import DIRECTORY_NAME, LogLimits, MetadataLog
from migrator.log.segment import close_all, segment_name
from migrator.log.synced_end import FILE_NAME, SyncedEnd
from migrator.records.batch import LENGTH_END, MAGIC_AT
from tests.log.support.builders import batch, log_files

FIRST = segment_name(0)
BATCHES = [batch(0, count=2), batch(2), batch(3, epoch=2)]
WHOLE = b"".join(BATCHES)
END = 4
STARTS = [len(b"".join(BATCHES[:number])) for number in range(len(BATCHES))]
EPOCH = range(LENGTH_END, MAGIC_AT)
"""Of a batch: the leader epoch, which no checksum covers."""
DAMAGE = {
    f"byte {position}": position
    for position in range(0, len(WHOLE), 13)
    if not any(position - start in EPOCH for start in STARTS)
}


def stopped(folder: Path, *, in_order: bool = True) -> Path:
    """A log whose process has ended; its last segment."""
    log = MetadataLog.open(folder)
    log.append(WHOLE)
    log.sync()
    if in_order:
        log.close()
    else:
        close_all(log._segments)
    return log.directory / FIRST


def flip(path: Path, position: int) -> bytes:
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    return bytes(content)


@pytest.mark.parametrize("position", DAMAGE.values(), ids=DAMAGE)
def test_damage_behind_a_clean_stop_is_refused_and_left_as_it_is(tmp_path: Path, position: int) -> None:
    path = stopped(tmp_path)
    content = flip(path, position)
    for _ in range(2):  # a second start finds the same
        with pytest.raises(
            StorageError, match=f"a crash is not the cause|but it was complete up to offset {END}"
        ) as caught:
            MetadataLog.open(tmp_path)
        assert "format it again" in caught.value.remedy
        assert path.read_bytes() == content


def test_the_message_says_where(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    flip(path, len(WHOLE) - 1)
    with pytest.raises(StorageError, match=rf"at byte {len(WHOLE) - len(BATCHES[-1])}\), after offset 3,") as caught:
        MetadataLog.open(tmp_path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("position", DAMAGE.values(), ids=DAMAGE)
def test_the_same_damage_behind_a_crash_is_cut(tmp_path: Path, position: int) -> None:
    path = stopped(tmp_path, in_order=False)
    flip(path, position)
    log = MetadataLog.open(tmp_path)
    assert log.end_offset() < END or log.recovery.cut_bytes == 0
    log.close()


def test_whole_batches_that_are_missing_are_missed(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    path.write_bytes(b"".join(BATCHES[:2]))
    with pytest.raises(StorageError, match=f"the log ends at offset 3, but it was complete up to offset {END}"):
        MetadataLog.open(tmp_path)
    path.unlink()
    with pytest.raises(StorageError, match="the log ends at offset 0"):
        MetadataLog.open(tmp_path)


def test_a_whole_segment_that_is_missing_is_missed(tmp_path: Path) -> None:
    log = MetadataLog.open(tmp_path, LogLimits(segment_bytes=150))
    for offset in range(6):
        log.append(batch(offset))
    log.close()
    (log.directory / segment_name(4)).unlink()
    with pytest.raises(StorageError, match="the log ends at offset 4, but it was complete up to offset 6"):
        MetadataLog.open(tmp_path)


def test_a_torn_end_beyond_it_is_cut(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    path.write_bytes(WHOLE + batch(END, epoch=2)[:-1])
    log = MetadataLog.open(tmp_path)
    assert (log.end_offset(), log.recovery.cut_bytes) == (END, len(batch(END)) - 1)
    log.close()


def test_a_log_that_is_open_has_no_end(tmp_path: Path) -> None:
    stopped(tmp_path)
    log = MetadataLog.open(tmp_path)
    assert FILE_NAME not in log_files(tmp_path)
    log.close()
    assert FILE_NAME in log_files(tmp_path)


@pytest.mark.parametrize("interrupted", [False, True])
def test_what_stock_kafka_changed_in_between_is_not_held_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, interrupted: bool
) -> None:
    """Stock Kafka followed another leader: it cut our end, appended its own records, and lost power within a batch."""
    path = stopped(tmp_path)
    path.write_bytes(BATCHES[0] + batch(2, epoch=3)[:-1])
    path.with_suffix(".index").write_bytes(b"")
    if interrupted:  # right behind the removal of the index files
        with monkeypatch.context() as patch:
            patch.setattr(recovery, "_add_segment", fail)
            with pytest.raises(StorageError, match="interrupted"):
                MetadataLog.open(tmp_path)
        assert not path.with_suffix(".index").exists()
    log = MetadataLog.open(tmp_path)
    assert log.end_offset() == 2
    log.close()


def fail(*_: object) -> None:
    raise StorageError("interrupted", where="here")


def test_a_file_that_is_none_of_ours_says_nothing(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    path.write_bytes(WHOLE[:-1])
    for text in (b"", b"{", b"[]", b'{"endOffset":"4","data_version":0}', b'{"endOffset":4,"data_version":9}'):
        (tmp_path / DIRECTORY_NAME / FILE_NAME).write_bytes(text)
        assert SyncedEnd(tmp_path / DIRECTORY_NAME).read() is None
    log = MetadataLog.open(tmp_path)
    assert log.end_offset() == 3
    log.close()


def test_a_full_disk_does_not_fail_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise NoSpaceError("cannot write: No space left on device", where="disk")

    log = MetadataLog.open(tmp_path)
    log.append(WHOLE)
    log.sync()
    with monkeypatch.context() as patch:
        patch.setattr("migrator.log.synced_end.write_durably", full)
        log.close()
    assert FILE_NAME not in log_files(tmp_path)
    again = MetadataLog.open(tmp_path)
    assert again.end_offset() == END
    again.close()
