"""docs/runbook.md as a machine reads it: files, changes of files, and commands with what they print.

A file, and a change of one, begin with a line that says where it belongs: ``# /etc/kafka/x on each broker``, and after
a change ``, changed from /etc/kafka/y``. A command stands behind the machine that it is typed on: ``each broker$ ls``.
Marks behind the language: ``repeat``: until this is printed; ``exit=N``: the exit code. Pure: nothing is run here.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from migrator.values import value

PAGE = Path(__file__).parents[3] / "docs" / "runbook.md"
BROKERS = tuple(f"kafka-{number}" for number in (1, 2, 3))
CONTROLLERS = tuple(f"controller-{number}" for number in (1, 2, 3))
EACH_BROKER, EACH_CONTROLLER = "each broker", "each controller"
LEADER, FOLLOWERS = "leader", "each follower"
"""Which of the controllers these are is seen when it is their turn."""
MACHINES: Mapping[str, Sequence[str]] = {
    EACH_BROKER: BROKERS,
    EACH_CONTROLLER: CONTROLLERS,
    LEADER: CONTROLLERS,
    FOLLOWERS: CONTROLLERS,
    BROKERS[0]: BROKERS[:1],
    CONTROLLERS[0]: CONTROLLERS[:1],
}
"""Who stands before ``$``, or after ``on``, and the machines that this may be."""
ANYTHING = "..."
_WHERE = "|".join(MACHINES)
_HEADING = re.compile(r"^(#+) (.+)$")
_FENCE = re.compile(r"^```(\w+)(.*)$")
_PROMPT = re.compile(rf"^({_WHERE})\$ (.+)$")
_FILE = re.compile(rf"^# (/\S+) on ({_WHERE})(?:, changed from (/\S+))?$")
_BACK = re.compile(r"Way back from (\d)(?:, (\d) and (\d))?")
_THEN = re.compile(r"\[way back from (\d)[^]]*\]\(#way-back-from-[-\w]+\)")
_OWN_LINE = re.compile(r"^[ +-]?(?:node\.id|broker\.id|listeners|advertised\.listeners)=")
_FIRST = re.compile(r"(=(?:300)?|kafka-|controller-)1(?=:|$)")


@value
class Command:
    """One line after ``$``, and what it has to print."""

    typed: str
    expected: str


@value
class Block:
    """``where``: a key of `MACHINES`. Either a ``file`` with its ``text``, which is a change of ``origin`` unless that
    is empty, or ``commands``. ``line``: of the page, for messages."""

    where: str
    line: int
    file: str = ""
    origin: str = ""
    text: str = ""
    commands: tuple[Command, ...] = ()
    repeat: bool = False
    exit_code: int = 0


@value
class Part:
    """A phase, or the way back from several (``back``). ``then``: the phase whose way back follows."""

    phases: tuple[int, ...]
    back: bool
    blocks: tuple[Block, ...]
    then: int | None
    prose: str

    @property
    def name(self) -> str:
        """For the record of a run."""
        return f"{'way back from ' if self.back else ''}{', '.join(map(str, self.phases))}"


def parts(text: str) -> list[Part]:
    """Of the whole page.

    :raises ValueError: a block does not say where it belongs, or stands where nobody would do it.
    """
    found: list[Part] = []
    for heading, lines in _sections(text):
        phases, back = _phases(heading)
        prose, blocks = _blocks(lines)
        if blocks and not phases:
            raise ValueError(f"line {blocks[0].line}: below {heading!r}, which is no phase")
        if phases:
            then = _THEN.search(prose) if back else None
            found.append(Part(phases, back, tuple(blocks), int(then[1]) if then else None, prose))
    return found


def rounds(blocks: Sequence[Block]) -> Iterator[tuple[str, Sequence[Block]]]:
    """Who, and what is done there before it is the turn of the next machine: neighbours of one ``where``."""
    for where, group in itertools.groupby(blocks, key=lambda block: block.where):
        yield where, tuple(group)


def of_machine(text: str, machine: str) -> str:
    """A file on the page, or a change of a file, as it is for the first machine."""
    return "\n".join(
        _FIRST.sub(rf"\g<1>{machine[-1]}", line) if _OWN_LINE.match(line) else line for line in text.splitlines()
    )


def before(diff: str) -> str:
    """The whole file to which a change applies."""
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[0] in " -")


def after(diff: str) -> str:
    """The whole file that comes of it."""
    return "".join(f"{line[1:]}\n" for line in diff.splitlines() if line[0] in " +")


def is_as_printed(expected: str, said: str) -> bool:
    """Whether an output is as the page says: ``...`` stands for any text, and alone on a line for any lines, also for
    none. Ends of lines do not count."""
    lines = _trimmed(expected).splitlines()
    pattern = "".join(r"(?:.*\n)*" if line == ANYTHING else f"{_any(line)}\n" for line in lines)
    return re.fullmatch(pattern, f"{_trimmed(said)}\n" if said.strip() else "") is not None


def substituted(text: str, places: Mapping[str, str]) -> str:
    """With the hosts, ports and directories of the test, the longest name first."""
    names = "|".join(re.escape(name) for name in sorted(places, key=len, reverse=True))
    return re.sub(rf"(?<![\w-])(?:{names})(?![\w-])", lambda found: places[found[0]], text)


def _any(line: str) -> str:
    return ".*".join(map(re.escape, line.split(ANYTHING)))


def _trimmed(text: str) -> str:
    return "\n".join(map(str.rstrip, text.strip().splitlines()))


def _sections(text: str) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    heading, fenced = "", False
    lines: list[tuple[int, str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        title = None if fenced else _HEADING.match(line)
        if title:
            yield heading, lines
            heading, lines = title[2], []
        else:
            lines.append((number, line))
    yield heading, lines


def _phases(heading: str) -> tuple[tuple[int, ...], bool]:
    back = _BACK.fullmatch(heading)
    if back:
        return tuple(int(phase) for phase in back.groups() if phase), True
    return ((int(heading[0]),) if re.match(r"\d\. ", heading) else ()), False


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
            blocks.append(_block(*begin, text))
            begin = None
        elif begin is not None:
            text.append(line)
        else:
            prose.append(line)
    return "\n".join(prose), blocks


def _block(line: int, language: str, marks: str, text: Sequence[str]) -> Block:
    given = dict(mark.partition("=")[::2] for mark in marks.split())
    head = _FILE.match(text[0])
    if language in ("properties", "diff") and head and not given and bool(head[3]) == (language == "diff"):
        return Block(head[2], line, head[1], head[3] or "", "\n".join(text[1:]))
    prompts = {found[1] for each in text if (found := _PROMPT.match(each))}
    if language != "console" or len(prompts) != 1 or set(given) - {"repeat", "exit"} or not _PROMPT.match(text[0]):
        raise ValueError(f"line {line}: ```{language}{marks} is not as tests/people/support/runbook.py says")
    commands, exit_code = tuple(_commands(text)), int(given.get("exit", 0))
    return Block(prompts.pop(), line, commands=commands, repeat="repeat" in given, exit_code=exit_code)


def _commands(text: Sequence[str]) -> Iterator[Command]:
    starts = [(index, found[2]) for index, line in enumerate(text) if (found := _PROMPT.match(line))]
    ends = [index for index, _ in starts[1:]] + [len(text)]
    for (start, typed), end in zip(starts, ends, strict=True):
        yield Command(typed, "\n".join(text[start + 1 : end]))
