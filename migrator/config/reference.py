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
from migrator.config.key_uses import ACTED_UPON
from migrator.config.keys import KEYS, OWN_KEYS, Key

INTRODUCTION = """\
# Configuration

`migrator` reads the property file of a stock Kafka controller, with Kafka's key names, defaults and units. A value that
it can't use is refused with file, key, value and remedy, exit code 2. Placeholders of `FileConfigProvider`,
`DirectoryConfigProvider` and `EnvVarConfigProvider` are resolved, within `allowed.paths` and `allowlist.pattern` where
those are set. Keys for one listener (`listener.name.<listener>.[<mechanism>.]<key>`) work as in Kafka; a listener that
`listener.security.protocol.map` does not know is refused there.

Each key of Kafka 3.9 is acted upon, refused, or ignored: the lists follow. An unknown key is refused when it is close
to a key of security, or begins like one ({families}); any other is warned about.

This page is generated: `python -m migrator.config.reference > docs/configuration.md`.
"""


def reference() -> str:
    """The whole page, Markdown."""
    return "\n".join(
        [INTRODUCTION.format(families=_names(SECURITY_FAMILIES)), *_own(), *_kafka(), *_refused(), *_ignored()]
    )


def _own() -> Iterator[str]:
    yield "## Keys of migrator\n\nEvery one has a default; by default none binds a network address.\n"
    yield "| key | type | default | valid | what it does |"
    yield "|---|---|---|---|---|"
    for key in OWN_KEYS:
        yield f"{_row(key)} {key.doc} |"


def _kafka() -> Iterator[str]:
    yield "\n## Kafka's keys that a controller acts upon\n\nTheir meaning is in Kafka's documentation. "
    yield "*Listener*: it may also be set for one listener. *Dynamic*: a bound of connections that `kafka-configs"
    yield "--entity-type brokers` changes while the controller runs, for its id or as the default of all nodes.\n"
    yield "| key | type | default | valid | |"
    yield "|---|---|---|---|---|"
    own = {key.name for key in OWN_KEYS}
    for name in sorted(ACTED_UPON - own):
        notes = [note for note, names in (("listener", OF_LISTENERS), ("dynamic", DYNAMIC)) if name in names]
        yield f"{_row(KEYS[name])} {', '.join(notes)} |"


def _refused() -> Iterator[str]:
    yield "\n## Kafka's keys that are refused\n\nWithout them this node would be less secure than its file says.\n"
    yield "| key | why | what to do | taken all the same |"
    yield "|---|---|---|---|"
    for name, refusal in sorted(REFUSED.items()):
        harmless = ", ".join(f"`{text}`" if text else "(empty)" for text in refusal.harmless)
        yield f"| `{name}` | {refusal.because} | {refusal.remedy} | {harmless} |"


def _ignored() -> Iterator[str]:
    yield "\n## Kafka's keys that are ignored\n\nThose that a file sets are named once, in one line at the start.\n"
    yield "| why | keys |"
    yield "|---|---|"
    for why, names in IGNORED.items():
        yield f"| {why} | {_names(names)} |"
    yield "\nNothing is said of keys for the work of brokers, since one file may serve both. They are these, and all "
    yield f"others that begin with {_names(OF_BROKERS_FAMILIES)}:\n"
    yield _names(OF_BROKERS)
    yield ""


def _row(key: Key) -> str:
    default = "" if key.default is None else f"`{key.default}`" if key.default else "(empty)"
    return f"| `{key.name}` | {key.kind} | {default} | {key.valid} |"


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    print(reference(), end="")  # noqa: T201
