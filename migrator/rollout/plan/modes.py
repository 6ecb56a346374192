"""A node's property file in each mode of the migration, as changes of keys. Pure.

Source: Kafka's manual, "ZooKeeper to KRaft Migration": which keys a broker has in migration mode and in KRaft mode, and
which keys a controller loses at the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import overload

from migrator.config.checks import ACL_AUTHORIZER, STANDARD_AUTHORIZER
from migrator.config.kafka_keys import BROKER_KEYS
from migrator.config.kafkas_broker import GENERATION, RESERVED, refused_broker
from migrator.config.keys import (
    AUTHORIZER,
    BETWEEN,
    BROKER_ID,
    CONNECT,
    CONTROL_PLANE,
    CONTROLLERS,
    FLAG,
    IBP,
    NODE_ID,
    PROTOCOLS,
    ROLES,
)
from migrator.config.properties import BLANKS, LINE_END, parse_properties, shown
from migrator.config.property_edits import Edit, edited, original, settled, without_keys
from migrator.config.reading import is_on, is_set, means_the_same, number_of, text_of
from migrator.config.sensitive import REDACTED, broker_type, is_sensitive
from migrator.errors import OperatorError
from migrator.records.versions import parse_version
from migrator.rollout.nodes import Node, NodeKind
from migrator.rollout.plan.listeners import (
    foreign_listeners,
    has_control_plane,
    with_controllers,
    without_controllers,
)
from migrator.rollout.ports import BrokerMode
from migrator.rollout.target_release import TargetRelease
from migrator.values import value

SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
SESSION_TIMEOUTS = (SESSION_TIMEOUT, "broker.session.timeout.ms")
SESSION_DEFAULTS = (SESSION_TIMEOUT_MS, _) = (18_000, 9_000)
"""Kafka's session time-outs in milliseconds: with ZooKeeper, and with a quorum."""
ONLY_WITH_ZOOKEEPER = (IBP, CONTROL_PLANE)
"""Keys of a broker, beside ``zookeeper.*``, that KRaft mode does not have."""
OF_ZOOKEEPER = tuple(row[0] for row in BROKER_KEYS if row[0].startswith("zookeeper."))
COMES_BACK = ("zookeeper.", *ONLY_WITH_ZOOKEEPER, BETWEEN)
"""How the keys begin that a file has lost in its last mode."""
ENDED_CONTROLLER = (FLAG, CONNECT, BETWEEN, CONTROL_PLANE)
"""Keys that a controller needs only while it talks to ZooKeeper and to brokers in ZooKeeper mode."""
OF_ONE_NODE = (
    *(NODE_ID, BROKER_ID, "broker.rack"),
    *("listeners", "advertised.listeners"),
    *("log.dirs", "log.dir", "metadata.log.dir"),
)
"""Keys that a node has for itself: its id, place, addresses and disks."""
OF_QUORUM = (CONTROLLERS, "controller.quorum.", "sasl.mechanism.controller.protocol")
"""How the keys begin that a broker uses only while it knows a quorum."""


class FileMode(Enum):
    """The mode of a property file; the modes of brokers in the order in which a migration goes through them."""

    BROKER_ZOOKEEPER = "ZooKeeper mode"
    BROKER_MIGRATING = "migration mode"
    BROKER_KRAFT = "KRaft mode"
    CONTROLLER_MIGRATING = "the migration on"
    CONTROLLER_ENDED = "the migration off"
    STOCK = "Kafka's own controller"


WITHOUT_ZOOKEEPER = (FileMode.BROKER_KRAFT, FileMode.CONTROLLER_ENDED)
OF_BROKERS = {
    BrokerMode.ZOOKEEPER: FileMode.BROKER_ZOOKEEPER,
    BrokerMode.MIGRATING: FileMode.BROKER_MIGRATING,
    BrokerMode.KRAFT: FileMode.BROKER_KRAFT,
}


@value
class ModeSettings:
    """One cluster's settings for the migration: what brokers get, and values that a file may have lost.

    ``zookeeper_connect`` is for files that have it no longer. ``release_version``: the metadata.version, which a file
    gets as its protocol's version when it comes back from KRaft mode. Each is "" when unknown.
    """

    for_brokers: Mapping[str, str]
    controller_protocol: str
    zookeeper_connect: str
    release_version: str

    @property
    def digest(self) -> str:
        """The digest of what the inventory says of brokers."""
        said = [self.controller_protocol, *map("=".join, sorted(self.for_brokers.items()))]
        return digest("\n".join(said).encode())


