"""Makes the pages that repeat what the code says: commands, rooms, keys and checks.

``python -m tests.site.support.reference`` writes all anew.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click

from migrator.cli.main import migrator
from tests.site.support.checks import checks_page
from tests.site.support.configuration import configuration

ROOT = Path(__file__).parents[3]
HOW = "This page is generated: `python -m tests.site.support.reference`."
COMMANDS_HEAD = f"""\
# Commands

Every command with its options, as `--help` shows them. [Troubleshooting](troubleshooting.md#exit-codes) explains the
exit codes. {HOW}
"""
ROOMS_HEAD = f"""\
# Rooms

The head of each room of the code: what it is for, how to use it, its contract, and what always holds. The order is
that of [Architecture](architecture.md): a room imports only rooms below it. {HOW}
"""


def commands() -> str:
    """The page of commands, in Markdown."""
    context = click.Context(migrator, info_name="migrator")
    found = [(name, migrator.get_command(context, name)) for name in migrator.list_commands(context)]
    return "\n".join(
        [COMMANDS_HEAD, *(line for name, each in found if each for line in _command(f"migrator {name}", each, "##"))]
    )


def _command(name: str, found: click.Command, heading: str) -> Iterator[str]:
    context = click.Context(found, info_name=name)
    yield f"{heading} {name}\n"
    yield from _paragraphs(found.help or "")
    yield f"```text\n{name} {' '.join(found.collect_usage_pieces(context))}\n```\n"
    records = [parameter.get_help_record(context) for parameter in found.get_params(context)]
    rows = [record for record in records if record and record[1] and "--help" not in record[0]]
    if rows:
        yield "| option | meaning |\n|---|---|"
        yield from (f"| `{option.replace('|', '/')}` | {_text(words)} |" for option, words in rows)
        yield ""
    yield from _paragraphs(found.epilog or "")
    if isinstance(found, click.Group):
        for part, below in found.commands.items():
            yield from _command(f"{name} {part}", below, "###")


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs as in click: blank lines separate them, and those after a backspace keep their line ends."""
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = paragraph.splitlines()
        if lines and lines[0].strip() == "\b":
            yield "\n".join(["```text", *lines[1:], "```", ""])
        elif lines:
            yield f"{_text(' '.join(line.strip() for line in lines))}\n"


def _text(words: str) -> str:
    return re.sub(r"([<*|])", r"\\\1", words)


def rooms() -> str:
    """The page of rooms, in Markdown."""
    order = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), re.MULTILINE)
    heads = [(room, ROOT / "migrator" / room / "__init__.py") for room in order]
    return "\n".join([ROOMS_HEAD, *(_room(room, head) for room, head in heads if head.is_file())])


def _room(room: str, head: Path) -> str:
    text = ast.get_docstring(ast.parse(head.read_text(encoding="utf-8"))) or ""
    text = re.sub(r"::$", ":", text.replace("``", "`"), flags=re.MULTILINE)
    return f"## {room}\n\n{text}\n"


PAGES = {
    ROOT / "docs/checks.md": checks_page,
    ROOT / "docs/commands.md": commands,
    ROOT / "docs/configuration.md": configuration,
    ROOT / "docs/rooms.md": rooms,
}


if __name__ == "__main__":
    for page, made in PAGES.items():
        page.write_text(made(), encoding="utf-8")
