"""M128 to M131: brokers' files with which a broker does not start, or does not reach its controllers.

`brokers` has the checks of the requirements in Kafka's manual (missing keys, the control plane, releases).
"""

from __future__ import annotations

from collections.abc import Iterator

from migrator.config.kafkas_broker import (
    MECHANISM,
    OTHER_NAME,
    controllers_protocol,
    refused_broker,
    shared_listener,
    shared_names,
)
from migrator.config.keys import CONTROLLERS
from migrator.config.reading import listener_names
from migrator.migration.machine.readiness import Severity
from migrator.preflight.check import Found, PreflightCheck
from migrator.preflight.evidence import BrokerFile, ControllerFile, Evidence
from migrator.wire.broker_logins import Doubt, doubts_of

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


CHECKS = (
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
