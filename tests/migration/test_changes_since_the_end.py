"""1,000 changes of every kind between the end of a migration and its reopening, on a real ZooKeeper.

ZooKeeper begins with what Kafka's brokers have written. Afterwards it is read by this program, and once more without
any code of it, by the layout in Kafka's ``ZkData.scala``.
"""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from kazoo.client import KazooClient

from migrator.image.builder import ImageBuilder
from migrator.image.model import MetadataImage, Provenance, TopicImage
from migrator.migration.copying.compare import ReconcileEnd, WriteChunk, compare
from migrator.migration.translate.reconcile import reconcile, repair
from migrator.migration.write_behind import messages
from migrator.migration.write_behind.core import WriteBehind
from migrator.records.metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ConfigResourceType,
    DelegationTokenRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from migrator.records.uuid import random_uuid
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.leadership import Claim, ClaimPlan, conclude_claim, plan_claim, read_view
from migrator.zookeeper.ops import Applied, Create
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.writer import ConditionalWriter, split_ops
from tests.conftest import ZooKeeperSpace
from tests.migration.support.images import comparable
from tests.migration.translate.test_golden import BEFORE, load
from tests.migration.translate.test_real import image_of, target

CHANGES, EPOCH, SEEDS = 1_000, 5, (1, 2)
TOPIC, BROKER, LITERAL = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, 3
TYPES = dict(enumerate(("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"), 2))
OPERATIONS = dict(enumerate(("All", "Read", "Write", "Create", "Delete", "Alter", "Describe"), 2))
OPERATIONS |= dict(enumerate(("ClusterAction", "DescribeConfigs", "AlterConfigs", "IdempotentWrite"), 9))
NAMES = [f"made-{number}" for number in range(30)]
USERS = ("alice", "c@@l dude*", "CN=wéird,O=x y")


