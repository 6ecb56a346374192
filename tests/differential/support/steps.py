"""The steps of a scenario: requests as data, which each side fills with its own ids.

Scenarios are lists of them. A later step may name what an earlier one has created.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from migrator.drill.cluster import CLUSTER_ID
from migrator.wire.principal import Principal
from tests.differential.support.names import Names

NODE = 3000
"""Id of both controllers."""

Fields = Callable[[Names], dict[str, Any]]


@dataclass(frozen=True)
class Step:
    """One request.

    :ivar fields: of kio's message, by the names that one side has for what the request is about.
    :ivar by: a client whose broker forwards the request in an Envelope; None to ask directly.
    :ivar host: where that client is, an IP address.
    :ivar client_id: what the client calls itself.
    :ivar label: what the table of differences calls it, and failures.
    """

    key: int
    version: int
    fields: Fields
    by: Principal | None = None
    host: str = "127.0.0.1"
    client_id: str = "differential"
    label: str = ""

    def __str__(self) -> str:
        by = f" by {self.by} from {self.host}" if self.by else ""
        return f"API {self.key} v{self.version}{by} {self.label}".strip()


@dataclass(frozen=True)
class Scenario:
    """Steps that are taken one after the other; later scenarios find what earlier ones have left."""

    name: str
    steps: tuple[Step, ...]


def ask(key: int, version: int, /, **fields: Any) -> Step:
    """A request that is the same on both sides."""
    return Step(key, version, lambda _: fields)


def labelled(label: str, step: Step) -> Step:
    """A step that the table of differences can name."""
    return replace(step, label=label)


def forwarded(step: Step, name: str = "alice", *, token: bool = False) -> Step:
    """The same request of a client of a broker."""
    return replace(step, by=Principal("User", name, token))


def each(steps: Iterable[Step], *versions: int) -> tuple[Step, ...]:
    return tuple(replace(step, version=version) for step in steps for version in versions)


def some_uuid(number: int) -> uuid.UUID:
    """An id that is not reserved and the same on both sides."""
    return uuid.UUID(int=1000 + number)


# Brokers

BROKERS = (1, 2, 3)
LISTENER = {"name": "PLAINTEXT", "host": "h", "port": 9092, "security_protocol": 0}
FEATURE = {"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 21}
CAUGHT_UP = 10**6
"""An offset that no log of a test reaches."""


def directory(broker_id: int, number: int = 0) -> uuid.UUID:
    """One of a broker's log directories."""
    return some_uuid(10_000 + 100 * broker_id + number)


def registration(broker_id: int, incarnation: int = 1, version: int = 4, **changes: Any) -> Step:
    fields = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": some_uuid(100 * broker_id + incarnation),
        "listeners": (LISTENER,),
        "features": (FEATURE,),
        "rack": None,
        "log_dirs": (directory(broker_id),),
        **changes,
    }
    return ask(62, version, **fields)


def beat(broker_id: int, version: int = 1, **changes: Any) -> Step:
    def fields(names: Names) -> dict[str, Any]:
        plain = {
            "broker_id": broker_id,
            "broker_epoch": names.epochs.get(broker_id, -7),
            "current_metadata_offset": CAUGHT_UP,
        }
        return {**plain, **changes}

    return Step(63, version, fields)


# Topics and partitions


def create(*topics: dict[str, Any], version: int = 7, **fields: Any) -> Step:
    defaults = {"num_partitions": -1, "replication_factor": -1, "assignments": (), "configs": ()}
    return ask(19, version, topics=tuple({**defaults, **topic} for topic in topics), **fields)


def placed(*replicas: tuple[int, ...]) -> tuple[dict[str, Any], ...]:
    return tuple({"partition_index": n, "broker_ids": brokers} for n, brokers in enumerate(replicas))


def isr(version: int, topic: str, members: tuple[int, ...], broker_id: int = 1, **changes: Any) -> Step:
    """AlterPartition of partition 0."""

    def fields(names: Names) -> dict[str, Any]:
        row = {
            "partition_index": 0,
            "leader_epoch": 0,
            "partition_epoch": 0,
            "new_isr": members,
            "new_isr_with_epochs": tuple({"broker_id": b, "broker_epoch": names.epochs.get(b, -7)} for b in members),
            "leader_recovery_state": 0,
            **changes,
        }
        named = {"topic_name": topic, "topic_id": names.topics.get(topic), "partitions": (row,)}
        return {"broker_id": broker_id, "broker_epoch": names.epochs[broker_id], "topics": (named,)}

    return Step(56, version, fields)


def reassign(topic: str, replicas: tuple[int, ...] | None, number: int = 0) -> Step:
    return ask(45, 0, topics=({"name": topic, "partitions": ({"partition_index": number, "replicas": replicas},)},))


# Configurations

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, METRICS = 2, 4, 16


def configs(kind: int, name: str, *rows: tuple[str, str | None, int], version: int = 1, **fields: Any) -> Step:
    changes = tuple({"name": key, "value": text, "config_operation": operation} for key, text, operation in rows)
    resource = {"resource_type": kind, "resource_name": name, "configs": changes}
    return ask(44, version, resources=(resource,), **fields)


def replaced(kind: int, name: str, *rows: tuple[str, str | None], version: int = 2, **fields: Any) -> Step:
    resource = {"resource_type": kind, "resource_name": name}
    changes = tuple({"name": key, "value": text} for key, text in rows)
    return ask(33, version, resources=({**resource, "configs": changes},), **fields)


# Security


def quota(entity: Mapping[str, str | None], *ops: tuple[str, float, bool], version: int = 1, **fields: Any) -> Step:
    parts = tuple({"entity_type": kind, "entity_name": name} for kind, name in entity.items())
    rows = tuple({"key": key, "value": number, "remove": remove} for key, number, remove in ops)
    return ask(49, version, entries=({"entity": parts, "ops": rows},), **fields)


def scram(name: str, mechanism: int = 1, iterations: int = 4096, **changes: Any) -> dict[str, Any]:
    plain = {"name": name, "mechanism": mechanism, "iterations": iterations, "salt": b"s", "salted_password": b"p"}
    return {**plain, **changes}


def acl(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
        **changes,
    }


def acl_filter(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **changes,
    }
