"""The commands in the documentation exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from migrator.cli.main import COMMANDS, migrator

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(r"(?:^ {4}|`|\$ )((?:migrator|make) [^`#\n]+)", re.MULTILINE)
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def documented() -> list[tuple[str, str]]:
    """(page, command line)."""
    return [(page.name, found.strip()) for page in PAGES for found in COMMAND.findall(page.read_text(encoding="utf-8"))]


def options_of(command: click.Command) -> set[str]:
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return names | {"--help", "-h"}


@pytest.mark.parametrize(("page", "line"), documented())
def test_a_documented_command_exists_with_its_options(page: str, line: str) -> None:
    program, *words = shlex.split(line.replace("...", "").rstrip("\\"))
    if program == "make":
        assert words[0] in TARGETS
        return
    if words[0].startswith("-"):
        return
    name = words.pop(0)
    assert all(part in COMMANDS for part in name.split("|"))
    command = migrator.commands.get(name) or migrator.get_command(click.Context(migrator), name.split("|")[0])
    assert command is not None
    while isinstance(command, click.Group) and words:
        command = command.get_command(click.Context(command), words.pop(0).split("|")[0])
        assert command is not None
    given = {word.split("=")[0] for word in words if word.startswith("-") and len(word) > 1}
    assert given <= options_of(command)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_says_what_its_options_do(name: str) -> None:
    command = migrator.get_command(click.Context(migrator), name)
    assert command is not None
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help or parameter.default is not None, f"{name} {parameter.name}"
