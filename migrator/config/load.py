"""Property file -> `Settings`. Every refusal names file, key, value and remedy."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from migrator.config.checks import check_settings
from migrator.config.keys import KEYS, Key, unknown_key_hint
from migrator.config.properties import parse_properties
from migrator.config.providers import resolve_placeholders
from migrator.config.settings import Settings
from migrator.config.types import ConfigValue, Secret, parse
from migrator.errors import OperatorError

SYNONYMS = {
    "node.id": "broker.id",
    "broker.id": "node.id",
    "delegation.token.secret.key": "delegation.token.master.key",
}
"""Keys that stand in for one another when only the second is set."""

OPTIONAL_KEYS = {
    "super.users": Key("super.users", "string", None),
    "allow.everyone.if.no.acl.found": Key("allow.everyone.if.no.acl.found", "boolean", "false"),
}
"""Keys of `StandardAuthorizer`, which Kafka's own table leaves out."""

HIDDEN_ATTRIBUTES = ("source", "explicit")


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
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise OperatorError(f"can't be read: {error}", where=str(path), remedy="Give a Java property file") from error


def settings_from(raw: dict[str, str], source: str) -> tuple[Settings, list[str]]:
    """The same, from keys and values; ``source`` is named in messages."""
    settings, warnings = typed_settings(raw, source)
    return settings, warnings + check_settings(settings)


def typed_settings(raw: dict[str, str], source: str) -> tuple[Settings, list[str]]:
    """The same, without a look at whether the settings go together.

    :raises OperatorError: for a value that can't be used.
    """
    explicit = resolve_placeholders(raw, source)
    warnings = [
        f"{source}: {name}: unknown key is ignored, {hint}"
        for name in explicit
        if name not in OPTIONAL_KEYS and (hint := unknown_key_hint(name))
    ]
    values: dict[str, ConfigValue | Secret] = {}
    for field in dataclasses.fields(Settings):
        if field.name not in HIDDEN_ATTRIBUTES:
            key = key_of_attribute(field.name)
            values[field.name] = _value(key, explicit, source)
    return Settings(source=source, explicit=explicit, **values), warnings  # type: ignore[arg-type]


def key_of_attribute(attribute: str) -> Key:
    """The key that an attribute of `Settings` stands for.

    :raises KeyError: when there is none.
    """
    return _KEY_BY_ATTRIBUTE[attribute]


_KEY_BY_ATTRIBUTE = {key.name.replace(".", "_"): key for key in (KEYS | OPTIONAL_KEYS).values()}


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
