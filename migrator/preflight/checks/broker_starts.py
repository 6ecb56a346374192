"""M127 to M131: settings with which a broker does not start, or does not reach its controllers.

`brokers` has the checks of the requirements in Kafka's manual (missing keys, the control plane, releases).

Source (Kafka 3.9): in migration mode ``KafkaServer.startup`` takes the dynamic settings from ZooKeeper before
``RaftManager`` looks for the protocol and ``sasl.mechanism.controller.protocol`` of the controllers' listener, and
``JaasContext.loadServerContext`` for its login.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from migrator.config.jaas import JaasSyntaxError, LoginModule, parse_entry
from migrator.config.kafka_rules import PLACEHOLDER
from migrator.config.kafkas_broker import (
    MECHANISM,
    OTHER_NAME,
    controllers_protocol,
    refused_broker,
    shared_listener,
    shared_names,
)
from migrator.config.keys import CONTROLLERS, PROTOCOLS
from migrator.config.reading import is_set, listener_names, text_of
from migrator.config.settings import Settings
from migrator.config.types import entries_of
from migrator.migration.machine.readiness import Severity
from migrator.preflight.check import Found, PreflightCheck
from migrator.preflight.evidence import BrokerFile, ControllerFile, Evidence
from migrator.records.metadata import SecurityProtocol
from migrator.values import value
from migrator.wire.jaas import MODULES
from migrator.wire.sasl import PLAIN
from migrator.zookeeper.znodes import paths

NOT_HERE = "${not here}"
"""Stands for a value that is in another file; no check says anything about it."""


def does_not_start(evidence: Evidence) -> Iterator[Found]:
    """Checks each file as it is, for ZooKeeper mode or prepared. A name that two listeners have is left to another
    check."""
    for broker in evidence.brokers:
        keys = _keys(broker)
        for problem in refused_broker(keys):
            if problem not in list(shared_listener(keys)):
                key, what, remedy = problem
                yield Found(broker.file.at(key), what, remedy, (broker.who,))


def name_of_controllers(evidence: Evidence) -> Iterator[Found]:
    """A broker's file names the controllers' listener only when it is prepared; before, the controllers' own files
    do."""
    for broker in evidence.brokers:
        told = [broker.file, *(controller.file for controller in evidence.controllers)]
        names = next((names for file in told if (names := listener_names(file.get(CONTROLLERS)))), ())
        for name in shared_names(broker.file.values, names):
            what = f"its own listener {name} has the name of the controllers' listener"
            yield Found(broker.file.at("listeners"), what, hosts=(broker.who,))


def refused_login(evidence: Evidence) -> Iterator[Found]:
    for broker, controller, doubt in _doubts(evidence):
        if doubt.is_certain:
            yield Found(broker.file.at(doubt.key), doubt.what, doubt.remedy, (broker.who, controller.who))


def login_not_seen(evidence: Evidence) -> Iterator[Found]:
    for broker, _, doubt in _doubts(evidence):
        if not doubt.is_certain:
            yield Found(broker.file.at(doubt.key), doubt.what, doubt.remedy, (broker.who,))


def _doubts(evidence: Evidence) -> Iterator[tuple[BrokerFile, ControllerFile, Doubt]]:
    for broker in evidence.brokers:
        names = listener_names(broker.file.get(CONTROLLERS))
        if not (controllers_protocol(broker.file.values) or "").startswith("SASL_") or MECHANISM in broker.file.hidden:
            continue
        for controller in evidence.controllers:
            if names[0] in controller.settings.controller_listeners:
                for doubt in doubts_of(_keys(broker), controller.settings, names[0]):
                    yield broker, controller, doubt


def _keys(broker: BrokerFile) -> dict[str, str]:
    return {**broker.file.values, **dict.fromkeys(broker.file.hidden, NOT_HERE)}


def without_controllers(evidence: Evidence) -> Iterator[Found]:
    """Checks each broker's own dynamic configuration. Kafka ignores such a map in the configuration of all brokers
    (``DynamicBrokerConfig``)."""
    if evidence.zookeeper is None:
        return
    ours = [controller.file.get(CONTROLLERS) for controller in evidence.controllers]
    own = {str(broker.broker_id): broker for broker in evidence.brokers}
    for broker, text in sorted(evidence.zookeeper.dynamic_maps.items()):
        file = own[broker].file if broker in own else None
        told = (file.get(CONTROLLERS) if file is not None else "") or next(iter(ours), "")
        name = next(iter(listener_names(told)), "").upper()
        known = {entry.rpartition(":")[0].strip().upper() for entry in entries_of(text)}
        if name and name not in {*known, *SecurityProtocol.__members__}:
            what = f"broker {broker}: {PROTOCOLS} is {text}, without the controllers' listener {name}"
            yield Found(f"{paths.BROKER_CONFIGS}/{broker}", what)


SERVER_HANDLER = "plain.sasl.server.callback.handler.class"


@value
class Doubt:
    """The reason why a login fails or may fail. ``key``: the key in the broker's file."""

    key: str
    what: str
    remedy: str
    is_certain: bool = True


