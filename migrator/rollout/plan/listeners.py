"""A broker's ``listener.security.protocol.map`` in each mode, and the listeners that other keys name. Pure.

`modes` calls it when it makes a file. `without_controllers` undoes `with_controllers`: after the way back a broker's
own entries are as they were, also if the operator changed the map meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from migrator.config.keys import CONTROL_PLANE, CONTROLLERS, PROTOCOLS
from migrator.config.reading import text_of
from migrator.config.types import entries_of, trimmed

DEFAULT_PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
DEFAULT_LISTENERS = "PLAINTEXT://:9092"


def with_controllers(properties: Mapping[str, str], for_brokers: Mapping[str, str], protocol: str) -> str:
    """The broker's own map, with the entries of the inventory's map, and an entry for each listener of the controllers.
    A map that has all these entries is returned as it is.

    :param for_brokers: what the inventory gives each broker.
    :param protocol: of the controllers' listeners.
    """
    text = properties.get(PROTOCOLS) or DEFAULT_PROTOCOLS
    own = _entries(text)
    entries = list(own)
    of_controllers = [f"{name}:{protocol}" for name in _entries(for_brokers[CONTROLLERS])]
    for entry in (*_entries(for_brokers.get(PROTOCOLS, "")), *of_controllers):
        if _name(entry) not in _names(entries):
            entries.append(entry)
    return text if entries == own else ",".join(entries)


def without_controllers(
    properties: Mapping[str, str], for_brokers: Mapping[str, str], protocol: str, was: Mapping[str, str]
) -> str | None:
    """The map from before the migration. If the map has changed since: the present map without the entries
    that `with_controllers` has added, but with all that the broker's own listeners need.

    :param was: the file as it was before the migration.
    """
    now, written = properties.get(PROTOCOLS), with_controllers(was, for_brokers, protocol)
    added = _names(_entries(written)) - _names(_entries(was.get(PROTOCOLS) or DEFAULT_PROTOCOLS))
    if now is None or (now == written and added.isdisjoint(_own(properties))):
        return None if now is None else was.get(PROTOCOLS)
    left = ",".join(entry for entry in _entries(now) if _name(entry) not in added - _own(properties))
    return None if left == DEFAULT_PROTOCOLS and PROTOCOLS not in was else left


def lacks_controllers(text: str, for_brokers: Mapping[str, str]) -> str:
    """The name of the controllers' listener that a broker uses, if the map has no protocol for it; else "".

    :param text: a map.
    :param for_brokers: what the inventory gives each broker.
    """
    first = next(iter(_entries(for_brokers[CONTROLLERS])), "").upper()
    return "" if first in {*_names(_entries(text)), *_names(_entries(DEFAULT_PROTOCOLS))} else first


def has_control_plane(properties: Mapping[str, str], was: Mapping[str, str]) -> bool:
    """Whether the broker still has the listener that it had for the ZooKeeper controller. With the key that names this
    listener, the broker does not start without it."""
    return text_of(was, CONTROL_PLANE).upper() in _own(properties)


def foreign_listeners(properties: Mapping[str, str], for_brokers: Mapping[str, str]) -> set[str]:
    """Names of the controllers' listeners, in capitals, without those that the broker itself has."""
    return _names(_entries(for_brokers[CONTROLLERS])) - _own(properties)


def _own(properties: Mapping[str, str]) -> set[str]:
    return _names(_entries(properties.get("listeners") or DEFAULT_LISTENERS))


def _entries(text: str) -> list[str]:
    return list(entries_of(text))


def _names(entries: Iterable[str]) -> set[str]:
    """The names in capitals, because Kafka compares them so."""
    return {_name(entry) for entry in entries}


def _name(entry: str) -> str:
    return trimmed(entry.partition(":")[0]).upper()
