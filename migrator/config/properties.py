"""Java property files: bytes -> text -> ordered keys and values.

Source: ``java.util.Properties.load(InputStream)``, with which Kafka reads them: ISO 8859-1, comments, continuation
lines, the three separators, escapes. The last of several equal keys wins, as in Java. Every byte is a character, so
bytes that became text come back as they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

LINE_END = re.compile(r"\r\n|\r|\n")
BLANKS = " \t\f"
_ENTRY = re.compile(rf"((?:\\.|[^\\=:{BLANKS}])*\\?)[{BLANKS}]*[=:]?[{BLANKS}]*(.*)", re.DOTALL)
BYTES_MAX = 1 << 24
"""The most bytes of a property file: a larger one is another kind of file, or a device."""
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def decoded(content: bytes) -> str:
    """The text of a property file, as Java reads it. Never fails."""
    return content.decode("latin-1")


def encoded(text: str) -> bytes:
    """The reverse of `decoded`.

    :raises ValueError: for a character beyond ISO 8859-1, which has to be written as ``\\uXXXX``.
    """
    return text.encode("latin-1")


def shown(text: str) -> str:
    """A value for messages: if its bytes are UTF-8, the text that its author sees in an editor. Java takes each byte
    for a character."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def read_decoded(path: Path) -> str:
    """
    :raises OSError: it can't be read.
    :raises ValueError: it is too large for a property file.
    """
    with path.open("rb") as file:
        content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise ValueError(f"it has more than {BYTES_MAX:,} bytes")
    return decoded(content)


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Read a file that belongs to property files, and may have secrets. Java reads such files as UTF-8.

    :raises OSError: it can't be read.
    :raises ValueError: it is no such text. The error quotes nothing of it.
    """
    try:
        return path.read_text(encoding=encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is no {encoding.upper()}") from None


def parse_properties(text: str) -> dict[str, str]:
    """Parse a whole file.

    :raises ValueError: for a malformed ``\\uXXXX`` escape, with the number of its line.
    """
    found: dict[str, str] = {}
    for number, _, line in _logical_lines(text):
        raw_key, raw_value = _split(line)
        try:
            found[_unescape(raw_key)] = _unescape(raw_value)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return found


def doubled_keys(text: str) -> Iterator[tuple[str, int, int]]:
    """Keys that occur again with another value: (key, line of the earlier entry, line of this entry). The last entry
    counts.

    :raises ValueError: as `parse_properties`.
    """
    found: dict[str, tuple[str, int]] = {}
    for number, _, line in _logical_lines(text):
        key, value = (_unescape(part) for part in _split(line))
        if key in found and found[key][0] != value:
            yield key, found[key][1], number
        found[key] = value, number


def logical_keys(text: str) -> Iterator[tuple[int, int, str]]:
    """First line, last line and key of each entry, in the order of the file.

    :raises ValueError: as `parse_properties`, for keys only.
    """
    for start, end, line in _logical_lines(text):
        yield start, end, _unescape(_split(line)[0])


def _logical_lines(text: str) -> Iterator[tuple[int, int, str]]:
    """Lines without comments, with continuation lines joined; with the numbers of the first and the last part."""
    parts: list[str] = []
    start = number = 0
    for number, physical in enumerate(LINE_END.split(text), 1):
        line = physical.lstrip(BLANKS)
        if not parts:
            start = number
            if not line or line[0] in "#!":
                continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield start, number, "".join([*parts, line])
        parts = []
    if parts:
        yield start, number, "".join(parts)


def _split(line: str) -> tuple[str, str]:
    """Cut at the first unescaped ``=``, ``:`` or blank; blanks around one ``=`` or ``:`` belong to neither side."""
    key, text = _ENTRY.findall(line)[0]
    return key, text


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char != "\\":
            out.append(char)
        elif text[position : position + 1] == "u":
            digits = text[position + 1 : position + 5]
            if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                raise ValueError("malformed escape: four hexadecimal digits follow \\u")
            out.append(chr(int(digits, 16)))
            position += 5
        elif position < len(text):
            out.append(ESCAPES.get(text[position], text[position]))
            position += 1
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
