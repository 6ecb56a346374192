"""Which files of a log directory count, and which of them are read for an offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.log.errors import StorageError
from migrator.log.listing import list_log
from migrator.raft.messages import EpochOffset

NOT_OF_THE_LOG = (
    "bootstrap.checkpoint",
    f"{0:020}-{0:010}.checkpoint",
    f"{100:020}-{3:010}.checkpoint.part",
    f"{100:020}-{3:010}.checkpoint.deleted",
    "quorum-state",
    "notes.log",
)


def directory_with(directory: Path, *names: str) -> Path:
    for name in (*names, *NOT_OF_THE_LOG):
        (directory / name).touch()
    return directory


def test_snapshots_and_segments_and_nothing_else(tmp_path: Path) -> None:
    found = list_log(directory_with(tmp_path, f"{40:020}-{2:010}.checkpoint", f"{30:020}.log", f"{0:020}.log"))
    assert list(found.snapshots) == [EpochOffset(epoch=2, offset=40)]
    assert [int(path.stem) for path in found.segments] == [0, 30]


@pytest.mark.parametrize(("until", "offset"), [(None, 60), (100, 60), (59, 60), (58, 40), (39, 40), (38, None)])
def test_the_newest_snapshot_that_ends_in_time(tmp_path: Path, until: int | None, offset: int | None) -> None:
    names = (f"{end:020}-{epoch:010}.checkpoint" for end, epoch in ((40, 2), (60, 3)))
    newest = list_log(directory_with(tmp_path, *names)).newest_snapshot(until)
    assert (newest and newest.offset) == offset


@pytest.mark.parametrize(("offset", "firsts"), [(0, [0, 30, 60]), (29, [0, 30, 60]), (30, [30, 60]), (90, [60])])
def test_the_segments_that_hold_an_offset_and_what_follows(tmp_path: Path, offset: int, firsts: list[int]) -> None:
    found = list_log(directory_with(tmp_path, *(f"{first:020}.log" for first in (0, 30, 60))))
    assert [int(path.stem) for path in found.segments_from(offset)] == firsts


def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="gone"):
        list_log(tmp_path / "gone")
