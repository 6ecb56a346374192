"""Every API in every version that we advertise: answered, refused, authorized and gated."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.apis.authorization import Unlimited
from migrator.apis.call import ApiKind, Call
from migrator.apis.registry import APIS, answer, check_access, refuse
from migrator.controller.decision import RefusedError
from migrator.controller.migration_gate import ALLOWED_BEFORE_COPY
from migrator.records.acl_codes import AclOperation, ResourceType
from migrator.records.metadata import ZkMigrationState, ZkMigrationStateRecord
from migrator.wire.schemas import CONTROLLER_APIS
from tests.apis.support.asking import VERSIONS, ask, call, read
from tests.controller.support.leading_controller import LeadingController

RETENTION = {"resource_type": 2, "resource_name": "t", "configs": ({"name": "retention.ms", "value": "1"},)}
SOME: dict[int, dict[str, Any]] = {
    19: {"topics": ({"name": "t", "num_partitions": 1, "replication_factor": 1},)},
    20: {"topics": ({"name": "t"},), "topic_names": ("t",)},
    30: {"creations": ({"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a",
                        "host": "*", "operation": 3, "permission_type": 3},)},
    31: {"filters": ({"resource_type_filter": 2, "resource_name_filter": "t", "pattern_type_filter": 3,
                      "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1},)},
    32: {"resources": ({"resource_type": 2, "resource_name": "t", "configuration_keys": None},)},
    33: {"resources": (RETENTION,)},
    37: {"topics": ({"name": "t", "count": 2, "assignments": None},)},
    43: {"topic_partitions": ({"topic": "t", "partitions": (0,)},)},
    44: {"resources": (RETENTION,)},
    45: {"topics": ({"name": "t", "partitions": ({"partition_index": 0, "replicas": (1,)},)},)},
    49: {"entries": ({"entity": ({"entity_type": "user", "entity_name": "a"},),
                      "ops": ({"key": "producer_byte_rate", "value": 1.0, "remove": False},)},)},
    51: {"deletions": ({"name": "a", "mechanism": 1},)},
    56: {"topics": ({"topic_name": "t", "partitions": ({"partition_index": 0, "new_isr": (1,)},)},)},
    57: {"feature_updates": ({"feature": "metadata.version", "max_version_level": 21},)},
}  # fmt: skip


class Nothing:
    """Access of a caller without rights."""

    def allows(self, operation: AclOperation, resource_type: ResourceType, name: str) -> bool:
        return False


def some(key: int, version: int, **fields: Any) -> Call:
    return call(key, version, **{**SOME.get(key, {}), **fields})


def codes(message: Any) -> set[ErrorCode]:
    """All error codes in a message, at any depth."""
    found = set()
    for name in message.__slots__:
        inner = getattr(message, name)
        if name == "error_code":
            found.add(inner)
        elif isinstance(inner, tuple):
            for item in inner:
                if hasattr(item, "__slots__") and hasattr(item, "__type__"):
                    found |= codes(item)
    return found


def test_the_registry_is_what_we_advertise() -> None:
    assert set(APIS) == set(CONTROLLER_APIS)


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_version_is_answered(key: int, version: int) -> None:
    controller = LeadingController()
    controller.start([1])
    controller.create("t", (1,))
    ask(controller, some(key, version))


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_every_version_can_be_refused(key: int, version: int) -> None:
    asked = some(key, version)
    response = read(asked, refuse(asked, ErrorCode.not_controller, "x"))
    assert codes(response) == {ErrorCode.not_controller}


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_nobody_without_permission_changes_anything(key: int, version: int) -> None:
    controller = LeadingController()
    controller.start([1])
    controller.create("t", (1,))
    written = controller.next_offset
    response = ask(controller, some(key, version, access=Nothing()))
    assert controller.next_offset == written
    if key not in (38, 39, 40):
        assert ErrorCode.none not in codes(response), response


@pytest.mark.parametrize("key", sorted(key for key, api in APIS.items() if api.kind is ApiKind.WRITE))
def test_before_the_copy_only_registrations_and_heartbeats_are_not_refused(key: int) -> None:
    controller = LeadingController(
        ZkMigrationStateRecord(ZkMigrationState.PRE_MIGRATION), zookeeper_metadata_migration_enable=True
    )
    asked = some(key, CONTROLLER_APIS[key].max)
    response = read(asked, answer(asked, controller.image, controller.context()).response)
    gated = APIS[key].operation not in ALLOWED_BEFORE_COPY
    assert (ErrorCode.not_controller in codes(response)) is gated


HELD = frozenset({19, 20, 30, 31, 33, 37, 38, 44, 45, 49, 51, 57})
"""Requests of a person or a tool. Not ElectLeaders, ISR changes, registrations and removals, producer ids, log
directories, renewals of tokens: an outage of ZooKeeper is none of Kafka."""


@pytest.mark.parametrize("key", sorted(key for key, api in APIS.items() if api.kind is ApiKind.WRITE))
def test_only_administrative_writes_wait_for_zookeeper(key: int) -> None:
    for version in range(CONTROLLER_APIS[key].min, CONTROLLER_APIS[key].max + 1):
        assert APIS[key].administrative(some(key, version)) is (key in HELD)


@pytest.mark.parametrize(
    ("names", "waits"),
    [
        (("__consumer_offsets",), False),
        (("__transaction_state", "__share_group_state"), False),
        (("__consumer_offsets", "t"), True),
        (("__cluster_metadata",), True),
    ],
)
def test_internal_topics_do_not_wait(names: tuple[str, ...], waits: bool) -> None:
    asked = call(19, topics=tuple({"name": name, "num_partitions": 1, "replication_factor": 1} for name in names))
    assert APIS[19].administrative(asked) is waits


@pytest.mark.parametrize(("replicas", "waits"), [((None, None), False), ((None, (1,)), True), (((), None), True)])
def test_the_end_of_a_reassignment_does_not_wait(replicas: tuple[tuple[int, ...] | None, ...], waits: bool) -> None:
    rows = tuple({"partition_index": index, "replicas": ids} for index, ids in enumerate(replicas))
    assert APIS[45].administrative(call(45, topics=({"name": "t", "partitions": rows},))) is waits


@pytest.mark.parametrize(
    ("key", "words"),
    [(49, "Cluster authorization failed."), (51, "Request is not authorized."), (57, "Request is not authorized.")],
)
def test_who_may_not_is_told_so_in_kafkas_words(key: int, words: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        check_access(call(key, CONTROLLER_APIS[key].max, access=Nothing()))
    assert refusal.value.error.message == words


@pytest.mark.parametrize("key", [1, 52, 53, 54, 55, 59, 80, 81, 82])
def test_raft_requests_are_authorized_here_and_answered_elsewhere(key: int) -> None:
    version = CONTROLLER_APIS[key].max
    check_access(call(key, version, access=Unlimited()))
    with pytest.raises(RefusedError) as refusal:
        check_access(call(key, version, access=Nothing()))
    assert refusal.value.error.code is ErrorCode.cluster_authorization_failed
    asked = call(key, version)
    assert ErrorCode.cluster_authorization_failed in codes(read(asked, refuse(asked, refusal.value.error.code)))
