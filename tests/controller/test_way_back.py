"""After the end of a migration, the controllers refuse what would close the way back, until the operator closes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from migrator.config.kafka_keys import BROKER_KEYS, TOPIC_KEYS, Row
from migrator.controller.configs import (
    AlterConfigsRequest,
    ConfigChange,
    ConfigOperation,
    ReplaceConfigsRequest,
    alter_configs,
    replace_configs,
)
from migrator.controller.decision import ApiError, RefusedError
from migrator.controller.features import FeatureUpdate, UpdateFeaturesRequest, update_features
from migrator.controller.topics import CreateTopicsRequest, NewTopic, create_topics
from migrator.controller.way_back import KRAFT_ONLY, NEWEST, WORDS_MAX, close, closed, reopened
from migrator.image.model import ConfigResource
from migrator.parts.kafka import StockKafka
from migrator.records.metadata import (
    ConfigRecord,
    ConfigResourceType,
    RegisterControllerRecord,
    TopicRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from tests.config.support.kafka_reader import KafkaReader
from tests.controller.support.leading_controller import LISTENER, LeadingController, some_uuid

TOPIC, BROKER, METRICS = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.CLIENT_METRICS
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
CLOSES = [
    (METRICS, "m", "interval.ms", "1000"),
    (TOPIC, "t", "remote.log.copy.disable", "true"),
    (TOPIC, "t", "remote.log.delete.on.disable", "true"),
    (BROKER, "3000", "num.io.threads", "9"),
    (BROKER, "+03000", "num.io.threads", "9"),
]
FINISHED = ZkMigrationStateRecord(ZkMigrationState.POST_MIGRATION)


def controller(state: ZkMigrationStateRecord = FINISHED, **settings: bool) -> LeadingController:
    node = RegisterControllerRecord(3000, some_uuid(2), True, (LISTENER,), ())
    leading = LeadingController(TopicRecord("t", some_uuid(1)), node, **settings)
    leading.register(1)
    leading.write(state)
    return leading


def sets(leading: LeadingController, kind: int, name: str, key: str, text: str | None) -> ApiError:
    change = ConfigChange(key, DELETE if text is None else SET, text)
    ((_, error),) = leading.decide(alter_configs, AlterConfigsRequest(((ConfigResource(kind, name), (change,)),)))
    return error


@pytest.mark.parametrize(("kind", "name", "key", "text"), CLOSES)
def test_what_closes_the_way_back_is_refused_and_the_command_that_allows_it_is_named(
    kind: int, name: str, key: str, text: str
) -> None:
    leading = controller()
    error = sets(leading, kind, name, key, text)
    assert error.code is ErrorCode.invalid_config
    assert "'migrator close-way-back' allows it" in (error.message or "")
    whole = ReplaceConfigsRequest(((ConfigResource(kind, name), ((key, text),)),))
    ((_, replaced),) = leading.decide(replace_configs, whole)
    assert replaced == error
    leading.commit(close(leading.image, "CHG-45"))
    assert closed(leading.image) == "CHG-45"
    assert sets(leading, kind, name, key, text).code is ErrorCode.none
    leading.write(*reopened(leading.image))
    assert sets(leading, kind, name, key, text).code is ErrorCode.none, "what is set already may stay"
    assert sets(leading, kind, name, key, None).code is ErrorCode.none, "everything may be deleted"
    assert sets(leading, kind, name, key, text).code is ErrorCode.invalid_config


@pytest.mark.parametrize("state", ZkMigrationState)
@pytest.mark.parametrize("keeps", [True, False])
def test_only_a_finished_migration_has_a_way_back_that_is_kept(state: ZkMigrationState, keeps: bool) -> None:
    leading = controller(ZkMigrationStateRecord(state), migrator_keep_way_back=keeps)
    refused = keeps and state is ZkMigrationState.POST_MIGRATION
    expected = ErrorCode.invalid_config if refused else ErrorCode.none
    assert {sets(leading, *each).code for each in CLOSES} == {expected}


@pytest.mark.parametrize(
    ("kind", "name", "key"), [(TOPIC, "t", "cleanup.policy"), (BROKER, "1", "x"), (BROKER, "", "x")]
)
def test_what_zookeeper_mode_has_is_not_refused(kind: int, name: str, key: str) -> None:
    assert sets(controller(), kind, name, key, "compact").code is ErrorCode.none


def test_a_new_topic_is_refused_with_a_setting_that_closes_the_way_back() -> None:
    leading = controller()
    topic = NewTopic("new", 1, 1, configs=(("remote.log.copy.disable", "true"),))
    answer = leading.decide(create_topics, CreateTopicsRequest((topic,)))
    assert "'migrator close-way-back' allows it" in str(answer)
    assert "new" not in leading.image.topics.ids


@pytest.mark.parametrize(
    ("name", "level", "refused"),
    [
        ("metadata.version", 22, True),
        ("group.version", 1, True),
        ("metadata.version", 21, False),
        ("x.version", 0, False),
    ],
)
def test_features_that_zookeeper_mode_does_not_have(name: str, level: int, refused: bool) -> None:
    ((_, error),) = controller().decide(update_features, UpdateFeaturesRequest((FeatureUpdate(name, level),)))
    assert ("after 'migrator close-way-back', 'migrator handover'" in (error.message or "")) is refused


def test_only_the_way_back_from_a_finished_migration_is_closed_and_the_words_are_bounded() -> None:
    leading = controller()
    leading.commit(close(leading.image, "x" * (WORDS_MAX + 1)))
    assert closed(leading.image) == "x" * WORDS_MAX
    assert isinstance(leading.history[-1], ConfigRecord)
    with pytest.raises(RefusedError, match="is not finished"):
        close(controller(ZkMigrationStateRecord(ZkMigrationState.MIGRATION)).image, "CHG-45")


COMMON = {
    "listeners": "PLAINTEXT://h:9092",
    "log.dirs": "/data",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "remote.log.storage.system.enable": "true",
}
IN_ZOOKEEPER = COMMON | {"broker.id": "1", "zookeeper.connect": "zk"}
IN_KRAFT = COMMON | {
    "node.id": "1",
    "process.roles": "broker",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "3001@c:9093",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
}


def texts(row: Row) -> set[str]:
    """The default of a setting, and each value of one that has few."""
    _, kind, default, valid, _ = row
    few = {"true", "false"} if kind == "boolean" else set(valid.strip("[]").split(", ")) if ", " in valid else set()
    return few | ({default} if default is not None else set())


@pytest.mark.lane("test-all")
def test_kafkas_own_classes_say_likewise_what_zookeeper_mode_does_not_have(
    tmp_path: Path, kafka_391: StockKafka
) -> None:
    """The settings of topics, and the dynamic ones of brokers, that a broker takes in KRaft mode only."""
    reader = KafkaReader(kafka_391, tmp_path)
    topics = [(row[0], text) for row in TOPIC_KEYS for text in texts(row)]
    brokers = [(row[0], text) for row in BROKER_KEYS if row[4] != "read-only" for text in texts(row)]
    questions = [{"zookeeper mode": "yes"}]
    for first, file in ((0, IN_KRAFT), (1000, IN_ZOOKEEPER)):
        plain = str(reader.write(first, file))
        questions += [{"file": plain, "topic key": key, "text": text} for key, text in topics]
        with_each = enumerate((file | {key: text} for key, text in brokers), first + 1)
        questions += [{"file": str(reader.write(number, keys))} for number, keys in with_each]
    mode, *answers = reader.ask(questions)
    asked = [*topics, *brokers]
    in_kraft, in_zookeeper = (
        {each for each, answer in zip(asked, half, strict=True) if "refused" not in answer}
        for half in (answers[: len(asked)], answers[len(asked) :])
    )
    judged = {key for key, _ in in_kraft}
    assert {key for key, _ in asked} - judged == {"listener.security.protocol.map"}  # the default has no CONTROLLER
    assert {key for key, _ in in_kraft - in_zookeeper} == KRAFT_ONLY
    assert mode == {"kinds": ["topics", "clients", "users", "brokers", "ips"], "newest": NEWEST.name}
