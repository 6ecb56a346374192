"""Property file -> `Settings`. Every refusal names file, key, value and remedy.

Commands that take a controller's property file call `load_settings`, which also checks the values against each other;
`typed_settings` does not. Each value in `Settings` has the type and the bounds of its key. Nothing is written.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from migrator.config.checks import check_settings
from migrator.config.keys import Key, key_of_attribute, names_of
from migrator.config.properties import parse_properties, read_decoded
from migrator.config.providers import resolve_placeholders
from migrator.config.settings import HIDDEN_ATTRIBUTES, Settings
from migrator.config.types import ConfigValue, Secret, parse
from migrator.errors import OperatorError

BYTE_ORDER_MARKS = {"\u00ef\u00bb\u00bf": "UTF-8", "\u00fe\u00ff": "UTF-16", "\u00ff\u00fe": "UTF-16"}
"""Byte order marks as Java reads them, and the encoding of each."""


def load_settings(path: Path) -> tuple[Settings, list[str]]:
    """Read and check a controller's property file.

    :returns: the settings, and warnings for people (one sentence each).
    :raises OperatorError: for a file that can't be read or a value that can't be used.
    """
    return settings_from(read_properties(path), str(path))


def read_properties(path: Path) -> dict[str, str]:
    """Keys and values of a property file, with placeholders unresolved.

    :raises OperatorError: the file can't be read.
    """
    try:
        found = parse_properties(read_decoded(path))
    except OSError as error:
        what, remedy = (
            f"the file cannot be read: {error.strerror}",
            "Check the path and the rights of the file, and give a Java property file",
        )
        raise OperatorError(what, where=str(path), remedy=remedy) from error
    except ValueError as error:
        remedy = "Give a Java property file, and write a backslash as two"
        raise OperatorError(f"the file cannot be read: {error}", where=str(path), remedy=remedy) from error
    _refuse_byte_order_mark(next(iter(found), ""), path)
    return found


def _refuse_byte_order_mark(first: str, path: Path) -> None:
    """
    :param first: the first key.
    """
    mark = next((each for each in BYTE_ORDER_MARKS if first.startswith(each)), "")
    key = first.removeprefix(mark)
    if not mark or key[:1] in ("#", "!"):
        return
    if BYTE_ORDER_MARKS[mark] != "UTF-8":
        what = f"the file is in {BYTE_ORDER_MARKS[mark]}, of which Java understands no key"
    else:
        what = f"the file begins with a byte order mark, so that Java does not know its first key, {key}"
    remedy = "Save the file in ASCII, without a byte order mark, and write every other character as \\uXXXX"
    raise OperatorError(what, where=str(path), remedy=remedy)


def settings_from(raw: dict[str, str], source: str) -> tuple[Settings, list[str]]:
    """Like `load_settings`, from keys and values; messages name ``source``."""
    settings = typed_settings(raw, source)
    return settings, check_settings(settings)


def typed_settings(raw: dict[str, str], source: str) -> Settings:
    """Like `settings_from`, without the checks between settings.

    :raises OperatorError: for a value that can't be used.
    """
    explicit = resolve_placeholders(raw, source)
    values: dict[str, ConfigValue | Secret] = {}
    for field in dataclasses.fields(Settings):
        if field.name not in HIDDEN_ATTRIBUTES:
            key = key_of_attribute(field.name)
            values[field.name] = _value(key, raw, explicit, source)
    return Settings(source=source, explicit=explicit, **values)  # type: ignore[arg-type]


def _value(key: Key, raw: dict[str, str], explicit: dict[str, str], source: str) -> ConfigValue | Secret:
    name = next((name for name in names_of(key.name) if name in explicit), None)
    if name is None:
        return None if key.default is None else parse(key.kind, key.default)
    text = explicit[name]
    try:
        return parse(key.kind, text, key.valid)
    except ValueError as error:
        where = f"{source}: {key.name}"
        if raw[name] != text:  # the value may be a secret under the wrong key
            what = f"the value that {raw[name]} stands for cannot be used; expected: {key.kind} {key.valid}".rstrip()
            remedy = "Correct the placeholder, or the value behind it"
            raise OperatorError(what, where=where, remedy=remedy) from None
        shown = "" if key.kind == "password" else f" (value {text!r})"
        remedy = f"Kafka's default is {key.default!r}" if key.default else f"Set a {key.kind}"
        raise OperatorError(f"{error}{shown}", where=where, remedy=remedy) from error
