"""What both controllers are asked, in order: API key, version, and the request's fields as one side says them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from migrator.apis.fields import uuid_out
from tests.apis.differential_sides import NODE, Side
from tests.controller.world import CLUSTER_ID, some_uuid

BROKERS = (1, 2, 3)
LISTENER = {"name": "PLAINTEXT", "host": "h", "port": 9092, "security_protocol": 0}
FEATURE = {"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 21}

Fields = Callable[[Side], dict[str, Any]]
Step = tuple[int, int, Fields]


def _fixed(key: int, version: int, **fields: Any) -> Step:
    return key, version, lambda _: fields


def _registration(broker_id: int, incarnation: int = 1, version: int = 4, **changes: Any) -> Step:
    fields = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": uuid_out(some_uuid(100 * broker_id + incarnation)),
        "listeners": (LISTENER,),
        "features": (FEATURE,),
        "rack": None,
        "log_dirs": (uuid_out(some_uuid(10_000 + broker_id)),),
    }
    return _fixed(62, version, **{**fields, **changes})


def _beat(broker_id: int, **changes: Any) -> Step:
    def fields(side: Side) -> dict[str, Any]:
        plain = {
            "broker_id": broker_id,
            "broker_epoch": side.epochs.get(broker_id, -7),
            "current_metadata_offset": 10**6,
        }
        return {**plain, **changes}

    return 63, 1, fields


def _create(*topics: dict[str, Any], version: int = 7, **fields: Any) -> Step:
    defaults = {"num_partitions": -1, "replication_factor": -1, "assignments": (), "configs": ()}
    return _fixed(19, version, topics=tuple({**defaults, **topic} for topic in topics), **fields)


def _placed(*replicas: tuple[int, ...]) -> tuple[dict[str, Any], ...]:
    return tuple({"partition_index": n, "broker_ids": brokers} for n, brokers in enumerate(replicas))


def _isr(version: int, topic: str, isr: tuple[int, ...], broker_id: int = 1, **changes: Any) -> Step:
    def fields(side: Side) -> dict[str, Any]:
        row = {
            "partition_index": 0,
            "leader_epoch": 0,
            "partition_epoch": 0,
            "new_isr": isr,
            "new_isr_with_epochs": tuple({"broker_id": b, "broker_epoch": side.epochs.get(b, -7)} for b in isr),
            "leader_recovery_state": 0,
            **changes,
        }
        named = {"topic_name": topic, "topic_id": side.topics.get(topic), "partitions": (row,)}
        return {"broker_id": broker_id, "broker_epoch": side.epochs[broker_id], "topics": (named,)}

    return 56, version, fields


def _configs(kind: int, name: str, *configs: tuple[str, str | None, int]) -> Step:
    rows = tuple({"name": key, "value": text, "config_operation": operation} for key, text, operation in configs)
    return _fixed(44, 1, resources=({"resource_type": kind, "resource_name": name, "configs": rows},))


def _reassign(topic: str, replicas: tuple[int, ...] | None, number: int = 0) -> Step:
    return _fixed(45, 0, topics=({"name": topic, "partitions": ({"partition_index": number, "replicas": replicas},)},))


def _quota(entity: dict[str, str | None], *ops: tuple[str, float, bool]) -> Step:
    parts = tuple({"entity_type": kind, "entity_name": name} for kind, name in entity.items())
    rows = tuple({"key": key, "value": number, "remove": remove} for key, number, remove in ops)
    return _fixed(49, 1, entries=({"entity": parts, "ops": rows},))


def _scram(name: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": b"s", "salted_password": b"p"}


SET, DELETE, APPEND, SUBTRACT = range(4)
T, B, M = 2, 4, 16

CONFIG_ROW = {
    "resource_type": T,
    "resource_name": "t",
    "configs": ({"name": "flush.ms", "value": "9"},),
    "configuration_keys": ("flush.ms",),
}
ACL_ROW = {
    "resource_type": 2,
    "resource_name": "t",
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}

STEPS: tuple[Step, ...] = (
    _registration(1, cluster_id="other"),
    _registration(1, log_dirs=()),
    _registration(1, log_dirs=(uuid_out(some_uuid(1)), uuid_out(some_uuid(1)))),
    _registration(1, features=({**FEATURE, "max_supported_version": 20},)),
    _registration(1, features=()),
    _registration(1, is_migrating_zk_broker=True),
    _beat(1),
    *(_registration(broker_id) for broker_id in BROKERS),
    _registration(1),
    _registration(3, log_dirs=(uuid_out(some_uuid(10_001)),)),
    _beat(1, want_fence=True),
    _beat(1, current_metadata_offset=-1),
    _beat(1, broker_epoch=99),
    _create({"name": "early", "assignments": _placed((1, 2))}),
    *(_beat(broker_id) for broker_id in BROKERS),
    _registration(1, incarnation=2),
    # Topics
    _create(
        {
            "name": "t",
            "assignments": _placed((1, 2, 3), (2, 3, 1)),
            "configs": ({"name": "retention.ms", "value": "5"},),
        }
    ),
    _create({"name": "u", "assignments": _placed((1, 2))}),
    _create({"name": "a.b", "assignments": _placed((1,))}),
    _create({"name": "a_b", "num_partitions": 1, "replication_factor": 1}),
    _create({"name": "t"}, {"name": ""}, {"name": ".."}, {"name": "a b"}, {"name": "x" * 250}),
    _create(
        {"name": "c", "replication_factor": 0},
        {"name": "d", "replication_factor": 9},
        {"name": "e", "num_partitions": 0},
    ),
    _create({"name": "c", "assignments": _placed((1,)), "num_partitions": 1}),
    _create({"name": "c", "assignments": _placed((1, 1))}, {"name": "d", "assignments": _placed((9,))}),
    _create({"name": "c", "assignments": _placed((1, 2), (1,))}, {"name": "d", "assignments": _placed(())}),
    _create({"name": "c", "assignments": ({"partition_index": 1, "broker_ids": (1,)},)}),
    _create({"name": "c", "configs": ({"name": "nope", "value": "1"},), "assignments": _placed((1,))}),
    _create({"name": "c", "configs": ({"name": "retention.ms", "value": None},), "assignments": _placed((1,))}),
    _create({"name": "c", "configs": ({"name": "segment.bytes", "value": "1"},), "assignments": _placed((1,))}),
    _create({"name": "c", "assignments": _placed((1,))}, {"name": "c", "assignments": _placed((1,))}),
    _create({"name": "__cluster_metadata", "assignments": _placed((1,))}),
    _create({"name": "v", "num_partitions": 1, "replication_factor": 10_000}),
    *(_create({"name": f"v{v}", "assignments": _placed((1, 2))}, version=v) for v in range(8)),
    _fixed(37, 3, topics=({"name": "u", "count": 2, "assignments": ({"broker_ids": (2, 3)},)},)),
    *(
        _fixed(37, 3, topics=({"name": name, "count": count, "assignments": rows},))
        for name, count, rows in (
            ("u", 2, None),
            ("u", 1, None),
            ("nope", 3, None),
            ("u", 3, ()),
            ("u", 3, ({"broker_ids": (1,)},)),
            ("u", 3, ({"broker_ids": (1, 9)},)),
            ("u", 0, None),
        )
    ),
    # ISR
    *(_isr(v, "nope", (1,)) for v in range(4)),
    *(_isr(v, "t", (1, 2), leader_epoch=1) for v in range(4)),
    *(_isr(v, "t", (1, 2), partition_epoch=1) for v in range(4)),
    *(_isr(v, "t", (1, 2), leader_epoch=-1) for v in range(4)),
    *(_isr(v, "t", (1, 2), partition_epoch=-1) for v in range(4)),
    *(_isr(v, "t", (1, 2), broker_id=2) for v in range(4)),
    *(_isr(v, "t", (1, 1)) for v in range(4)),
    *(_isr(v, "t", (2, 3)) for v in range(4)),
    *(_isr(v, "t", (1, 9)) for v in range(4)),
    _isr(3, "t", (1, 2), leader_recovery_state=1),
    _isr(3, "t", (1,), leader_recovery_state=1),
    _isr(3, "t", (1, 2), partition_index=7),
    _isr(
        3, "t", (1, 2), new_isr_with_epochs=({"broker_id": 1, "broker_epoch": 1}, {"broker_id": 2, "broker_epoch": 1})
    ),
    *(_isr(v, f"v{v}", (1,)) for v in range(4)),
    _isr(3, "t", (1, 2)),
    _isr(3, "t", (1, 2, 3), partition_epoch=1),
    (56, 3, lambda _: {"broker_id": 1, "broker_epoch": 99, "topics": ({"topic_id": None, "partitions": ()},)}),
    # Elections and reassignments
    _fixed(
        43,
        2,
        election_type=0,
        topic_partitions=({"topic": "t", "partitions": (0, 1, 7)}, {"topic": "x", "partitions": (0,)}),
    ),
    _fixed(43, 2, election_type=1, topic_partitions=({"topic": "t", "partitions": (0,)},)),
    _fixed(43, 2, election_type=7, topic_partitions=({"topic": "t", "partitions": (0,)},)),
    _beat(1, want_fence=True),
    _fixed(43, 2, election_type=0, topic_partitions=({"topic": "t", "partitions": (0, 1)},)),
    _fixed(43, 2, election_type=1, topic_partitions=({"topic": "a.b", "partitions": (0,)},)),
    _fixed(43, 2, election_type=1, topic_partitions=None),
    _isr(3, "t", (2, 1), broker_id=2, leader_epoch=1, partition_epoch=3),
    _beat(1),
    _reassign("u", None),
    _reassign("u", (3, 2)),
    _fixed(46, 0, topics=None),
    _fixed(46, 0, topics=({"name": "u", "partition_indexes": (0, 1)}, {"name": "x", "partition_indexes": (0,)})),
    _reassign("u", None),
    _reassign("u", (1, 1)),
    _reassign("u", ()),
    _reassign("u", (9,)),
    _reassign("u", (1,), 9),
    _reassign("x", (1,)),
    _reassign("t", (2,), 1),
    # Configurations
    _configs(T, "t", ("retention.ms", "7", SET), ("cleanup.policy", "compact", APPEND)),
    _configs(T, "t", ("cleanup.policy", "delete", SUBTRACT), ("retention.ms", None, DELETE)),
    _configs(T, "t", ("cleanup.policy", "compact", APPEND)),
    _configs(T, "t", ("retention.ms", "7", APPEND)),
    _configs(T, "t", ("nope", "7", SET)),
    _configs(T, "t", ("min.insync.replicas", "0", SET)),
    _configs(T, "t", ("min.compaction.lag.ms", "9", SET), ("max.compaction.lag.ms", "5", SET)),
    _configs(T, "t", ("remote.storage.enable", "true", SET)),
    _configs(T, "t", ("leader.replication.throttled.replicas", "0:1,1:2", SET)),
    _configs(T, "t", ("leader.replication.throttled.replicas", "x", SET)),
    _configs(T, "t", ("compression.type", "brotli", SET)),
    _configs(T, "t", ("compression.gzip.level", "0", SET)),
    _configs(T, "t", ("message.format.version", "9.9", SET)),
    _configs(T, "t", ("message.format.version", "2.8-IV1", SET)),
    _configs(T, "t", ("max.message.bytes", "99999999999", SET)),
    _configs(T, "t", ("preallocate", "TRUE", SET)),
    _configs(T, "t", ("flush.ms", " 5 ", SET)),
    _configs(T, "x", ("retention.ms", "7", SET)),
    _configs(T, "!", ("retention.ms", "7", SET)),
    _configs(B, "", ("background.threads", "7", SET)),
    _configs(B, "", ("background.threads", "7", SET)),
    _configs(B, "1", ("background.threads", "7", SET)),
    _configs(B, "1", ("log.cleanup.policy", "compact", APPEND)),
    _configs(B, "9", ("background.threads", "7", SET)),
    _configs(B, str(NODE), ("background.threads", "7", SET)),
    _configs(B, "x", ("background.threads", "7", SET)),
    _configs(B, "-1", ("background.threads", "7", SET)),
    _configs(M, "m", ("interval.ms", "100", SET), ("match", "client_id=a.*", SET)),
    _configs(M, "m", ("interval.ms", "99", SET)),
    _configs(M, "m", ("match", "client_id", SET)),
    _configs(M, "m", ("nope", "1", SET)),
    _configs(M, "", ("interval.ms", "100", SET)),
    _configs(3, "x", ("y", "1", SET)),
    _fixed(
        33, 2, resources=({"resource_type": T, "resource_name": "u", "configs": ({"name": "flush.ms", "value": "5"},)},)
    ),
    _fixed(
        33, 2, resources=({"resource_type": T, "resource_name": "u", "configs": ({"name": "flush.ms", "value": "x"},)},)
    ),
    _fixed(
        33,
        2,
        resources=({"resource_type": T, "resource_name": "u", "configs": ({"name": "retention.ms", "value": "5"},)},),
    ),
    *(
        _fixed(
            32,
            4,
            include_synonyms=True,
            resources=({"resource_type": kind, "resource_name": name, "configuration_keys": None},),
        )
        for kind, name in ((T, "t"), (T, "x"), (T, "!"), (B, ""), (B, "1"), (M, "m"), (M, ""))
    ),
    # Quotas, SCRAM, producer ids, features
    _quota({"user": "a"}, ("producer_byte_rate", 5.0, False), ("request_percentage", 0.5, False)),
    _quota({"user": "a", "client-id": None}, ("producer_byte_rate", 5.0, False)),
    _quota({"ip": "1.2.3.4"}, ("connection_creation_rate", 5.0, False)),
    _quota({"ip": "1.2.3.4"}, ("producer_byte_rate", 5.0, False)),
    _quota({"ip": "1.2.3.4", "user": "a"}, ("producer_byte_rate", 5.0, False)),
    _quota({"user": ""}, ("producer_byte_rate", 5.0, False)),
    _quota({"group": "g"}, ("producer_byte_rate", 5.0, False)),
    _quota({}, ("producer_byte_rate", 5.0, False)),
    _quota({"user": "a"}, ("producer_byte_rate", 0.0, False)),
    _quota({"user": "a"}, ("producer_byte_rate", 1.5, False)),
    _quota({"user": "a"}, ("nope", 1.0, False)),
    _quota({"user": "a"}, ("producer_byte_rate", 0.0, True), ("consumer_byte_rate", 0.0, True)),
    _fixed(
        51,
        0,
        upsertions=(
            _scram("a"),
            _scram("b", 2),
            _scram("", 1),
            _scram("c", 3),
            _scram("d", 1, 1),
            _scram("e", 1, 99999),
        ),
    ),
    _fixed(
        51,
        0,
        deletions=({"name": "a", "mechanism": 1}, {"name": "z", "mechanism": 1}),
        upsertions=(_scram("b"), _scram("b", 2)),
    ),
    (67, 0, lambda side: {"broker_id": 1, "broker_epoch": side.epochs[1]}),
    (67, 0, lambda side: {"broker_id": 2, "broker_epoch": side.epochs[2]}),
    (67, 0, lambda _: {"broker_id": 1, "broker_epoch": 99}),
    *(
        _fixed(57, 1, feature_updates=({"feature": name, "max_version_level": level, "upgrade_type": kind},))
        for name, level, kind in (
            ("metadata.version", 22, 1),
            ("metadata.version", 20, 1),
            ("metadata.version", 22, 2),
            ("metadata.version", 16, 2),
            ("metadata.version", 16, 3),
            ("metadata.version", -1, 1),
            ("metadata.version", 20, 0),
            ("nope", 1, 1),
            ("metadata.version", 21, 1),
        )
    ),
    _fixed(
        30,
        3,
        creations=(
            {
                "resource_type": 2,
                "resource_name": "t",
                "resource_pattern_type": 3,
                "principal": "User:a",
                "host": "*",
                "operation": 3,
                "permission_type": 3,
            },
        ),
    ),
    # Directories
    (
        73,
        0,
        lambda side: {
            "broker_id": 1,
            "broker_epoch": side.epochs[1],
            "directories": (
                {
                    "id_": uuid_out(some_uuid(10_001)),
                    "topics": (
                        {"topic_id": side.topics["t"], "partitions": ({"partition_index": 0}, {"partition_index": 9})},
                    ),
                },
                {
                    "id_": uuid_out(some_uuid(77)),
                    "topics": (
                        {"topic_id": side.topics["v7"], "partitions": ({"partition_index": 0},)},
                        {"topic_id": uuid_out(some_uuid(78)), "partitions": ({"partition_index": 0},)},
                    ),
                },
            ),
        },
    ),
    (73, 0, lambda _: {"broker_id": 1, "broker_epoch": 99, "directories": ()}),
    # The end of brokers and topics
    _beat(2, want_shut_down=True),
    _beat(1),  # stock forgets the offsets that brokers reported when their registrations change
    _beat(3),
    _beat(2, want_shut_down=True),
    _beat(3, offline_log_dirs=(uuid_out(some_uuid(10_003)),)),
    _fixed(64, 0, broker_id=9),
    _fixed(64, 0, broker_id=2),
    *(_fixed(20, v, topic_names=(f"v{v}", "x"), topics=({"name": f"v{v}"}, {"name": "x"})) for v in range(7)),
    (
        20,
        6,
        lambda side: {
            "topics": (
                {"name": None, "topic_id": side.topics["u"]},
                {"name": "u"},
                {"name": None, "topic_id": None},
                {"name": "t", "topic_id": side.topics["t"]},
                {"name": None, "topic_id": uuid_out(some_uuid(5))},
                {"name": "a.b"},
                {"name": "a.b"},
            )
        },
    ),
    # Every other version, of what remains
    *(_fixed(43, v, election_type=0, topic_partitions=({"topic": "t", "partitions": (0, 9)},)) for v in range(2)),
    *(_fixed(44, v, resources=(CONFIG_ROW, CONFIG_ROW)) for v in range(2)),
    *(_fixed(33, v, resources=(CONFIG_ROW,)) for v in range(3)),
    *(_fixed(33, v, resources=(CONFIG_ROW, CONFIG_ROW)) for v in range(3)),
    *(_fixed(32, v, resources=(CONFIG_ROW,)) for v in range(4)),
    *(_fixed(37, v, topics=({"name": "x", "count": 2, "assignments": None},)) for v in range(3)),
    *(_fixed(49, v, entries=()) for v in range(2)),
    *(_fixed(57, v, feature_updates=({"feature": "x", "max_version_level": 1},)) for v in range(2)),
    *(_registration(3, version=v) for v in range(5)),
    *(_registration(8, version=v) for v in range(5)),
    *(_fixed(63, v, broker_id=8, broker_epoch=1) for v in range(2)),
    *(_fixed(29, v, resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1) for v in range(4)),
    *(_fixed(30, v, creations=({**ACL_ROW, "resource_pattern_type": 3},)) for v in range(4)),
    *(
        _fixed(
            31,
            v,
            filters=({"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3},),
        )
        for v in range(4)
    ),
    *(_fixed(38, v, owner_principal_type=None, owner_principal_name=None) for v in range(4)),
    *(_fixed(key, v, hmac=b"x") for key in (39, 40) for v in range(3)),
    *(_fixed(60, v, endpoint_type=kind) for v in range(2) for kind in (1, 3)),
    *(_fixed(41, v, owners=None) for v in range(4)),
)
