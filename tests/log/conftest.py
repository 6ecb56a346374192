"""Fixtures of the log's tests."""

from __future__ import annotations

import pytest

from migrator.log import files, segment, snapshots


@pytest.fixture(autouse=True)
def without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests open hundreds of logs and cut files themselves: a real fsync would only make them wait."""
    for module in (files, segment, snapshots):
        monkeypatch.setattr(module, "sync_file", lambda _descriptor: None)
