"""Compares idle light brokers with the metadata image.

`LightCluster` calls it at the end of phases. A broker must have cached exactly the image, and host exactly its
replicas. Each difference is a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from migrator.drill.light.broker import LightBroker
from migrator.drill.light.metadata_cache import CachedBroker, CachedPartition
from migrator.image.model import MetadataImage, PartitionRegistration, TopicImage

MAX_EXAMPLES = 5


def differences(broker: LightBroker, image: MetadataImage) -> list[str]:
    """A sentence for each difference, at most `MAX_EXAMPLES` of each sort; empty when all is equal."""
    name = f"broker {broker.options.broker_id}"
    found: list[str] = []
    for sort in (
        _cached_topics(broker, image),
        _cached_brokers(broker, image),
        _hosted(broker, image),
        _lost(broker, image),
    ):
        examples = []
        for count, text in enumerate(sort, 1):
            if count > MAX_EXAMPLES:
                examples.append(f"{name}: and more like this")
                break
            examples.append(f"{name}: {text}")
        found += examples
    return found


def _cached_topics(broker: LightBroker, image: MetadataImage) -> Iterator[str]:
    cache = broker.cache
    for name in cache.topics.keys() - image.topics.ids.keys():
        yield f"its cache has topic {name!r}, the image has not"
    for topic in image.topics.by_id.values():
        cached = cache.topics.get(topic.name)
        if cached is None:
            yield f"its cache lacks topic {topic.name!r}"
        elif cache.topic_ids.get(topic.name) != UUID(bytes=topic.topic_id):
            yield f"its cache has another id for topic {topic.name!r}"
        elif cached.keys() != topic.partitions.keys():
            yield f"its cache has partitions {sorted(cached)} of topic {topic.name!r}"
        else:
            yield from _cached_partitions(topic, cached)


def _cached_partitions(topic: TopicImage, cached: dict[int, CachedPartition]) -> Iterator[str]:
    for index, expected in topic.partitions.items():
        seen = cached[index]
        same = (
            seen.leader == expected.leader
            and seen.leader_epoch == expected.leader_epoch
            and seen.partition_epoch == expected.partition_epoch
            and set(seen.isr) == set(expected.isr)
            and seen.replicas == tuple(expected.replicas)
        )
        if not same:
            yield f"its cache has {seen} for {topic.name}-{index}, the image {expected}"


def _cached_brokers(broker: LightBroker, image: MetadataImage) -> Iterator[str]:
    expected = {
        registration.broker_id: CachedBroker(
            frozenset((end.name, end.host, end.port) for end in registration.listeners), registration.rack
        )
        for registration in image.cluster.brokers.values()
    }
    if dict(broker.cache.brokers) != expected:
        yield f"its cache has the brokers {dict(broker.cache.brokers)}, the image {expected}"


def _hosted(broker: LightBroker, image: MetadataImage) -> Iterator[str]:
    broker_id = broker.options.broker_id
    expected = {
        (topic.name, index): (topic, partition)
        for topic in image.topics.by_id.values()
        for index, partition in topic.partitions.items()
        if broker_id in partition.replicas
    }
    for key in broker.replicas.logs.keys() - expected.keys():
        yield f"it holds {key[0]}-{key[1]}, which is not its own"
    for key, (topic, partition) in expected.items():
        yield from _replica(broker, key, topic, partition)


def _replica(
    broker: LightBroker, key: tuple[str, int], topic: TopicImage, expected: PartitionRegistration
) -> Iterator[str]:
    held = broker.replicas.hosted.get(key)
    if held is None:
        yield f"it does not hold {key[0]}-{key[1]}"
    elif held.topic_id != UUID(bytes=topic.topic_id):
        yield f"it holds {key[0]}-{key[1]} under another topic id"
    elif (held.leader, held.leader_epoch) != (expected.leader, expected.leader_epoch):
        yield f"it follows {held} in {key[0]}-{key[1]}, the image {expected}"


def _lost(broker: LightBroker, image: MetadataImage) -> Iterator[str]:
    """Existing topics that the broker was told to drop, or whose logs it has set aside, at some time."""
    living = {UUID(bytes=topic_id) for topic_id in image.topics.by_id}
    for name, topic_id in sorted(broker.forgotten, key=str):
        if topic_id in living:
            yield f"it dropped topic {name!r} and its committed offsets, although it exists"
    for key, topic_id in broker.replicas.strays.items():
        if topic_id in living and key not in broker.replicas.hosted:
            yield f"it put its log of {key[0]}-{key[1]} aside, although it exists"
