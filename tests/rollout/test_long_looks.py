"""A command that prints nothing for some seconds says what it looks at."""

from __future__ import annotations

import asyncio
import json

import pytest

from migrator.rollout import meanwhile
from migrator.rollout.ports import Observation
from tests.rollout.test_commands import Desk, desk

__all__ = ["desk"]


@pytest.mark.parametrize("words", ["plan", "plan --json", "status --json"])
def test_a_command_that_looks_for_long_says_at_what(desk: Desk, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a ZooKeeper that is away, all looks together take 17 seconds. Standard output is as it was."""
    desk.cluster.zookeeper_answers = False
    monkeypatch.setattr(meanwhile, "LONG_SECONDS", 0)
    observe = desk.cluster.observe

    async def for_long(*, partitions: bool = True) -> Observation:
        for _ in range(5):
            await asyncio.sleep(0)
        return await observe(partitions=partitions)

    desk.cluster.observe = for_long  # type: ignore[method-assign]
    result = desk.type(words)
    assert "still looks at ZooKeeper, controllers and brokers\n" in result.stderr
    assert ("property files of the nodes, and looks at the cluster again. ZooKeeper does not" in result.stderr) is (
        "plan" in words
    )
    assert "still looks" not in result.stdout
    if "json" in words:
        json.loads(result.stdout)
