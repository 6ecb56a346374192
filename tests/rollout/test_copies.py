"""The copies of property files that preflight is given: who writes them, and that none is left behind."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.executors.presets import PRESETS
from migrator.rollout.executors.scripts import COPY, CUT_OFF, OTHER_DIGEST, head_of
from migrator.rollout.files.examined import DIRECTORY
from migrator.rollout.nodes import Node
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import ExecutorError, HostUnreachableError
from tests.rollout.support.hosts import Hands, node
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

KILLED = KeyboardInterrupt()
CONTENT = b"ssl.keystore.password=s3cr3t\n"
FIRST = "controller-3001"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """Its first command was killed in preflight, with copies on the first controller."""
    (tmp_path / "state").mkdir()
    found = Operator(ModelCluster(model_inventory()), tmp_path / "state")

    def raises(where: str) -> None:
        if where == f"before preflight {FIRST}":
            raise KILLED

    found.cluster.points.at = raises
    with pytest.raises(KeyboardInterrupt):
        found.apply()
    found.cluster.points.at = lambda _: None
    return found


def left(operator: Operator) -> set[str]:
    """Nodes with copies."""
    return {name for name, path in operator.cluster.files if path.startswith(DIRECTORY)}


def put_first(operator: Operator, *names: str) -> None:
    """The controllers in this order."""
    controllers = operator.cluster.inventory.controllers
    nodes = tuple(operator.node(name) for name in names)
    operator.cluster.inventory = replace(operator.cluster.inventory, controllers=replace(controllers, nodes=nodes))


def test_copies_are_removed_where_the_killed_command_ran(operator: Operator) -> None:
    rollout = operator.entries[0].details["rollout"]
    operator.cluster.files[FIRST, f"{DIRECTORY}{rollout}/broker-1.properties"] = CONTENT  # as a kill leaves them
    put_first(operator, "controller-3003", "controller-3002", FIRST)
    assert operator.resume() is Ending.COMPLETE
    assert left(operator) == set()


def test_a_host_that_is_gone_is_named(operator: Operator) -> None:
    operator.gone = (FIRST,)

    def gone(action: str, on: Node) -> None:
        if on.name == FIRST:
            raise HostUnreachableError("ssh did not reach the host", where=FIRST)

    operator.cluster.fault = gone
    assert operator.apply(StopAt(Phase.PREFLIGHT)) is Ending.REACHED
    assert any(line.startswith(f"remove {DIRECTORY}") and "by hand" in line for line in operator.said)


def test_a_node_that_left_the_inventory_is_named(operator: Operator) -> None:
    put_first(operator, "controller-3002", "controller-3003")
    assert operator.apply(StopAt(Phase.PREFLIGHT)) is Ending.REACHED
    assert any(line.startswith(f"remove {DIRECTORY}") and FIRST in line for line in operator.said)


def copied(tmp_path: Path, shell: Sequence[str], path: Path, content: bytes, wanted: bytes) -> int:
    words = [*shell, "-c", COPY, "migrator", str(path)]
    content = head_of("absent", hashlib.sha256(wanted).hexdigest()) + content
    return subprocess.run(words, input=content, cwd=tmp_path, capture_output=True, check=False).returncode


@pytest.mark.parametrize("shell", ["sh", "bash", "busybox sh"])
def test_a_copy_is_a_new_file_and_never_follows_a_link(tmp_path: Path, shell: str) -> None:
    words = shell.split()
    if shutil.which(words[0]) is None and "CI" not in os.environ:
        pytest.skip(f"there is no {shell} here")
    there, empty, path = tmp_path / "there", tmp_path / "empty", tmp_path / "copy"
    empty.touch()
    there.symlink_to(empty)
    assert copied(tmp_path, words, there, CONTENT, CONTENT) == OTHER_DIGEST
    there.unlink()
    there.symlink_to(tmp_path / "not there")
    assert copied(tmp_path, words, there, CONTENT, CONTENT) == OTHER_DIGEST
    assert (empty.read_bytes(), (tmp_path / "not there").exists()) == (b"", False)
    assert copied(tmp_path, words, path, CONTENT[:5], CONTENT) == CUT_OFF
    path.unlink()
    assert copied(tmp_path, words, path, CONTENT, CONTENT) == 0
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (CONTENT, 0o600)


@pytest.mark.parametrize("name", [name for name in PRESETS if PRESETS[name].commands])
def test_no_preset_copies_with_more_rights_than_the_service_has(name: str) -> None:
    command = PRESETS[name].commands["copy"]
    assert "sudo" not in command
    assert ("run_as" in command) is ("run_as" in PRESETS[name].variables)


def test_an_executor_copies_once(tmp_path: Path) -> None:
    hands = Hands(node(tmp_path / "server.properties"))
    hands.copy(CONTENT)
    assert hands.read() == CONTENT
    with pytest.raises(ExecutorError, match="is there already"):
        hands.copy(CONTENT)
