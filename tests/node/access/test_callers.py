"""Whose work a request is, and how many elements each caller may send."""

from __future__ import annotations

from typing import Any

import pytest
from immutables import Map
from kio.schema.errors import ErrorCode

from migrator.apis.authorization import Access, Authorizer
from migrator.controller.acl_index import AclIndex
from migrator.controller.acls import CLUSTER_NAME
from migrator.controller.decision import RefusedError
from migrator.image.model import Acl
from migrator.node.access.callers import (
    ALTER_PARTITION,
    MAX_READ_WITHOUT_RIGHTS,
    MAX_WRITTEN_WITHOUT_RIGHTS,
    ClusterCallers,
)
from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.records.uuid import Uuid
from migrator.wire.callers import MAX_REQUEST_ELEMENTS
from migrator.wire.encode import encode_entity
from migrator.wire.principal import ANONYMOUS, Principal
from migrator.wire.schemas import (
    CONTROLLER_APIS,
    ENVELOPE,
    RequestHeader,
    build,
    encode_request_header,
    request_type,
)
from migrator.wire.server import ListenerLimits
from migrator.wire.shares import Caller, Share
from tests.wire.support.principals import encode_principal

HEARTBEAT, CREATE_TOPICS, DESCRIBE_CONFIGS = 63, 19, 32
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
    return ClusterCallers(lambda principal, host: authorizer.access_of(str(principal), host))


def frame(message: Any) -> bytearray:
    header = RequestHeader(message.__api_key__, message.__version__, 1, "client")
    return bytearray(b"".join(encode_request_header(header) + encode_entity(message)))


def topics(count: int) -> Any:
    return build(request_type(CREATE_TOPICS, 7), topics=tuple({"name": f"t{i}"} for i in range(count)))


def envelope(message: Any, principal: Principal) -> Any:
    return build(
        request_type(ENVELOPE, 0),
        request_data=bytes(frame(message)),
        request_principal=encode_principal(principal),
        client_host_address=bytes((10, 0, 0, 9)),
    )


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
    work = callers().work(frame(topics(1)), principal, HOST, "connection")
    assert work is not None
    assert work.caller == caller


def test_a_forwarded_request_is_its_clients_work() -> None:
    for principal, share in ((APP, Share.OTHERS), (ADMIN, Share.OPERATORS)):
        work = callers().work(frame(envelope(topics(1), principal)), BROKER, HOST, "connection")
        assert work is not None
        assert work.caller == Caller(share, principal)


def test_nobody_without_rights_is_taken_for_the_client_that_he_names() -> None:
    work = callers().work(frame(envelope(topics(5_000), ADMIN)), APP, HOST, "connection")
    assert work is not None
    assert work.caller == Caller(Share.OTHERS, APP)


@pytest.mark.parametrize("cut", [*range(30, 120, 7)])
def test_an_envelope_that_cannot_be_opened_is_its_senders_work(cut: int) -> None:
    whole = frame(envelope(topics(1_000), APP))
    work = callers().work(whole[:cut] + bytes(20_000), BROKER, HOST, "connection")
    assert work is not None
    assert work.caller.share in (Share.BROKERS, Share.OTHERS)


def test_a_small_request_waits_for_nobody() -> None:
    assert callers().work(frame(build(request_type(HEARTBEAT, 1))), BROKER, HOST, "connection") is None
    assert callers().work(frame(envelope(build(request_type(20, 6)), APP)), BROKER, HOST, "connection") is None


def test_while_the_entries_are_not_loaded_nobody_has_rights() -> None:
    class Unknown:
        def allows(self, *_: object) -> bool:
            raise RefusedError(ErrorCode.unknown_server_error)

    unknown: Access = Unknown()
    work = ClusterCallers(lambda *_: unknown).work(frame(topics(1)), BROKER, HOST, "connection")
    assert work is not None
    assert work.caller == Caller(Share.OTHERS, BROKER)


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
    assert callers().max_elements(api_key, 100_000_000, principal, HOST) == most


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
    assert MAX_REQUEST_ELEMENTS < elements <= callers().max_elements(ALTER_PARTITION, whole, BROKER, HOST)