def doubts_of(broker: Mapping[str, str], controller: Settings, listener: str) -> Iterator[Doubt]:
    """
    :param broker: the keys of the broker's file. A value ``${...}`` comes from another file and is not checked.
    :param listener: the name of the controllers' listener, which has SASL.
    """
    mechanism, taken = text_of(broker, MECHANISM), [name.upper() for name in controller.mechanisms_of(listener)]
    if mechanism not in taken:
        default = "" if is_set(broker, MECHANISM) else ", which is Kafka's default"
        what = f"it logs in with {mechanism}{default}, and controller {controller.node_id} takes {', '.join(taken)}"
        yield Doubt(MECHANISM, f"{what} on listener {listener}", f"Set {MECHANISM} to a mechanism that is taken there")
        return
    key = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    if not is_set(broker, key):
        section = f"{listener.lower()}.KafkaServer or KafkaServer"
        remedy = f"Set this key; or see that the JAAS file of the broker's process has a login in a section {section}"
        yield Doubt(key, f"the file has no login for the controllers' listener {listener}", remedy, is_certain=False)
    elif fault := _fault(broker[key]):
        what = f"the login for the controllers' listener {listener} cannot be read: {fault}"
        yield Doubt(key, what, 'Write: MODULE required name="value" ... ;', is_certain=False)
    elif mechanism == PLAIN and not is_set(controller.explicit, f"listener.name.{listener.lower()}.{SERVER_HANDLER}"):
        yield from _unknown_user(key, _entry(broker, key), _entry(controller.explicit, key), controller.node_id)


def _unknown_user(key: str, own: LoginModule | None, theirs: LoginModule | None, node_id: int) -> Iterator[Doubt]:
    """A doubt when the controller's entry lacks the broker's user. Only Kafka's own login modules can be checked:
    others may have users that the entry does not name."""
    if own is None or theirs is None or {own.name, theirs.name} != {MODULES[PLAIN]}:
        return
    name = own.options.get("username", "")
    known = theirs.options.get(f"user_{name}")
    remedy = f'Add user_{name}="..." to this key of controller {node_id}, with the password of the broker'
    if known is None:
        yield Doubt(key, f"controller {node_id} does not know the user {name!r}", remedy)
    elif known != own.options.get("password", ""):
        yield Doubt(key, f"controller {node_id} has another password for the user {name!r}", remedy)


def _fault(text: str) -> str:
    """Why a text is not one JAAS entry; "" when it is one, or comes from another file. The reason quotes nothing of the
    text, which holds secrets."""
    try:
        if PLACEHOLDER not in text:
            parse_entry(text)
    except JaasSyntaxError as error:
        return str(error)
    return ""


def _entry(keys: Mapping[str, str], key: str) -> LoginModule | None:
    """The JAAS entry under a key; None when the value has a placeholder, or is not one entry."""
    text = keys.get(key, "")
    try:
        return None if PLACEHOLDER in text else parse_entry(text)
    except JaasSyntaxError:
        return None


CHECKS = (
    PreflightCheck(
        "M127", Severity.BLOCKER, "Dynamic listener maps without the controllers' listener", without_controllers,
        "A dynamic map counts more than the one of the property file: the broker would not start in migration mode. "
            "Add the listener to it with kafka-configs.sh --alter --add-config, or, if the map of the file has all "
            "listeners, remove it with --delete-config listener.security.protocol.map",
    ),
    PreflightCheck(
        "M128", Severity.BLOCKER, "Kafka does not start with a broker's file", does_not_start,
        "Correct the key before the broker is restarted",
    ),
    PreflightCheck(
        "M129", Severity.BLOCKER, "An own listener of a broker is called like the controllers'", name_of_controllers,
        f"In KRaft mode Kafka does not start with such a file. {OTHER_NAME}",
    ),
    PreflightCheck(
        "M130", Severity.BLOCKER, "Brokers that cannot log in to the controllers", refused_login,
        "Give the broker a login that the controllers take",
    ),
    PreflightCheck(
        "M131", Severity.WARNING, "Logins to the controllers that were not seen", login_not_seen,
        "Write the login into the broker's file; or see that its JAAS file has a section for this listener",
    ),
)  # fmt: skip
