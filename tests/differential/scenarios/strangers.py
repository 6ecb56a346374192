"""Clients of brokers, forwarded with their principals (API 58): without any right, and with some."""

from __future__ import annotations

import datetime as dt
from typing import Any

from migrator.wire.principal import Principal
from migrator.wire.schemas import CONTROLLER_APIS
from tests.differential.support.steps import (
    BROKER,
    DELETE,
    METRICS,
    SET,
    TOPIC,
    Step,
    acl,
    acl_filter,
    ask,
    configs,
    create,
    forwarded,
    labelled,
    placed,
    quota,
    reassign,
    replaced,
    scram,
)
from tests.wire.support.principals import encode_principal

LITERAL, PREFIXED = 3, 4
ALL, READ, WRITE, CREATE, REMOVE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS = range(2, 12)
DENY, ALLOW = 2, 3
CLUSTER = {"resource_type": 4, "resource_name": "kafka-cluster"}


def _rights(*rows: dict[str, Any]) -> tuple[Step, ...]:
    """Grant, and see that the controllers know."""
    granted = tuple(acl(**{"principal": "User:alice", "resource_pattern_type": LITERAL, **row}) for row in rows)
    return ask(30, 3, creations=granted), ask(29, 3, **acl_filter(principal_filter="User:alice"))


def _grow(*names: str, version: int = 3) -> Step:
    return ask(37, version, topics=tuple({"name": name, "count": 1, "assignments": None} for name in names))


def _delete(*names: str, version: int = 6) -> Step:
    return ask(20, version, topic_names=names, topics=tuple({"name": name} for name in names))


def _versions(key: int) -> range:
    served = CONTROLLER_APIS[key]
    return range(served.min, served.max + 1)


REQUESTS = (
    *(create({"name": "new", "assignments": placed((1,))}, version=version) for version in _versions(19)),
    *(_delete("t", "nope", version=version) for version in _versions(20)),
    Step(20, 6, lambda names: {"topics": ({"name": None, "topic_id": names.topics.get("t")},)}),
    *(ask(30, version, creations=(acl(principal="User:mallory"),)) for version in _versions(30)),
    *(ask(31, version, filters=(acl_filter(),)) for version in _versions(31)),
    *(replaced(TOPIC, "t", ("flush.ms", "1"), version=version) for version in _versions(33)),
    *(replaced(kind, "1", ("flush.ms", "1")) for kind in (BROKER, METRICS, 7)),
    *(_grow("t", "nope", version=version) for version in _versions(37)),
    *(
        ask(43, version, election_type=0, topic_partitions=({"topic": "t", "partitions": (0, 1)},))
        for version in _versions(43)
    ),
    ask(43, 2, election_type=0, topic_partitions=None),
    *(configs(TOPIC, "t", ("flush.ms", "1", SET), version=version) for version in _versions(44)),
    *(configs(kind, "1", ("flush.ms", "1", SET)) for kind in (BROKER, METRICS, 7)),
    reassign("t", (1,)),
    ask(46, 0, topics=None),
    *(quota({"user": "a"}, ("producer_byte_rate", 1.0, False), version=version) for version in _versions(49)),
    ask(51, 0, upsertions=(scram("mallory"), scram("other")), deletions=({"name": "third", "mechanism": 1},)),
    *(
        ask(55, version, topics=({"topic_name": "__cluster_metadata", "partitions": ({"partition_index": 0},)},))
        for version in _versions(55)
    ),
    *(
        ask(57, version, feature_updates=({"feature": "metadata.version", "max_version_level": 21},))
        for version in _versions(57)
    ),
    ask(64, 0, broker_id=1),
    ask(67, 0, broker_id=1, broker_epoch=1),
    ask(80, 0, cluster_id=None, voter_id=1, listeners=()),
    ask(81, 0, cluster_id=None, voter_id=1),
)

UNFORWARDABLE = (
    ask(1, 12, max_wait=dt.timedelta(0)),
    ask(18, 4, client_software_name="a", client_software_version="1"),
    ask(29, 3, **acl_filter()),
    ask(32, 4, resources=()),
    ask(41, 3, owners=None),
    ask(50, 0, users=None),
    ask(52, 1),
    ask(56, 3, broker_id=1, broker_epoch=1),
    ask(58, 0, request_data=b"", request_principal=b"", client_host_address=b""),
    ask(60, 1, endpoint_type=2),
    ask(62, 4),
    ask(63, 1),
    ask(73, 0),
    ask(82, 0),
    ask(17, 1, mechanism="PLAIN"),
)

ALICE = encode_principal(Principal("User", "alice"))


def _raw(data: bytes = b"", principal: bytes = ALICE, host: bytes = bytes((127, 0, 0, 1))) -> Step:
    return ask(58, 0, request_data=data, request_principal=principal, client_host_address=host)


