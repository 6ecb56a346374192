"""Fixtures of the log's tests."""

from __future__ import annotations

import pytest

from migrator.machine import Machine


@pytest.fixture(autouse=True)
def without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests open hundreds of logs and cut files themselves: a real fsync would only make them wait."""
    monkeypatch.setattr(Machine, "sync", lambda _machine, _descriptor: None)
