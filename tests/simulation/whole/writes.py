"""What an administrator writes, and what the log has to hold once an answer has said that it is written.

A claim is what one answer says of one change, and what one record proves: kind, name, and a value that no other write
has. So a claim that no record proves is a loss, and a record that proves what was only validated is a change too many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from migrator.controller.rollout_lock import KEY as LOCK
from migrator.controller.rollout_lock import lock_text
from migrator.image.model import MetadataImage
from migrator.records import metadata as m
from migrator.wire.schemas import build, request_type

Claim = tuple[Hashable, ...]
Claims = Callable[[Any], Iterable[Claim]]
KEY = "consumer_byte_rate"
TIMEOUT = timedelta(seconds=5)
BIG = 1_010
"""Records of one request that is decided and encoded beside the loop."""
NAMES = 40
ITERATIONS_MIN = 4_096
TOPIC, BROKER, SET, LITERAL, READ, ALLOW = 2, 4, 0, 3, 3, 3
"""Numbers of Kafka's protocol."""


@dataclass(frozen=True)
class Write:
    """A request, and what its answer claims of those parts that are granted."""

    request: Any
    claims: Claims = lambda _response: ()
    only_validates: bool = False


@dataclass
class KnownTopic:
    """As the answers tell."""

    topic_id: UUID
    partitions: int


@dataclass
class Known:
    """What was acknowledged, and may be changed now."""

    topics: dict[str, KnownTopic] = field(default_factory=dict)
    principals: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)


PROOFS: Mapping[type[m.MetadataRecord], Callable[[Any, MetadataImage], Claim]] = {
    m.ClientQuotaRecord: lambda it, _: ("quota", it.entity[0].entity_name, int(it.value)),
    m.TopicRecord: lambda it, _: ("topic", it.name),
    m.PartitionRecord: lambda it, _: ("partition", it.topic_id, it.partition_id),
    m.RemoveTopicRecord: lambda it, _: ("topic removed", it.topic_id),
    m.ConfigRecord: lambda it, before: (
        ("lock", lock_text(before), it.value or "")
        if it.name == LOCK
        else ("config", it.resource_type, it.resource_name, it.name, it.value)
    ),
    m.AccessControlEntryRecord: lambda it, _: ("acl", it.principal),
    m.RemoveAccessControlEntryRecord: lambda it, before: ("acl removed", before.acls[it.id].principal),
    m.UserScramCredentialRecord: lambda it, _: ("scram", it.name, it.iterations),
    m.RemoveUserScramCredentialRecord: lambda it, _: ("scram removed", it.name),
    m.FeatureLevelRecord: lambda it, _: ("feature", it.name, it.feature_level),
    m.RegisterBrokerRecord: lambda it, _: ("broker", it.broker_id, it.broker_epoch),
    m.ProducerIdsRecord: lambda it, _: ("producer ids", it.broker_id, it.next_producer_id),
}
"""What a committed record proves, with the image in front of its batch."""


def parts_of(response: Any) -> Iterator[Any]:
    """The answer as a whole, and each part that has an error code of its own."""
    parts = [response]
    for name in ("entries", "topics", "responses", "results", "filter_results"):
        parts += getattr(response, name, None) or ()
    return (part for part in parts if hasattr(part, "error_code"))


def granted(response: Any) -> list[Any]:
    """Those parts that are granted; none of an answer that is refused as a whole."""
    parts = list(parts_of(response))
    if getattr(response, "error_code", ErrorCode.none) != ErrorCode.none:
        return []
    return [part for part in parts if part is not response and part.error_code == ErrorCode.none]


