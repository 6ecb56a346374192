"""A snapshot that is fetched in parts: the disk finishes a whole one in the background, while the loop goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.log.errors import StorageError
from migrator.log.metadata_log import MetadataLog
from migrator.log.quorum_state import QuorumStateFile
from migrator.log.snapshots import SnapshotWriter
from migrator.node.quorum.storage import NodeStorage
from migrator.raft.messages import EpochOffset
from migrator.records.codec import encode
from migrator.records.metadata import NoOpRecord

ID = EpochOffset(3, 40)


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """A snapshot, as a leader sends it."""
    with SnapshotWriter(tmp_path, ID, last_contained_log_timestamp_ms=7, now_ms=9) as writer:
        writer.append([encode(NoOpRecord(), 0)] * 3, now_ms=9)
        return writer.freeze(now_ms=9).read_bytes()


@pytest.fixture
def storage(tmp_path: Path) -> NodeStorage:
    directory = tmp_path / "__cluster_metadata-0"
    return NodeStorage(MetadataLog.open(directory), QuorumStateFile(directory, (1, 2)))


def test_a_download_that_failed_is_not_finished_by_the_next_one(storage: NodeStorage, whole: bytes) -> None:
    storage.write_snapshot_chunk(ID, 0, whole[:50])
    storage.drop_download()  # its last part failed
    assert storage.take_download(ID) is None
    storage.write_snapshot_chunk(ID, 0, whole[:50])
    assert storage.take_download(EpochOffset(3, 41)) is None
    storage.write_snapshot_chunk(ID, 50, whole[50:])
    receiver = storage.take_download(ID)
    assert receiver is not None
    storage.finish_snapshot(receiver)
    assert storage.log.store.ids() == [ID]
    storage.close()


def test_nothing_is_added_to_a_download_while_the_disk_finishes_it(storage: NodeStorage, whole: bytes) -> None:
    storage.write_snapshot_chunk(ID, 0, whole)
    receiver = storage.take_download(ID)
    assert receiver is not None
    with pytest.raises(StorageError, match="no download"):
        storage.write_snapshot_chunk(ID, len(whole), b"more")
    storage.finish_snapshot(receiver)
    assert storage.log.store.path(ID).read_bytes() == whole
    storage.close()


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_close_leaves_no_part_of_a_download_that_was_to_be_finished(
    storage: NodeStorage, whole: bytes, is_finished: bool
) -> None:
    """A controller stopped between the last part and the thread that finishes it: the file stayed open (seed 49)."""
    storage.write_snapshot_chunk(ID, 0, whole)
    receiver = storage.take_download(ID)
    assert receiver is not None
    if is_finished:
        storage.finish_snapshot(receiver)
    storage.close()
    assert not receiver.path.exists()
    assert storage.log.store.path(ID).exists() == is_finished
    assert not receiver._open
