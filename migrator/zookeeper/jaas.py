"""A Java login configuration (JAAS) file: which login modules a section names, with which options.

The grammar is that of ``javax.security.auth.login.Configuration``: ``Section { module flag key="value" ...; };``, with
comments as in Java. This is the very file that stock brokers and controllers are started with
(``-Djava.security.auth.login.config``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from migrator.values import value

_TOKEN = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/)
    |(?P<quoted>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<mark>[{}=;])
    |(?P<word>(?:(?!//|/\*)[^\s{}=;"'])+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = {"required", "requisite", "sufficient", "optional"}


@value
class LoginModule:
    """One entry of a section. Options hold passwords, so they are not printed."""

    name: str
    options: Mapping[str, str] = field(repr=False)


class JaasSyntaxError(ValueError):
    """Says the line and what was expected there; never what stands there, which may be a password."""


def parse_jaas(text: str) -> dict[str, tuple[LoginModule, ...]]:
    """The sections of a file by name; the first of a name counts, as in Java.

    :raises JaasSyntaxError: where the text does not follow the grammar.
    """
    tokens = _Tokens(text)
    sections: dict[str, tuple[LoginModule, ...]] = {}
    while not tokens.at_end:
        name = tokens.text("a section's name")
        tokens.mark("{")
        modules = []
        while not tokens.accept("}"):
            modules.append(_module(tokens))
        tokens.mark(";")
        sections.setdefault(name, tuple(modules))
    return sections


def _module(tokens: _Tokens) -> LoginModule:
    name = tokens.text("a login module's class")
    if tokens.text("required, requisite, sufficient or optional").lower() not in _FLAGS:
        raise tokens.error("required, requisite, sufficient or optional", back=1)
    options: dict[str, str] = {}
    while not tokens.accept(";"):
        key = tokens.text("an option's name, or ;")
        tokens.mark("=")
        options[key] = tokens.text("an option's value")
    return LoginModule(name, options)


class _Tokens:
    def __init__(self, text: str) -> None:
        self._tokens = list(_scan(text))
        self._next = 0

    @property
    def at_end(self) -> bool:
        return self._next == len(self._tokens)

    def accept(self, mark: str) -> bool:
        """Take the mark if it comes next."""
        if self.at_end or self._tokens[self._next][1:] != (True, mark):
            return False
        self._next += 1
        return True

    def mark(self, mark: str) -> None:
        if not self.accept(mark):
            raise self.error(mark)

    def text(self, what: str) -> str:
        if self.at_end or self._tokens[self._next][1]:
            raise self.error(what)
        self._next += 1
        return self._tokens[self._next - 1][2]

    def error(self, expected: str, back: int = 0) -> JaasSyntaxError:
        place = self._next - back
        where = f"line {self._tokens[place][0]}" if place < len(self._tokens) else "the end"
        return JaasSyntaxError(f"{expected} is expected at {where}")


def _scan(text: str) -> Iterator[tuple[int, bool, str]]:
    """Line, whether it is a mark, and the token."""
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasSyntaxError(f"a quote or a comment that begins in line {line} has no end")
        token = match.group()
        if match.lastgroup == "quoted":
            yield line, False, _ESCAPE.sub(_unescape, token[1:-1])
        elif match.lastgroup != "skip":
            yield line, match.lastgroup == "mark", token
        line += token.count("\n")
        position = match.end()


def _unescape(match: re.Match[str]) -> str:
    code = match.group(1)
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)
