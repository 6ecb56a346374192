"""The archive takes files of the metadata log from a controller's host, and nothing that the host makes up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.rollout.files.archive import SEGMENTS_MAX, SUMS, ZOOKEEPER, make_archive
from migrator.rollout.nodes import Node
from migrator.rollout.ports import ExecutorError, HostUnreachableError, Output
from tests.rollout.support.hosts import digest
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
    fails: Mapping[str, list[ExecutorError]] = {}
    """By name of a file: what happens to it at first."""

    async def run(self, node: Node, words: Sequence[str], *, seconds: float) -> Output:
        if words[0] == "ls":
            return Output(self.exit_codes.get("ls", 0), "\n".join(self.listed))
        return await super().run(node, words, seconds=seconds)

    async def read(self, node: Node, path: str) -> bytes | None:
        for failure in (errors.pop() for name, errors in self.fails.items() if path.endswith(name) and errors):
            raise failure
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


def test_a_file_that_does_not_come_does_not_hold_up_the_others(operator: Operator) -> None:
    (operator.state / "journal.jsonl").touch()
    lost = HostUnreachableError("ssh lost the connection")
    assert isinstance(operator.cluster, MadeUp)
    operator.cluster.fails = {SNAPSHOTS[-1]: [ExecutorError("it is too large")], SEGMENTS[0]: [lost, lost]}
    assert archived(operator, *SNAPSHOTS, *SEGMENTS) == {*SEGMENTS}
    (said,) = (line for line in operator.said if "not complete" in line)
    assert f"of {CONTROLLER} are not complete in it: {SNAPSHOTS[-1]}: it is too large. Keep a copy yourself" in said
    operator.cluster.fails = {SEGMENTS[0]: [lost] * 3, SEGMENTS[1]: [lost]}
    archived(operator, *SNAPSHOTS, *SEGMENTS)
    assert f"{SEGMENTS[0]}, and what comes behind it: ssh lost the connection" in operator.said[-2]


def test_a_directory_without_a_log_is_said(operator: Operator) -> None:
    (operator.state / "journal.jsonl").touch()
    assert archived(operator, "quorum-state") == set()
    assert f"{LOG} shows no segment of the log" in operator.said[0]


def test_a_log_that_may_not_be_listed_is_said(operator: Operator) -> None:
    (operator.state / "journal.jsonl").touch()
    assert isinstance(operator.cluster, MadeUp)
    operator.cluster.exit_codes["ls"] = 1
    assert archived(operator, *SEGMENTS) == set()
    assert f"all: ls of {LOG} ended with exit code 1. Keep a copy yourself" in operator.said[0]


def test_a_host_that_lists_without_end_is_not_followed(operator: Operator) -> None:
    (operator.state / "journal.jsonl").touch()
    names = [f"{number:020}.log" for number in range(SEGMENTS_MAX + 100)]
    assert archived(operator, *names) == set(names[100:])
    assert f"what is before {names[100]}: {LOG} shows more than {SEGMENTS_MAX} segments" in operator.said[0]


def test_what_a_killed_command_has_left_is_not_in_it(operator: Operator) -> None:
    (operator.state / "journal.jsonl").touch()
    directory = operator.state / "archive-ab12cd34"
    directory.mkdir()
    (directory / f"{SEGMENTS[0]}.tmp").write_bytes(b"by the ho")
    archived(operator, *SEGMENTS)
    listed = dict(line.split("  ")[::-1] for line in (directory / SUMS).read_text().splitlines())
    assert listed == {name: digest((directory / name).read_bytes()) for name in ("journal.jsonl", *SEGMENTS)}


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
