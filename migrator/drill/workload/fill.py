"""Fills ZooKeeper with the metadata of a Kafka cluster in ZooKeeper mode: every family, with awkward names.

The options alone decide what is written (`znodes` is a pure function of them), so a failing drill can be repeated. The
formats are those of the brokers; the codecs are tested with dumps of Kafka's brokers.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from kazoo.client import KazooClient

from migrator.errors import OperatorError
from migrator.image.model import ScramCredential
from migrator.records.acl_codes import AclOperation, AclPermission, PatternType, ResourceType
from migrator.records.metadata import DelegationTokenRecord
from migrator.records.uuid import random_uuid
from migrator.values import value
from migrator.zookeeper.ops import Create, SetData
from migrator.zookeeper.session import default_acl
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import AclEntry, ResourcePattern, acl_path, encode_acls, node_name
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from migrator.zookeeper.znodes.configs import encode_config
from migrator.zookeeper.znodes.controller import encode_controller_epoch
from migrator.zookeeper.znodes.delegation_tokens import encode_token
from migrator.zookeeper.znodes.partition_state import PartitionState, encode_partition_state
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from migrator.zookeeper.znodes.producer_ids import ProducerIdBlock, encode_producer_ids
from migrator.zookeeper.znodes.scram import format_credential
from migrator.zookeeper.znodes.topics import TopicAssignment, encode_topic

OPS_PER_MULTI = 400
MULTIS_IN_FLIGHT = 16
CONTROLLER_EPOCH = 7
TOKEN_LIFE_MS = 86_400_000

TOKEN_OWNERS = ("User:alice", "User:c@@l dude*")
AWKWARD_NAMES = ("c@@l dude*", "CN=wéird,O=x y", "a+b/c", "<default>-not", "100%", "名前", "~tilde", "semi;colon,comma")
"""Names of users and clients: with every character that the sanitizer has to change, and some that it must not."""

AWKWARD_TOPICS = ("l" * 249, "dotted.name_under-score", "-", "__consumer_offsets", "UPPER.lower")
VAULT_PASSWORD = "pässword: with, both"  # noqa: S105 - of a listener that there is not
"""A password that is encrypted in ZooKeeper and in clear in the metadata log, as in Kafka, and nowhere else."""
DOOMED_TOPIC = "drill-doomed"
"""Its deletion is pending: it must not be migrated."""
MOVING_TOPIC = "drill-moving"
"""Its first partition is being reassigned."""

PLAIN_TOPIC = "drill.topic-"
"""The beginning of the names of all other topics."""

ZkOp = Create | SetData


@value
class FillOptions:
    """The options of the cluster's metadata. ``now_ms`` is the time of the delegation tokens; ``encoder_secret`` the
    value of ``password.encoder.secret``, None for no encrypted values."""

    cluster_id: str
    brokers: tuple[int, ...]
    partitions: int
    now_ms: int
    encoder_secret: str | None = None
    partitions_per_topic: int = 10
    replication_factor: int = 3
    seed: int = 0
    users: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Configurations of more users, by name."""
    permissions: Mapping[ResourcePattern, Sequence[AclEntry]] = field(default_factory=dict)
    """More access control entries."""
    set_acl: bool = False
    """Whether znodes get access control lists, as with ``zookeeper.set.acl``."""


def fill(client: KazooClient, options: FillOptions) -> int:
    """Write all of it below the client's chroot.

    :returns: how many znodes were created.
    :raises OperatorError: znodes exist already, or ZooKeeper refuses.
    """
    return write(client, znodes(options), set_acl=options.set_acl)


def write(client: KazooClient, operations: Iterable[ZkOp], *, set_acl: bool = False) -> int:
    """Write in order, in multis, several in flight. Returns and errors as `fill`."""
    under_way: deque[tuple[object, list[ZkOp]]] = deque()
    created = 0
    stream = iter(operations)
    while batch := list(itertools.islice(stream, OPS_PER_MULTI)):
        transaction = client.transaction()
        for operation in batch:
            if isinstance(operation, Create):
                acl = default_acl(operation.path, set_acl=set_acl)
                transaction.create(operation.path, operation.data or b"", acl=acl)
                if operation.data is None:  # null, as brokers write it; the client's own method has only b""
                    transaction.operations[-1] = transaction.operations[-1]._replace(data=None)
                created += 1
            else:
                transaction.set_data(operation.path, operation.data or b"", operation.version)
        under_way.append((transaction.commit_async(), batch))
        if len(under_way) >= MULTIS_IN_FLIGHT:
            _await(*under_way.popleft())
    while under_way:
        _await(*under_way.popleft())
    return created


def znodes(options: FillOptions) -> Iterator[ZkOp]:
    """Every operation in order, parents first."""
    made: set[str] = set()
    for operation in _families(options):
        if isinstance(operation, Create):
            for parent in paths.ancestors(operation.path):
                if parent not in made:
                    made.add(parent)
                    yield Create(parent, None)
            if operation.path in made:
                continue
            made.add(operation.path)
        yield operation


