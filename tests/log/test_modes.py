"""Log and snapshots hold credentials: whatever the umask, nobody but their owner reads them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from migrator.log.errors import StorageError
from migrator.log.files import FROZEN_FILE, PRIVATE_DIRECTORY, PRIVATE_FILE, write_durably
from migrator.log.formatting import FormatPlan, format_directories
from migrator.log.meta_properties import FILE_NAME as META_PROPERTIES
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.log.quorum_state import QuorumStateFile
from migrator.log.snapshots import SUFFIX
from migrator.observe.journal import Journal
from migrator.raft.states import ElectionState
from migrator.records.uuid import ZERO_UUID, random_uuid, uuid_to_text
from migrator.records.versions import LATEST_SUPPORTED, version_at
from tests.log.support.builders import batch, write_snapshot

OTHERS = stat.S_IRWXG | stat.S_IRWXO


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Everything for everybody, where a file does not say otherwise itself."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def made(directory: Path) -> Path:
    """Everything that a controller leaves in its directory."""
    cluster_id = uuid_to_text(random_uuid(Random(1)))
    plan = FormatPlan((directory,), directory, cluster_id, 1, version_at(LATEST_SUPPORTED))
    format_directories(plan, random=Random(1), now_ms=0)
    log = MetadataLog.open(directory)
    log.append(batch(0))
    log.close()
    QuorumStateFile(directory / DIRECTORY_NAME, [1]).write(ElectionState(1, None, 1, ZERO_UUID))
    journal = Journal(directory, 1 << 20)
    journal.append(0, "kind", "text")
    journal.close()
    write_snapshot(directory, 1, 1)
    return directory


def expected(path: Path) -> int:
    if path.is_dir():
        return PRIVATE_DIRECTORY
    return FROZEN_FILE if path.name.endswith(SUFFIX) else PRIVATE_FILE


def test_nobody_else_reads_what_a_controller_writes(tmp_path: Path) -> None:
    directory = made(tmp_path / "data")
    found = [directory, *directory.rglob("*")]
    assert len(found) > 8
    assert [(path, oct(mode(path))) for path in found if mode(path) != expected(path)] == []


def test_what_was_open_to_others_is_closed_when_the_log_is_opened(tmp_path: Path) -> None:
    directory = made(tmp_path / "data")
    folder = directory / DIRECTORY_NAME
    outside = tmp_path / "somebody-elses"
    outside.touch(0o666)
    (folder / "link").symlink_to(outside)
    inside = [path for path in (folder, *folder.iterdir(), *directory.glob("*.*")) if not path.is_symlink()]
    for path in inside:
        path.chmod(mode(path) | 0o055)
    MetadataLog.open(directory).close()
    Journal(directory, 1 << 20).close()
    assert [path.name for path in inside if mode(path) & OTHERS] == [META_PROPERTIES], "which holds no secret"
    assert mode(outside) == 0o666, "what a link points to is none of ours"


def test_a_link_in_place_of_a_temporary_file_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    (tmp_path / "file.tmp").symlink_to(outside)
    with pytest.raises(StorageError):
        write_durably(tmp_path / "file", b"content")
    assert outside.read_text() == "untouched"


def test_a_file_like_another_has_its_rights(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.touch()
    os.umask(0o077)
    for wanted in (0o640, 0o600, 0o644):
        model.chmod(wanted)
        write_durably(tmp_path / "copy", b"", like=model)
        assert mode(tmp_path / "copy") == wanted
