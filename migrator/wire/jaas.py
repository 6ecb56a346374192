"""Inline JAAS entries (``<mechanism>.sasl.jaas.config``): one login module and its options (KIP-85).

Read as Kafka reads them: comments are no options, and there is nothing between options. A text that Kafka would not
start with is refused, as is another class than Kafka's own, which may know other users than those in its options.
Source: ``JaasConfig``, ``JaasContext``, ``java.io.StreamTokenizer``.
"""

from __future__ import annotations

import re

from migrator.errors import OperatorError
from migrator.wire.listener_keys import ListenerKeys

_SKIPPED = r"(?:[\x00-\x20]|//[^\r\n]*|/\*(?s:.*?)\*/)*"
_WORD = r"[A-Za-z_$\xa0-\U0010ffff][\w$.\xa0-\U0010ffff-]*"
_QUOTED = r'"(?:[^"\\\r\n]|\\[^\r\n])*"|' + r"'(?:[^'\\\r\n]|\\[^\r\n])*'"
_TOKEN = re.compile(rf"{_SKIPPED}(?P<token>{_WORD}|{_QUOTED}|[=;]|\Z)", re.ASCII)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = frozenset(("required", "requisite", "sufficient", "optional"))
_MARKS = ("=", ";", "")
_PACKAGE = "org.apache.kafka.common.security."
_MODULES = {
    "PLAIN": f"{_PACKAGE}plain.PlainLoginModule",
    "OAUTHBEARER": f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule",
}
_SCRAM_MODULE = f"{_PACKAGE}scram.ScramLoginModule"


def has_jaas(keys: ListenerKeys, mechanism: str) -> bool:
    """Whether the listener has an entry for the mechanism."""
    return bool(keys.get(f"{mechanism.lower()}.sasl.jaas.config"))


def jaas_options(keys: ListenerKeys, mechanism: str) -> tuple[str, dict[str, str]]:
    """The key of the entry, and the options of its login module.

    :raises OperatorError: it is missing, malformed, or another mechanism's. Nothing of the error holds any of it.
    """
    where, text = keys.find(f"{mechanism.lower()}.sasl.jaas.config")
    if not text:
        raise OperatorError(
            "the key is not set, and a JAAS file of the JVM cannot be read here",
            where=where if text is not None else keys.own_key(where),
            remedy='Put the login module\'s line into this key, as \'Module required username="..." password="...";\'',
        )
    module = _MODULES.get(mechanism, _SCRAM_MODULE)
    try:
        name, options = _entry(text)
    except ValueError:
        name, options = "", {}
    if name != module:
        raise OperatorError(
            f"the value is not one entry of {module} that ends with a semicolon, as Kafka reads it",
            where=where,
            remedy=f"Write '{module} required name=\"value\" ...;', with all that is no plain word in quotes",
        )
    return where, options


def _entry(text: str) -> tuple[str, dict[str, str]]:
    """The class and the options of the only entry.

    :raises ValueError: there is no such entry, or another one.
    """
    tokens = _tokens(text)
    name, flag = tokens[0], _text(tokens[1])
    if flag.lower() not in _FLAGS:
        raise ValueError("no flag after the class")
    options: dict[str, str] = {}
    place = 2
    while tokens[place] != ";":
        if tokens[place + 1] != "=":
            raise ValueError("no = after an option's name")
        options[_text(tokens[place])] = _text(tokens[place + 2])
        place += 3
    if tokens[place + 1]:
        raise ValueError("text after the entry")
    return _text(name), options


def _tokens(text: str) -> list[str]:
    """All of them, and three empty ones that stand for the end."""
    found, position = [], 0
    while match := _TOKEN.match(text, position):
        token, position = match["token"], match.end()
        found.append(token)
        if not token:
            return [*found, "", ""]
    raise ValueError("a character that cannot stand here")


def _text(token: str) -> str:
    if token in _MARKS:
        raise ValueError("a word is missing")
    return _ESCAPE.sub(_unescape, token[1:-1]) if token[0] in "\"'" else token


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)
