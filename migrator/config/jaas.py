"""Login modules of Java (JAAS): a login file, and the inline entry of ``sasl.jaas.config`` (KIP-85). Pure.

``Section { module flag key="value" ...; };`` in a file, ``module flag key="value" ...;`` inline. Both have the words
and comments of ``java.io.StreamTokenizer``: a slash begins a comment, and everything except a plain word needs quotes.
``${user.home}`` is a system property only in a file. Source: ``sun.security.provider.ConfigFile``,
``PropertyExpander``, ``JaasConfig`` of Kafka. Unlike Java, this parser accepts single quotes in a file, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from migrator.values import value

_TOKEN = re.compile(
    r"""(?P<skip>[\x00-\x20]+|/\*(?s:.*?)\*/|/(?!\*)[^\r\n]*)
    |(?P<quoted>"(?:[^"\\\r\n]|\\[^\r\n])*"|'(?:[^'\\\r\n]|\\[^\r\n])*')
    |(?P<mark>[{}=;])
    |(?P<word>[A-Za-z_$*\xa0-\U0010ffff][\w$*.\xa0-\U0010ffff-]*)""",
    re.VERBOSE | re.ASCII,
)
_OPEN = ('"', "'", "/*")
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = frozenset(("required", "requisite", "sufficient", "optional"))
_PROPERTY = re.compile(r"\$\{\{.*?\}\}|\$\{([^}]*)\}", re.DOTALL)


@value
class LoginModule:
    """One entry. Options hold passwords, so they are not printed."""

    name: str
    options: Mapping[str, str] = field(repr=False)


class JaasSyntaxError(ValueError):
    """A fault of the text. The message has the line and what was expected there, but never quotes the text, which may
    be a password."""


def parse_entry(text: str) -> LoginModule:
    """The only entry of an inline text.

    :raises JaasSyntaxError: there is no entry, or more than one.
    """
    tokens = _Tokens(text)
    module = _module(tokens)
    if not tokens.at_end:
        raise tokens.error("nothing more")
    return module


def parse_sections(text: str, system_properties: Mapping[str, str]) -> dict[str, tuple[LoginModule, ...]]:
    """The sections of a file by name.

    :param system_properties: the known system properties of Java.
    :raises JaasSyntaxError: the text does not follow the grammar, or an option names another system property.
    """
    tokens = _Tokens(text, system_properties)
    sections: dict[str, tuple[LoginModule, ...]] = {}
    while not tokens.at_end:
        name = tokens.text("a section's name")
        if name in sections:
            raise tokens.error("another name than that of an earlier section", back=1)
        tokens.mark("{")
        modules = []
        while not tokens.accept("}"):
            modules.append(_module(tokens))
        tokens.mark(";")
        sections[name] = tuple(modules)
    return sections


def _module(tokens: _Tokens) -> LoginModule:
    name = tokens.text("a login module's class")
    if tokens.text("required, requisite, sufficient or optional").lower() not in _FLAGS:
        raise tokens.error("required, requisite, sufficient or optional", back=1)
    options: dict[str, str] = {}
    while not tokens.accept(";"):
        key = tokens.text("an option's name, or ;")
        tokens.mark("=")
        options[key] = tokens.expanded(tokens.text("an option's value"))
    return LoginModule(name, options)


class _Tokens:
    def __init__(self, text: str, system_properties: Mapping[str, str] | None = None) -> None:
        self._system_properties = system_properties
        self._tokens = list(_scan(text, in_file=system_properties is not None))
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

    def expanded(self, text: str) -> str:
        """The text with the values of system properties; text in double braces stays as it is."""
        known = self._system_properties
        if known is None:
            return text

        def value_of(match: re.Match[str]) -> str:
            if match[1] is None:
                return match[0]
            if match[1] not in known:
                what = f"the system property {match[1]} is not known here: write its value"
                raise JaasSyntaxError(f"{what} at line {self._tokens[self._next - 1][0]}")
            return known[match[1]]

        return _PROPERTY.sub(value_of, text)

    def error(self, expected: str, back: int = 0) -> JaasSyntaxError:
        place = self._next - back
        where = f"line {self._tokens[place][0]}" if place < len(self._tokens) else "the end"
        return JaasSyntaxError(f"{expected} is expected at {where}")


def _scan(text: str, *, in_file: bool) -> Iterator[tuple[int, bool, str]]:
    """Yields line, whether the token is a mark, and the token. An asterisk is a letter only in a file."""
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or (match["word"] and "*" in match["word"] and not in_file):
            is_open = text.startswith(_OPEN, position)
            what = "a quote or a comment that begins" if is_open else "a character that needs quotes around its word"
            raise JaasSyntaxError(f"{what} in line {line} has no end" if is_open else f"{what} stands in line {line}")
        token = match.group()
        if match.lastgroup == "quoted":
            yield line, False, _ESCAPE.sub(_unescape, token[1:-1])
        elif match.lastgroup != "skip":
            yield line, match.lastgroup == "mark", token
        line += token.count("\n")
        position = match.end()


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)