def _families(options: FillOptions) -> Iterator[ZkOp]:
    generator = random.Random(options.seed)
    for path in paths.STANDARD_PATHS:
        if path != paths.PRODUCER_IDS:
            yield Create(path, None)
    yield Create(paths.CLUSTER_ID, encode_cluster_id(options.cluster_id))
    yield Create(paths.CONTROLLER_EPOCH, encode_controller_epoch(CONTROLLER_EPOCH))
    yield Create("/feature", b'{"features":{},"version":2,"status":1}')
    block = ProducerIdBlock(options.brokers[0], 41_000, 41_999)
    yield Create(paths.PRODUCER_IDS, encode_producer_ids(block))
    yield from _topics(options, generator)
    yield from _broker_configs(options, generator)
    yield from _quotas_and_credentials(generator)
    for user, config in options.users.items():
        yield Create(f"{paths.USER_CONFIGS}/{paths.sanitize(user)}", encode_config(config))
    yield from _acls(options.permissions)
    yield from _tokens(options)


def _topics(options: FillOptions, generator: random.Random) -> Iterator[ZkOp]:
    names = [*AWKWARD_TOPICS, DOOMED_TOPIC, MOVING_TOPIC]
    left = options.partitions
    for number in itertools.count():
        if left <= 0:
            break
        count = 1 if number < len(names) else min(options.partitions_per_topic, left)
        name = names[number] if number < len(names) else f"{PLAIN_TOPIC}{number:06}"
        left -= count
        yield from _topic(options, generator, name, count, number)
    if options.partitions > len(names):
        yield Create(paths.delete_topic(DOOMED_TOPIC), None)


def _topic(options: FillOptions, generator: random.Random, name: str, count: int, number: int) -> Iterator[ZkOp]:
    width = min(options.replication_factor, len(options.brokers))
    rings = [_ring(options.brokers, number + partition) for partition in range(count)]
    assignment = {partition: ring[:width] for partition, ring in enumerate(rings)}
    adding: dict[int, tuple[int, ...]] = {}
    removing: dict[int, tuple[int, ...]] = {}
    if name == MOVING_TOPIC and len(options.brokers) >= 2:
        assignment[0], adding, removing = rings[0][:2], {0: rings[0][1:2]}, {}
    topic = TopicAssignment(random_uuid(generator), assignment, adding, removing)
    yield Create(paths.topic(name), encode_topic(topic))
    yield Create(paths.topic_config(name), encode_config(topic_config(number)))
    for partition, replicas in assignment.items():
        settled = tuple(replica for replica in replicas if replica not in adding.get(partition, ()))
        yield from _partition(generator, name, partition, settled)


def _ring(brokers: tuple[int, ...], start: int) -> tuple[int, ...]:
    first = start % len(brokers)
    return brokers[first:] + brokers[:first]


def _partition(generator: random.Random, topic: str, partition: int, replicas: tuple[int, ...]) -> Iterator[ZkOp]:
    """The state of a partition. One in eight has moved: it has another leader, a smaller ISR, and the znode version of
    its changes."""
    yield Create(paths.partition(topic, partition), None)
    path = paths.partition_state(topic, partition)
    state = PartitionState(replicas[0], 0, CONTROLLER_EPOCH, replicas)
    yield Create(path, encode_partition_state(state))
    if generator.random() < 0.125:
        for epoch in range(1, generator.randint(2, 4)):
            leader = replicas[epoch % len(replicas)]
            isr = replicas if epoch % 2 else tuple(sorted({leader, replicas[0]}))
            yield SetData(path, encode_partition_state(PartitionState(leader, epoch, CONTROLLER_EPOCH, isr)))


def topic_config(number: int) -> dict[str, str]:
    """The config of a topic; every second topic has one."""
    if number % 2:
        return {}
    return {"retention.ms": str(3_600_000 * (1 + number % 24)), "cleanup.policy": "compact,delete"}


def _broker_configs(options: FillOptions, generator: random.Random) -> Iterator[ZkOp]:
    config = {"log.cleaner.threads": "2"}
    if options.encoder_secret is not None:
        encoder = PasswordEncoder(options.encoder_secret, generator.randbytes)
        config["listener.name.vault.ssl.key.password"] = encoder.encode(VAULT_PASSWORD)
    yield Create(f"{paths.BROKER_CONFIGS}/{options.brokers[0]}", encode_config(config))
    # With less than half of Kafka's 10, a broker in KRaft mode would refuse every later change of its configuration.
    default = {"log.retention.ms": "604800000", "background.threads": "8"}
    yield Create(f"{paths.BROKER_CONFIGS}/{paths.DEFAULT_ENTITY}", encode_config(default))


