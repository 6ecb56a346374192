"""What a node's property file says in each mode of the migration, as changes of keys. Pure.

Source: Kafka's manual, "ZooKeeper to KRaft Migration": which keys a broker has in migration mode and in KRaft mode, and
which keys a controller loses at the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import overload

from migrator.config.checks import STANDARD_AUTHORIZER
from migrator.config.kafka_keys import BROKER_KEYS
from migrator.config.properties import LINE_END, parse_properties, shown, without_keys
from migrator.config.property_edits import Edit, edited
from migrator.config.reading import is_on, is_set, means_the_same, number_of, text_of
from migrator.config.sensitive import REDACTED, broker_type, is_sensitive
from migrator.errors import OperatorError
from migrator.handover.target_release import TargetRelease
from migrator.migration.machine.finish import FLAG
from migrator.rollout.nodes import Node, Role
from migrator.rollout.plan.listeners import (
    CONTROL_PLANE,
    CONTROLLER_LISTENERS,
    PROTOCOLS,
    foreign_listeners,
    has_control_plane,
    with_controllers,
    without_controllers,
)
from migrator.rollout.ports import BrokerMode
from migrator.values import value

CONNECT, BROKER_ID, NODE_ID, ROLES = "zookeeper.connect", "broker.id", "node.id", "process.roles"
AUTHORIZER = "authorizer.class.name"
GENERATED_IDS, RESERVED_IDS = "broker.id.generation.enable", "reserved.broker.max.id"
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
SESSION_TIMEOUTS = (SESSION_TIMEOUT, "broker.session.timeout.ms")
SESSION_DEFAULTS = (SESSION_TIMEOUT_MS, _) = (18_000, 9_000)
"""Kafka's, with ZooKeeper and with a quorum; in ms."""
BETWEEN_BROKERS = "inter.broker.protocol.version"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
ONLY_WITH_ZOOKEEPER = (BETWEEN_BROKERS, CONTROL_PLANE)
"""Keys of a broker, beside ``zookeeper.*``, that KRaft mode does not have."""
OF_ZOOKEEPER = tuple(row[0] for row in BROKER_KEYS if row[0].startswith("zookeeper."))
COMES_BACK = ("zookeeper.", *ONLY_WITH_ZOOKEEPER, "inter.broker.listener.name")
ENDED_CONTROLLER = (FLAG, CONNECT, "inter.broker.listener.name", CONTROL_PLANE)
"""What a controller needs only while it talks to ZooKeeper and to brokers that know it."""
OF_QUORUM = (CONTROLLER_LISTENERS, "controller.quorum.", "sasl.mechanism.controller.protocol")
"""How keys begin that mean something to a broker only while it knows a quorum."""


class FileMode(Enum):
    """What a property file is for; brokers' modes in the order in which a migration goes through them."""

    BROKER_ZOOKEEPER = "ZooKeeper mode"
    BROKER_MIGRATING = "migration mode"
    BROKER_KRAFT = "KRaft mode"
    CONTROLLER_MIGRATING = "the migration on"
    CONTROLLER_ENDED = "the migration off"
    STOCK = "Kafka's own controller"


OF_BROKERS = {
    BrokerMode.ZOOKEEPER: FileMode.BROKER_ZOOKEEPER,
    BrokerMode.MIGRATING: FileMode.BROKER_MIGRATING,
    BrokerMode.KRAFT: FileMode.BROKER_KRAFT,
}


@value
class ModeSettings:
    """Of one cluster: what its brokers get for the migration, and what stands for what a file has lost.

    ``zookeeper_connect`` and ``release_version`` are for files that no longer hold them; "" where nobody knows.
    """

    for_brokers: Mapping[str, str]
    controller_protocol: str
    zookeeper_connect: str
    release_version: str

    @property
    def digest(self) -> str:
        """Of what the inventory says of brokers."""
        said = [self.controller_protocol, *map("=".join, sorted(self.for_brokers.items()))]
        return digest("\n".join(said).encode())


def file_mode(role: Role, properties: Mapping[str, str]) -> FileMode:
    """What a file is for, as it stands there."""
    migrating = is_on(properties, FLAG)
    if role is Role.CONTROLLER:
        return FileMode.CONTROLLER_MIGRATING if migrating else FileMode.CONTROLLER_ENDED
    if is_set(properties, ROLES):
        return FileMode.BROKER_KRAFT
    return FileMode.BROKER_MIGRATING if migrating else FileMode.BROKER_ZOOKEEPER


def parsed(node: Node, text: str) -> dict[str, str]:
    """
    :raises OperatorError: it is no property file, or another node's.
    """
    where = f"{node.name}: {node.properties}"
    try:
        properties = parse_properties(text)
    except ValueError as error:
        raise OperatorError(str(error), where=where, remedy="Correct this line") from error
    number, told = number_of(properties, NODE_ID), text_of(properties, NODE_ID)
    if number is None or (number >= 0 and number != node.node_id):
        raise OperatorError(
            f"the file is that of node {told or '(empty)'}, and the inventory says {node.node_id}",
            where=where,
            remedy="Correct the id or the path in the inventory",
        )
    return properties


