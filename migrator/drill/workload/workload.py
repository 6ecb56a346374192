"""Keeps changing every kind of metadata through the controllers, and keeps the acknowledged changes.

It makes one change at a time, so the expected state is known exactly; only a change without an answer leaves its fact
in doubt until the next change of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.drill.controller_channel import ControllerChannel
from migrator.image.model import ConfigResource, MetadataImage, QuotaKey, ScramKey
from migrator.raft.transport import TransportError
from migrator.records.metadata import ConfigResourceType, QuotaEntity, ScramMechanism
from migrator.values import value
from migrator.wire.schemas import build, request_type


@value
class TopicFact:
    """Number of partitions; None: there is no such topic."""

    name: str

    def in_image(self, image: MetadataImage) -> Any:
        topic = image.topics.by_name(self.name)
        return None if topic is None else len(topic.partitions)


@value
class ConfigFact:
    """The value of a key; None: not set."""

    resource_type: ConfigResourceType
    name: str
    key: str

    def in_image(self, image: MetadataImage) -> Any:
        return image.configs.get(ConfigResource(self.resource_type, self.name), {}).get(self.key)


@value
class QuotaFact:
    """A quota's value; None: not set."""

    entity: tuple[tuple[str, str | None], ...]
    key: str

    def in_image(self, image: MetadataImage) -> Any:
        key: QuotaKey = frozenset(QuotaEntity(kind, name) for kind, name in self.entity)
        return image.quotas.get(key, {}).get(self.key)


@value
class ScramFact:
    """Iterations of a credential; None: there is none."""

    user: str
    mechanism: int

    def in_image(self, image: MetadataImage) -> Any:
        credential = image.scram.get(ScramKey(self.mechanism, self.user))
        return None if credential is None else credential.iterations


@value
class AclFact:
    """Whether the principal has an ACL of this prefix."""

    resource_name: str
    principal: str

    def in_image(self, image: MetadataImage) -> Any:
        return any(
            acl.resource_name == self.resource_name and acl.principal == self.principal for acl in image.acls.values()
        )


Fact = TopicFact | ConfigFact | QuotaFact | ScramFact | AclFact


class Ledger:
    """Facts with their last acknowledged values; a fact is in doubt when its last change had no answer."""

    def __init__(self) -> None:
        self._known: dict[Fact, Any] = {}
        self._in_doubt: set[Fact] = set()

    def doubt(self, fact: Fact) -> None:
        """A change of it was sent."""
        self._in_doubt.add(fact)

    def is_in_doubt(self, fact: Fact) -> bool:
        return fact in self._in_doubt

    def confirm(self, fact: Fact, expected: Any) -> None:
        """A change of it was acknowledged."""
        self._in_doubt.discard(fact)
        self._known[fact] = expected

    def get(self, fact: Fact) -> Any:
        return self._known.get(fact)

    def select(self, wanted: Callable[[Fact], bool]) -> list[Fact]:
        """Facts that hold something, in the order of their first confirmation."""
        return [fact for fact, held in self._known.items() if held is not None and wanted(fact)]

    def missing_from(self, image: MetadataImage) -> Iterator[str]:
        """A sentence for each acknowledged change that the image does not have."""
        for fact, expected in self._known.items():
            if fact not in self._in_doubt and (found := fact.in_image(image)) != expected:
                yield f"{fact}: {expected!r} was acknowledged, the image has {found!r}"


CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = (19, 7), (20, 6), (37, 3)
CREATE_ACLS, DELETE_ACLS = (30, 3), (31, 3)
INCREMENTAL_ALTER_CONFIGS, ALTER_CLIENT_QUOTAS, ALTER_SCRAM = (44, 1), (49, 1), (51, 0)
ELECT_LEADERS = (43, 2)

