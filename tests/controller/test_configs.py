"""IncrementalAlterConfigs and AlterConfigs. Cases of Kafka's ConfigurationControlManagerTest and LogConfigTest."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from migrator.controller.configs import (
    AlterConfigsRequest,
    ConfigChange,
    ConfigOperation,
    ReplaceConfigsRequest,
    alter_configs,
    replace_configs,
)
from migrator.controller.decision import MAX_RECORDS_PER_OPERATION, RefusedError
from migrator.image.model import ConfigResource
from migrator.records.metadata import ConfigRecord, ConfigResourceType
from tests.controller.support.leading_controller import LeadingController

TOPIC, BROKER, METRICS = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.CLIENT_METRICS
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


@pytest.fixture
def controller() -> LeadingController:
    controller = LeadingController()
    controller.start([1])
    controller.create("t", (1,))
    return controller


def alter(
    controller: LeadingController, kind: int, name: str, *changes: tuple[str, ConfigOperation, str | None]
) -> ErrorCode:
    resource = ConfigResource(kind, name)
    request = AlterConfigsRequest(((resource, tuple(ConfigChange(*change) for change in changes)),))
    ((_, error),) = controller.decide(alter_configs, request)
    return error.code


def configs(controller: LeadingController, kind: int, name: str) -> dict[str, str]:
    return dict(controller.image.configs.get(ConfigResource(kind, name), {}))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("retention.ms", "\xa05"),
        ("retention.ms", "\u0665"),
        ("retention.ms", "\U0001d7ce"),
        ("min.cleanable.dirty.ratio", "0.5_0"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.cleanable.dirty.ratio", "\u0660.5"),
        ("preallocate", "true\u2003"),
        ("cleanup.policy", "compact,\xa0delete"),
        ("compression.type", "gzip\xa0"),
        ("follower.replication.throttled.replicas", "\u0661:\u0662"),
    ],
)
def test_what_java_does_not_parse_is_refused(controller: LeadingController, key: str, text: str) -> None:
    """A broker with a replica of the topic would not start: ``LogConfig.fromProps`` ends in an exception."""
    assert alter(controller, TOPIC, "t", (key, SET, text)) is ErrorCode.invalid_config
    assert configs(controller, TOPIC, "t") == {}


def test_lists_change_as_in_kafka_whatever_their_length(controller: LeadingController) -> None:
    """Elements that are there are not added; one of the first goes for each that is subtracted."""
    key = "follower.replication.throttled.replicas"
    assert alter(controller, TOPIC, "t", (key, SET, "1:1,2:1,1:1")) == 0
    assert alter(controller, TOPIC, "t", (key, APPEND, "2:1,3:1,3:1,4:1")) == 0
    assert configs(controller, TOPIC, "t") == {key: "1:1,2:1,1:1,3:1,4:1"}
    assert alter(controller, TOPIC, "t", (key, SUBTRACT, "1:1,4:1,9:9")) == 0
    assert configs(controller, TOPIC, "t") == {key: "2:1,1:1,3:1"}


def test_of_several_changes_of_a_key_the_last_one_alone_is_looked_at(controller: LeadingController) -> None:
    changes = (("retention.ms", APPEND, "1"), ("retention.ms", SET, "5"))
    assert alter(controller, TOPIC, "t", *changes) == 0
    assert configs(controller, TOPIC, "t") == {"retention.ms": "5"}


def test_set_delete_append_and_subtract(controller: LeadingController) -> None:
    assert alter(controller, TOPIC, "t", ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact")) == 0
    assert configs(controller, TOPIC, "t") == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert alter(controller, TOPIC, "t", ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete,x")) == 0
    assert configs(controller, TOPIC, "t") == {"cleanup.policy": "compact"}
    assert alter(controller, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == 0
    assert configs(controller, TOPIC, "t") == {"cleanup.policy": "compact"}
    assert alter(controller, TOPIC, "t", ("cleanup.policy", SET, None)) == 0
    assert configs(controller, TOPIC, "t") == {}


def test_unchanged_values_are_recorded_for_brokers_only(controller: LeadingController) -> None:
    for kind, name, key in ((TOPIC, "t", "retention.ms"), (BROKER, "1", "log.retention.ms")):
        alter(controller, kind, name, (key, SET, "5"))
        written = controller.next_offset
        alter(controller, kind, name, (key, SET, "5"))
        assert controller.next_offset - written == (kind == BROKER)


def test_all_or_nothing_for_each_resource(controller: LeadingController) -> None:
    good, bad = ConfigResource(BROKER, ""), ConfigResource(TOPIC, "t")
    request = AlterConfigsRequest(
        (
            (bad, (ConfigChange("retention.ms", SET, "5"), ConfigChange("segment.bytes", SET, "x"))),
            (good, (ConfigChange("background.threads", SET, "5"),)),
        )
    )
    answer = controller.decide(alter_configs, request)
    results = dict(answer)
    assert (results[bad].code, results[good].code) == (ErrorCode.invalid_config, ErrorCode.none)
    assert (configs(controller, TOPIC, "t"), configs(controller, BROKER, "")) == ({}, {"background.threads": "5"})


def test_validate_only_writes_nothing(controller: LeadingController) -> None:
    written = controller.next_offset
    change = ((ConfigResource(TOPIC, "t"), (ConfigChange("retention.ms", SET, "5"),)),)
    ((_, error),) = controller.decide(alter_configs, AlterConfigsRequest(change, validate_only=True))
    assert (error.code, controller.next_offset) == (ErrorCode.none, written)


@pytest.mark.parametrize(
    ("kind", "name", "change", "expected"),
    [
        (TOPIC, "nope", ("retention.ms", SET, "5"), ErrorCode.unknown_topic_or_partition),
        (TOPIC, "!", ("retention.ms", SET, "5"), ErrorCode.invalid_topic_exception),
        (TOPIC, "t", ("nope", SET, "5"), ErrorCode.invalid_config),
        (TOPIC, "t", ("retention.ms", APPEND, "5"), ErrorCode.invalid_config),
        (TOPIC, "t", ("cleanup.policy", APPEND, None), ErrorCode.invalid_request),
        (TOPIC, "t", ("cleanup.policy", APPEND, "x"), ErrorCode.invalid_config),
        (BROKER, "9", ("background.threads", SET, "5"), ErrorCode.broker_id_not_registered),
        (BROKER, "x", ("background.threads", SET, "5"), ErrorCode.invalid_request),
        (BROKER, "-1", ("background.threads", SET, "5"), ErrorCode.invalid_request),
        (BROKER, "", ("unclean.leader.election.enable", SET, "maybe"), ErrorCode.invalid_config),
        (METRICS, "", ("metrics", SET, "*"), ErrorCode.invalid_request),
        (METRICS, "m", ("nope", SET, "*"), ErrorCode.invalid_request),
        (METRICS, "m", ("interval.ms", SET, "99"), ErrorCode.invalid_request),
        (METRICS, "m", ("match", SET, "client_id"), ErrorCode.invalid_config),
        (METRICS, "m", ("match", SET, "client_id=("), ErrorCode.invalid_config),
        (METRICS, "m", ("metrics", APPEND, "x"), ErrorCode.invalid_config),
        (ConfigResourceType.BROKER_LOGGER, "1", ("x", SET, "5"), ErrorCode.invalid_request),
        (32, "group", ("x", SET, "5"), ErrorCode.invalid_request),
    ],
)
def test_refusals(
    controller: LeadingController,
    kind: int,
    name: str,
    change: tuple[str, ConfigOperation, str | None],
    expected: ErrorCode,
) -> None:
    written = controller.next_offset
    assert alter(controller, kind, name, change) is expected
    assert controller.next_offset == written


@pytest.mark.parametrize(
    ("kind", "name", "key", "text"),
    [
        (BROKER, "3000", "background.threads", "5"),
        (BROKER, "1", "listener.name.internal.ssl.keystore.location", "/x"),
        (METRICS, "m", "interval.ms", "100"),
        (METRICS, "m", "match", "client_id=a.*,client_source_port=1"),
        (TOPIC, "t", "message.format.version", "2.8-IV1"),
        (TOPIC, "t", "message.format.version", "3.0"),
        (TOPIC, "t", "leader.replication.throttled.replicas", "0:1,1:2"),
        (TOPIC, "t", "leader.replication.throttled.replicas", "*"),
        (TOPIC, "t", "compression.gzip.level", "-1"),
        (TOPIC, "t", "retention.bytes", "-1"),
    ],
)
def test_accepted_values(controller: LeadingController, kind: int, name: str, key: str, text: str) -> None:
    assert alter(controller, kind, name, (key, SET, text)) is ErrorCode.none


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("segment.bytes", "13"),
        ("retention.ms", "-2"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("compression.type", "brotli"),
        ("compression.gzip.level", "0"),
        ("preallocate", "yes"),
        ("message.format.version", "9.9"),
        ("follower.replication.throttled.replicas", "0-1"),
        ("max.message.bytes", str(2**31)),
        ("min.compaction.lag.ms", str(2**63)),
    ],
)
def test_types_and_ranges_of_topic_configs(controller: LeadingController, key: str, text: str) -> None:
    assert alter(controller, TOPIC, "t", (key, SET, text)) is ErrorCode.invalid_config


def test_rules_across_keys(controller: LeadingController) -> None:
    lag = (("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5"))
    assert alter(controller, TOPIC, "t", *lag) is ErrorCode.invalid_config
    assert alter(controller, TOPIC, "t", ("remote.storage.enable", SET, "true")) is ErrorCode.invalid_config


def test_tiered_storage_rules() -> None:
    controller = LeadingController(explicit={"remote.log.storage.system.enable": "true"})
    controller.start([1])
    controller.create("t", (1,))
    on = ("remote.storage.enable", SET, "true")
    assert alter(controller, TOPIC, "t", on, ("cleanup.policy", SET, "compact")) is ErrorCode.invalid_config
    too_much = (("retention.bytes", SET, "5"), ("local.retention.bytes", SET, "6"))
    assert alter(controller, TOPIC, "t", on, *too_much) is ErrorCode.invalid_config
    assert alter(controller, TOPIC, "t", on, ("local.retention.ms", SET, "-1")) is ErrorCode.invalid_config
    frozen = (("remote.log.copy.disable", SET, "true"), ("local.retention.ms", SET, "5"))
    assert alter(controller, TOPIC, "t", on, *frozen) is ErrorCode.invalid_config
    assert alter(controller, TOPIC, "t", on) is ErrorCode.none
    off = ("remote.storage.enable", SET, "false")
    assert alter(controller, TOPIC, "t", off) is ErrorCode.invalid_config
    assert alter(controller, TOPIC, "t", off, ("remote.log.delete.on.disable", SET, "true")) is ErrorCode.none


def test_legacy_alter_configs_replaces_everything(controller: LeadingController) -> None:
    resource = ConfigResource(TOPIC, "t")
    alter(controller, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.bytes", SET, "100"))
    request = ReplaceConfigsRequest(((resource, (("retention.ms", "5"), ("flush.ms", "1"))),))
    assert controller.records_of(replace_configs, request) == [
        ConfigRecord(TOPIC, "t", "flush.ms", "1"),
        ConfigRecord(TOPIC, "t", "segment.bytes", None),
    ]
    controller.decide(replace_configs, request)
    assert configs(controller, TOPIC, "t") == {"retention.ms": "5", "flush.ms": "1"}
    bad = ReplaceConfigsRequest(((resource, (("nope", "5"),)),))
    ((_, error),) = controller.decide(replace_configs, bad)
    assert error.code is ErrorCode.invalid_config
    assert configs(controller, TOPIC, "t") == {"retention.ms": "5", "flush.ms": "1"}


def test_too_many_records(controller: LeadingController) -> None:
    changes = tuple(ConfigChange(f"x{n}", SET, "1") for n in range(MAX_RECORDS_PER_OPERATION + 1))
    request = AlterConfigsRequest(((ConfigResource(BROKER, ""), changes),))
    with pytest.raises(RefusedError) as refusal:
        alter_configs(controller.image, request, controller.context())
    assert refusal.value.error.code is ErrorCode.policy_violation


@pytest.mark.parametrize("expression", ["(" * 5_000 + ")" * 5_000, "a{99999999999}", "("])
def test_an_expression_that_no_engine_takes_is_refused(controller: LeadingController, expression: str) -> None:
    resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, "m")
    change = ConfigChange("match", ConfigOperation.SET, f"client_id={expression}")
    (_, error), *_ = alter_configs(
        controller.image, AlterConfigsRequest(((resource, (change,)),)), controller.context()
    ).response
    assert error.code is ErrorCode.invalid_config
    assert len(error.message or "") < 2_000


def test_an_expression_is_not_compiled(controller: LeadingController, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first would take two minutes, in which no broker's heartbeat is decided."""
    resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, "m")
    compiled: list[str] = []
    codes: list[ErrorCode] = []
    for expression in ("(?i)" + "[\u0100-\uffff]" * 6_000, "a" * 40_000):
        change = ConfigChange("match", SET, f"client_id={expression}")
        with monkeypatch.context() as patch:
            patch.setattr("re.compile", lambda text, *_: compiled.append(text))
            request = AlterConfigsRequest(((resource, (change,)),))
            ((_, error),) = alter_configs(controller.image, request, controller.context()).response
        codes.append(error.code)
    assert codes == [ErrorCode.none, ErrorCode.invalid_config]
    assert compiled == []
