"""The inventories that we hand out, and what the page says of executors, can be used as they stand."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.executors import presets, scripts
from migrator.rollout.executors.executors import ACTIONS, FAILURES_OF_SCRIPTS, NodeExecutor, refuse_elsewhere
from migrator.rollout.inventory import parse_inventory, schema_text
from tests.results import ROOT

EXAMPLES = sorted((ROOT / "deploy" / "rollout").glob("*.yaml"))
PAGE = (ROOT / "docs" / "rollout-executors.md").read_text(encoding="utf-8")
NAMING, SOURCES = ROOT / "docs", ROOT / "migrator" / "rollout"
UNDERSTOOD = {scripts.NO_SUCH_FILE, scripts.OTHER_DIGEST, *FAILURES_OF_SCRIPTS}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_command_of_an_example_can_be_made(path: Path) -> None:
    inventory = parse_inventory(path.read_text(encoding="utf-8"), str(path))
    NodeExecutor(inventory.executors, (*inventory.nodes, *inventory.controllers.stock.values()))


@pytest.mark.parametrize("preset", ["local", "systemd", "ssh-systemd"])
def test_an_executor_of_this_machine_does_not_touch_another_one(preset: str) -> None:
    """A drill rehearses the inventory on any machine."""
    text = (ROOT / "deploy" / "rollout" / "inventory.yaml").read_text(encoding="utf-8")
    inventory = parse_inventory(text, "inventory.yaml")
    choices = {name: replace(choice, preset=preset) for name, choice in inventory.executors.items()}
    if preset == "ssh-systemd":
        refuse_elsewhere(choices, inventory.nodes)
    else:
        first = f"{preset} touches this machine, and .* is on {inventory.nodes[0].host}"
        with pytest.raises(OperatorError, match=first):
            refuse_elsewhere(choices, inventory.nodes)
        refuse_elsewhere(choices, [replace(node, host="localhost") for node in inventory.nodes])


def test_the_page_names_presets_variables_scripts_and_exit_codes() -> None:
    assert [name for name in presets.PRESETS if f"`{name}`" not in PAGE] == []
    assert [action for action in (*ACTIONS, "stop", "start", "restart") if f"| `{action}` |" not in PAGE] == []
    named = {variable for preset in presets.PRESETS.values() for variable in preset.variables}
    assert [variable for variable in sorted(named) if f"`{variable}`" not in PAGE] == []
    assert [script for script in scripts.SCRIPTS if f"`{{{script}}}`" not in PAGE] == []
    codes = (scripts.NO_SUCH_FILE, scripts.OTHER_DIGEST, scripts.CUT_OFF, scripts.NOT_KEPT, scripts.NOT_REGULAR)
    assert [code for code in codes if f"{code}:" not in PAGE] == []


def test_bounds_that_pages_and_messages_name_are_keys_of_an_inventory() -> None:
    keys = json.loads(schema_text())["properties"]["gates"]["properties"]
    texts = [path.read_text(encoding="utf-8") for path in (*NAMING.glob("*.md"), *SOURCES.rglob("*.py"))]
    named = {found for text in texts for found in re.findall(r"[`']([a-z]+\.(?:[a-z]+_)?seconds)[`']", text)}
    assert "gates.command_seconds" in named
    assert named <= {f"gates.{key}" for key in keys}


@pytest.mark.parametrize("name", scripts.SCRIPTS)
def test_the_exit_codes_of_the_scripts_are_those_that_are_understood(name: str) -> None:
    assert set(map(int, re.findall(r"exit (\d+)", scripts.SCRIPTS[name]))) <= UNDERSTOOD


@pytest.mark.parametrize("shell", ["sh", "bash", "busybox sh"])
@pytest.mark.parametrize("name", scripts.SCRIPTS)
def test_every_shell_at_hand_reads_the_scripts(name: str, shell: str) -> None:
    words = shlex.split(shell)
    if shutil.which(words[0]) is None and "CI" not in os.environ:
        pytest.skip(f"there is no {shell} here")
    subprocess.run([*words, "-n", "-c", scripts.SCRIPTS[name]], check=True)
