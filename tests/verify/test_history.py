"""The history of comparisons."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.verify.history import History, HistoryEntry

DAY_MS = 86_400_000
ENTRY = HistoryEntry(20_000 * DAY_MS + 5, "equal", 0x17, 900, 3, 1000, 0, 0, 0, 1.5)


def test_entries_come_back_in_order_over_days(tmp_path: Path) -> None:
    history = History(tmp_path / "new")
    assert history.entries() == []
    entries = [
        replace(ENTRY, time_ms=ENTRY.time_ms + step * DAY_MS // 2, lag=lag, why="why")
        for step, lag in enumerate((1, None, 3))
    ]
    for entry in entries:
        history.append(entry)
    assert History(tmp_path / "new").entries() == entries
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [
        "verify-2024-10-04.parquet",
        "verify-2024-10-05.parquet",
    ]


def test_a_file_that_is_no_history_is_named(tmp_path: Path) -> None:
    (tmp_path / "verify-2024-10-04.parquet").write_bytes(b"something else")
    history = History(tmp_path)
    with pytest.raises(OperatorError, match=r"verify-2024-10-04\.parquet.*not a history"):
        history.entries()
    with pytest.raises(OperatorError, match="not a history"):
        history.append(ENTRY)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorError, match="cannot be written"):
        History(tmp_path / "file").append(ENTRY)
