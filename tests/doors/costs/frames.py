"""Attack frames with their sizes, by name."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from migrator.node.access.callers import MAX_READ_WITHOUT_RIGHTS, MAX_WRITTEN_WITHOUT_RIGHTS
from migrator.wire.principal import Principal
from migrator.wire.schemas import (
    API_VERSIONS,
    ENVELOPE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    RequestHeader,
    encode_request_header,
)
from tests.doors.support.caller import request
from tests.raw_frames import sized
from tests.wire.support.principals import encode_principal

CREATE_TOPICS, CREATE_ACLS, DESCRIBE_CONFIGS, ALTER_CONFIGS = 19, 30, 32, 33
CREATE_TOKEN, INCREMENTAL, SCRAM, ALTER_PARTITION, DESCRIBE_CLUSTER = 38, 44, 51, 56, 60
MANY, MANY_WRITTEN = MAX_READ_WITHOUT_RIGHTS - 5_000, MAX_WRITTEN_WITHOUT_RIGHTS - 2_000
"""Elements that a caller without rights may send in a request that reads, or writes: see
`migrator.node.access.callers`. With them a request costs most for its size."""
TOPIC = 2
TAGGED_BYTES = 512 * 1024
"""The most that stock Kafka takes before a login (``sasl.server.max.receive.size``)."""
LOGIN_BYTES = 40_000
"""And a little less than ours does."""
SMALL_TAGGED_BYTES = 15_000


def _describe_configs(count: int) -> dict[str, Any]:
    return {"resources": tuple({"resource_type": TOPIC, "resource_name": f"{n:06}"} for n in range(count))}


def _alter(count: int, **more: Any) -> dict[str, Any]:
    change = ({"name": "retention.ms", "value": "1", **more},)
    return {
        "resources": tuple(
            {"resource_type": TOPIC, "resource_name": f"{n:06}", "configs": change} for n in range(count // 2)
        )
    }


def _create_topics(count: int) -> dict[str, Any]:
    return {
        "topics": tuple({"name": f"{n:06}", "num_partitions": 1, "replication_factor": 1} for n in range(count)),
        "validate_only": True,
    }


def _token(renewers: int, size: int) -> bytes:
    fields = {"principal_type": "User", "principal_name": "x" * size}
    return request(CREATE_TOKEN, 3, {"renewers": (fields,) * renewers})


def _acls(count: int) -> dict[str, Any]:
    rule = {"resource_type": TOPIC, "principal": "User:x", "host": "*", "operation": 3, "permission_type": 3}
    return {"creations": tuple({**rule, "resource_name": f"{n:06}"} for n in range(count))}


def _scram(count: int) -> dict[str, Any]:
    return {"deletions": tuple({"name": f"{n:06}", "mechanism": 1} for n in range(count))}


def _isr(count: int) -> dict[str, Any]:
    partition = {"partition_index": 0, "new_isr_with_epochs": ({"broker_id": 1, "broker_epoch": 1},)}
    return {"broker_id": 1, "topics": tuple({"partitions": (partition,)} for _ in range(count // 3))}


def _forwarded(inside: bytes) -> bytes:
    """A broker hands on what the known user sent."""
    principal = encode_principal(Principal("User", "app"))
    fields = {"request_data": inside[4:], "request_principal": principal, "client_host_address": bytes(4)}
    return request(ENVELOPE, 0, fields)


def _tagged(key: int, version: int, body: bytes, size: int) -> bytes:
    """A request that ends with as many empty tagged fields as have room."""
    head = b"".join(encode_request_header(RequestHeader(key, version, 1, "caller")))
    count = (size - len(head) - len(body) - 3) // 2
    number = bytes((count & 127 | 128, count >> 7 & 127 | 128, count >> 14))
    return sized(head + body + number + b"\x64\x00" * count)


def _login(size: int) -> bytes:
    return request(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}) + _tagged(SASL_AUTHENTICATE, 2, b"\x02x", size)


FRAMES: dict[str, Callable[[], bytes]] = {
    "nothing": bytes,
    "ApiVersions": lambda: request(API_VERSIONS, 3, {"client_software_name": "x", "client_software_version": "1"}),
    "DescribeCluster": lambda: request(DESCRIBE_CLUSTER, 1, {"endpoint_type": 2}),
    "a small DescribeConfigs": lambda: request(DESCRIBE_CONFIGS, 4, _describe_configs(1)),
    "a DescribeConfigs of 16 KB": lambda: request(DESCRIBE_CONFIGS, 4, _describe_configs(1_600)),
    "DescribeConfigs": lambda: request(DESCRIBE_CONFIGS, 4, _describe_configs(MANY)),
    "a DescribeConfigs of 20 MB": lambda: request(DESCRIBE_CONFIGS, 4, _describe_configs(2_000_000)),
    "AlterConfigs": lambda: request(ALTER_CONFIGS, 2, _alter(MANY_WRITTEN)),
    "IncrementalAlterConfigs": lambda: request(INCREMENTAL, 1, _alter(MANY_WRITTEN, config_operation=0)),
    "CreateTopics": lambda: request(CREATE_TOPICS, 7, _create_topics(MANY_WRITTEN)),
    "CreateAcls": lambda: request(CREATE_ACLS, 3, _acls(MANY_WRITTEN)),
    "AlterUserScramCredentials": lambda: request(SCRAM, 0, _scram(MANY_WRITTEN)),
    "AlterPartition": lambda: request(ALTER_PARTITION, 3, _isr(MANY)),
    "an Envelope": lambda: _forwarded(request(CREATE_TOPICS, 7, _create_topics(MANY_WRITTEN))),
    "a refused Envelope": lambda: _forwarded(request(DESCRIBE_CONFIGS, 4, _describe_configs(MANY))),
    "a token of 6 MB": lambda: _token(200, 30_000),
    "a token of 16 KB": lambda: _token(100, 155),
    "a small token": lambda: _token(0, 0),
    "a login of 512 KB": lambda: _login(TAGGED_BYTES),
    "a login of 40 KB": lambda: _login(LOGIN_BYTES),
    "tagged fields": lambda: _tagged(DESCRIBE_CLUSTER, 1, b"\x00\x02", TAGGED_BYTES),
    "few tagged fields": lambda: _tagged(DESCRIBE_CLUSTER, 1, b"\x00\x02", SMALL_TAGGED_BYTES),
    "a frame of 90 MB": lambda: struct.pack(">i", 90_000_000) + bytes(90_000_000),
    "a frame of 1 MB": lambda: struct.pack(">i", 1_000_000) + bytes(1_000_000),
    "a frame of 39 KB": lambda: struct.pack(">i", 39_000) + bytes(39_000),
    "GET /metrics": lambda: b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /ready": lambda: b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n",
    "a head of HTTP": lambda: b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 2_000,
}
"""By name; each is made when it is needed."""
