"""The configuration reference, docs/configuration.md, made from the same tables that the loader uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from migrator.config.keys import OWN_KEYS, Key
from migrator.config.load import HIDDEN_ATTRIBUTES, key_of_attribute
from migrator.config.settings import Settings

INTRODUCTION = """\
# Configuration

`migrator` reads the property file of a stock Kafka controller, with Kafka's key names, defaults and units. Keys that it
does not know are warned about; a value that it can't use is refused with file, key, value and remedy, exit code 2.
Placeholders of `FileConfigProvider`, `DirectoryConfigProvider` and `EnvVarConfigProvider` are resolved. Keys for one
listener (`listener.name.<listener>.[<mechanism>.]<key>`) work as in Kafka.

This page is generated: `python -m migrator.config.reference > docs/configuration.md`.
"""


def reference() -> str:
    """The whole page, Markdown."""
    return "\n".join([INTRODUCTION, *_own(), *_kafka()])


def _own() -> Iterator[str]:
    yield "## Keys of migrator\n\nEvery one has a default; by default none binds a network address.\n"
    yield from _table(OWN_KEYS, with_doc=True)


def _kafka() -> Iterator[str]:
    yield "\n## Kafka's keys that a controller acts upon\n\nTheir meaning is in Kafka's documentation.\n"
    names = {field.name for field in dataclasses.fields(Settings)} - set(HIDDEN_ATTRIBUTES)
    own = {key.name for key in OWN_KEYS}
    keys = sorted((key_of_attribute(name) for name in names), key=lambda key: key.name)
    yield from _table(tuple(key for key in keys if key.name not in own), with_doc=False)
    yield ""


def _table(keys: tuple[Key, ...], *, with_doc: bool) -> Iterator[str]:
    yield "| key | type | default | valid |" + (" what it does |" if with_doc else "")
    yield "|---|---|---|---|" + ("---|" if with_doc else "")
    for key in keys:
        default = "" if key.default is None else f"`{key.default}`" if key.default else "(empty)"
        yield f"| `{key.name}` | {key.kind} | {default} | {key.valid} |" + (f" {key.doc} |" if with_doc else "")


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
