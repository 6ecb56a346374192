"""Every door of a controller, and every message that can come in by it: what the hostile runs knock with.

A door is named by where the message comes from; a message by its API key and version, its gRPC method, or its kind.
`tests/hostile/test_doors.py` proves the list complete against Kafka's APIs, the registry and the protos.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from enum import Enum
from random import Random
from typing import Any, Final, NamedTuple

from migrator.apis.call import ApiKind
from migrator.apis.registry import APIS
from migrator.records.codec import SPEC_OF
from migrator.rpc.stubs import operator_pb2, quorum_pb2, voters_pb2
from migrator.wire.envelope import FORWARDABLE
from migrator.wire.legacy.messages import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
)
from migrator.wire.raft_codec import RAFT_APIS
from migrator.wire.sasl import MECHANISMS
from migrator.wire.schemas import (
    API_VERSIONS,
    ENVELOPE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SERVED_APIS,
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
    VOTERS = "gRPC of the operators, about the voters"
    KAFKA_ANSWER = "a voter's answer, Kafka protocol"
    QUORUM_ANSWER = "a voter's answer, gRPC"
    LEADERS_LOG = "the records that a leader sends"
    SOCKET = "gRPC of the operators, on the Unix socket"
    METRICS = "HTTP of the metrics"
    ZNODES = "what ZooKeeper holds"
    ZOOKEEPER_ANSWER = "a ZooKeeper server's answer"
    BROKER_ANSWER = "a broker's answer to what it is told"


class Knock(NamedTuple):
    """One sort of message. ``schema`` is kio's class, a protobuf class, or None for bytes of the door's own."""

    door: Door
    name: str
    schema: Any = None
    key: int = -1
    version: int = -1


def _versions(keys: Any) -> list[tuple[int, int]]:
    return [(key, version) for key in sorted(keys) for version in range(SERVED_APIS[key].min, SERVED_APIS[key].max + 1)]


def _requests(door: Door, keys: Any) -> list[Knock]:
    return [
        Knock(door, f"API {key} version {version}", request_type(key, version), key, version)
        for key, version in _versions(keys)
    ]


HTTP_PARTS: Final = ("method", "path", "version", "accept", "authorization", "headers", "body")
"""Of a request for metrics, the one that is hostile."""
ZNODES: Final = (
    "topic",
    "partition state",
    "topic config",
    "broker config",
    "client config",
    "access control list",
    "delegation token",
    "producer ids",
    "broker registration",
    "cluster id",
    "controller",
    "controller epoch",
    "migration",
    "names of children",
)
ZOOKEEPER_ANSWERS: Final = ("MultiRead of data", "MultiRead of children", "Read of data", "Read of children", "Multi")


def _methods(door: Door, service: Any, module: Any, *, answers: bool = False) -> list[Knock]:
    return [
        Knock(door, method.name, getattr(module, (method.output_type if answers else method.input_type).name))
        for method in service.methods
    ]


LOGIN: Final = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""Answered by the listener itself, before or in place of a login."""
_QUORUM: Final = quorum_pb2.DESCRIPTOR.services_by_name["Quorum"]
_OPERATOR: Final = operator_pb2.DESCRIPTOR.services_by_name["Operator"]
_VOTERS: Final = voters_pb2.DESCRIPTOR.services_by_name["Voters"]

KNOCKS: Final = (
    *_requests(Door.LISTENER, set(SERVED_APIS) - LOGIN),
    *_requests(Door.ENVELOPE, FORWARDABLE | {ENVELOPE}),  # an Envelope in an Envelope is one more thing to refuse
    *_requests(Door.SASL, LOGIN),
    *(Knock(Door.SASL, f"tokens of {mechanism}") for mechanism in MECHANISMS),
    *_methods(Door.QUORUM, _QUORUM, quorum_pb2),
    *_methods(Door.OPERATOR, _OPERATOR, operator_pb2),
    *_methods(Door.VOTERS, _VOTERS, voters_pb2),
    *(
        Knock(Door.KAFKA_ANSWER, f"API {key} version {version}", response_type(key, version), key, version)
        for key, versions in RAFT_APIS.values()
        for version in range(versions.min, versions.max + 1)
    ),
    *(
        knock
        for knock in _methods(Door.QUORUM_ANSWER, _QUORUM, quorum_pb2, answers=True)
        if knock.name in {request.__name__.removesuffix("Request") for request in RAFT_APIS}
    ),
    *(Knock(Door.LEADERS_LOG, spec.type_name) for spec in SPEC_OF.values()),
    *_methods(Door.SOCKET, _OPERATOR, operator_pb2),
    *_methods(Door.SOCKET, _VOTERS, voters_pb2),
    *_methods(Door.SOCKET, _QUORUM, quorum_pb2),
    *(Knock(Door.METRICS, part) for part in HTTP_PARTS),
    *(Knock(Door.ZNODES, znode) for znode in ZNODES),
    *(Knock(Door.ZOOKEEPER_ANSWER, answer) for answer in ZOOKEEPER_ANSWERS),
    *(
        Knock(Door.BROKER_ANSWER, request.__name__, response_type(*api), *api)
        for request, api in (
            (LeaderAndIsr, LEADER_AND_ISR),
            (StopReplica, STOP_REPLICA),
            (UpdateMetadata, UPDATE_METADATA),
        )
    ),
)

BY_DOOR: Final[Mapping[Door, tuple[Knock, ...]]] = {
    door: tuple(knock for knock in KNOCKS if knock.door is door) for door in Door
}


def rounds(weights: Mapping[Door, int], only: Container[int] = range(-1, 2**15)) -> tuple[Knock, ...]:
    """A round of knocks, shuffled always alike: so many times each one of a door, so that one round leaves none out.

    :param only: API keys; knocks without one are taken.
    """
    found = [knock for door, times in weights.items() for knock in BY_DOOR[door] * times if knock.key in only]
    Random("a round").shuffle(found)
    return tuple(found)


HANDLED_BY_LISTENER: Final = frozenset(key for key, api in APIS.items() if api.kind is ApiKind.LISTENER)