def file_mode(role: NodeKind, properties: Mapping[str, str]) -> FileMode:
    migrating = is_on(properties, FLAG)
    if role is NodeKind.CONTROLLER:
        return FileMode.CONTROLLER_MIGRATING if migrating else FileMode.CONTROLLER_ENDED
    if is_set(properties, ROLES):
        return FileMode.BROKER_KRAFT
    return FileMode.BROKER_MIGRATING if migrating else FileMode.BROKER_ZOOKEEPER


def parsed(node: Node, text: str) -> dict[str, str]:
    """The keys of a property file.

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
    """The file in another mode. Only the keys of the mode change; comments and order stay. What only rollouts have
    changed comes back byte for byte, except for a level of the protocol that is not the cluster's any more.

    :param earlier: the file as this rollout found it in the mode ``target``, where there is such a backup.
    :raises OperatorError: the file can't be read, a value is lost, or it is unknown which comments were settings.
    """
    made, here = _rewritten(node, text, target, settings, earlier), parsed(node, text)
    if node.role is NodeKind.CONTROLLER or target is FileMode.BROKER_KRAFT:
        return made
    level = here.get(IBP, settings.release_version if ROLES in here else "")
    held = parse_properties(made).get(IBP)
    if not level or held is None or _same_level(held, level):
        return made
    made = edited(made, [Edit(IBP, level)])
    return settled(made) if target is FileMode.BROKER_ZOOKEEPER else made


def _same_level(one: str, other: str) -> bool:
    try:
        return parse_version(one) == parse_version(other)
    except ValueError:  # a placeholder, or what Kafka refuses
        return True


def _rewritten(node: Node, text: str, target: FileMode, settings: ModeSettings, earlier: str | None) -> str:
    properties, before = parsed(node, text), without_rollout(node, text)
    here = file_mode(node.role, properties)
    if here is target is FileMode.BROKER_ZOOKEEPER and not _is_refused(node, properties):
        return text
    was = parse_properties(before if earlier is None else earlier)
    is_of_target = file_mode(node.role, was) is target and CONNECT in was
    if earlier is not None and is_of_target and here is not target and not _is_refused(node, was):
        is_this_one = before in (text, without_rollout(node, earlier))
        if is_this_one and _becomes(node, earlier, here, settings, properties):
            return earlier
    if (
        before != text
        and _fits(node, before, settings, properties)
        and _becomes(node, before, here, settings, properties)
    ):
        return _rewritten(node, before, target, settings, earlier)
    if here in WITHOUT_ZOOKEEPER and target not in WITHOUT_ZOOKEEPER and CONNECT not in {*properties, *was}:
        _ask(node, text, settings)
    if target is not FileMode.BROKER_ZOOKEEPER:
        return edited(text, list(_edits(node, properties, target, settings, was)))
    if not is_of_target:
        was = _supposed(properties, was, settings.for_brokers)
    return settled(edited(text, list(_edits(node, properties, target, settings, was))))


def odd_keys(files: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """The keys in which one node's file differs while all others agree, by node; without keys that each node
    has for itself. Of two files, nobody knows which one is the odd one.

    :param files: property files of one kind, by node.
    """
    for key in sorted({key for properties in files.values() for key in properties}.difference(OF_ONE_NODE)):
        found = {name: properties.get(key) for name, properties in files.items()}
        for name, here in found.items():
            others = {there for other, there in found.items() if other != name}
            if len(found) > 2 and len(others) == 1 and here not in others:
                yield name, key


def without_rollout(node: Node, text: str) -> str:
    """The file without the changes of rollouts that its marks show.

    :raises OperatorError: lines that a rollout has commented out are cut.
    """
    try:
        return original(text)
    except ValueError as error:
        raise OperatorError(
            str(error),
            where=f"{node.name}: {node.properties}",
            remedy="Complete the lines that begin with '#migrator set aside:', or remove them and write the key anew",
        ) from error


def _becomes(node: Node, text: str, mode: FileMode, settings: ModeSettings, properties: Mapping[str, str]) -> bool:
    """Whether a rollout makes these settings of the file; then nobody else has changed what the rollout has written."""
    return parse_properties(rewritten(node, text, mode, settings)) == properties


def _fits(node: Node, before: str, settings: ModeSettings, properties: Mapping[str, str]) -> bool:
    """Whether the broker's listeners of today work with the file as it was before: Kafka needs a protocol for each
    listener, and the listener that ``control.plane.listener.name`` names."""
    if node.role is NodeKind.CONTROLLER:
        return True
    was = parse_properties(before)
    left = without_controllers(properties, settings.for_brokers, settings.controller_protocol, was)
    is_gone = CONTROL_PLANE in was and "listeners" in properties and not has_control_plane(properties, was)
    return left == was.get(PROTOCOLS) and not is_gone


def _ask(node: Node, text: str, settings: ModeSettings) -> None:
    """Refuse comments that may be settings. A release before the marks, or a person, has commented settings out, and
    other lines may have been comments before.

    :raises OperatorError: there are comments that can be either.
    """
    known = {(CONNECT, settings.zookeeper_connect), (IBP, settings.release_version)}
    doubts = [f"line {number}: {key}" for number, key, value in _commented(text) if (key, value) not in known]
    if doubts:
        raise OperatorError(
            f"these comments may have been settings while {node.name} knew ZooKeeper, and nobody knows which of them "
            f"were: {', '.join(doubts)}",
            where=node.file_place,
            remedy=f"Take away the '#' of those that were in force then, and see that {CONNECT} is one of them. Then "
            "type the command again",
        )


def _commented(text: str) -> Iterator[tuple[int, str, str]]:
    """Comments that look like a setting from the time with ZooKeeper: line number, key and value. Earlier releases put
    ``#`` before a line as it was, also before an indented one. A comment with several words is no setting."""
    for number, line in enumerate(LINE_END.split(text), 1):
        said = line[1:].lstrip(BLANKS)
        if line.startswith("#") and said.startswith(COMES_BACK) and (said == line[1:] or len(said.split()) == 1):
            with suppress(ValueError):
                found = parse_properties(said.rstrip("\\"))
                yield from ((number, key, text) for key, text in found.items() if key != FLAG)


