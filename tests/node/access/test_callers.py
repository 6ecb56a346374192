"""Whose work a request is, and how many elements each caller may send."""

from __future__ import annotations

import pytest
from immutables import Map
from kio.schema.errors import ErrorCode

from migrator.apis.authorization import Access, Authorizer, Unlimited
from migrator.controller.acl_index import AclIndex
from migrator.controller.acls import CLUSTER_NAME
from migrator.controller.decision import RefusedError
from migrator.image.model import Acl
from migrator.node.access.callers import MAX_READ_WITHOUT_RIGHTS, MAX_WRITTEN_WITHOUT_RIGHTS, ClusterCallers
from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.records.uuid import Uuid
from migrator.wire.aside import INLINE_BYTES
from migrator.wire.book import Caller, Share
from migrator.wire.callers import MAX_REQUEST_ELEMENTS
from migrator.wire.encode import encode_entity
from migrator.wire.principal import ANONYMOUS, Principal
from migrator.wire.schemas import (
    ALTER_PARTITION,
    CONTROLLER_APIS,
    build,
    request_type,
)
from migrator.wire.server import ListenerLimits

HEARTBEAT, CREATE_TOPICS, DESCRIBE_CONFIGS, DESCRIBE_CLUSTER = 63, 19, 32, 60
BROKER, ADMIN, READER, APP = (Principal("User", name) for name in ("broker", "admin", "reader", "app"))
HOST = "10.0.0.1"


def entry(principal: Principal, operation: AclOperation) -> Acl:
    return Acl(
        ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL, str(principal), "*", operation, AclPermission.ALLOW
    )


def callers() -> ClusterCallers:
    rights = {BROKER: AclOperation.CLUSTER_ACTION, ADMIN: AclOperation.ALTER, READER: AclOperation.DESCRIBE}
    entries = Map({Uuid(bytes([number])): entry(*right) for number, right in enumerate(rights.items())})
    authorizer = Authorizer(AclIndex.of(entries), (), allow_if_no_acl=False)
    return ClusterCallers(lambda principal, host: authorizer.access_of(str(principal), host), lambda: 1)


@pytest.mark.parametrize(
    ("principal", "caller"),
    [
        (BROKER, Caller(Share.BROKERS, "connection")),
        (ADMIN, Caller(Share.OPERATORS, ADMIN)),
        (READER, Caller(Share.OPERATORS, READER)),
        (APP, Caller(Share.OTHERS, APP)),
        (ANONYMOUS, Caller(Share.STRANGERS, HOST)),
    ],
)
def test_whose_work_a_request_is(principal: Principal, caller: Caller) -> None:
    assert callers().caller(principal, HOST, "connection") == caller


@pytest.mark.parametrize(
    ("share", "api_key", "size", "waits"),
    [
        (Share.BROKERS, HEARTBEAT, 100, False),
        (Share.OPERATORS, DESCRIBE_CLUSTER, 100, False),
        (Share.BROKERS, HEARTBEAT, INLINE_BYTES + 1, True),
        (Share.BROKERS, CREATE_TOPICS, 100, True),
        (Share.OTHERS, DESCRIBE_CLUSTER, 100, True),
        (Share.STRANGERS, HEARTBEAT, 100, True),
    ],
)
def test_who_waits(share: Share, api_key: int, size: int, waits: bool) -> None:
    """All requests without rights wait: thousands of small ones made a turn of the event loop long."""
    assert callers().waits(share, api_key, size) is waits


def test_a_caller_has_rights_as_soon_as_the_entries_are_loaded() -> None:
    """Rights were weighed when a connection was made: a broker that connected before the entries were loaded had no
    rights until it connected again."""
    known: list[Access] = []

    class Unknown:
        def allows(self, *_: object) -> bool:
            raise RefusedError(ErrorCode.unknown_server_error)

    def access_of(principal: Principal, host: str) -> Access:
        del principal, host
        return known[-1] if known else Unknown()

    found = ClusterCallers(access_of, lambda: len(known))
    assert found.caller(BROKER, HOST, "connection") == Caller(Share.OTHERS, BROKER)
    known.append(Unlimited())
    assert found.caller(BROKER, HOST, "connection") == Caller(Share.BROKERS, "connection")


@pytest.mark.parametrize(
    ("principal", "api_key", "most"),
    [
        (ADMIN, CREATE_TOPICS, MAX_REQUEST_ELEMENTS),
        (APP, CREATE_TOPICS, MAX_WRITTEN_WITHOUT_RIGHTS),
        (APP, DESCRIBE_CONFIGS, MAX_READ_WITHOUT_RIGHTS),
        (APP, ALTER_PARTITION, MAX_WRITTEN_WITHOUT_RIGHTS),
        (ANONYMOUS, 99, MAX_READ_WITHOUT_RIGHTS),
    ],
)
def test_how_many_elements_a_caller_may_send(principal: Principal, api_key: int, most: int) -> None:
    share = callers().caller(principal, HOST, "connection").share
    assert callers().max_elements(share, api_key, 100_000_000) == most


@pytest.mark.parametrize("in_sync", [1, 2, 3, 5])
def test_whatever_a_broker_asks_in_one_alter_partition_has_few_enough_elements(in_sync: int) -> None:
    """It asks for all that waits, and for the same again when the connection breaks: a bound on elements would be for
    ever. Of 2,000,000 partitions on three brokers, 667,000 lose one of theirs at once."""
    partitions = 1_000
    row = {"new_isr_with_epochs": tuple({"broker_id": number, "broker_epoch": 1} for number in range(in_sync))}
    rows = ({"partitions": (row,) * partitions},)
    version = CONTROLLER_APIS[ALTER_PARTITION].max
    encoded = encode_entity(build(request_type(ALTER_PARTITION, version), topics=rows))
    whole = ListenerLimits().max_request_bytes
    elements = whole // sum(map(len, encoded)) * (1 + partitions * (1 + in_sync))
    assert MAX_REQUEST_ELEMENTS < elements <= callers().max_elements(Share.BROKERS, ALTER_PARTITION, whole)