def rewritten(node: Node, text: str, target: FileMode, settings: ModeSettings, earlier: str | None = None) -> str:
    """The file in another mode. Only the keys of the mode change; comments and order stay.

    :param earlier: the file as this rollout found it in the mode ``target``, where there is such a backup. It comes
        back as it was, if nobody has changed anything since; else what the mode needs is taken from it.
    :raises OperatorError: the file can't be read, or a value is lost.
    """
    properties = parsed(node, text)
    was = commented(text) if earlier is None else parsed(node, earlier)
    is_of_target = earlier is not None and file_mode(node.role, was) is target
    if target is FileMode.BROKER_ZOOKEEPER and not is_of_target:
        was = _supposed(properties, was, settings.for_brokers)
    if earlier is not None and is_of_target and not _is_refused(node, was):
        here = file_mode(node.role, properties)
        if here is not target and rewritten(node, earlier, here, settings) == text:
            return earlier
    return edited(text, list(_edits(node, properties, target, settings, was)))


def lost_zookeeper(node: Node, text: str, target: FileMode) -> bool:
    """Whether a broker's file comes back from KRaft mode, and nothing in it says how ZooKeeper was reached."""
    back = target in (FileMode.BROKER_ZOOKEEPER, FileMode.BROKER_MIGRATING) and ROLES in parsed(node, text)
    return back and CONNECT not in commented(text)


def session_ms(properties: Mapping[str, str]) -> int:
    """How long a broker with this file stays registered once it has ended without a word, in ZooKeeper and in the
    quorum; in ms."""
    told = (number_of(properties, key) for key in SESSION_TIMEOUTS)
    return max(default if told_ms is None else told_ms for told_ms, default in zip(told, SESSION_DEFAULTS, strict=True))


def watched_keys(for_brokers: Mapping[str, str]) -> tuple[str, ...]:
    """What a rollout may change in a broker's file, but for the ids: Kafka adds the one that a file does not have.

    :param for_brokers: what the inventory gives each broker.
    """
    return tuple(dict.fromkeys((*for_brokers, *OF_ZOOKEEPER, *ONLY_WITH_ZOOKEEPER, ROLES, PROTOCOLS, AUTHORIZER)))


def commented(text: str) -> dict[str, str]:
    """Keys of the time with ZooKeeper, in lines that were made comments as `Edit` does it: no space behind the sign."""
    lines, goes_on = [], False
    for line in LINE_END.split(text):
        if line.startswith("#") and (goes_on or line[1:].startswith(COMES_BACK)):
            lines.append(line[1:])
            goes_on = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        else:
            goes_on = False
    try:
        found = parse_properties("\n".join(lines))
    except ValueError:
        return {}
    return {key: text for key, text in found.items() if key != FLAG}


def stock_file(text: str, release: TargetRelease) -> str:
    """Of Kafka's controller, which takes over from ours: without what only this program needs."""
    return without_keys(text, release.drops)


def changes_shown(before: str, after: str) -> list[str]:
    """A line for each key that is changed; values that may be secrets are hidden."""
    old, new = parse_properties(before), parse_properties(after)
    lines = []
    for key in [*old, *(key for key in new if key not in old)]:
        if old.get(key) == new.get(key):
            continue
        hidden = is_sensitive(broker_type(key))
        lines += [
            f"{sign} {key}={REDACTED if hidden else shown(side[key])}"
            for sign, side in (("-", old), ("+", new))
            if key in side
        ]
    return lines


@overload
def digest(content: bytes) -> str: ...
@overload
def digest(content: bytes | None) -> str | None: ...
def digest(content: bytes | None) -> str | None:
    """SHA-256 in hexadecimal; None for a file that is not there."""
    return None if content is None else hashlib.sha256(content).hexdigest()


def _edits(
    node: Node, properties: Mapping[str, str], target: FileMode, settings: ModeSettings, was: Mapping[str, str]
) -> Iterator[Edit]:
    wanted = dict(_wanted(node, properties, target, settings, was))
    for key, text in wanted.items():
        if text is None and key in properties:
            yield Edit(key, as_comment=True)
        elif text is not None and (key not in properties or not means_the_same(key, properties[key], text)):
            yield Edit(key, text)


