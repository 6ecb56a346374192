"""Reversible edits of a Java property file; every other line stays as it is.

Lines that an edit adds or sets aside have a mark (ADR 39). Reversing the edits restores exactly the lines that were set
aside, and removes exactly those that were added. A comment without a mark belongs to the file's author.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto

from migrator.config.properties import logical_keys, parse_properties
from migrator.values import value

ASIDE = "#migrator set aside:"
"""The beginning of each line of an entry that an edit has set aside. A space and the original line follow."""
ADDED = "#migrator added:"
"""The beginning of the line above an entry that an edit has added. A space and the key follow."""
_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_END = re.compile(r"[\r\n]*\Z")


@value
class Edit:
    """The edit of one key. ``text`` is its new value; None sets its lines aside."""

    key: str
    text: str | None = None


class _Origin(Enum):
    AUTHOR = auto()
    """A comment, a blank line, or an entry that no edit has touched."""
    ADDED = auto()
    ASIDE = auto()


@value
class _Part:
    """A part of a file. ``lines``: its lines without the mark. ``key``: the key of an entry; None for a comment, for a
    blank line, and for a mark without its entry."""

    lines: tuple[str, ...]
    key: str | None = None
    whose: _Origin = _Origin.AUTHOR

    @property
    def text(self) -> str:
        return "".join(self.lines)

    @property
    def is_open(self) -> bool:
        """Whether the next line of the file would become a part of this one."""
        if not self.text.endswith(("\r", "\n")):
            return True
        return self.key is not None and next(iter(logical_keys(self.text)))[1] > len(self.lines)

    @property
    def as_comment(self) -> tuple[str, ...]:
        return tuple(f"#{line}" for line in self.lines)

    def written(self) -> str:
        if self.whose is _Origin.ASIDE:
            return "".join(f"{ASIDE} {line}" for line in self.lines)
        if self.whose is _Origin.ADDED and self.key is not None:
            newline = _END.search(self.lines[0]).group() or "\n"  # type: ignore[union-attr]  # it matches everything
            return f"{ADDED} {escaped(self.key, is_key=True)}{newline}{self.text}"
        return self.text


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The file after the edits, one after the other.

    A key that the file has keeps its place: that of its last entry, which is in force. A new key comes last.

    :raises ValueError: as in `parse_properties` and in `original`.
    """
    parts = list(_parts(text))
    newline = next((end for end in map(_line_end, _LINES.findall(text)) if end), "\n")
    for edit in edits:
        if edit.text is None:
            parts = [part for part in _set_aside(parts, edit.key) if not _is(part, edit.key, _Origin.ADDED)]
        elif not _is_brought_back(parts, edit.key, edit.text):
            parts = _with_entry(parts, edit.key, edit.text, newline)
        else:
            parts = [_brought_back(part, edit.key) for part in parts if not _is(part, edit.key, _Origin.ADDED)]
    return "".join(part.written() for part in parts)


def original(text: str) -> str:
    """The file without any edit: added lines are removed, and lines that were set aside are restored.

    :raises ValueError: lines that were set aside are incomplete, and the next line would become a part of them.
    """
    return "".join(part.text for part in _parts(text) if part.whose is not _Origin.ADDED)


def settled(text: str) -> str:
    """The file with the edits as if its author had made them, without marks: lines that were set aside become comments.

    :raises ValueError: as `original`.
    """
    return "".join("".join(part.as_comment if part.whose is _Origin.ASIDE else part.lines) for part in _parts(text))


def without_keys(text: str, is_dropped: Callable[[str], bool]) -> str:
    """The file without some of its keys; every other line, comments too, stays as it is.

    :raises ValueError: as `original`.
    """
    return "".join(
        part.written()
        for part in _parts(text)
        if part.whose is _Origin.ASIDE or part.key is None or not is_dropped(part.key)
    )


def with_values(text: str, values: Mapping[str, str]) -> str:
    """A copy of the file with other values for keys that it has, each at its place. This cannot be reversed.

    :raises ValueError: as `original`.
    """
    return "".join(
        _entry(part.key, values[part.key], _line_end(part.text))
        if part.key is not None and part.key in values and part.whose is not _Origin.ASIDE
        else part.written()
        for part in _parts(text)
    )


def file_of(properties: Mapping[str, str]) -> str:
    """A new file with one line for each key."""
    return "".join(_entry(key, text, "\n") for key, text in properties.items())


