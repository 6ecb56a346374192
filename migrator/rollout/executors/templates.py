"""Command templates -> argument lists. Pure; no shell ever sees a template.

A template is split into words as a shell splits it. Then each word is filled in:

* ``{name}``: the value as it is, with all its characters.
* ``{name!q}``: the value quoted for a POSIX shell, for words that another shell splits again (as over ssh).
* ``{*name}``, ``{*name!q}``: must be a whole word, and becomes as many words as the value has.

All other braces stay as they are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from migrator.observe.printable import printable

PLACEHOLDER = re.compile(r"\{(\*?)([a-z][a-z0-9_]*)(!q)?\}")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Values = Mapping[str, str | Sequence[str]]


class TemplateError(ValueError):
    """A template or a value cannot be used. The message is a sentence without a full stop."""


def render(template: str, values: Values) -> list[str]:
    """The words of a command.

    :param values: a text that is used with a star is a template, too.
    :raises TemplateError: a placeholder has no value, or the template cannot be split, or it is empty.
    """
    words = [word for raw in _split(template) for word in _filled(raw, values, depth=0)]
    if not words:
        raise TemplateError("the command is empty")
    return words


def check_value(name: str, text: str) -> str:
    """Returns the text.

    :raises TemplateError: it has a line break or another control character, which no real name has.
    """
    if CONTROL.search(text):
        raise TemplateError(f"{name} has a line break or another control character: {printable(repr(text))}")
    return text


def _split(template: str) -> list[str]:
    try:
        return shlex.split(template)
    except ValueError as error:
        raise TemplateError(f"{printable(template)} cannot be taken apart: {error}") from error


def _filled(word: str, values: Values, *, depth: int) -> Iterator[str]:
    whole = PLACEHOLDER.fullmatch(word)
    if whole is None or not whole[1]:
        yield PLACEHOLDER.sub(lambda found: _text(found, values), word)
        return
    found = _value(whole[2], values)
    if not isinstance(found, str):
        several = list(found)
    elif depth:
        raise TemplateError(f"{{*{whole[2]}}} stands inside of another one")
    else:
        several = [text for raw in _split(found) for text in _filled(raw, values, depth=1)]
    yield from map(shlex.quote, several) if whole[3] else several


def _text(found: re.Match[str], values: Values) -> str:
    if found[1]:
        raise TemplateError(f"{found[0]} has to be a word of its own")
    text = _value(found[2], values)
    if not isinstance(text, str):
        raise TemplateError(f"{found[0]} stands for several words: write {{*{found[2]}}}")
    return shlex.quote(text) if found[3] else text


def _value(name: str, values: Values) -> str | Sequence[str]:
    if name not in values:
        raise TemplateError(f"nothing is given for {{{name}}}")
    return values[name]
