"""`migrator man`: the manual page, made from the texts of ``--help``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version

import click

from migrator.cli.terminal import say

NAME = "kraft-migrator"


@click.command("man")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Print the manual page of migrator and all its commands, in the format of man(7)."""
    root = ctx.find_root()
    for line in page(root):
        say(line)


def page(root: click.Context) -> Iterator[str]:
    group = root.command
    yield f'.TH MIGRATOR 1 "" "{NAME} {version(NAME)}" "User Commands"'
    yield from (".SH NAME", "migrator \\- move an Apache Kafka cluster from ZooKeeper to KRaft")
    yield from (".SH SYNOPSIS", ".B migrator", "COMMAND [OPTIONS] [ARGUMENTS]", ".SH DESCRIPTION")
    yield from _paragraphs(group.help or "")
    yield ".SH COMMANDS"
    if isinstance(group, click.Group):
        for name in group.list_commands(root):
            try:
                found = group.get_command(root, name)
            except ModuleNotFoundError as error:
                yield from (
                    f'.SS "migrator {_text(name)}"',
                    _line(f"This command needs {error.name}, not installed here."),
                )
            else:
                if found is not None:
                    yield from _command(f"migrator {name}", found)


def _command(name: str, found: click.Command) -> Iterator[str]:
    context = click.Context(found, info_name=name)
    yield f'.SS "{_text(name)} {_text(" ".join(found.collect_usage_pieces(context)))}"'
    yield from _paragraphs(found.help or "")
    for parameter in found.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and "--help" not in parameter.opts:
            yield from (".TP", f".B {_text(record[0])}", _line(record[1]))
    yield from _paragraphs(found.epilog or "")
    if isinstance(found, click.Group):
        for part, below in found.commands.items():
            yield from _command(f"{name} {part}", below)


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs as in click: blank lines separate them, and those after a backspace keep their line ends."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = paragraph.splitlines()
        if lines and lines[0].strip() == "\b":
            yield from (".PP", ".nf", *map(_line, lines[1:]), ".fi")
        elif lines:
            yield from (".PP", _line(" ".join(line.strip() for line in lines)))


def _line(text: str) -> str:
    """A line of text, which roff does not take for a request."""
    return f"\\&{_text(text)}" if text.lstrip().startswith((".", "'")) else _text(text)


def _text(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
