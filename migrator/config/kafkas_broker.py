"""The settings with which Kafka's broker does not start, in migration mode and in KRaft mode. Pure.

Source: ``KafkaConfig.validateValues`` of Kafka 3.9, and for the way to the controllers
``RaftManager.buildNetworkClient``, ``RaftControllerNodeProvider``. A setting that only newer releases refuse is not
refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from migrator.config.checks import Problem
from migrator.config.endpoints import PROTOCOL_NAMES, parse_bootstrap_servers, parse_protocol_map, parse_voters
from migrator.config.kafka_rules import PLACEHOLDER, listener_entries, refused_everywhere
from migrator.config.keys import (
    BETWEEN,
    CONTROL_PLANE,
    CONTROLLERS,
    FLAG,
    PROTOCOLS,
    ROLES,
    SERVERS,
    VOTERS,
)
from migrator.config.reading import is_on, is_set, listener_names, number_of, text_of
from migrator.config.types import split_list

BY_PROTOCOL = "security.inter.broker.protocol"
GENERATION, RESERVED = "broker.id.generation.enable", "reserved.broker.max.id"
MECHANISM = "sasl.mechanism.controller.protocol"
OTHER_NAME = (
    "Give controller.listener.names another name, which no broker has as a listener: on the controllers, with their "
    "listeners and listener.security.protocol.map, and for the brokers"
)


def refused_broker(properties: Mapping[str, str]) -> Iterator[Problem]:
    """The key, Kafka's reason to refuse the value in the file's mode, and the remedy.

    :param properties: the properties of a broker. A value from another file (``${file:...}``) counts as valid.
    """
    yield from refused_everywhere(properties)
    rules = _EVERYWHERE
    if in_kraft(properties):
        rules = {**_EVERYWHERE, **_ALWAYS_WITH_CONTROLLERS, **_IN_KRAFT}
    elif is_on(properties, FLAG):
        rules = {**_EVERYWHERE, **_ALWAYS_WITH_CONTROLLERS, **_IN_MIGRATION}
    for rule, keys in rules.items():
        if not any(PLACEHOLDER in properties.get(key, "") for key in keys):
            yield from rule(properties)


def in_kraft(properties: Mapping[str, str]) -> bool:
    """Whether the file is for KRaft mode."""
    return is_set(properties, ROLES)


def controllers_protocol(properties: Mapping[str, str]) -> str | None:
    """The protocol between the broker and its controllers. None when the broker cannot find it, and does not start.

    Kafka looks for the listener's name in upper case; only a name of a protocol may be in lower case
    (``SecurityProtocol.forName``). Without a map in its file, a broker in KRaft mode uses PLAINTEXT (KIP-590).
    """
    name = next(iter(listener_names(text_of(properties, CONTROLLERS))), "")
    with suppress(ValueError):
        protocols = parse_protocol_map(text_of(properties, PROTOCOLS), last_counts=True)
        if name in protocols:
            return protocols[name]
        if name.upper() in PROTOCOL_NAMES:
            return name.upper()
        if in_kraft(properties) and _is_plaintext_added(properties) and name == name.upper():
            return "PLAINTEXT"
    return None


def _is_plaintext_added(properties: Mapping[str, str]) -> bool:
    """Whether KRaft mode maps each controller listener to PLAINTEXT: there is no map, and no other protocol in use."""
    named = {*listener_names(text_of(properties, CONTROLLERS)), *(listener_entries(properties) or ())}
    return PROTOCOLS not in properties and not named & {*PROTOCOL_NAMES} - {"PLAINTEXT"}


def shared_names(properties: Mapping[str, str], controllers: tuple[str, ...]) -> list[str]:
    """The broker's own listeners with names of the controllers' listeners.

    :param controllers: the names in ``controller.listener.names``.
    """
    own = listener_entries(properties) or {}
    return [name for name in own if name in {each.strip().upper() for each in controllers}]


def _one_id(properties: Mapping[str, str]) -> Iterator[Problem]:
    one, other = number_of(properties, "node.id"), number_of(properties, "broker.id")
    if {"node.id", "broker.id"} <= properties.keys() and one != other:
        yield "node.id", f"it is not the value of broker.id, {properties['broker.id']!r}", "Leave one of the two keys"


def _one_name(properties: Mapping[str, str]) -> Iterator[Problem]:
    if {BETWEEN, BY_PROTOCOL} <= properties.keys():
        yield BY_PROTOCOL, f"{BETWEEN} is set, too: Kafka takes only one of them", f"Remove {BY_PROTOCOL}"


def _voters(properties: Mapping[str, str]) -> Iterator[Problem]:
    for key, parse in ((VOTERS, parse_voters), (SERVERS, parse_bootstrap_servers)):
        try:
            parse(split_list(properties.get(key, "")))
        except ValueError as error:
            yield key, str(error), "Copy the key from the controllers"


def _control_plane(properties: Mapping[str, str]) -> Iterator[Problem]:
    if CONTROL_PLANE in properties:
        yield CONTROL_PLANE, "KRaft mode does not have this key", "Remove the key"


def _not_a_voter(properties: Mapping[str, str]) -> Iterator[Problem]:
    with suppress(ValueError):
        if number_of(properties, "node.id") in {
            each.voter_id for each in parse_voters(split_list(properties.get(VOTERS, "")))
        }:
            yield "node.id", f"{VOTERS} names this id, too", "Give the controllers ids that no broker has"


def _generated_id(properties: Mapping[str, str]) -> Iterator[Problem]:
    own, reserved = number_of(properties, "broker.id"), number_of(properties, RESERVED)
    if own is not None and reserved is not None and own > reserved and is_on(properties, GENERATION):
        yield GENERATION, f"with it, Kafka takes no broker.id above {RESERVED}, {reserved}", f"Set {GENERATION}=false"


def _controllers(properties: Mapping[str, str]) -> Iterator[Problem]:
    name = next(iter(listener_names(text_of(properties, CONTROLLERS))), "")
    if not name or controllers_protocol(properties) is not None:
        return
    if name != name.strip().upper():
        yield (
            CONTROLLERS,
            f"{name!r} is not in capitals, or has blanks: Kafka finds no protocol for it",
            (f"Write {name.strip().upper()}"),
        )
        return
    own = "" if PROTOCOLS in properties else ". Write the protocols of the broker's own listeners, too"
    what = f"the map has no protocol for {name}, the controllers' listener: the broker does not start"
    yield PROTOCOLS, what, f"Add {name}:PROTOCOL as on the controllers{own}"


def _all_mapped(properties: Mapping[str, str]) -> Iterator[Problem]:
    """KRaft mode needs a protocol for each name, also for unused names, and for names of protocols."""
    if controllers_protocol(properties) is None or _is_plaintext_added(properties):
        return
    known = parse_protocol_map(text_of(properties, PROTOCOLS), last_counts=True)
    for name in listener_names(text_of(properties, CONTROLLERS)):
        if name.upper() not in known:
            what = f"the map has no protocol for {name!r}, which is in {CONTROLLERS}: in KRaft mode Kafka demands it"
            yield PROTOCOLS, what, f"Add {name.strip().upper()}:PROTOCOL as on the controllers"


def shared_listener(properties: Mapping[str, str]) -> Iterator[Problem]:
    """Refused in migration mode, too, because KRaft mode comes next."""
    for name in shared_names(properties, listener_names(text_of(properties, CONTROLLERS))):
        what = f"{name} is a listener of the broker itself, too: in KRaft mode Kafka refuses such a file"
        yield CONTROLLERS, what, OTHER_NAME


def _listeners(properties: Mapping[str, str]) -> Iterator[Problem]:
    """A broker's listener with the name of a controller listener counts as the controllers', and is not advertised."""
    controllers = listener_names(text_of(properties, CONTROLLERS))
    bound = listener_entries(properties)
    told = bound if "advertised.listeners" not in properties else listener_entries(properties, "advertised.listeners")
    if bound is None or told is None:
        return
    if shared_names(properties, controllers):
        return
    between = text_of(properties, BETWEEN) if BETWEEN in properties else text_of(properties, BY_PROTOCOL)
    if between.upper() not in told:
        key = BETWEEN if BETWEEN in properties else BY_PROTOCOL
        yield (
            key,
            f"{between.upper()} is not among the advertised listeners, {', '.join(told) or 'none'}",
            "Correct the name",
        )
    elif strange := [name for name in told if name not in bound]:
        yield (
            "advertised.listeners",
            f"{strange[0]} is not in listeners",
            "Advertise only listeners that the broker has",
        )
    elif everywhere := [name for name, (host, _) in told.items() if host == "0.0.0.0"]:  # noqa: S104 (compared)
        what = f"no client can connect to 0.0.0.0, the address of {everywhere[0]}"
        yield "advertised.listeners", what, "Write the address at which others reach the broker"


Rules = dict[Callable[[Mapping[str, str]], Iterator[Problem]], tuple[str, ...]]
_EVERYWHERE: Rules = {_one_id: ("node.id", "broker.id"), _one_name: ()}
_ALWAYS_WITH_CONTROLLERS: Rules = {
    _voters: (VOTERS, SERVERS),
    _controllers: (CONTROLLERS, PROTOCOLS),
    shared_listener: (CONTROLLERS, "listeners"),
    _listeners: (CONTROLLERS, "listeners", "advertised.listeners", BETWEEN, BY_PROTOCOL),
}
_IN_KRAFT: Rules = {
    _control_plane: (),
    _not_a_voter: ("node.id", "broker.id", VOTERS),
    _all_mapped: (CONTROLLERS, PROTOCOLS, "listeners"),
}
_IN_MIGRATION: Rules = {_generated_id: ("broker.id", "node.id", RESERVED, GENERATION)}
"""Each rule, with the keys that it reads."""