def _wanted(
    node: Node, properties: Mapping[str, str], target: FileMode, settings: ModeSettings, was: Mapping[str, str]
) -> Iterator[tuple[str, str | None]]:
    """Keys of the mode with their values; None: the mode does not have this key."""
    if target is FileMode.CONTROLLER_ENDED:
        yield from dict.fromkeys(ENDED_CONTROLLER).items()
    elif target is FileMode.CONTROLLER_MIGRATING:
        yield from _lost(properties, was, ENDED_CONTROLLER)
        yield FLAG, "true"
        yield CONNECT, properties.get(CONNECT) or was.get(CONNECT) or _known(node, settings)
    elif target is FileMode.BROKER_KRAFT:
        yield from settings.for_brokers.items()
        yield PROTOCOLS, with_controllers(properties, settings.for_brokers, settings.controller_protocol)
        yield from dict.fromkeys((BROKER_ID, *ONLY_WITH_ZOOKEEPER)).items()
        yield from ((key, None) for key in properties if key.startswith("zookeeper."))
        yield ROLES, "broker"
        yield NODE_ID, str(node.node_id)
        yield from _authorizer(properties, ACL_AUTHORIZER, STANDARD_AUTHORIZER)
    else:
        yield from _with_zookeeper(node, properties, target, settings, was)


def _with_zookeeper(
    node: Node, properties: Mapping[str, str], target: FileMode, settings: ModeSettings, was: Mapping[str, str]
) -> Iterator[tuple[str, str | None]]:
    """Of a broker that still knows ZooKeeper."""
    if ROLES in properties:  # from KRaft mode; keys of ZooKeeper's time that it has, somebody has written since
        lost = [key for key in was if key.startswith("zookeeper.")]
        lost += [key for key in ONLY_WITH_ZOOKEEPER if key != CONTROL_PLANE or has_control_plane(properties, was)]
        yield from _lost(properties, was, lost)
        if BETWEEN_BROKERS not in {*was, *properties} and settings.release_version:
            yield BETWEEN_BROKERS, settings.release_version
        yield from _authorizer(properties, STANDARD_AUTHORIZER, ACL_AUTHORIZER)
        yield CONNECT, properties.get(CONNECT) or was.get(CONNECT) or _known(node, settings)
        yield from _own_id(node, properties)
        yield from dict.fromkeys((ROLES, NODE_ID)).items()
    if target is FileMode.BROKER_MIGRATING:
        yield FLAG, "true"
        yield from _own_id(node, properties)
        yield from settings.for_brokers.items()
        yield PROTOCOLS, with_controllers(properties, settings.for_brokers, settings.controller_protocol)
    else:
        yield FLAG, None
        yield from ((key, was.get(key)) for key in settings.for_brokers)
        yield CONTROLLER_LISTENERS, None
        yield PROTOCOLS, without_controllers(properties, settings.for_brokers, settings.controller_protocol, was)


def _supposed(properties: Mapping[str, str], was: Mapping[str, str], for_brokers: Mapping[str, str]) -> dict[str, str]:
    """What the file said before the migration, where nobody has kept it: of the keys of the inventory, none that
    only a quorum gives a meaning. The others may be those of the broker's own listeners."""
    names = (name.lower() for name in foreign_listeners(properties, for_brokers))
    goes = (*OF_QUORUM, PROTOCOLS, FLAG, *(f"listener.name.{name}." for name in names))
    kept = {key: properties[key] for key in for_brokers if key in properties and not key.startswith(goes)}
    return {key: text for key, text in was.items() if key.startswith(COMES_BACK) and key != FLAG} | kept


def _is_refused(node: Node, properties: Mapping[str, str]) -> bool:
    """``controller.listener.names must be empty when not running in KRaft mode`` (``KafkaConfig.validateValues``)."""
    mode = file_mode(node.role, properties)
    return mode is FileMode.BROKER_ZOOKEEPER and is_set(properties, CONTROLLER_LISTENERS)


def _own_id(node: Node, properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Kafka takes no generated id in a migration, and no id above the reserved ones while ids may be generated
    (``KafkaConfig.validateValues``)."""
    yield BROKER_ID, str(node.node_id)
    reserved = number_of(properties, RESERVED_IDS)
    if reserved is None:
        raise OperatorError(
            f"{RESERVED_IDS}: {text_of(properties, RESERVED_IDS)!r} is no number",
            where=f"{node.name}: {node.properties}",
            remedy="Correct this line",
        )
    if node.node_id > reserved:
        yield GENERATED_IDS, "false"


def _lost(
    properties: Mapping[str, str], was: Mapping[str, str], keys: tuple[str, ...] | list[str]
) -> Iterator[tuple[str, str]]:
    yield from ((key, was[key]) for key in keys if key in was and key not in properties)


def _known(node: Node, settings: ModeSettings) -> str:
    if settings.zookeeper_connect:
        return settings.zookeeper_connect
    raise OperatorError(
        "the file has lost zookeeper.connect, and nothing else names ZooKeeper",
        where=f"{node.name}: {node.properties}",
        remedy="Add zookeeper.connect to the file that 'access' of the inventory names",
    )


def _authorizer(properties: Mapping[str, str], old: str, new: str) -> Iterator[tuple[str, str]]:
    if text_of(properties, AUTHORIZER) == old:
        yield AUTHORIZER, new
