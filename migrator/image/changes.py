"""Arithmetic on `Changes`: gathering, merging, and finding them out by comparing two images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from migrator.image.model import Changes, MetadataImage, TopicImage
from migrator.image.tracked import Interner
from migrator.records.uuid import Uuid

NO_CHANGES = Changes()
TOPICS_AT_ONCE = 500
"""Compared in one slice: some milliseconds, unless topics have very many partitions."""


def merge_changes(parts: Iterable[Changes]) -> Changes:
    """The changes of several deltas, one after the other, as those of one delta."""
    known = list(parts)
    if len(known) < 2:
        return known[0] if known else NO_CHANGES
    return Changes(
        features=any(part.features for part in known),
        zk_migration_state=any(part.zk_migration_state for part in known),
        brokers=frozenset[int]().union(*(part.brokers for part in known)),
        controllers=frozenset[int]().union(*(part.controllers for part in known)),
        topics=frozenset[Uuid]().union(*(part.topics for part in known)),
        partitions=_merge_partitions(known),
        configs=known[0].configs.union(*(part.configs for part in known)),
        quotas=known[0].quotas.union(*(part.quotas for part in known)),
        producer_ids=any(part.producer_ids for part in known),
        acls=known[0].acls.union(*(part.acls for part in known)),
        scram=known[0].scram.union(*(part.scram for part in known)),
        tokens=known[0].tokens.union(*(part.tokens for part in known)),
        records=sum(part.records for part in known),
    )


def _merge_partitions(parts: list[Changes]) -> Mapping[Uuid, frozenset[int]]:
    merged: dict[Uuid, frozenset[int]] = {}
    for part in parts:
        for topic_id, partitions in part.partitions.items():
            known = merged.get(topic_id)
            merged[topic_id] = partitions if known is None else known | partitions
    return merged


def undo_changes(parts: Iterable[Changes], image: MetadataImage) -> Changes:
    """The changes of the way back along several deltas, to ``image``: topics that they deleted are there again,
    with all their partitions."""
    forth = merge_changes(parts)
    back = {
        topic_id: frozenset(image.topics.by_id[topic_id].partitions)
        for topic_id in forth.topics
        if topic_id in image.topics.by_id
    }
    return replace(forth, partitions={**forth.partitions, **back})


def compare_images(before: MetadataImage, after: MetadataImage) -> Iterator[Changes | None]:
    """Exactly what differs between two images, in slices: yields None after every so many topics, at last the changes.

    For a snapshot that replaces an image, where no records lead from the one to the other.
    """
    old, new = before.topics.by_id, after.topics.by_id
    topics = [topic_id for topic_id in {*old, *new} if old.get(topic_id) is not new.get(topic_id)]
    partitions: dict[Uuid, frozenset[int]] = {}
    intern = Interner()
    for start in range(0, len(topics), TOPICS_AT_ONCE):
        yield None
        for topic_id in topics[start : start + TOPICS_AT_ONCE]:
            changed = _differing_partitions(old.get(topic_id), new.get(topic_id))
            if changed:
                partitions[topic_id] = intern(changed)
    yield None
    yield Changes(
        features=before.features.levels != after.features.levels,
        zk_migration_state=_migration(before) != _migration(after),
        brokers=_differing(before.cluster.brokers, after.cluster.brokers),
        controllers=_differing(before.cluster.controllers, after.cluster.controllers),
        topics=frozenset(topic_id for topic_id in topics if topic_id not in old or topic_id not in new),
        partitions=partitions,
        configs=_differing(before.configs, after.configs),
        quotas=_differing(before.quotas, after.quotas),
        producer_ids=before.producer_ids_next != after.producer_ids_next,
        acls=_differing(before.acls, after.acls),
        scram=_differing(before.scram, after.scram),
        tokens=_differing(before.tokens, after.tokens),
    )


def _differing(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> frozenset[Any]:
    if before is after:
        return frozenset()
    changed = {key for key, value in after.items() if before.get(key) != value}
    changed.update(key for key in before if key not in after)
    return frozenset(changed)


def _migration(image: MetadataImage) -> tuple[object, ...]:
    return image.features.zk_migration_state, image.features.migration_hold


def _differing_partitions(before: TopicImage | None, after: TopicImage | None) -> frozenset[int]:
    """Of the topic as it is after; none for one that is gone."""
    if after is None:
        return frozenset()
    if before is None:
        return frozenset(after.partitions)
    old = before.partitions
    return frozenset(number for number, state in after.partitions.items() if old.get(number) != state)
