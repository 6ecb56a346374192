"""Makes text safe for terminals and logs.

Names come from ZooKeeper, from clients and from peers. They can have characters that control a terminal or imitate a
line of ours: escape sequences, line ends, marks that change the direction of text. So all output passes through here
when it leaves the process: in `migrator.cli.terminal`, in `migrator.observe.logs`, in pages and reports.

Brokers and controllers by their ids, as people write them.

How long something has lasted, as a person says it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson

NAME_CHARACTERS = 100
"""The most characters of a foreign name in one line."""
_INDENT = "    "
_BEYOND_ASCII = re.compile(r"[^\n -~]")


def printable(text: str) -> str:
    """One line of visible characters: all others, and every space but the plain one, are written as Python escapes them
    (``\\x1b``, ``\\n``, ``\\u202e``)."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def quoted(text: str, most: int = NAME_CHARACTERS) -> str:
    """Foreign text within a sentence, in quotes that it cannot end. A text above ``most`` characters is cut; dots after
    the quotes say so.

    >>> print(quoted("eve' failed"), quoted("a" * 200, 3))
    'eve\\' failed' 'aaa'...
    """
    inside = printable(text[:most].replace("\\", "\\\\").replace("'", "\\'"))
    return f"'{inside}'{'...' if len(text) > most else ''}"


def printable_lines(text: str) -> str:
    """Several lines. Those after the first are indented, so that none looks like a line of ours."""
    return f"\n{_INDENT}".join(map(printable, text.split("\n")))


def number_of(count: int, what: str) -> str:
    """:param what: the noun for one of them; its plural has an ``s``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def utc(milliseconds: int, zone: str = " UTC") -> str:
    """The time of day, to the second. A foreign number that is no time of any calendar is shown as it is.

    :param milliseconds: since 1970.
    """
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}{zone}"
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms after 1970"


def json_text(content: Any, *, indent: bool = False) -> str:
    """JSON that a terminal may show: invisible characters are escaped.

    :param indent: on several lines.
    """
    try:
        text = orjson.dumps(content, option=orjson.OPT_INDENT_2 if indent else None).decode()
    except orjson.JSONEncodeError:  # half of a surrogate pair, which UTF-8 does not have
        return json.dumps(content, indent=2 if indent else None)
    return _BEYOND_ASCII.sub(_json_escaped, text)


def _json_escaped(match: re.Match[str]) -> str:
    char = match[0]
    if char.isprintable():
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def number_ranges(noun: str, numbers: Iterable[int]) -> str:
    """``broker 3``, or ``brokers 1-3, 5``; three or more in a row are a range."""
    found = sorted(set(numbers))
    runs: list[list[int]] = []
    for number in found:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return f"{noun}{'s' if len(found) > 1 else ''} {', '.join(parts)}"


def duration(ms: int) -> str:
    """``45 s``, ``12 min 5 s``, ``3 h 10 min``."""
    seconds = max(0, ms) // 1000
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
