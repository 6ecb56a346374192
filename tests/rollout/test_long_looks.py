"""A command that prints nothing for some seconds says what it looks at."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from migrator.rollout import meanwhile
from migrator.rollout.nodes import Node
from migrator.rollout.ports import Observation
from tests.rollout.test_commands import Desk, desk

__all__ = ["desk"]


@pytest.mark.parametrize("words", ["plan", "plan --json", "status --json", "report --json", "unlock"])
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
        words.startswith("plan")
    )
    assert "still looks" not in result.stdout
    if "json" in words:
        json.loads(result.stdout)


@pytest.mark.parametrize("words", ["apply --plan plan.json --until preflight", "rollback --yes", "apply"])
def test_a_command_is_not_silent_before_its_first_step(
    desk: Desk, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Hosts that answer slowly: many files are read, one after the other."""
    monkeypatch.chdir(tmp_path)
    if words == "apply":
        desk.printed("apply --yes")
    else:
        desk.printed("plan --out plan.json")
    monkeypatch.setattr(meanwhile, "LONG_SECONDS", 0)
    read = desk.cluster.read

    async def for_long(node: Node, path: str) -> bytes | None:
        for _ in range(5):
            await asyncio.sleep(0)
        return await read(node, path)

    desk.cluster.read = for_long  # type: ignore[method-assign]
    assert "still reads the property files of the nodes" in desk.printed(words)
