"""No request, whatever it is about and however big it is, makes a turn of the event loop long: turns count calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from migrator.controller.brokers import register_broker
from migrator.controller.heartbeats import HeartbeatRequest, heartbeat
from migrator.controller.migration_gate import Operation
from migrator.node.core import NodeCore
from migrator.node.node import _listeners
from migrator.node.stop_reason import StopReason
from migrator.turns import TURN_RECORDS
from migrator.wire.client import ClientLimits, KafkaClient
from migrator.wire.encode import encode_entity
from migrator.wire.principal import ANONYMOUS
from migrator.wire.schemas import CONTROLLER_APIS, ENVELOPE, RequestHeader, build, encode_request_header, request_type
from tests.calls import CountingSelector
from tests.controller.support.leading_controller import registration
from tests.node.support.cluster import CLUSTER_ID, Cluster, running
from tests.wire.support.principals import encode_principal

TOPICS = 400
PARTITIONS = 20
ENTRIES = 8_000
A_TURN = 8 * ENTRIES + 7 * TURN_RECORDS
"""Calls: to publish one batch of records, of which a request may make so many, is one turn; nothing else is. The clock
decides how many of its last records, `TURN_RECORDS` at most, are applied in that turn, too."""
PATIENCE_SECONDS = 120.0
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "broker.session.timeout.ms": "600000",
}
ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}

REQUESTS: Mapping[str, tuple[int, dict[str, Any]]] = {
    "topics are created": (
        19,
        {
            "topics": tuple(
                {"name": f"t{n}", "num_partitions": PARTITIONS, "replication_factor": 1} for n in range(TOPICS)
            )
        },
    ),
    "access control entries are created": (
        30,
        {
            "creations": tuple(
                {
                    "resource_type": 2,
                    "resource_name": f"t{number}",
                    "resource_pattern_type": 3,
                    "principal": "User:a",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
                for number in range(ENTRIES)
            )
        },
    ),
    "access control entries are described": (29, ANY_ACL),
    "topics are created that cannot be": (19, {"topics": tuple({"name": f"{n}!"} for n in range(ENTRIES))}),
    "a topic of many partitions": (
        19,
        {"topics": ({"name": "wide", "num_partitions": ENTRIES, "replication_factor": 1},)},
    ),
    "a topic gets many partitions": (37, {"topics": ({"name": "t1", "count": ENTRIES, "assignments": None},)}),
    "configurations are described": (
        32,
        {
            "resources": tuple({"resource_type": 2, "resource_name": f"t{n}"} for n in range(TOPICS)),
            "include_synonyms": True,
        },
    ),
    "configurations are altered": (
        44,
        {
            "resources": tuple(
                {
                    "resource_type": 2,
                    "resource_name": f"t{n}",
                    "configs": tuple({"name": key, "value": "7"} for key in ("retention.ms", "flush.ms", "segment.ms")),
                }
                for n in range(TOPICS)
            )
        },
    ),
    "leaders of all partitions are elected": (43, {"topic_partitions": None}),
    "reassignments of partitions are cancelled": (
        45,
        {
            "topics": tuple(
                {
                    "name": f"t{n}",
                    "partitions": tuple({"partition_index": p, "replicas": None} for p in range(PARTITIONS)),
                }
                for n in range(TOPICS)
            )
        },
    ),
    "quotas are altered": (
        49,
        {
            "entries": tuple(
                {
                    "entity": ({"entity_type": "user", "entity_name": f"u{n}"},),
                    "ops": ({"key": "producer_byte_rate", "value": 5.0},),
                }
                for n in range(ENTRIES)
            )
        },
    ),
    "a broker reports partitions that are not there": (
        56,
        {"topics": ({"partitions": tuple({"partition_index": n} for n in range(ENTRIES))},)},
    ),
    "a broker has many features": (
        62,
        {"features": tuple({"name": f"f{n}", "max_supported_version": 1} for n in range(ENTRIES))},
    ),
    "features are updated": (57, {"feature_updates": tuple({"feature": f"f{n}"} for n in range(ENTRIES))}),
    "access control entries are deleted": (31, {"filters": (ANY_ACL,)}),
    "topics are deleted": (20, {"topics": tuple({"name": f"t{n}"} for n in range(TOPICS))}),
}

"""In this order: they build on one another."""
ALSO_FORWARDED = frozenset(("configurations are described", "topics are created that cannot be"))


async def _with_broker(cluster: Cluster) -> NodeCore:
    node = await cluster.leader()
    write = node.controller.write
    wanted = registration(1, cluster_id=CLUSTER_ID)
    registered = await write(Operation.REGISTER_BROKER, lambda image, context: register_broker(image, wanted, context))
    beat = HeartbeatRequest(1, registered.broker_epoch, 10**9, want_fence=False, want_shut_down=False)
    await write(Operation.HEARTBEAT, lambda image, context: heartbeat(image, beat, context))
    return node


async def _ask(port: int, key: int, fields: Mapping[str, Any], *, forwarded: bool) -> None:
    """Send a request from a loop of its own, and read the answer."""
    version = CONTROLLER_APIS[key].max
    request = build(request_type(key, version), **fields)
    if forwarded:
        header = encode_request_header(RequestHeader(key, version, 1, "client"))
        request = build(
            request_type(ENVELOPE, 0),
            request_data=b"".join(header + encode_entity(request)),
            request_principal=encode_principal(ANONYMOUS),
            client_host_address=bytes((127, 0, 0, 1)),
        )
    client = KafkaClient("127.0.0.1", port, "client", limits=ClientLimits(max_response_bytes=2**30))
    try:
        await client.request(request, PATIENCE_SECONDS)
    finally:
        await client.close()


async def each_answered(directory: Path, begin: Callable[[], None]) -> AsyncGenerator[str]:
    """Ask a controller each of `REQUESTS`: ``begin`` is called before each, its name is given once it is answered."""
    async with running(directory, 1, **PROPERTIES) as cluster:
        node = await _with_broker(cluster)
        (listener,) = _listeners(cluster.settings(1), CLUSTER_ID, node, StopReason())
        port = await listener.start("127.0.0.1", 0)
        try:
            for name, (key, fields) in REQUESTS.items():
                for forwarded in (False, True) if name in ALSO_FORWARDED else (False,):
                    begin()
                    ask = partial(_ask, port, key, fields, forwarded=forwarded)
                    await asyncio.to_thread(lambda: asyncio.run(ask()))  # noqa: B023 (awaited at once)
                    yield f"{name}{', forwarded' if forwarded else ''}"
        finally:
            await listener.close()
        assert listener.counters.failed == 0


async def _longest_turns(directory: Path, selector: CountingSelector) -> dict[str, int]:
    """Calls in the longest turn, by request."""
    async with aclosing(each_answered(directory, selector.count_anew)) as answered:
        return {name: selector.largest async for name in answered}


@pytest.mark.lane("test-all")
def test_no_request_makes_a_turn_long(tmp_path: Path) -> None:
    selector = CountingSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        found = runner.run(_longest_turns(tmp_path, selector))
    assert {name: calls for name, calls in found.items() if calls > A_TURN} == {}
