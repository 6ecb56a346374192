"""Options of all commands: no number of seconds without an end is taken."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from migrator.cli.main import migrator
from migrator.cli.options import Seconds


def options(command: click.Command) -> Iterator[click.Parameter]:
    yield from command.params
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from options(inner)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "-1"])
def test_no_option_takes_a_time_without_an_end(text: str) -> None:
    decimal = [option for option in options(migrator) if isinstance(option.type, click.types.FloatParamType)]
    assert len(decimal) >= 3
    for option in decimal:
        with pytest.raises(click.BadParameter):
            option.type.convert(text, option, None)


def test_a_time_in_seconds_is_taken() -> None:
    assert Seconds(0).convert("2.5", None, None) == 2.5