def _quotas_and_credentials(generator: random.Random) -> Iterator[ZkOp]:
    users = [paths.sanitize(name) for name in AWKWARD_NAMES]
    rates = {"producer_byte_rate": "1048576", "consumer_byte_rate": "2097152", "request_percentage": "12.5"}
    for index, user in enumerate(users):
        config = dict(rates) if index % 3 != 1 else {}
        if index % 3 != 2:
            config |= _credentials(generator)
        yield Create(f"{paths.USER_CONFIGS}/{user}", encode_config(config))
        pair = encode_config({"producer_byte_rate": str(1000 + index)})
        yield Create(f"{paths.USER_CONFIGS}/{user}/clients/{users[-1 - index]}", pair)
        client = encode_config({"consumer_byte_rate": str(2000 + index)})
        yield Create(f"{paths.CLIENT_CONFIGS}/{user}", client)
    default = paths.DEFAULT_ENTITY
    yield Create(f"{paths.USER_CONFIGS}/{default}", encode_config({"consumer_byte_rate": "12345678"}))
    yield Create(f"{paths.USER_CONFIGS}/slow", encode_config({"controller_mutation_rate": "0.25"}))
    yield Create(f"{paths.USER_CONFIGS}/{default}/clients/{default}", encode_config({"producer_byte_rate": "12"}))
    yield Create(f"{paths.CLIENT_CONFIGS}/{default}", encode_config({"request_percentage": "200.0"}))
    yield Create(f"{paths.IP_CONFIGS}/{default}", encode_config({"connection_creation_rate": "100"}))
    yield Create(f"{paths.IP_CONFIGS}/10.0.0.1", encode_config({"connection_creation_rate": "5000"}))
    # A user without its own config, with quotas per client.
    path = f"{paths.USER_CONFIGS}/parent-only/clients/{default}"
    yield Create(path, encode_config({"producer_byte_rate": "10"}))


def _credentials(generator: random.Random) -> dict[str, str]:
    return {
        name: format_credential(
            ScramCredential(generator.randbytes(18), generator.randbytes(size), generator.randbytes(size), 4096)
        )
        for name, size in (("SCRAM-SHA-256", 32), ("SCRAM-SHA-512", 64))
    }


def _acls(more: Mapping[ResourcePattern, Sequence[AclEntry]]) -> Iterator[ZkOp]:
    held: dict[ResourcePattern, list[AclEntry]] = {pattern: list(entries) for pattern, entries in more.items()}
    allow = AclEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
    deny = AclEntry("User:CN=wéird,O=x y", "10.0.0.1", AclOperation.ALL, AclPermission.DENY)
    names = {ResourceType.CLUSTER: "kafka-cluster", ResourceType.USER: "User:carol"}
    for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
        for resource_type in ResourceType:
            parent = acl_path(ResourcePattern(resource_type, "", pattern_type)).rstrip("/")
            yield Create(parent, None)
            if pattern_type is PatternType.PREFIXED and resource_type is ResourceType.CLUSTER:
                continue
            name = names.get(resource_type, f"{node_name(resource_type)} näme%2F: *")
            pattern = ResourcePattern(resource_type, name, pattern_type)
            held.setdefault(pattern, []).extend((allow, deny))
    wildcard = ResourcePattern(ResourceType.TOPIC, "*", PatternType.LITERAL)
    anybody = AclEntry("User:*", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
    held.setdefault(wildcard, []).append(anybody)
    for pattern, entries in held.items():
        yield Create(acl_path(pattern), encode_acls(entries))
    yield Create(paths.LITERAL_ACL_CHANGES, None)
    yield Create(paths.PREFIXED_ACL_CHANGES, None)


def _tokens(options: FillOptions) -> Iterator[ZkOp]:
    yield Create(paths.TOKEN_CHANGES, None)
    for number, (owner, token_id) in enumerate(zip(TOKEN_OWNERS, token_ids(options.seed), strict=True)):
        token = DelegationTokenRecord(
            token_id=token_id,
            owner=owner,
            requester="User:admin",
            renewers=("User:bob", "User:a+b/c") if number else (),
            issue_timestamp=options.now_ms,
            max_timestamp=options.now_ms + 7 * TOKEN_LIFE_MS,
            expiration_timestamp=options.now_ms + TOKEN_LIFE_MS,
        )
        yield Create(paths.token(token_id), encode_token(token))


def token_ids(seed: int = 0) -> list[str]:
    """The ids of the delegation tokens that a fill with this seed makes."""
    raw = [hashlib.sha256(f"{seed}-{number}".encode()).digest()[:16] for number in range(len(TOKEN_OWNERS))]
    return [base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in raw]


def _await(result: object, batch: list[ZkOp]) -> None:
    answers = result.get()  # type: ignore[attr-defined]
    for operation, answer in zip(batch, answers, strict=True):
        if isinstance(answer, Exception):
            raise OperatorError(
                f"ZooKeeper refused to write it: {type(answer).__name__}",
                where=operation.path,
                remedy="The drill fills an empty ZooKeeper; give it another directory",
            )