def refuse_unstartable(node: Node, text: str) -> None:
    """
    :param text: the file of a broker as it is going to be.
    :raises OperatorError: Kafka would not start with it in the mode that it is for.
    """
    for key, what, remedy in refused_broker(parsed(node, text)):
        mode = file_mode(node.role, parsed(node, text)).value
        raise OperatorError(
            f"Kafka would not start with this file in {mode}: {what}; nothing was done",
            where=f"{node.file_place}: {key}",
            remedy=remedy,
        )


def lost_zookeeper(node: Node, text: str, target: FileMode) -> bool:
    """Whether a broker's file comes back from KRaft mode without a key that says how to reach ZooKeeper."""
    back = target in (FileMode.BROKER_ZOOKEEPER, FileMode.BROKER_MIGRATING) and ROLES in parsed(node, text)
    return back and CONNECT not in parse_properties(without_rollout(node, text))


def session_ms(properties: Mapping[str, str]) -> int:
    """How many milliseconds a broker with this file stays registered after it has died, the longer of ZooKeeper's time
    and the quorum's."""
    told = (number_of(properties, key) for key in SESSION_TIMEOUTS)
    return max(default if told_ms is None else told_ms for told_ms, default in zip(told, SESSION_DEFAULTS, strict=True))


def watched_keys(for_brokers: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that a rollout may change in a broker's file, without the ids: Kafka adds the id that a file does not
    have.

    :param for_brokers: what the inventory gives each broker.
    """
    return tuple(dict.fromkeys((*for_brokers, *OF_ZOOKEEPER, *ONLY_WITH_ZOOKEEPER, ROLES, PROTOCOLS, AUTHORIZER)))


def stock_file(text: str, release: TargetRelease) -> str:
    """The file of Kafka's controller that takes over from ours: without the keys that only this program needs."""
    return without_keys(text, release.drops)


def changes_shown(before: str, after: str) -> list[str]:
    """A line for each key that changes; values that may be secrets are hidden."""
    old, new = parse_properties(before), parse_properties(after)
    lines = []
    for key in [*old, *(key for key in new if key not in old)]:
        if old.get(key) == new.get(key):
            continue
        lines += [
            f"{sign} {key}={_without_secret(key, side[key])}" for sign, side in (("-", old), ("+", new)) if key in side
        ]
    return lines


def digest_shown(text: str) -> str:
    """SHA-256 of a file's keys and values, in hexadecimal. Values that may be secrets are hidden before, so nobody can
    test a guess of one with it."""
    lines = (f"{key}={_without_secret(key, said)}\n" for key, said in sorted(parse_properties(text).items()))
    return digest("".join(lines).encode())


def _without_secret(key: str, said: str) -> str:
    return REDACTED if is_sensitive(broker_type(key)) else shown(said)


@overload
def digest(content: bytes) -> str: ...
@overload
def digest(content: bytes | None) -> str | None: ...
def digest(content: bytes | None) -> str | None:
    """SHA-256 in hexadecimal; None for a file that does not exist."""
    return None if content is None else hashlib.sha256(content).hexdigest()


def _edits(
    node: Node, properties: Mapping[str, str], target: FileMode, settings: ModeSettings, was: Mapping[str, str]
) -> Iterator[Edit]:
    wanted = dict(_wanted(node, properties, target, settings, was))
    for key, text in wanted.items():
        if text is None and key in properties:
            yield Edit(key)
        elif text is not None and (key not in properties or not means_the_same(key, properties[key], text)):
            yield Edit(key, text)


def _wanted(
    node: Node, properties: Mapping[str, str], target: FileMode, settings: ModeSettings, was: Mapping[str, str]
) -> Iterator[tuple[str, str | None]]:
    """Keys of the mode, with their values; None for a key that the mode does not have."""
    if target is FileMode.CONTROLLER_ENDED:
        is_on = file_mode(node.role, properties) is FileMode.CONTROLLER_MIGRATING
        yield from ((key, None) for key in ENDED_CONTROLLER if is_on or key != FLAG)
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
    """The keys of a broker that still knows ZooKeeper."""
    if ROLES in properties:  # from KRaft mode: a person has since written the keys of ZooKeeper's time
        lost = [key for key in was if key.startswith("zookeeper.")]
        lost += [key for key in ONLY_WITH_ZOOKEEPER if key != CONTROL_PLANE or has_control_plane(properties, was)]
        yield from _lost(properties, was, lost)
        if IBP not in {*was, *properties} and settings.release_version:
            yield IBP, settings.release_version
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
        yield CONTROLLERS, None
        yield PROTOCOLS, without_controllers(properties, settings.for_brokers, settings.controller_protocol, was)


def _supposed(properties: Mapping[str, str], was: Mapping[str, str], for_brokers: Mapping[str, str]) -> dict[str, str]:
    """What the file said before the migration, when no backup has it: of the inventory's keys, none that only a quorum
    uses. The others may be those of the broker's own listeners."""
    names = (name.lower() for name in foreign_listeners(properties, for_brokers))
    goes = (*OF_QUORUM, PROTOCOLS, FLAG, *(f"listener.name.{name}." for name in names))
    kept = {key: properties[key] for key in for_brokers if key in properties and not key.startswith(goes)}
    return {key: text for key, text in was.items() if key.startswith(COMES_BACK) and key != FLAG} | kept


def _is_refused(node: Node, properties: Mapping[str, str]) -> bool:
    """Kafka: ``controller.listener.names must be empty when not running in KRaft mode``
    (``KafkaConfig.validateValues``)."""
    mode = file_mode(node.role, properties)
    return mode is FileMode.BROKER_ZOOKEEPER and is_set(properties, CONTROLLERS)


def _own_id(node: Node, properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The id keys. During a migration Kafka refuses a generated id, and an id above the reserved ones while ids may be
    generated (``KafkaConfig.validateValues``)."""
    yield BROKER_ID, str(node.node_id)
    reserved = number_of(properties, RESERVED)
    if reserved is None:
        raise OperatorError(
            f"{RESERVED}: {text_of(properties, RESERVED)!r} is no number",
            where=f"{node.name}: {node.properties}",
            remedy="Correct this line",
        )
    if node.node_id > reserved:
        yield GENERATION, "false"


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
