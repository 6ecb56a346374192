"""Property file -> `Settings`. Every refusal names file, key, value and remedy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from migrator.config.checks import check_settings
from migrator.config.keys import SYNONYMS, Key, key_of_attribute
from migrator.config.properties import parse_properties, read_text
from migrator.config.providers import resolve_placeholders
from migrator.config.settings import HIDDEN_ATTRIBUTES, Settings
from migrator.config.types import ConfigValue, Secret, parse
from migrator.errors import OperatorError

BYTE_ORDER_MARK = "\ufeff"


def load_settings(path: Path) -> tuple[Settings, list[str]]:
    """Read and check a controller's property file.

    :returns: the settings, and warnings for people (one sentence each).
    :raises OperatorError: for a file that can't be read or a value that can't be used.
    """
    return settings_from(read_properties(path), str(path))


def read_properties(path: Path) -> dict[str, str]:
    """Keys and values of a property file, placeholders as they stand there.

    :raises OperatorError: it can't be read.
    """
    try:
        found = parse_properties(read_text(path))
    except OSError as error:
        what, remedy = (
            f"the file cannot be read: {error.strerror}",
            "Check the path and the rights of the file, and give a Java property file",
        )
        raise OperatorError(what, where=str(path), remedy=remedy) from error
    except ValueError as error:
        remedy = "Give a Java property file in UTF-8: save it in that encoding, and write a backslash as two"
        raise OperatorError(f"the file cannot be read: {error}", where=str(path), remedy=remedy) from error
    first = next(iter(found), "")
    if first.startswith(BYTE_ORDER_MARK) and first[1:2] not in ("#", "!"):
        raise OperatorError(
            f"the file begins with a byte order mark, so that Java does not know its first key, {first[1:]}",
            where=str(path),
            remedy="Save the file as UTF-8 without a byte order mark",
        )
    return found


def settings_from(raw: dict[str, str], source: str) -> tuple[Settings, list[str]]:
    """The same, from keys and values; ``source`` is named in messages."""
    settings = typed_settings(raw, source)
    return settings, check_settings(settings)


def typed_settings(raw: dict[str, str], source: str) -> Settings:
    """The same, without a look at whether the settings go together.

    :raises OperatorError: for a value that can't be used.
    """
    explicit = resolve_placeholders(raw, source)
    values: dict[str, ConfigValue | Secret] = {}
    for field in dataclasses.fields(Settings):
        if field.name not in HIDDEN_ATTRIBUTES:
            key = key_of_attribute(field.name)
            values[field.name] = _value(key, explicit, source)
    return Settings(source=source, explicit=explicit, **values)  # type: ignore[arg-type]


def _value(key: Key, explicit: dict[str, str], source: str) -> ConfigValue | Secret:
    text = explicit.get(key.name, explicit.get(SYNONYMS.get(key.name, "")))
    if text is None:
        return None if key.default is None else parse(key.kind, key.default)
    try:
        return parse(key.kind, text, key.valid)
    except ValueError as error:
        shown = "" if key.kind == "password" else f" (value {text!r})"
        raise OperatorError(
            f"{error}{shown}",
            where=f"{source}: {key.name}",
            remedy=f"Kafka's default is {key.default!r}" if key.default else f"Set a {key.kind}",
        ) from error