class Since:
    """Changes of a cluster in KRaft mode, as records."""

    def __init__(self, image: MetadataImage, seed: int) -> None:
        self.image = image
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self._offset = image.provenance.offset

    def run(self) -> MetadataImage:
        kinds: list[Callable[[], Iterator[MetadataRecord]]] = [
            *(self.create, self.create, self.delete, self.recreate, self.grow, self.restart, self.move, self.configure),
            *(self.quota, self.scram, self.acl, self.token, self.producer_ids),
        ]
        while self.done.total() < CHANGES or not self.moves:
            kind = self.random.choice(kinds)
            records = list(kind())
            if records:
                self.done[kind.__name__] += 1
                self.write(records)
        return self.image

    @property
    def moves(self) -> bool:
        """Whether a reassignment is under way."""
        topics = self.image.topics.by_id.values()
        return any(each.adding_replicas for topic in topics for each in topic.partitions.values())

    def write(self, records: list[MetadataRecord]) -> None:
        builder = ImageBuilder(self.image)
        for record in records:
            builder.replay(record)
        self._offset += len(records)
        self.image, _ = builder.build(Provenance(self._offset, EPOCH, 0))

    def topic(self) -> TopicImage | None:
        names = sorted(self.image.topics.ids)
        return self.image.topics.by_name(self.random.choice(names)) if names else None

    def brokers(self) -> tuple[int, ...]:
        return tuple(self.random.sample(range(1, 5), self.random.randint(1, 3)))

    def make(self, name: str) -> Iterator[MetadataRecord]:
        topic_id = random_uuid(self.random)
        yield TopicRecord(name, topic_id)
        for number in range(self.random.randint(1, 4)):
            replicas = self.brokers()
            yield PartitionRecord(number, topic_id, replicas, replicas, (), (), replicas[0], 0, 0, 0)
        if self.random.random() < 0.5:
            yield ConfigRecord(TOPIC, name, "cleanup.policy", "compact")

    def create(self) -> Iterator[MetadataRecord]:
        name = self.random.choice(NAMES)
        if name not in self.image.topics.ids:
            yield from self.make(name)

    def delete(self) -> Iterator[MetadataRecord]:
        topic = self.topic()
        if topic is not None:
            yield RemoveTopicRecord(topic.topic_id)

    def recreate(self) -> Iterator[MetadataRecord]:
        """Under the same name, with another id."""
        topic = self.topic()
        if topic is not None:
            yield RemoveTopicRecord(topic.topic_id)
            yield from self.make(topic.name)

    def grow(self) -> Iterator[MetadataRecord]:
        topic = self.topic()
        if topic is not None:
            replicas = self.brokers()
            number = len(topic.partitions)
            yield PartitionRecord(number, topic.topic_id, replicas, replicas, (), (), replicas[0], 0, 0, 0)

    def restart(self) -> Iterator[MetadataRecord]:
        """A broker leaves every ISR, and comes back."""
        broker = self.random.randint(1, 4)
        for topic in self.image.topics.by_id.values():
            for number, partition in topic.partitions.items():
                others = tuple(each for each in partition.isr if each != broker)
                if broker in partition.isr and others:
                    yield PartitionChangeRecord(number, topic.topic_id, isr=others, leader=others[0])
                    yield PartitionChangeRecord(number, topic.topic_id, isr=(*others, broker))

    def move(self) -> Iterator[MetadataRecord]:
        """A reassignment begins; the next one of this partition ends it."""
        topic = self.topic()
        if topic is None:
            return
        for number, partition in list(topic.partitions.items())[:1]:
            if partition.adding_replicas or partition.removing_replicas:
                left = tuple(each for each in partition.replicas if each not in partition.removing_replicas)
                yield PartitionChangeRecord(
                    *(number, topic.topic_id, left, left[0], left), removing_replicas=(), adding_replicas=()
                )
            else:
                wanted = self.brokers()
                adding = tuple(each for each in wanted if each not in partition.replicas)
                removing = tuple(each for each in partition.replicas if each not in wanted)
                yield PartitionChangeRecord(
                    *(number, topic.topic_id), replicas=(*partition.replicas, *adding), adding_replicas=adding,
                    removing_replicas=removing,
                )  # fmt: skip

    def configure(self) -> Iterator[MetadataRecord]:
        topic, text = self.topic(), self.random.choice([None, "1", "2", "3600000"])
        if topic is not None and self.random.random() < 0.7:
            yield ConfigRecord(TOPIC, topic.name, "retention.ms", text)
        else:
            yield ConfigRecord(BROKER, self.random.choice(["", "1"]), "log.cleaner.threads", text)

    def quota(self) -> Iterator[MetadataRecord]:
        user, client = QuotaEntity("user", self.random.choice([None, *USERS])), QuotaEntity("client-id", "batch")
        entity = self.random.choice([(user,), (client,), (user, client), (QuotaEntity("ip", "10.0.0.1"),)])
        key = "connection_creation_rate" if entity[0].entity_type == "ip" else "producer_byte_rate"
        yield ClientQuotaRecord(entity, key, float(self.random.randint(1, 9)), remove=self.random.random() < 0.3)

    def scram(self) -> Iterator[MetadataRecord]:
        user, kind = self.random.choice(USERS), self.random.choice([1, 2])
        if any((key.user, key.mechanism) == (user, kind) for key in self.image.scram) and self.random.random() < 0.4:
            yield RemoveUserScramCredentialRecord(user, kind)
        else:
            salt, stored, server = (self.random.randbytes(4) for _ in range(3))
            yield UserScramCredentialRecord(user, kind, salt, stored, server, 4096)

    def acl(self) -> Iterator[MetadataRecord]:
        if self.image.acls and self.random.random() < 0.4:
            yield RemoveAccessControlEntryRecord(self.random.choice(sorted(self.image.acls, key=str)))
        else:
            kind, pattern = self.random.choice([(2, 3), (2, 4), (3, 3), (5, 3)])
            operation = self.random.choice([3, 4, 8])
            yield AccessControlEntryRecord(
                *(random_uuid(self.random), kind, self.random.choice(NAMES), pattern, "User:alice", "*", operation, 3)
            )

    def token(self) -> Iterator[MetadataRecord]:
        if self.image.tokens and self.random.random() < 0.4:
            yield RemoveDelegationTokenRecord(self.random.choice(sorted(self.image.tokens)))
        else:
            token_id, life = f"t{self.random.randint(0, 9)}", self.random.randint(2_000, 3_000)
            yield DelegationTokenRecord("User:alice", "User:bob", ("User:carol",), 1_000, 9_000, life, token_id)

    def producer_ids(self) -> Iterator[MetadataRecord]:
        yield ProducerIdsRecord(1, 1, max(self.image.producer_ids_next, 0) + 1_000)