TIMEOUT = dt.timedelta(seconds=10)
REQUEST_SECONDS = 15.0
PAUSE_SECONDS = 0.01
MAX_TOPICS = 12
LITERAL, ALLOW, READ, TOPIC_RESOURCE, ANY = 3, 3, 3, 2, 1
SET, DELETE = 0, 1
TOPIC_KEYS = ("retention.ms", "cleanup.policy", "max.message.bytes")
AWKWARD = "löad c@@l dude*"
QUOTA_ENTITIES: tuple[tuple[tuple[str, str | None], ...], ...] = (
    (("user", AWKWARD),),
    (("user", AWKWARD), ("client-id", None)),
    (("client-id", "a+b"),),
    (("ip", "10.1.2.3"),),
)
_TRY_LATER = frozenset({ErrorCode.request_timed_out, ErrorCode.not_controller, ErrorCode.throttling_quota_exceeded})
_NOTHING_TO_DO = frozenset({ErrorCode.election_not_needed, ErrorCode.preferred_leader_not_available})


class Workload:
    """One client's changes. `run` until cancelled or `stop`.

    :param forwarded: whether brokers forward the requests; they repeat unanswered ones themselves.
    """

    def __init__(
        self, channel: ControllerChannel, broker_ids: Sequence[int], seed: int, *, forwarded: bool = False
    ) -> None:
        self.acknowledged: Counter[str] = Counter()
        self.refusals: list[str] = []
        """Answers that a client of a sound cluster should not get."""
        self.ledger = Ledger()
        self.producer_ids: list[int] = []
        """The producer ids that were handed out, or the first ids of the blocks."""
        self.longest_wait_seconds = 0.0
        self._channel = channel
        self._broker_ids = broker_ids
        self._forwarded = forwarded
        self._random = random.Random(seed)
        self.numbers = itertools.count()
        self._stopping = asyncio.Event()

    def continue_from(self, earlier: Workload) -> None:
        """Go on after another workload has ended: its acknowledged changes count here, too."""
        self.ledger, self.numbers, self.producer_ids = earlier.ledger, earlier.numbers, earlier.producer_ids

    def actions(self) -> list[Callable[[], Awaitable[None]]]:
        """The actions that `run` does in turn."""
        return [
            self._create_topic, self._set_topic_config, self._grow_topic, self._set_quota, self._set_scram,
            self._create_acl, self._set_broker_config, self._create_topic, self._elect_preferred, self._delete_topic,
            self._remove_quota, self._remove_scram, self._delete_acl, self._remove_topic_config, self._recreate_topic,
        ]  # fmt: skip

    async def run(self) -> None:
        """Change one thing after the other until `stop`."""
        actions = itertools.cycle(self.actions())
        while not self._stopping.is_set():
            await next(actions)()
            await asyncio.sleep(PAUSE_SECONDS)

    def stop(self) -> None:
        """End after the change under way."""
        self._stopping.set()

    async def close(self) -> None:
        """End the connections."""
        await self._channel.close()

    # --- topics ---

    async def _create_topic(self) -> None:
        if len(self._topics()) < MAX_TOPICS:
            await self._create(f"load-{next(self.numbers):05}", self._random.randint(1, 4))

    async def _recreate_topic(self) -> None:
        """Delete a topic and create it again under its name at once, with another id."""
        if names := self._topics():
            name = self._random.choice(names)
            await self._delete(name)
            if self.ledger.get(TopicFact(name)) is None:
                await self._create(name, self._random.randint(1, 4))

    async def _create(self, name: str, partitions: int) -> None:
        config = {"retention.ms": "3600000", "cleanup.policy": self._random.choice(["compact", "delete"])}
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": min(3, len(self._broker_ids)),
            "configs": [{"name": key, "value": text} for key, text in config.items()],
        }
        answer = await self._change(
            TopicFact(name), partitions, CREATE_TOPICS, repeated=ErrorCode.topic_already_exists, topics=[topic],
            timeout=TIMEOUT,
        )  # fmt: skip
        if answer is not None:
            for key, text in config.items():
                self.ledger.confirm(ConfigFact(ConfigResourceType.TOPIC, name, key), text)

    async def _grow_topic(self) -> None:
        if names := self._topics():
            name = self._random.choice(names)
            count = self.ledger.get(TopicFact(name)) + 1
            topic = {"name": name, "count": count, "assignments": None}
            await self._change(
                TopicFact(name), count, CREATE_PARTITIONS, repeated=ErrorCode.invalid_partitions, topics=[topic],
                timeout=TIMEOUT, validate_only=False,
            )  # fmt: skip

    async def _delete_topic(self) -> None:
        names = self._topics()
        if len(names) > MAX_TOPICS // 2:
            await self._delete(names[0])

    async def _delete(self, name: str) -> None:
        configs = [ConfigFact(ConfigResourceType.TOPIC, name, key) for key in TOPIC_KEYS]
        for config in configs:
            self.ledger.doubt(config)  # the deletion may have happened without an answer
        answer = await self._change(
            TopicFact(name), None, DELETE_TOPICS, repeated=ErrorCode.unknown_topic_or_partition,
            topics=[{"name": name, "topic_id": None}], timeout=TIMEOUT,
        )  # fmt: skip
        if answer is not None:
            for config in configs:
                self.ledger.confirm(config, None)

    def _topics(self) -> list[str]:
        facts = self.ledger.select(lambda fact: isinstance(fact, TopicFact))
        return [fact.name for fact in facts if isinstance(fact, TopicFact) and not self.ledger.is_in_doubt(fact)]

    # --- configs, quotas, credentials, ACLs ---

    async def _set_topic_config(self) -> None:
        if names := self._topics():
            text = str(self._random.randrange(100_000, 2_000_000))
            await self._set_config(ConfigResourceType.TOPIC, self._random.choice(names), "max.message.bytes", text)

    async def _remove_topic_config(self) -> None:
        if names := self._topics():
            await self._set_config(ConfigResourceType.TOPIC, self._random.choice(names), "max.message.bytes", None)

    async def _set_broker_config(self) -> None:
        text = str(self._random.randint(1_000, 100_000))
        name = self._random.choice(["", str(self._broker_ids[0])])
        await self._set_config(ConfigResourceType.BROKER, name, "max.connections", text)

    async def _set_config(self, kind: ConfigResourceType, name: str, key: str, text: str | None) -> None:
        operation = {"name": key, "config_operation": DELETE if text is None else SET, "value": text}
        resource = {"resource_type": int(kind), "resource_name": name, "configs": [operation]}
        await self._change(ConfigFact(kind, name, key), text, INCREMENTAL_ALTER_CONFIGS, resources=[resource])

    async def _set_quota(self) -> None:
        await self._alter_quota(float(self._random.randrange(1000, 100_000)))

    async def _remove_quota(self) -> None:
        await self._alter_quota(None)

    async def _alter_quota(self, limit: float | None) -> None:
        entity = self._random.choice(QUOTA_ENTITIES)
        key = "connection_creation_rate" if entity[0][0] == "ip" else "producer_byte_rate"
        entry = {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [{"key": key, "value": limit or 0.0, "remove": limit is None}],
        }
        await self._change(QuotaFact(entity, key), limit, ALTER_CLIENT_QUOTAS, entries=[entry], validate_only=False)

    async def _set_scram(self) -> None:
        iterations = self._random.randint(4096, 8192)
        upsertion = {
            "name": AWKWARD,
            "mechanism": int(ScramMechanism.SHA_256),
            "iterations": iterations,
            "salt": self._random.randbytes(18),
            "salted_password": self._random.randbytes(32),
        }
        fact = ScramFact(AWKWARD, int(ScramMechanism.SHA_256))
        await self._change(fact, iterations, ALTER_SCRAM, deletions=[], upsertions=[upsertion])

    async def _remove_scram(self) -> None:
        deletion = {"name": AWKWARD, "mechanism": int(ScramMechanism.SHA_256)}
        fact = ScramFact(AWKWARD, int(ScramMechanism.SHA_256))
        await self._change(
            fact, None, ALTER_SCRAM, repeated=ErrorCode.resource_not_found, deletions=[deletion], upsertions=[]
        )

    async def _create_acl(self) -> None:
        name = f"{AWKWARD}-{self._random.randint(0, 3)}"
        creation = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": name,
            "resource_pattern_type": LITERAL,
            "principal": "User:load",
            "host": "*",
            "operation": READ,
            "permission_type": ALLOW,
        }
        await self._change(AclFact(name, "User:load"), True, CREATE_ACLS, creations=[creation])

    async def _delete_acl(self) -> None:
        name = f"{AWKWARD}-{self._random.randint(0, 3)}"
        condition = {
            "resource_type_filter": TOPIC_RESOURCE,
            "resource_name_filter": name,
            "pattern_type_filter": LITERAL,
            "principal_filter": "User:load",
            "host_filter": None,
            "operation": ANY,
            "permission_type": ANY,
        }
        await self._change(AclFact(name, "User:load"), False, DELETE_ACLS, filters=[condition])

    async def _elect_preferred(self) -> None:
        if names := self._topics():
            name = self._random.choice(names)
            wanted = [{"topic": name, "partitions": tuple(range(self.ledger.get(TopicFact(name))))}]
            request = build(request_type(*ELECT_LEADERS), election_type=0, topic_partitions=wanted, timeout=TIMEOUT)
            if (answer := await self._send(request)) is not None:
                gone = frozenset({ErrorCode.unknown_topic_or_partition})
                self._accepted("ElectLeaders", answer, _NOTHING_TO_DO | gone)

    # --- sending ---

    async def _change(
        self, fact: Fact, expected: Any, api: tuple[int, int], *, repeated: ErrorCode = ErrorCode.none, **fields: Any
    ) -> Any:
        """Send a change of a fact; return the answer if it was acknowledged.

        :param repeated: the error that shows that an earlier, unanswered attempt was carried out.
        """
        tried_before = self._forwarded or self.ledger.is_in_doubt(fact)
        nothing_there = expected is None and self.ledger.get(fact) is None
        self.ledger.doubt(fact)
        kind, repeats = request_type(*api), self._channel.repeats
        answer = await self._send(build(kind, **fields))
        if answer is None:
            return None
        tried_before = tried_before or self._channel.repeats > repeats
        tolerated = frozenset({repeated}) if tried_before or nothing_there else frozenset()
        if not self._accepted(kind.__name__.removesuffix("Request"), answer, tolerated):
            return None
        self.ledger.confirm(fact, expected)
        return answer

    async def _send(self, request: Any) -> Any:
        """The answer, or None without one: then it is unknown whether the request was carried out."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        try:
            return await self._channel.request(request, timeout_seconds=REQUEST_SECONDS)
        except TransportError:
            return None
        finally:
            self.longest_wait_seconds = max(self.longest_wait_seconds, loop.time() - begin)

    def _accepted(self, name: str, answer: Any, tolerated: frozenset[ErrorCode]) -> bool:
        errors = set(errors_of(answer)) - tolerated - {ErrorCode.none}
        if not errors:
            self.acknowledged[name] += 1
            return True
        if not errors <= _TRY_LATER:
            self.refusals.append(f"{name}: {', '.join(sorted(error.name for error in errors))}: {answer}")
        return False


def errors_of(message: Any) -> Iterator[ErrorCode]:
    """Every error code in an answer, however deep."""
    if isinstance(message, tuple):
        for item in message:
            yield from errors_of(item)
    elif dataclasses.is_dataclass(message):
        for field in dataclasses.fields(message):
            held = getattr(message, field.name)
            if isinstance(held, ErrorCode):
                yield held
            else:
                yield from errors_of(held)
