"""What the archive brings from a controller's host: files of the metadata log, and nothing that the host makes up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.rollout.files.archive import ZOOKEEPER, make_archive
from migrator.rollout.nodes import Node
from migrator.rollout.ports import Output
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

CONTROLLER = "controller-3001"
LOG = f"/data/{CONTROLLER}/__cluster_metadata-0"
SEGMENTS = ["00000000000000000000.log", "00000000000000000900.log"]
SNAPSHOTS = ["00000000000000000700-0000000002.checkpoint", "00000000000000000900-0000000003.checkpoint"]


class MadeUp(ModelCluster):
    """The host of each controller lists these names, and has a file by every name."""

    listed: Sequence[str] = ()

    async def run(self, node: Node, words: Sequence[str], *, seconds: float) -> Output:
        if words[0] == "ls":
            return Output(0, "\n".join(self.listed))
        return await super().run(node, words, seconds=seconds)

    async def read(self, node: Node, path: str) -> bytes | None:
        return b"by the host" if path.startswith(LOG) or path.endswith("evil.log") else await super().read(node, path)


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    (tmp_path / "state").mkdir()
    return Operator(MadeUp(model_inventory()), tmp_path / "state")


def archived(operator: Operator, *listed: str) -> set[str]:
    assert isinstance(operator.cluster, MadeUp)
    operator.cluster.listed = listed
    made = asyncio.run(make_archive(operator.parts(), operator.node(CONTROLLER), operator.state, "ab12cd34"))
    return {path.name for path in made.iterdir() if b"by the host" in path.read_bytes()}


def test_the_newest_snapshot_and_all_segments_are_in_it(operator: Operator) -> None:
    (operator.state / "journal.jsonl").touch()
    others = ["quorum-state", "leader-epoch-checkpoint", "partition.metadata", "00000000000000000000.index"]
    assert archived(operator, *SNAPSHOTS, *SEGMENTS, *others) == {SNAPSHOTS[-1], *SEGMENTS}


def test_a_host_names_no_path_of_this_machine(operator: Operator, tmp_path: Path) -> None:
    (operator.state / "journal.jsonl").touch()
    away = [
        str(tmp_path / "evil.log"),
        "../evil.log",
        "../../evil.log",
        "evil.log",
        "journal.jsonl",
        f"{SEGMENTS[0]}/x.log",
    ]
    assert archived(operator, *away, SEGMENTS[0]) == {SEGMENTS[0]}
    assert not list(tmp_path.rglob("evil.log"))


def test_znodes_that_are_in_it_stay(operator: Operator) -> None:
    """The rollout was killed behind them, and somebody removed them from ZooKeeper before it went on."""
    (operator.state / "journal.jsonl").touch()
    there = ["full", "nothing"]

    async def keep_zookeeper(file: Path) -> str:
        await asyncio.to_thread(file.write_text, there.pop(0))
        return ""

    for _ in range(2):
        parts = replace(operator.parts(), keep_zookeeper=keep_zookeeper)
        made = asyncio.run(make_archive(parts, operator.node(CONTROLLER), operator.state, "ab12cd34"))
    assert (made / ZOOKEEPER).read_text() == "full"
