"""The configuration reference, docs/configuration.md, made from the same tables that the loader uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from migrator.config.key_lists import (
    DYNAMIC,
    IGNORED,
    OF_BROKERS,
    OF_BROKERS_FAMILIES,
    OF_LISTENERS,
    REFUSED,
    SECURITY_FAMILIES,
)
from migrator.config.key_meanings import MEANINGS
from migrator.config.key_uses import ACTED_UPON
from migrator.config.keys import KEYS, OWN_KEYS, Key

INTRODUCTION = """\
# Configuration

`migrator` reads the property file of a stock Kafka controller, with Kafka's key names, defaults and units. If a value
cannot be used, `migrator` ends with exit code 2, and its message names file, key, value and remedy. Placeholders of
`FileConfigProvider`, `DirectoryConfigProvider` and `EnvVarConfigProvider` are resolved, within `allowed.paths` and
`allowlist.pattern` if those are set; messages and logs show the placeholder instead of the value,
except values of up to three characters, numbers of up to five digits, and words of this file or of Kafka's own keys.
Keys for one listener (`listener.name.<listener>.[<mechanism>.]<key>`) work as in Kafka; a key for a listener
that `listener.security.protocol.map` does not name is refused.

The file is read as Kafka reads it, as ISO 8859-1: in a file that was saved as UTF-8, each byte of a character beyond
ASCII is a character of its own, also in a password. Write such characters as `\\uXXXX`. The file of a
`FileConfigProvider` is read as UTF-8.

`migrator` uses, refuses or ignores each key of Kafka 3.9: the lists follow. An unknown key is refused if its name is
close to the name of a security key, or begins like one ({families}). For any other unknown key there is a warning.

This page is generated: `python -m migrator.config.reference > docs/configuration.md`.
"""


def reference() -> str:
    """The whole page, Markdown."""
    return "\n".join(
        [INTRODUCTION.format(families=_names(SECURITY_FAMILIES)), *_own(), *_kafka(), *_refused(), *_ignored()]
    )


def _own() -> Iterator[str]:
    yield "## Keys of migrator\n\nEach key has a default. With the defaults, no network address is opened.\n"
    yield "| key | type | default | valid | what it does |"
    yield "|---|---|---|---|---|"
    for key in OWN_KEYS:
        yield f"{_row(key)} {key.doc} |"


def _kafka() -> Iterator[str]:
    yield "\n## Kafka's keys that a controller uses\n"
    yield "They mean what they mean in Kafka; the last column says what a controller of this program does with them."
    yield "*Listener*: the key may also be set for one listener. *Dynamic*: a limit of connections that `kafka-configs"
    yield "--entity-type brokers` changes while the controller runs, for its id or as the default of all nodes.\n"
    yield "| key | type | default | valid | | what it does |"
    yield "|---|---|---|---|---|---|"
    own = {key.name for key in OWN_KEYS}
    for name in sorted(ACTED_UPON - own):
        notes = [note for note, names in (("listener", OF_LISTENERS), ("dynamic", DYNAMIC)) if name in names]
        yield f"{_row(KEYS[name])} {', '.join(notes)} | {MEANINGS[name]} |"


def _refused() -> Iterator[str]:
    yield "\n## Kafka's keys that are refused\n\nWithout them this node would be less secure than its file says.\n"
    yield "| key | why | what to do | accepted values |"
    yield "|---|---|---|---|"
    for name, refusal in sorted(REFUSED.items()):
        harmless = ", ".join(f"`{text}`" if text else "(empty)" for text in refusal.harmless)
        yield f"| `{name}` | {refusal.because} | {refusal.remedy} | {harmless} |"


def _ignored() -> Iterator[str]:
    yield "\n## Kafka's keys that are ignored\n"
    yield "If a file sets such keys, one line at the start of the process names them.\n"
    yield "| why | keys |"
    yield "|---|---|"
    for why, names in IGNORED.items():
        yield f"| {why} | {_names(names)} |"
    yield "\nKeys for the work of brokers are ignored without a message, because one file may serve both. These are "
    yield f"all keys that begin with {_names(OF_BROKERS_FAMILIES)}, and these:\n"
    yield _names(OF_BROKERS)
    yield ""


def _row(key: Key) -> str:
    default = "" if key.default is None else f"`{key.default}`" if key.default else "(empty)"
    return f"| `{key.name}` | {key.kind} | {default} | {key.valid} |"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