def escaped(text: str, *, is_key: bool) -> str:
    """Escape as ``java.util.Properties.store`` does: ASCII only, so the reader's encoding does not matter."""
    out = []
    for position, char in enumerate(text):
        if char == "\\" or (char in "=:#!" and is_key) or (char == " " and (is_key or position == 0)):
            out.append("\\" + char)
        elif char in "\t\n\r\f":
            out.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[char])
        elif " " <= char <= "~":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            out += [f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)]
    return "".join(out)


def _parts(text: str) -> Iterator[_Part]:
    """Divide the file into parts. After a line that continues, a comment is a part of the value, and so no mark."""
    lines = _LINES.findall(text)
    entries = {start: (min(end, len(lines)), key) for start, end, key in logical_keys(text)}
    at = 1
    while at <= len(lines):
        line = lines[at - 1]
        end, key = entries.get(at, (at, None))
        if key is None and line.startswith(ADDED):
            end, key = entries.get(at + 1, (at, None))
            if key is None or line.rstrip("\r\n") != f"{ADDED} {escaped(key, is_key=True)}":
                end, key = at, None
            yield _Part(tuple(lines[at:end]), key, _Origin.ADDED)
        elif key is None and line.startswith(ASIDE):
            while end < len(lines) and end + 1 not in entries and lines[end].startswith(ASIDE):
                end += 1
            yield from _were(lines[at - 1 : end], at, is_last=end == len(lines))
        else:
            yield _Part(tuple(lines[at - 1 : end]), key)
        at = end + 1


def _were(lines: Sequence[str], number: int, *, is_last: bool) -> Iterator[_Part]:
    """The entries in consecutive lines that were set aside.

    :param number: the number of the first line.
    :raises ValueError: as `original`.
    """
    were = "".join(line.removeprefix(ASIDE).removeprefix(" ") for line in lines)
    physical = _LINES.findall(were)
    entries = {start: (min(end, len(physical)), key) for start, end, key in logical_keys(were)}
    at = 1
    while at <= len(physical):
        end, key = entries.get(at, (at, None))
        part = _Part(tuple(physical[at - 1 : end]), key, _Origin.ASIDE)
        if part.is_open and not is_last:
            raise ValueError(f"line {number + end - 1}: what was set aside goes on behind this line, and is not there")
        yield part
        at = end + 1


def _set_aside(parts: Sequence[_Part], key: str) -> list[_Part]:
    """Set a key's entries aside. If the author has written the key again since, the earlier lines that were set aside
    become ordinary comments."""
    if not any(_is(part, key, _Origin.AUTHOR) for part in parts):
        return list(parts)
    left = [_Part(part.as_comment) if _is(part, key, _Origin.ASIDE) else part for part in parts]
    return [_Part(part.lines, key, _Origin.ASIDE) if _is(part, key, _Origin.AUTHOR) else part for part in left]


def _is(part: _Part, key: str, whose: _Origin) -> bool:
    return part.key == key and part.whose is whose


def _brought_back(part: _Part, key: str) -> _Part:
    return _Part(part.lines, key) if _is(part, key, _Origin.ASIDE) else part


def _is_brought_back(parts: Sequence[_Part], key: str, text: str) -> bool:
    """Whether the value is the one that was set aside, and the author has written no other since."""
    were = [part for part in parts if _is(part, key, _Origin.ASIDE)]
    changed = any(_is(part, key, _Origin.AUTHOR) for part in parts)
    return bool(were) and not changed and parse_properties(were[-1].text)[key] == text


def _with_entry(parts: Sequence[_Part], key: str, text: str, newline: str) -> list[_Part]:
    """Add an entry above the last entry of the key. A new key comes last, but above a last line that continues."""
    new = _Part((_entry(key, text, newline),), key, _Origin.ADDED)
    places = [at for at, part in enumerate(parts) if part.key == key]
    at = places[-1] if places else len(parts) - bool(parts and parts[-1].is_open)
    left = [*parts[:at], new, *parts[at:]]
    return _set_aside([part for part in left if part is new or not _is(part, key, _Origin.ADDED)], key)


def _entry(key: str, text: str, newline: str) -> str:
    return f"{escaped(key, is_key=True)}={escaped(text, is_key=False)}{newline}"


def _line_end(line: str) -> str:
    return _END.search(line).group()  # type: ignore[union-attr]  # it matches everything
