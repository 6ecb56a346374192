"""Every help ends with an example that can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest

from migrator.cli.main import COMMANDS, EXAMPLES, migrator

HERE = click.Context(migrator)


def walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for part, found in command.commands.items():
            yield from walk(f"{name} {part}", found)


def every_command() -> list[tuple[str, click.Command]]:
    found = ((name, migrator.get_command(HERE, name)) for name in COMMANDS)
    return [pair for name, command in found if command is not None for pair in walk(name, command)]


@pytest.mark.parametrize(
    ("name", "command"), every_command(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_help_ends_with_examples_of_that_command(name: str, command: click.Command) -> None:
    lines = [line.strip() for line in (command.epilog or "").splitlines()]
    typed = [line for line in lines if line.startswith(f"migrator {name}")]
    assert typed, f"migrator {name} has no example: see migrator/cli/main.py"
    assert f"migrator {name}" in command.get_help(click.Context(command, info_name=name))
    for line in typed:
        words = shlex.split(line.removesuffix("\\").partition(" >")[0].partition(" |")[0].replace("[...]", ""))[1:]
        found, rest = command_of(words)
        values, left, _ = found.make_parser(click.Context(found)).parse_args(list(rest))
        given = {name for name, value in values.items() if isinstance(value, str | tuple | list | bool)}
        assert {parameter.name for parameter in found.params if parameter.required} <= given, line
        assert left == [], line


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    found = migrator.get_command(HERE, words[0])
    rest = words[1:]
    while isinstance(found, click.Group):
        found, rest = found.commands[rest[0]], rest[1:]
    assert found is not None
    return found, rest


def test_no_example_is_of_a_command_that_is_not_there() -> None:
    assert set(EXAMPLES) <= {name for name, _ in every_command()}
