"""Configs whose znodes Kafka's own tools would name or write differently, and how brokers treat them.

The reading of ZooKeeper calls `look_at_spellings`; checks report its facts. Brokers and tools may each see another
znode of one entity, so a text says which content counts. Docs: docs/adr/0036-entities-and-spellings.md.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from migrator.migration.translate import source
from migrator.preflight.census import Tally
from migrator.preflight.evidence import SpellingFacts
from migrator.zookeeper.ops import ZkSource, Znode
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import decode_config
from migrator.zookeeper.znodes.entities import canonical
from migrator.zookeeper.znodes.errors import ZnodeError
from migrator.zookeeper.znodes.quotas import brokers_parse
from migrator.zookeeper.znodes.scram import MECHANISM_NAMES

_Part = Callable[[str], bool]


def _is_credential(key: str) -> bool:
    return key in MECHANISM_NAMES


def _is_other(key: str) -> bool:
    return key not in MECHANISM_NAMES


@dataclass
class _Tallies:
    several: Tally = field(default_factory=Tally)
    alone: Tally = field(default_factory=Tally)
    ignored: Tally = field(default_factory=Tally)
    unparsed: Tally = field(default_factory=Tally)


def look_at_spellings(reader: ZkSource, broker_configs: list[str], client_configs: list[str]) -> SpellingFacts:
    """Look at the configs. One that does not decode, or whose name stands for nothing, is left to the translation to
    records.

    :raises MigratorError: ZooKeeper cannot be read.
    """
    tallies = _Tallies()
    for path in client_configs:
        _ignored_client(path, tallies)
    entities = source.config_names([*broker_configs, *client_configs], lambda _: None)
    for entity, znodes in source.config_znodes(reader, entities):
        held = dict(_decoded(znodes))
        names = list(held)
        if len(names) > 1:
            tallies.several.add(f"{' and '.join(map(paths.config, names))} ({_effective_parts(entity, held)})")
        elif names not in ([], [entity]):
            tallies.alone.add(f"{paths.config(names[0])} ({paths.name_of(entity)!r} in Kafka's spelling)")
        for name, config in held.items():
            if name != entity and _is_user(entity) and any(map(_is_other, config)):
                tallies.ignored.add(paths.config(name))
            for key in (key for key, text in config.items() if not brokers_parse(key, text)):
                tallies.unparsed.add(f"{paths.config(name)} {key}")
    return SpellingFacts(*(each.sample() for each in vars(tallies).values()))


def _ignored_client(path: str, tallies: _Tallies) -> None:
    """The contents below a user's znode with an unusual name."""
    name = source.config_name(path)
    if "/clients/" in name:
        with contextlib.suppress(ZnodeError):
            if canonical(name).split("/")[1] != name.split("/")[1]:
                tallies.ignored.add(path)


def _decoded(znodes: Iterable[Znode]) -> Iterator[tuple[str, dict[str, str]]]:
    for znode in znodes:
        with contextlib.suppress(ZnodeError):
            yield source.config_name(znode.path), decode_config(znode.path, znode.data)


def _effective_parts(entity: str, held: dict[str, dict[str, str]]) -> str:
    """Finds the first znode that has each part of the content."""
    parts: list[tuple[str, _Part]] = [("quotas", _is_other), ("credentials", _is_credential)]
    if entity.startswith("brokers/"):
        parts = [("configs", _is_other)]
    said = []
    for part, belongs in parts:
        names = [entity] if _is_user(entity) and part == "quotas" else list(held)
        found = next((name for name in names if any(map(belongs, held.get(name, {})))), None)
        if found is not None:
            said.append(f"the {part} of {paths.name_of(found)} count")
    return ", ".join(said) or "none says anything"


def _is_user(entity: str) -> bool:
    return entity.startswith("users/") and "/clients/" not in entity