BROKEN = (
    _raw(),
    _raw(b"\x00"),
    _raw(bytes.fromhex("7fff0000000000010000")),
    _raw(bytes.fromhex("001300ff000000010000")),
    _raw(bytes.fromhex("00130007000000010000")),
    _raw(bytes.fromhex("0013000700000001000000")),
    _raw(principal=b""),
    _raw(principal=b"\x00\x09\x00"),
    _raw(principal=b"\x00\x00\xff"),
    _raw(host=b""),
    _raw(host=b"\x7f\x00"),
    _raw(host=bytes(16)),
)

SOME_RIGHTS = (
    *_rights({"resource_name": "t", "operation": DESCRIBE}),
    forwarded(_delete("t", "nope")),
    forwarded(Step(20, 6, lambda names: {"topics": ({"name": None, "topic_id": names.topics.get("t")},)})),
    *_rights({"resource_name": "alice-", "resource_pattern_type": PREFIXED, "operation": CREATE}),
    forwarded(
        create({"name": "alice-1", "assignments": placed((1,))}, {"name": "bob-1", "assignments": placed((1,))})
    ),
    forwarded(create({"name": "alice-1", "assignments": placed((1,))})),
    *_rights({"resource_name": "alice-", "resource_pattern_type": PREFIXED, "operation": DESCRIBE_CONFIGS}),
    *(forwarded(create({"name": f"alice-v{v}", "assignments": placed((1,))}, version=v)) for v in range(8)),
    *_rights({"resource_name": "alice-1", "operation": ALTER}),
    forwarded(_grow("alice-1", "t")),
    *_rights({"resource_name": "alice-1", "operation": ALTER_CONFIGS}),
    forwarded(configs(TOPIC, "alice-1", ("flush.ms", "1", SET))),
    forwarded(replaced(TOPIC, "alice-1", ("flush.ms", "2"))),
    forwarded(configs(TOPIC, "t", ("flush.ms", None, DELETE))),
    forwarded(_delete("alice-1")),
    *_rights({"resource_name": "*", "operation": REMOVE}),
    labelled("a topic with configurations is deleted", forwarded(_delete("alice-1", "nope"))),
    *_rights({"resource_name": "t", "operation": REMOVE, "permission_type": DENY}),
    forwarded(_delete("t")),
    *_rights({"resource_name": "t", "operation": ALTER_CONFIGS, "host": "9.9.9.9"}),
    forwarded(configs(TOPIC, "t", ("flush.ms", "3", SET))),
    *_rights({"resource_name": "t", "operation": ALTER_CONFIGS, "principal": "User:*"}),
    forwarded(configs(TOPIC, "t", ("flush.ms", "3", SET))),
    *_rights({"resource_name": "t", "operation": ALTER_CONFIGS, "permission_type": DENY, "host": "127.0.0.1"}),
    forwarded(configs(TOPIC, "t", ("flush.ms", "4", SET))),
    *_rights({**CLUSTER, "operation": ALTER_CONFIGS}),
    forwarded(configs(BROKER, "1", ("background.threads", "3", SET))),
    forwarded(configs(METRICS, "alice", ("interval.ms", "100", SET))),
    forwarded(quota({"user": "alice"}, ("producer_byte_rate", 1.0, False))),
    forwarded(ask(51, 0, upsertions=(scram("alice"),))),
    *_rights({**CLUSTER, "operation": DESCRIBE}),
    forwarded(ask(46, 0, topics=None)),
    forwarded(
        ask(55, 2, topics=({"topic_name": "__cluster_metadata", "partitions": ({"partition_index": 0},)},))
    ),
    *_rights({**CLUSTER, "operation": ALTER}),
    forwarded(ask(51, 0, upsertions=(scram("alice"),))),
    forwarded(ask(64, 0, broker_id=99)),
    forwarded(ask(30, 3, creations=(acl(principal="User:dave"),))),
    forwarded(ask(31, 3, filters=(acl_filter(principal_filter="User:dave"),))),
    forwarded(ask(57, 1, feature_updates=({"feature": "metadata.version", "max_version_level": 21},))),
    forwarded(reassign("x", (1,))),
    forwarded(ask(43, 2, election_type=0, topic_partitions=({"topic": "x", "partitions": (0,)},))),
    *_rights({**CLUSTER, "operation": CREATE}),
    forwarded(create({"name": "bob-1", "assignments": placed((1,))})),
    *_rights({**CLUSTER, "operation": CLUSTER_ACTION}),
    Step(67, 0, lambda names: {"broker_id": 1, "broker_epoch": names.epochs[1]}, by=Principal("User", "alice")),
    *_rights({**CLUSTER, "operation": REMOVE}),
    forwarded(_delete("bob-1", "nope")),
)  # fmt: skip

STEPS = (
    *(forwarded(step, "mallory") for step in REQUESTS),
    *(forwarded(step, "ANONYMOUS") for step in UNFORWARDABLE),
    *BROKEN,
    *SOME_RIGHTS,
)
