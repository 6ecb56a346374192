"""Property files of brokers with which Kafka does not start in migration mode, or in KRaft mode. Kafka judges them."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.config.kafkas_broker import controllers_protocol, refused_broker
from migrator.parts.kafka import StockKafka
from tests.config.support.kafka_reader import KafkaReader

BROKER = {
    "listeners": "INSIDE://:9092,OUTSIDE://:9094",
    "advertised.listeners": "INSIDE://h:9092,OUTSIDE://h:9094",
    "inter.broker.listener.name": "INSIDE",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:SSL",
    "log.dirs": "/data",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "3001@c:9093",
}
MIGRATING = BROKER | {"broker.id": "1", "zookeeper.connect": "zk", "zookeeper.metadata.migration.enable": "true"}
IN_KRAFT = BROKER | {"node.id": "1", "process.roles": "broker"}
DEFAULTS = {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://h:9092"}
MAP, NAMES, OWN, TOLD = (
    "listener.security.protocol.map",
    "controller.listener.names",
    "listeners",
    "advertised.listeners",
)
BETWEEN = "inter.broker.listener.name"
WITH_CONTROLLER = {OWN: f"{BROKER[OWN]},CONTROLLER://:29093", TOLD: f"{BROKER[TOLD]},CONTROLLER://h:29093"}


def without(file: dict[str, str], *keys: str, **more: str) -> dict[str, str]:
    return {key: text for key, text in file.items() if key not in keys} | more


BARE = without(IN_KRAFT, MAP, BETWEEN) | DEFAULTS
BARE_MIGRATING = without(MIGRATING, MAP, BETWEEN) | DEFAULTS
CASES: list[tuple[dict[str, str], str]] = [
    (MIGRATING, ""),
    (IN_KRAFT, ""),
    (IN_KRAFT | WITH_CONTROLLER, NAMES),
    (MIGRATING | {"node.id": "1"}, ""),
    (MIGRATING | {"node.id": "2"}, "node.id"),
    (MIGRATING | {"security.inter.broker.protocol": "PLAINTEXT"}, "security.inter.broker.protocol"),
    (IN_KRAFT | {"security.inter.broker.protocol": "PLAINTEXT"}, "security.inter.broker.protocol"),
    (IN_KRAFT | {"control.plane.listener.name": "OUTSIDE"}, "control.plane.listener.name"),
    (MIGRATING | {"control.plane.listener.name": "OUTSIDE"}, ""),
    (IN_KRAFT | {"controller.quorum.voters": "1@c:9093"}, "node.id"),
    (MIGRATING | {"controller.quorum.voters": "3001@c:9093,"}, "controller.quorum.voters"),
    (
        without(MIGRATING, "controller.quorum.voters") | {"controller.quorum.bootstrap.servers": "c"},
        "controller.quorum.bootstrap.servers",
    ),
    (IN_KRAFT | {MAP: "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"}, MAP),
    (IN_KRAFT | {NAMES: "CONTROLLER,SECOND"}, MAP),
    (IN_KRAFT | {NAMES: "CONTROLLER, SECOND", MAP: f"{BROKER[MAP]},SECOND:SSL"}, MAP),
    (IN_KRAFT | {NAMES: "CONTROLLER,SECOND", MAP: f"{BROKER[MAP]},second:SSL"}, ""),
    (MIGRATING | {NAMES: "CONTROLLER,SECOND"}, ""),
    (IN_KRAFT | {NAMES: "SSL"}, MAP),
    (MIGRATING | {NAMES: "SSL"}, ""),
    (BARE | {NAMES: "CONTROLLER,SECOND"}, ""),
    (BARE | {NAMES: "SSL,SECOND"}, MAP),
    (BARE, ""),
    (BARE | {OWN: "SSL://:9092", TOLD: "SSL://h:9092", "security.inter.broker.protocol": "SSL"}, MAP),
    (BARE | {NAMES: "SSL"}, ""),
    (MIGRATING | {"broker.id": "1001"}, "broker.id.generation.enable"),
    (MIGRATING | {"broker.id": "1001", "broker.id.generation.enable": "false"}, ""),
    (MIGRATING | {"broker.id": "1001", "reserved.broker.max.id": " 2000 "}, ""),
    (MIGRATING | {BETWEEN: "CONTROLLER"}, BETWEEN),
    (without(MIGRATING, BETWEEN), "security.inter.broker.protocol"),
    (IN_KRAFT | {TOLD: "INSIDE://0.0.0.0:9092"}, TOLD),
    (IN_KRAFT | {OWN: "INSIDE://:9092"}, TOLD),
    (MIGRATING | {OWN: "INSIDE://:9092,OUTSIDE://:9092"}, OWN),
    (MIGRATING | {OWN: "INSIDE://127.0.0.1:9092,OUTSIDE://[::1]:9092"}, ""),
    (MIGRATING | {"connections.max.idle.ms": "100"}, "connections.max.idle.ms"),
    (MIGRATING | {"max.connections.per.ip": "0"}, "max.connections.per.ip"),
    (MIGRATING | {"max.connections.per.ip.overrides": "[::1]:1"}, "max.connections.per.ip.overrides"),
    (MIGRATING | {"max.connections.per.ip.overrides": "::1:1,h:-1"}, ""),
    (MIGRATING | {"max.connections.per.ip.overrides": "h:many"}, "max.connections.per.ip.overrides"),
    (MIGRATING | {"max.connections.per.ip.overrides": "h"}, "max.connections.per.ip.overrides"),
    (MIGRATING | {"max.connections.per.ip.overrides": "a/b:1"}, "max.connections.per.ip.overrides"),
    (MIGRATING | {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": ","}, "max.connections.per.ip"),
    (MIGRATING | {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "h:1"}, ""),
    (MIGRATING | {"queued.max.request.bytes": "1000"}, "queued.max.request.bytes"),
    (MIGRATING | {"log.roll.ms": "0"}, "log.roll.ms"),
    (MIGRATING | {"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms"),
    (MIGRATING | {"log.retention.minutes": "0"}, "log.retention.minutes"),
    (MIGRATING | {"log.retention.hours": "-5"}, ""),
    (MIGRATING | {"log.cleaner.dedupe.buffer.size": "1048576"}, "log.cleaner.dedupe.buffer.size"),
    (MIGRATING | {"replica.fetch.wait.max.ms": "40000"}, "replica.fetch.wait.max.ms"),
]
AT_THE_START: list[tuple[dict[str, str], str | None]] = [
    (MIGRATING, "SSL"),
    (MIGRATING | {NAMES: "controller"}, None),
    (BARE_MIGRATING, None),
    (BARE_MIGRATING | {NAMES: "SSL"}, "SSL"),
    (MIGRATING | {NAMES: " ssl "}, "SSL"),
    (BARE, "PLAINTEXT"),
    (BARE | {NAMES: "controller"}, None),
]
"""Values that `KafkaConfig` takes, and with which the broker ends when it looks for its controllers."""


@pytest.mark.parametrize(("file", "key"), CASES)
def test_what_kafka_refuses_is_named(file: dict[str, str], key: str) -> None:
    assert [found for found, _, _ in refused_broker(file)][:1] == [key] * bool(key)


@pytest.mark.lane("test-all")
def test_kafka_judges_likewise(tmp_path: Path, kafka_391: StockKafka) -> None:
    reader = KafkaReader(kafka_391, tmp_path)
    files = [str(reader.write(number, file)) for number, (file, _) in enumerate((*CASES, *AT_THE_START))]
    looks = ({"file": file, "controllers": "yes"} for file in files[len(CASES) :])
    answers = reader.ask([*({"file": file} for file in files[: len(CASES)]), *looks])
    for (file, key), answer in zip(CASES, answers[: len(CASES)], strict=True):
        assert ("refused" in answer) is bool(key), (key, answer, file)
    assert [answer.get("protocol") for answer in answers[len(CASES) :]] == [protocol for _, protocol in AT_THE_START]


@pytest.mark.parametrize(("file", "protocol"), AT_THE_START)
def test_the_protocol_to_the_controllers(file: dict[str, str], protocol: str | None) -> None:
    assert controllers_protocol(file) == protocol
    assert bool(list(refused_broker(file))) is (protocol is None)


def test_an_own_listener_of_the_controllers_name_is_refused_before_kafka_does_it() -> None:
    """In migration mode Kafka 3.9 takes the file, in KRaft mode not."""
    ((key, what, remedy),) = refused_broker(MIGRATING | WITH_CONTROLLER)
    assert key == NAMES
    assert "CONTROLLER is a listener of the broker itself" in what
    assert remedy.startswith("Give controller.listener.names another name")


@pytest.mark.parametrize(
    "hidden", [BETWEEN, MAP, NAMES, OWN, TOLD, "controller.quorum.voters", "broker.id", "connections.max.idle.ms"]
)
def test_a_value_in_another_file_is_taken_for_a_good_one(hidden: str) -> None:
    assert not list(refused_broker(MIGRATING | {hidden: "${file:/etc/kafka/values:it}"}))


def test_a_file_in_zookeeper_mode_is_not_measured_by_what_the_migration_needs() -> None:
    file = without(MIGRATING, NAMES, "zookeeper.metadata.migration.enable") | {"broker.id": "1001"}
    assert not list(refused_broker(file))
