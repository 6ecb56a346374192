"""Edits of a Java property file; every other line stays as it is: comments, order, continuation lines, doubled keys."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from migrator.config.properties import logical_keys
from migrator.values import value

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_END = re.compile(r"[\r\n]*\Z")


@value
class Edit:
    """Of one key. ``text`` is its new value; None takes the key away, or with ``as_comment`` turns its lines into
    comments."""

    key: str
    text: str | None = None
    as_comment: bool = False


def edited(text: str, edits: Sequence[Edit]) -> str:
    """The file after the edits, one after the other.

    A key that is set keeps its place: that of the last of several, which is the one that counts. A new key comes last.

    :raises ValueError: as `parse_properties`, for keys only.
    """
    for edit in edits:
        text = _edited(text, edit)
    return text


def file_of(properties: Mapping[str, str]) -> str:
    """A new file, a line for each key."""
    return "".join(f"{escaped(key, is_key=True)}={escaped(text, is_key=False)}\n" for key, text in properties.items())


def _edited(text: str, edit: Edit) -> str:
    lines = _LINES.findall(text)
    places = [(start, end) for start, end, key in logical_keys(text) if key == edit.key]
    newline = _END.search(lines[0]).group() if lines else "\n"  # type: ignore[union-attr]  # it matches everything
    if edit.text is not None:
        line = f"{escaped(edit.key, is_key=True)}={escaped(edit.text, is_key=False)}"
        if not places:
            return _terminated(text, newline or "\n") + line + (newline or "\n")
        start, end = places[-1]
        last = lines[min(end, len(lines)) - 1]  # an entry may go on in a line that the file does not have
        lines[start - 1 : end] = [line + _END.search(last).group()]  # type: ignore[union-attr]
        return "".join(lines)
    for start, end in reversed(places):
        old = lines[start - 1 : end]
        lines[start - 1 : end] = [f"#{line}" for line in old] if edit.as_comment else []
    return "".join(lines)


def _terminated(text: str, newline: str) -> str:
    """So that what is appended is a line of its own, also behind a last line that would go on."""
    if text and not text.endswith(("\r", "\n")):
        text += newline
    last = text.rstrip("\r\n")
    continued = (len(last) - len(last.rstrip("\\"))) % 2
    return text + newline if continued and text.count("\n", len(last)) + text.count("\r", len(last)) <= 2 else text


def escaped(text: str, *, is_key: bool) -> str:
    """As ``java.util.Properties.store``: ASCII only, so that no reader's encoding matters."""
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
