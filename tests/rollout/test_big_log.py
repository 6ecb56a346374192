"""A metadata log that takes long to read, or cannot be read: the commands say so, and go on."""

from __future__ import annotations

import gc
import json
from dataclasses import replace

import pytest

from migrator.observe.loop_health import GENERATION_THRESHOLDS
from migrator.rollout.ports import Observation
from tests.rollout.test_commands import Desk, desk

__all__ = ["desk"]


def test_a_quorum_whose_brokers_cannot_be_seen_is_said(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    why, line = "the metadata log cannot be read", "the metadata log is still being read: 1.0 of 259.0 MB"
    desk.printed("apply --yes --until DualWrite")
    assert json.loads(desk.printed("plan --json"))["unknown"] is None
    observe = desk.cluster.observe

    async def half(*, partitions: bool = True) -> Observation:
        return replace(await observe(partitions=partitions), brokers=None, unknown=(why,))

    monkeypatch.setattr(desk.cluster, "observe", half)
    desk.reading = line
    found = desk.type("plan --json")
    assert why in json.loads(found.stdout)["unknown"]
    assert line in found.stderr
    assert "does not say which brokers there are" in desk.printed("plan")
    assert line in desk.type("status --json").stderr


def test_a_big_image_is_not_collected_again_and_again(desk: Desk) -> None:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    try:
        desk.printed("plan")
        assert gc.get_threshold() == GENERATION_THRESHOLDS
    finally:
        gc.set_threshold(*before)
