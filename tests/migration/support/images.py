"""Images with every family that ZooKeeper knows, small enough for two random ones to have much in common."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from hypothesis import strategies as st
from immutables import Map

from migrator.image.builder import ImageBuilder
from migrator.image.model import (
    EMPTY_IMAGE,
    Acl,
    ConfigResource,
    MetadataImage,
    PartitionRegistration,
    Provenance,
    ScramCredential,
    ScramKey,
    TopicImage,
    TopicsImage,
)
from migrator.migration.translate.target import Target
from migrator.migration.translate.to_records import OnFault, RecordReader, stop
from migrator.records.metadata import ConfigResourceType, DelegationTokenRecord, MetadataRecord, QuotaEntity
from migrator.records.uuid import Uuid
from migrator.zookeeper.ops import Applied, Failed, ZkSource
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import decode_config
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.migration.model.zookeeper import ModelZooKeeper

PASSWORDS = PasswordEncoder("secret", random.Random(7).randbytes, iterations=1)
CONTROLLER_EPOCH = 9
NOTICES = (paths.CONFIG_CHANGES, paths.LITERAL_ACL_CHANGES, paths.PREFIXED_ACL_CHANGES, paths.TOKEN_CHANGES)

brokers = st.lists(st.integers(1, 4), min_size=1, max_size=3, unique=True).map(tuple)
some_brokers = st.lists(st.integers(1, 4), max_size=2, unique=True).map(tuple)
users = st.sampled_from(["alice", "c@@l dude*", "a/b", "<default>"])
partitions = st.builds(
    PartitionRegistration,
    replicas=brokers,
    isr=brokers,
    removing_replicas=some_brokers,
    adding_replicas=some_brokers,
    leader=st.integers(-1, 4),
    recovering=st.booleans(),
    leader_epoch=st.integers(0, 3),
    partition_epoch=st.integers(0, 3),
)
config_keys = st.sampled_from(["retention.ms", "cleanup.policy", "listener.name.x.ssl.key.password"])
config_maps = st.dictionaries(config_keys, st.sampled_from(["1", "compact", "ü, \U0001f600"]), min_size=1)
quota_maps = st.dictionaries(
    st.sampled_from(["producer_byte_rate", "request_percentage"]), st.sampled_from([1.0, 1024.0, 12.0]), min_size=1
)
names_or_default = st.none() | users
quota_keys = st.one_of(
    st.builds(lambda user: frozenset([QuotaEntity("user", user)]), names_or_default),
    st.builds(lambda client: frozenset([QuotaEntity("client-id", client)]), names_or_default),
    st.builds(
        lambda user, client: frozenset([QuotaEntity("user", user), QuotaEntity("client-id", client)]),
        names_or_default,
        names_or_default,
    ),
    st.builds(lambda ip: frozenset([QuotaEntity("ip", ip)]), st.none() | st.sampled_from(["10.0.0.1", "::1"])),
)
credentials = st.builds(
    ScramCredential, st.binary(max_size=3), st.binary(max_size=3), st.binary(max_size=3), st.just(4096)
)
acls = st.builds(
    Acl,
    resource_type=st.sampled_from([2, 3, 4, 5, 6, 7]),
    resource_name=st.sampled_from(["*", "foo", "kafka-cluster"]),
    pattern_type=st.sampled_from([3, 4]),
    principal=st.sampled_from(["User:alice", "User:*"]),
    host=st.just("*"),
    operation=st.sampled_from([2, 3, 8]),
    permission_type=st.sampled_from([2, 3]),
)


def uuid(number: int) -> Uuid:
    return Uuid((1000 + number).to_bytes(16, "big"))


@st.composite
def images(draw: st.DrawFn) -> MetadataImage:
    topics: dict[Uuid, TopicImage] = {}
    for number, name in draw(st.lists(st.sampled_from([(0, "a"), (2, "b.c"), (4, "b_c")]), unique=True)):
        topic_id = uuid(number + draw(st.integers(0, 1)))
        listed = draw(st.lists(partitions, max_size=2))
        topics[topic_id] = TopicImage(name, topic_id, Map(enumerate(listed)))
    resources = [ConfigResource(ConfigResourceType.BROKER, name) for name in ("", "1", "22")]
    resources += [ConfigResource(ConfigResourceType.TOPIC, topic.name) for topic in topics.values()]
    configs = draw(st.dictionaries(st.sampled_from(resources), config_maps.map(Map), max_size=3))
    scram_keys = st.builds(ScramKey, st.sampled_from([1, 2]), users)
    tokens: dict[str, DelegationTokenRecord] = {}
    for token_id in draw(st.lists(st.sampled_from(["t1", "t-2_"]), unique=True)):
        expiry = draw(st.integers(3, 4))
        tokens[token_id] = DelegationTokenRecord("User:a b", "User:c", ("User:d",), 1, 5, expiry, token_id)
    entries = sorted(draw(st.frozensets(acls, max_size=4)), key=repr)
    return replace(
        EMPTY_IMAGE,
        topics=TopicsImage(Map(topics), Map({topic.name: topic_id for topic_id, topic in topics.items()})),
        configs=Map(configs),
        quotas=Map(draw(st.dictionaries(quota_keys, quota_maps.map(Map), max_size=3))),
        producer_ids_next=draw(st.sampled_from([-1, 1000, 3000])),
        acls=Map({uuid(500 + abs(hash(entry)) % 10**9): entry for entry in entries}),
        scram=Map(draw(st.dictionaries(scram_keys, credentials, max_size=2))),
        tokens=Map(tokens),
    )


def grown_from(before: MetadataImage, after: MetadataImage) -> MetadataImage:
    """``after`` without the one thing that cannot happen: a topic that has lost partitions."""
    by_id = after.topics.by_id
    for topic_id, topic in after.topics.by_id.items():
        old = before.topics.by_id.get(topic_id)
        if old is not None:
            by_id = by_id.set(topic_id, replace(topic, partitions=Map({**old.partitions, **topic.partitions})))
    return replace(after, topics=replace(after.topics, by_id=by_id))


def comparable(image: MetadataImage) -> dict[str, Any]:
    """The part of an image that ZooKeeper keeps, without ids of ACLs."""
    return {
        "topics": {
            topic.name: (
                topic.topic_id,
                {number: replace(part, directories=()) for number, part in topic.partitions.items()},
            )
            for topic in image.topics.by_id.values()
        },
        "configs": {resource: dict(config) for resource, config in image.configs.items() if config},
        "quotas": {key: dict(quotas) for key, quotas in image.quotas.items() if quotas},
        "producer ids": max(image.producer_ids_next, 0),
        "acls": set(image.acls.values()),
        "scram": dict(image.scram),
        "tokens": dict(image.tokens),
    }


def target(image: MetadataImage) -> Target:
    return Target(image, passwords=PASSWORDS, controller_epoch=CONTROLLER_EPOCH)


def empty_cluster() -> ModelZooKeeper:
    """A ZooKeeper with the parents that every broker creates."""
    zookeeper = ModelZooKeeper()
    for path in paths.STANDARD_PATHS:
        zookeeper.create(path, parents=True)
    return zookeeper


def apply(zookeeper: ModelZooKeeper, writes: Iterable[Any]) -> int:
    """Apply the writes of a reconcile, all of which must succeed; how many there were."""
    count = 0
    for write in writes:
        outcome = zookeeper.multi((*write.ops, *write.notices))
        assert isinstance(outcome, Applied), (outcome, write)
        count += 1
    return count


def apply_with_repairs(zookeeper: ModelZooKeeper, writes: Iterable[Any], repair: Any) -> None:
    """As a write-behind does: what fails is read again, once."""
    for write in writes:
        match zookeeper.multi((*write.ops, *write.notices)):
            case Failed():
                apply(zookeeper, repair(write.entity))


def read_image(records: Iterable[MetadataRecord]) -> MetadataImage:
    builder = ImageBuilder(EMPTY_IMAGE)
    for record in records:
        builder.replay(record)
    return builder.build(Provenance(1, 1, 1))[0]


def image_from(zookeeper: ModelZooKeeper) -> MetadataImage:
    return read_image(copy_records(zookeeper, passwords=PASSWORDS, random=random.Random(3)))


def content(zookeeper: ModelZooKeeper) -> Mapping[str, object]:
    """The content of a ZooKeeper: without notices, empty configs and empty parents, passwords in the clear."""
    found: dict[str, object] = {}
    for path, data in zookeeper.dump().items():
        if path.startswith(NOTICES) or data is None:
            continue
        if path.startswith(f"{paths.CONFIG}/"):
            config = decode_config(path, data)
            plain = {
                key: PASSWORDS.decode(path, key, text) if "password" in key else text for key, text in config.items()
            }
            if plain or path.startswith(paths.TOPIC_CONFIGS):
                found[path] = plain
        else:
            found[path] = data
    return found


def copy_records(
    zookeeper: ZkSource, *, passwords: PasswordEncoder, random: random.Random, on_fault: OnFault = stop
) -> Iterator[MetadataRecord]:
    """Every record of a copy, in Kafka's order; errors as `RecordReader.all_records`."""
    reader = RecordReader(zookeeper, passwords=passwords, random=random, on_fault=on_fault)
    return chain.from_iterable(reader.all_records())