class Writes:
    """The administrator's next change, which a seed chooses."""

    def __init__(self, random: Random, *, other_share: float, big_share: float, big_groups: int) -> None:
        self._random = random
        self._other_share = other_share
        self._big_share = big_share
        self._big_groups = big_groups
        self._known = Known()
        self._number = 0
        self._kinds = (
            self._create_topic,
            self._create_topic,
            self._add_partitions,
            self._delete_topic,
            self._move_partition,
            self._set_config,
            self._set_config,
            self._create_acl,
            self._delete_acls,
            self._set_credential,
            self._delete_credential,
        )

    def next(self) -> Write:
        """One more; some only ask what would happen."""
        self._number += 1
        if self._random.random() >= self._other_share:
            return self._set_quotas()
        return self._random.choice(self._kinds)() or self._set_quotas()

    def _validates(self) -> bool:
        return self._random.random() < 0.1

    def _set_quotas(self) -> Write:
        number, random = self._number, self._random
        names = [str(random.randrange(NAMES))]
        if random.random() < self._big_share:
            first = NAMES + BIG * random.randrange(self._big_groups)
            names = [str(name) for name in range(first, first + BIG)]
        entries = tuple(
            {
                "entity": ({"entity_type": "user", "entity_name": name},),
                "ops": ({"key": KEY, "value": float(number), "remove": False},),
            }
            for name in names
        )
        return Write(
            build(request_type(49, 1), entries=entries, validate_only=False),
            lambda response: [("quota", part.entity[0].entity_name, number) for part in granted(response)],
        )

    def _create_topic(self) -> Write:
        name, partitions, validates = f"topic-{self._number}", self._random.randint(1, 4), self._validates()
        topic = {"name": name, "num_partitions": partitions, "replication_factor": self._random.choice((-1, 3))}

        def claims(response: Any) -> Iterator[Claim]:
            for part in granted(response):
                yield "topic", name
                if not validates:
                    self._known.topics[name] = KnownTopic(part.topic_id, partitions)
                    yield "partition", part.topic_id.bytes, partitions - 1

        request = build(request_type(19, 7), topics=(topic,), timeout=TIMEOUT, validate_only=validates)
        return Write(request, claims, validates)

    def _add_partitions(self) -> Write | None:
        if not self._known.topics:
            return None
        name = self._random.choice(list(self._known.topics))
        topic, validates = self._known.topics[name], self._validates()
        count = topic.partitions + 1

        def claims(response: Any) -> Iterator[Claim]:
            for _ in granted(response) if not validates else ():  # another request may write what this one asks for
                topic.partitions = max(topic.partitions, count)
                yield "partition", topic.topic_id.bytes, count - 1

        wanted = {"name": name, "count": count, "assignments": None}
        return Write(build(request_type(37, 3), topics=(wanted,), timeout=TIMEOUT, validate_only=validates), claims)

    def _delete_topic(self) -> Write | None:
        if not self._known.topics:
            return None
        topic = self._known.topics.pop(self._random.choice(list(self._known.topics)))
        return Write(
            build(request_type(20, 6), topics=({"name": None, "topic_id": topic.topic_id},), timeout=TIMEOUT),
            lambda response: [("topic removed", topic.topic_id.bytes) for _ in granted(response)],
        )

    def _move_partition(self) -> Write | None:
        """Its answer says that it is begun, and where it ends depends on brokers: it claims nothing."""
        if not self._known.topics:
            return None
        partition = {"partition_index": 0, "replicas": (self._random.randint(101, 103),)}
        topic = {"name": self._random.choice(list(self._known.topics)), "partitions": (partition,)}
        return Write(build(request_type(45, 0), topics=(topic,), timeout=TIMEOUT))

    def _set_config(self) -> Write:
        topics, value, validates = self._known.topics, str(self._number + 1_000_000), self._validates()
        kind, name, key = BROKER, "", "log.retention.ms"
        if topics and self._random.random() < 0.5:
            kind, name, key = TOPIC, self._random.choice(list(topics)), "retention.ms"
        config = {"name": key, "config_operation": SET, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": (config,)}
        return Write(
            build(request_type(44, 1), resources=(resource,), validate_only=validates),
            lambda response: [("config", kind, name, key, value) for _ in granted(response)],
            validates,
        )

    def _create_acl(self) -> Write:
        principal = f"User:a{self._number}"

        def claims(response: Any) -> Iterator[Claim]:
            for _ in granted(response):
                self._known.principals.append(principal)
                yield "acl", principal

        acl = {
            "resource_type": TOPIC,
            "resource_name": "topic",
            "resource_pattern_type": LITERAL,
            "principal": principal,
            "host": "*",
            "operation": READ,
            "permission_type": ALLOW,
        }
        return Write(build(request_type(30, 3), creations=(acl,)), claims)

    def _delete_acls(self) -> Write | None:
        if not self._known.principals:
            return None
        principal = self._known.principals.pop(self._random.randrange(len(self._known.principals)))
        wanted = {
            "resource_type_filter": TOPIC,
            "resource_name_filter": None,
            "pattern_type_filter": LITERAL,
            "principal_filter": principal,
            "host_filter": None,
            "operation": READ,
            "permission_type": ALLOW,
        }
        return Write(
            build(request_type(31, 3), filters=(wanted,)),
            lambda response: [
                ("acl removed", acl.principal) for part in granted(response) for acl in part.matching_acls
            ],
        )

    def _set_credential(self) -> Write:
        name, iterations = f"user-{self._number}", ITERATIONS_MIN + self._number % 1_000

        def claims(response: Any) -> Iterator[Claim]:
            for _ in granted(response):
                self._known.users.append(name)
                yield "scram", name, iterations

        secret = self._random.randbytes(32)
        change = {
            "name": name,
            "mechanism": m.ScramMechanism.SHA_256.value,
            "iterations": iterations,
            "salt": secret,
            "salted_password": secret,
        }
        return Write(build(request_type(51, 0), deletions=(), upsertions=(change,)), claims)

    def _delete_credential(self) -> Write | None:
        if not self._known.users:
            return None
        name = self._known.users.pop(self._random.randrange(len(self._known.users)))
        deletion = {"name": name, "mechanism": m.ScramMechanism.SHA_256.value}
        return Write(
            build(request_type(51, 0), deletions=(deletion,), upsertions=()),
            lambda response: [("scram removed", name) for _ in granted(response)],
        )
