"""docs/runbook.md as a machine reads it: files, changes of files, and commands with what they print.

A block says after its language what it is for: ``file=`` names the file, ``from=`` the one that it is a change of,
``on=`` the machine, or ``each-broker`` and
``each-controller`` for one machine after the other; ``repeat``: until it prints this; ``setup``: of the test's cluster
alone; ``exit=N``: the exit code. Neighbouring blocks with the same ``on=each-...`` are done together, machine by
machine. Pure: nothing is run here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from migrator.values import value

PAGE = Path(__file__).parents[3] / "docs" / "runbook.md"
MACHINES = {"each-broker": ("kafka-1", "kafka-2", "kafka-3"), "each-controller": tuple(f"controller-{n}" for n in "123")}
LANGUAGES = ("properties", "diff", "console")
ANYTHING = "..."
_HEADING = re.compile(r"^(#+) (.+)$")
_FENCE = re.compile(r"^```(\w+)(.*)$")
_BACK = re.compile(r"Way back from (\d)")
_THEN = re.compile(r"\[way back from (\d)\]\(#way-back-from-\d\)")
_OWN_LINE = re.compile(r"^[ +-]?(?:node\.id|broker\.id|listeners|advertised\.listeners)=")
_FIRST = re.compile(r"(=(?:300)?|kafka-|controller-)1(?=:|$)")


@value
class Block:
    """``line``: of the page, for messages. ``where``: ``on=`` as it stands there."""

    language: str
    where: str
    file: str
    origin: str
    repeat: bool
    setup: bool
    exit_code: int
    text: str
    line: int

    @property
    def machines(self) -> Sequence[str]:
        return MACHINES.get(self.where, (self.where,))


@value
class Command:
    """One line after ``$``, and what it has to print."""

    typed: str
    expected: str


@value
class Part:
    """A phase, or the way back from it (``back``). ``then``: the phase whose way back follows."""

    number: int
    back: bool
    blocks: tuple[Block, ...]
    then: int | None
    prose: str


def parts(text: str) -> list[Part]:
    """Of the whole page.

    :raises ValueError: a block is not marked as it should be.
    """
    found: list[Part] = []
    for heading, lines in _sections(text):
        number, back = _number(heading, found)
        prose, blocks = _blocks(lines)
        then = _THEN.search(prose) if back else None
        found.append(Part(number, back, tuple(blocks), int(then[1]) if then else None, prose))
    return [part for part in found if part.number >= 0]


def commands(block: Block) -> Iterator[Command]:
    """Of a console block."""
    lines = block.text.splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in itertools.pairwise([*starts, len(lines)]):
        yield Command(lines[start].removeprefix("$ "), "\n".join(lines[start + 1 : end]))


def rounds(blocks: Sequence[Block]) -> Iterator[tuple[str, Sequence[Block]]]:
    """Machine, and its blocks: in the order in which they are done."""
    for where, group in itertools.groupby(blocks, key=lambda block: block.where):
        together = tuple(group)
        for machine in MACHINES.get(where, (where,)):
            yield machine, together


def of_machine(text: str, machine: str) -> str:
    """A file or a change of one, which stands on the page for the first machine."""
    number = machine[-1]
    return "\n".join(
        _FIRST.sub(rf"\g<1>{number}", line) if _OWN_LINE.match(line) else line
        for line in text.splitlines()
    )


def before(diff: str) -> str:
    """The whole file to which a change applies."""
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[0] in " -")


def after(diff: str) -> str:
    """The whole file that comes of it."""
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[0] in " +")


def is_as_printed(expected: str, said: str) -> bool:
    """Whether an output is as the page says, where ``...`` stands for any text; ends of lines do not count."""
    pattern = ".*".join(re.escape(part) for part in _trimmed(expected).split(ANYTHING))
    return re.fullmatch(pattern, _trimmed(said), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(map(str.rstrip, text.strip().splitlines()))


def substituted(text: str, places: Mapping[str, str]) -> str:
    """With the hosts, ports and directories of the test, the longest name first."""
    names = "|".join(re.escape(name) for name in sorted(places, key=len, reverse=True))
    return re.sub(rf"(?<![\w-])(?:{names})(?![\w-])", lambda found: places[found[0]], text)


def _sections(text: str) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    heading, lines, fenced = "", [], False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        title = None if fenced else _HEADING.match(line)
        if title:
            yield heading, lines
            heading, lines = title[2], []
        else:
            lines.append((number, line))
    yield heading, lines


def _number(heading: str, found: list[Part]) -> tuple[int, bool]:
    back = _BACK.fullmatch(heading)
    if back:
        return int(back[1]), True
    return (int(heading[0]), False) if re.match(r"\d\. ", heading) else (-1, False)


def _blocks(lines: Sequence[tuple[int, str]]) -> tuple[str, list[Block]]:
    prose: list[str] = []
    blocks: list[Block] = []
    begin: tuple[int, str, str] | None = None
    text: list[str] = []
    for number, line in lines:
        fence = _FENCE.match(line)
        if begin is None and fence:
            begin, text = (number, fence[1], fence[2]), []
        elif begin is not None and line == "```":
            blocks.append(_block(*begin, "\n".join(text)))
            begin = None
        elif begin is not None:
            text.append(line)
        else:
            prose.append(line)
    return "\n".join(prose), blocks


def _block(line: int, language: str, marks: str, text: str) -> Block:
    given = dict(mark.partition("=")[::2] for mark in marks.split())
    known = {"file", "from", "on", "repeat", "setup", "exit"}
    if language not in LANGUAGES or "on" not in given or set(given) - known:
        raise ValueError(f"line {line}: ```{language}{marks} is not marked as tests/people/support/runbook.py says")
    if (language == "console") == ("file" in given) or (language == "diff") != ("from" in given):
        raise ValueError(f"line {line}: a file names itself, a change its origin too, commands neither")
    return Block(
        language, given["on"], given.get("file", ""), given.get("from", ""), "repeat" in given, "setup" in given, int(given.get("exit", 0)),
        text, line,
    )  # fmt: skip
