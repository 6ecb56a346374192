"""Every door of a controller, and every message that can come in by it: what the hostile runs knock with.

A door is named by where the message comes from; a message by its API key and version, its gRPC method, or its kind.
`tests/hostile/test_doors.py` proves the list complete against Kafka's APIs, the registry and the protos.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from migrator.apis.call import Kind
from migrator.apis.registry import APIS
from migrator.records.codec import SPEC_OF
from migrator.rpc.stubs import operator_pb2, quorum_pb2
from migrator.wire.envelope import FORWARDABLE
from migrator.wire.raft_codec import RAFT_APIS
from migrator.wire.sasl import MECHANISMS
from migrator.wire.schemas import (
    API_VERSIONS,
    CONTROLLER_APIS,
    ENVELOPE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    request_type,
    response_type,
)


class Door(Enum):
    """Where a message comes in."""

    LISTENER = "the controller listener"
    ENVELOPE = "a broker's client, in an Envelope"
    SASL = "a login on the controller listener"
    QUORUM = "gRPC of the voters"
    OPERATOR = "gRPC of the operators"
    KAFKA_ANSWER = "a voter's answer, Kafka protocol"
    QUORUM_ANSWER = "a voter's answer, gRPC"
    LEADERS_LOG = "the records that a leader sends"


class Knock(NamedTuple):
    """One sort of message. ``schema`` is kio's class, a protobuf class, or None for bytes of the door's own."""

    door: Door
    name: str
    schema: Any = None
    key: int = -1
    version: int = -1


def _versions(keys: Any) -> list[tuple[int, int]]:
    return [
        (key, version)
        for key in sorted(keys)
        for version in range(CONTROLLER_APIS[key].min, CONTROLLER_APIS[key].max + 1)
    ]


def _requests(door: Door, keys: Any) -> list[Knock]:
    return [
        Knock(door, f"API {key} version {version}", request_type(key, version), key, version)
        for key, version in _versions(keys)
    ]


def _methods(door: Door, service: Any, module: Any, *, answers: bool = False) -> list[Knock]:
    return [
        Knock(door, method.name, getattr(module, (method.output_type if answers else method.input_type).name))
        for method in service.methods
    ]


LOGIN: Final = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""Answered by the listener itself, before or in place of a login."""
_QUORUM: Final = quorum_pb2.DESCRIPTOR.services_by_name["Quorum"]
_OPERATOR: Final = operator_pb2.DESCRIPTOR.services_by_name["Operator"]

KNOCKS: Final = (
    *_requests(Door.LISTENER, set(CONTROLLER_APIS) - LOGIN),
    *_requests(Door.ENVELOPE, FORWARDABLE | {ENVELOPE}),  # an Envelope in an Envelope is one more thing to refuse
    *_requests(Door.SASL, LOGIN),
    *(Knock(Door.SASL, f"tokens of {mechanism}") for mechanism in MECHANISMS),
    *_methods(Door.QUORUM, _QUORUM, quorum_pb2),
    *_methods(Door.OPERATOR, _OPERATOR, operator_pb2),
    *(
        Knock(Door.KAFKA_ANSWER, f"API {key} version {version}", response_type(key, version), key, version)
        for key, versions in RAFT_APIS.values()
        for version in range(versions.min, versions.max + 1)
    ),
    *_methods(Door.QUORUM_ANSWER, _QUORUM, quorum_pb2, answers=True),
    *(Knock(Door.LEADERS_LOG, spec.type_name) for spec in SPEC_OF.values()),
)

BY_DOOR: Final[Mapping[Door, tuple[Knock, ...]]] = {
    door: tuple(knock for knock in KNOCKS if knock.door is door) for door in Door
}

HANDLED_BY_LISTENER: Final = frozenset(key for key, api in APIS.items() if api.kind is Kind.LISTENER)