@pytest.fixture
def session(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> Iterator[ZooKeeperSession]:
    """At the end of the migration."""
    model = load(BEFORE)
    with ZooKeeperSession(SessionOptions(hosts=zookeeper.hosts)) as started:
        writer = ConditionalWriter(started)
        for part in split_ops(Create(path, data) for path, data in model.dump().items()):
            assert isinstance(writer.write(part), Applied)
        yield started


@pytest.mark.parametrize("seed", SEEDS)
def test_zookeeper_has_it_all_when_the_migration_was_reopened(
    session: ZooKeeperSession, zookeeper_client: KazooClient, seed: int
) -> None:
    since = Since(image_of(session), seed)
    image = since.run()
    assert min(since.done.values()) > 10, since.done
    reopen(session, image)
    assert list(reconcile(BulkReader(session), target(image))) == []
    assert comparable(image_of(session)) == comparable(image)
    assert as_kafka_reads_it(zookeeper_client) == as_kafka_should_read_it(image)


def reopen(session: ZooKeeperSession, image: MetadataImage) -> None:
    """The claim, the comparison of everything, and the versions behind it."""
    reader, writer = BulkReader(session), ConditionalWriter(session)
    plan = plan_claim(read_view(reader.read), controller_id=3001, kraft_epoch=EPOCH, now_ms=0)
    assert isinstance(plan, ClaimPlan)
    claim = conclude_claim(plan, writer.write(plan.ops))
    assert isinstance(claim, Claim)
    core = WriteBehind(image, lambda *_: iter(()), lambda _: 1)

    def feed(event: messages.WriteEvent) -> None:
        events = [event]
        while events:
            for effect in core.step(events.pop(0), 0):
                assert not isinstance(effect, messages.Stopped)
                if isinstance(effect, messages.SendMulti):
                    events.append(messages.MultiEnded(effect.number, writer.write(effect.ops)))
                elif isinstance(effect, messages.ReadAgain):
                    wanted = target(effect.image)
                    wanted.room, wanted.behind = effect.sets, (behind := dict[str, int]())
                    writes = tuple(repair(reader, wanted, *effect.entities))
                    events.append(messages.Repaired(effect.number, effect.entities, writes, behind))

    at = messages.Opened(claim, replace(core.reached, epoch=EPOCH, offset=image.provenance.offset))
    for event in (at, messages.ReconcileBegun(image)):
        feed(event)
    for message in compare(reader, target(image), max_deletes=10_000):
        if isinstance(message, WriteChunk):
            feed(messages.ReconcileWrites(message.writes))
        elif isinstance(message, ReconcileEnd):
            feed(messages.ReconcileWrites((), last=True, behind=message.behind))
    assert core.compared
    assert core.drained
    assert core.versions_missing(0).sets == 0


def children(client: KazooClient, path: str) -> list[str]:
    return list(client.get_children(path)) if client.exists(path) else []


def as_kafka_reads_it(client: KazooClient) -> dict[str, Any]:
    """Kafka's layout, read as JSON."""

    def content(path: str) -> dict[str, Any]:
        data = client.get(path)[0]
        found: dict[str, Any] = json.loads(data) if data else {"config": {}}
        return found

    def configs(path: str) -> dict[str, dict[str, str]]:
        found = {unquote(name): content(f"{path}/{name}")["config"] for name in children(client, path)}
        plain = {
            name: {key: text for key, text in each.items() if "password" not in key} for name, each in found.items()
        }
        return {name: config for name, config in plain.items() if config}

    topics = {}
    for name in children(client, "/brokers/topics"):
        said, states = content(f"/brokers/topics/{name}"), {}
        assert client.exists(f"/config/topics/{name}")
        for number in children(client, f"/brokers/topics/{name}/partitions"):
            data, stat = client.get(f"/brokers/topics/{name}/partitions/{number}/state")
            state = json.loads(data)
            states[number] = (state["leader"], state["leader_epoch"], state["isr"], stat.version)
        moves = {key: said.get(f"{key}_replicas", {}) for key in ("adding", "removing")}
        topics[name] = (said["topic_id"], said["partitions"], moves["adding"], moves["removing"], states)
    acls = {
        (root, kind, name): sorted(
            (each["principal"], each["operation"], each["permissionType"])
            for each in content(f"/{root}/{kind}/{name}")["acls"]
        )
        for root in ("kafka-acl", "kafka-acl-extended/prefixed")
        for kind in children(client, f"/{root}")
        for name in children(client, f"/{root}/{kind}")
    }
    block = content("/latest_producer_id_block")
    return {
        "topics": topics,
        "topic configs": configs("/config/topics"),
        "broker configs": configs("/config/brokers"),
        "users": {
            user: {key: text if key.startswith("SCRAM") else float(text) for key, text in found.items()}
            for user, found in configs("/config/users").items()
        },
        "acls": {pattern: entries for pattern, entries in acls.items() if entries},
        "tokens": {
            name: (unquote(said["owner"]), [*map(unquote, said["renewers"])], said["expiryTimestamp"])
            for name in children(client, "/delegation_token/tokens")
            if (said := content(f"/delegation_token/tokens/{name}"))
        },
        "producer ids": int(block["block_end"]) + 1,
        "orders": children(client, "/admin/delete_topics"),
    }


def as_kafka_should_read_it(image: MetadataImage) -> dict[str, Any]:
    topics = {}
    for topic in image.topics.by_id.values():
        parts = {str(number): partition for number, partition in topic.partitions.items()}
        topics[topic.name] = (
            base64.urlsafe_b64encode(topic.topic_id).decode().rstrip("="),
            {number: [*each.replicas] for number, each in parts.items()},
            {number: [*each.adding_replicas] for number, each in parts.items() if each.adding_replicas},
            {number: [*each.removing_replicas] for number, each in parts.items() if each.removing_replicas},
            {
                number: (each.leader, each.leader_epoch, [*each.isr], each.partition_epoch)
                for number, each in parts.items()
            },
        )
    plain = {resource: dict(found) for resource, found in without_passwords(image).items() if found}
    acls: dict[tuple[str, str, str], list[tuple[str, str, str]]] = {}
    for acl in image.acls.values():
        root = "kafka-acl" if acl.pattern_type == LITERAL else "kafka-acl-extended/prefixed"
        entry = (acl.principal, OPERATIONS[acl.operation], {2: "Deny", 3: "Allow"}[acl.permission_type])
        acls.setdefault((root, TYPES[acl.resource_type], acl.resource_name), []).append(entry)
    users: dict[str, dict[str, str | float]] = {}
    for key, quotas in image.quotas.items():
        (entity, *more) = key
        if entity.entity_type == "user" and not more:
            users.setdefault(entity.entity_name or "<default>", {}).update(quotas)
    for scram, held in image.scram.items():
        salt, stored, server = (
            base64.b64encode(each).decode() for each in (held.salt, held.stored_key, held.server_key)
        )
        text = f"salt={salt},stored_key={stored},server_key={server},iterations={held.iterations}"
        users.setdefault(scram.user, {})[f"SCRAM-SHA-{256 * scram.mechanism}"] = text
    return {
        "topics": topics,
        "topic configs": {key.name: found for key, found in plain.items() if key.resource_type == TOPIC},
        "broker configs": {
            key.name or "<default>": found for key, found in plain.items() if key.resource_type == BROKER
        },
        "users": {user: found for user, found in users.items() if found},
        "acls": {pattern: sorted(set(entries)) for pattern, entries in acls.items()},
        "tokens": {
            name: (token.owner, [*token.renewers], token.expiration_timestamp) for name, token in image.tokens.items()
        },
        "producer ids": image.producer_ids_next,
        "orders": [],
    }


def without_passwords(image: MetadataImage) -> dict[Any, dict[str, str]]:
    """ZooKeeper has them encrypted."""
    return {
        resource: {key: text for key, text in found.items() if "password" not in key}
        for resource, found in image.configs.items()
    }
