"""Reads values of a property file as Kafka does: trimmed, split and typed as in ``KafkaConfig``. Pure.

All code that reads a property file of a controller or a broker uses this module or `Settings`, so all have the same
values. The keys are those of the file, with placeholders resolved or not.
"""

from __future__ import annotations

from collections.abc import Mapping

from migrator.config.keys import KEYS, names_of
from migrator.config.types import entries_of, parse, split_list, trimmed

Properties = Mapping[str, str]
DIRECTORIES = ("log.dirs", "log.dir")
UNORDERED = frozenset(("controller.quorum.voters", "controller.quorum.bootstrap.servers", "migrator.grpc.voters"))
"""Lists that are read as sets."""


def text_of(properties: Properties, key: str) -> str:
    """The text in force: of the key, of its synonym, or Kafka's default; otherwise empty."""
    found = next((properties[name] for name in names_of(key) if name in properties), None)
    if found is None:
        found = KEYS[key].default if key in KEYS else None
    return trimmed(found or "")


def is_set(properties: Properties, key: str) -> bool:
    """Whether the file sets the key or its synonym."""
    return any(trimmed(properties.get(name, "")) for name in names_of(key))


def is_on(properties: Properties, key: str) -> bool:
    """The value of a boolean key."""
    return text_of(properties, key).lower() == "true"


def number_of(properties: Properties, key: str) -> int | None:
    """The value of an integer key; None when it has none, or one that Kafka refuses."""
    try:
        return int(str(parse(KEYS[key].kind, text_of(properties, key), KEYS[key].valid)))
    except ValueError:
        return None


def means_the_same(key: str, one: str, other: str) -> bool:
    """Whether Kafka takes both texts for the same value of that key."""
    if one == other or key not in KEYS:
        return trimmed(one) == trimmed(other)
    if key in UNORDERED:
        return sorted(split_list(one)) == sorted(split_list(other))
    try:
        return parse(KEYS[key].kind, one) == parse(KEYS[key].kind, other)
    except ValueError:
        return False


def log_directories(properties: Properties) -> tuple[str, ...]:
    """The data directories of a node; empty only if the key is set to an empty text, with which Kafka does not
    start."""
    return entries_of(text_of(properties, DIRECTORIES[DIRECTORIES[0] not in properties]))


def metadata_directory(properties: Properties) -> str:
    """The directory of a node's metadata log; "" when it has no directory at all."""
    return text_of(properties, "metadata.log.dir") or next(iter(log_directories(properties)), "")


def listener_names(text: str) -> tuple[str, ...]:
    """The names in ``controller.listener.names``. Blanks beside a comma belong to the name (``String.split``)."""
    return tuple(trimmed(text).rstrip(",").split(",")) if trimmed(text).rstrip(",") else ()


def super_users_of(text: str) -> frozenset[str]:
    """The principals of ``super.users`` (``StandardAuthorizer.getConfiguredSuperUsers``)."""
    return frozenset(filter(None, map(trimmed, text.split(";"))))
