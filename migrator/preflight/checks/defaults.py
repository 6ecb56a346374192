"""M115 and M133: defaults that brokers decide by before a migration, and controllers after it.

Source: ``ControllerServer`` and ``ControllerApis`` of Kafka 3.9 for settings that a controller uses;
``ControllerConfigurationValidator`` and ``ServerTopicConfigSynonyms`` for settings that it only checks and shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from migrator.config.kafka_keys import TOPIC_KEYS
from migrator.config.reading import means_the_same
from migrator.controller.effective import SYNONYMS
from migrator.migration.machine.readiness import Severity
from migrator.preflight.census import sample_of
from migrator.preflight.check import Found, PreflightCheck
from migrator.preflight.checks.brokers import differs
from migrator.preflight.evidence import BrokerFile, ControllerFile, Evidence, PropertyFile
from migrator.zookeeper.znodes import paths

DECIDED = (
    "num.partitions",
    "default.replication.factor",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "delete.topic.enable",
    "auto.leader.rebalance.enable",
    "leader.imbalance.check.interval.seconds",
    "remote.log.storage.system.enable",
    "controller.quota.window.num",
    "controller.quota.window.size.seconds",
    "delegation.token.expiry.time.ms",
    "delegation.token.max.lifetime.ms",
)
"""Keys by which a controller decides: about topics that are created, deleted and led, their rates, and tokens."""
SHOWN: Mapping[str, tuple[tuple[str, int], ...]] = {
    key: names for key, names in SYNONYMS.items() if names and names[0][0] not in DECIDED
}
"""All other configs of topics that have a default in a property file: its keys, with milliseconds per unit."""
_KAFKAS = {key: default or "" for key, _, default, _, _ in TOPIC_KEYS}


def decided_otherwise(evidence: Evidence) -> Iterator[Found]:
    for controller, broker in _pairs(evidence):
        for key in DECIDED:
            one, other = controller.file, broker.file
            if key in {*one.hidden, *other.hidden} or means_the_same(key, one.get(key), other.get(key)):
                continue
            yield differs(key, controller, one.get(key), broker, other.get(key))


def shown_otherwise(evidence: Evidence) -> Iterator[Found]:
    """Find topic defaults that differ between controllers and brokers but harm no topic. One finding per file."""
    for controller, broker in _pairs(evidence):
        found = []
        for key, names in SHOWN.items():
            keys = {name for name, _ in names}
            one, other = _default(controller.file, key), _default(broker.file, key)
            if keys & {*controller.file.hidden, *broker.file.hidden}:
                continue
            if not means_the_same(names[0][0], one, other):
                found.append(f"{key} ({one} on controllers, {other} on brokers)")
        if found:
            what = f"{len(found)} defaults of topics differ: {sample_of(found)}"
            yield Found(controller.path, what, hosts=(controller.who, broker.who))


def _pairs(evidence: Evidence) -> Iterator[tuple[ControllerFile, BrokerFile]]:
    """Compare each controller with each broker, unless dynamic configurations override their files."""
    zookeeper = evidence.zookeeper
    for controller in evidence.controllers:
        of_all = {} if zookeeper is None else zookeeper.dynamic_defaults.get(paths.DEFAULT_ENTITY, {})
        for broker in evidence.brokers:
            own = {} if zookeeper is None else zookeeper.dynamic_defaults.get(str(broker.broker_id), {})
            yield (
                replace(controller, file=_changed(controller.file, of_all)),
                replace(broker, file=_changed(broker.file, {**of_all, **own})),
            )


def _changed(file: PropertyFile, dynamic: Mapping[str, str]) -> PropertyFile:
    """The file with the values of a dynamic configuration in place of its own."""
    hidden = {key: trouble for key, trouble in file.hidden.items() if key not in dynamic}
    return replace(file, values={**file.values, **dynamic}, hidden=hidden)


def _default(file: PropertyFile, key: str) -> str:
    """The default of a config of topics by this file, in the unit of the config."""
    for name, factor in SHOWN[key]:
        if file.values.get(name, "").strip():
            number = file.number(name) if factor > 1 else None
            return file.get(name) if number is None else str(number * factor)
    return _KAFKAS[key]


CHECKS = (
    PreflightCheck(
        "M115", Severity.WARNING, "Defaults of controllers and brokers differ", decided_otherwise,
        "Copy the brokers' value to the controllers, because after the migration the controllers' defaults apply",
    ),
    PreflightCheck(
        "M133", Severity.WARNING, "Controllers would show other defaults of topics", shown_otherwise,
        "Copy the brokers' values to the controllers. Brokers keep logs by their own values; but the answer to "
            "CreateTopics shows the controllers' values, and configs of topics are checked with them",
    ),
)  # fmt: skip
