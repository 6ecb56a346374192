"""Computes with `Changes`, the keys that differ between two images: join, merge, undo, and compare.

The loader and all parts that follow the image use it. Merged changes name at least every key that differs, and perhaps
some that do not; `compare_images` is exact. `merge_steps` and `compare_images` are generators, which yield where a turn
of the event loop is over.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from immutables import Map

from migrator.image.model import Changes, MetadataImage, TopicImage
from migrator.image.tracked import Interner
from migrator.records.uuid import Uuid
from migrator.turns import TURN_RECORDS, Turn

NO_CHANGES = Changes()
_SETS = ("brokers", "controllers", "topics", "configs", "quotas", "acls", "scram", "tokens")


def join_changes(parts: list[Changes], more: Iterable[Changes]) -> None:
    """Append the changes of later deltas to those of earlier ones. Small neighbours are merged, up to the size of one
    turn, so that a million deltas of one record are not a million objects. Each is merged a few times at most."""
    for part in more:
        parts.append(part)
        while len(parts) > 1 and parts[-2].records <= parts[-1].records <= TURN_RECORDS - parts[-2].records:
            parts[-2:] = [merge_changes(parts[-2:])]


def merge_changes(parts: Iterable[Changes]) -> Changes:
    """The changes of several successive deltas as those of one delta."""
    known = list(parts)
    if len(known) < 2:
        return known[0] if known else NO_CHANGES
    merged = _Merged()
    for part in known:
        merged.add(part)
    return merged.changes()


def merge_steps(parts: Iterable[Changes]) -> Generator[None, None, Changes]:
    """Like `merge_changes`, in steps: yields where a turn of the event loop is over."""
    known = list(parts)
    if len(known) == 1 and known[0].records < TURN_RECORDS - 1:
        return known[0]  # mostly the records of one batch
    merged, turn = _Merged(), Turn()
    for part in known:
        merged.add(part)
        if turn.is_over(1 + part.records):
            yield
    return merged.changes()


class _Merged:
    """The merged changes of the deltas added so far."""

    __slots__ = ("_features", "_partitions", "_producer_ids", "_records", "_sets", "_zk_migration_state")

    def __init__(self) -> None:
        self._features = self._zk_migration_state = self._producer_ids = False
        self._records = 0
        self._sets: dict[str, set[Any]] = {name: set() for name in _SETS}
        self._partitions: dict[Uuid, frozenset[int]] = {}

    def add(self, part: Changes) -> None:
        """Add the changes of the next delta."""
        self._features |= part.features
        self._zk_migration_state |= part.zk_migration_state
        self._producer_ids |= part.producer_ids
        self._records += part.records
        for name, entities in self._sets.items():
            entities.update(getattr(part, name))
        for topic_id, partitions in part.partitions.items():
            known = self._partitions.get(topic_id)
            self._partitions[topic_id] = partitions if known is None else known | partitions

    def changes(self) -> Changes:
        """The merged changes. Nothing may be added afterwards."""
        return Changes(
            features=self._features,
            zk_migration_state=self._zk_migration_state,
            partitions=self._partitions,
            producer_ids=self._producer_ids,
            records=self._records,
            **{name: frozenset(entities) for name, entities in self._sets.items()},
        )


def undo_changes(parts: Iterable[Changes], image: MetadataImage) -> Changes:
    """The changes of going back over several deltas to ``image``. Topics that the deltas deleted exist again, so all
    their partitions count as changed."""
    forth = merge_changes(parts)
    back = {
        topic_id: frozenset(image.topics.by_id[topic_id].partitions)
        for topic_id in forth.topics
        if topic_id in image.topics.by_id
    }
    return replace(forth, partitions={**forth.partitions, **back})


def compare_images(before: MetadataImage, after: MetadataImage) -> Iterator[Changes | None]:
    """The exact differences between two images. Yields None where a turn is over, and the changes at the end.

    It is for a snapshot that replaces an image: no records lead from one to the other.
    """
    turn = Turn()
    topics, partitions = yield from _differing_topics(before.topics.by_id, after.topics.by_id, turn)
    yield Changes(
        features=before.features.levels != after.features.levels,
        zk_migration_state=before.features.migration != after.features.migration,
        brokers=(yield from _differing(before.cluster.brokers, after.cluster.brokers, turn)),
        controllers=(yield from _differing(before.cluster.controllers, after.cluster.controllers, turn)),
        topics=topics,
        partitions=partitions,
        configs=(yield from _differing(before.configs, after.configs, turn)),
        quotas=(yield from _differing(before.quotas, after.quotas, turn)),
        producer_ids=before.producer_ids_next != after.producer_ids_next,
        acls=(yield from _differing(before.acls, after.acls, turn)),
        scram=(yield from _differing(before.scram, after.scram, turn)),
        tokens=(yield from _differing(before.tokens, after.tokens, turn)),
    )


def _differing(
    before: Mapping[Any, Any], after: Mapping[Any, Any], turn: Turn
) -> Generator[None, None, frozenset[Any]]:
    if before is after:
        return frozenset()
    changed = set()
    for key, value in after.items():
        if before.get(key) != value:
            changed.add(key)
        if turn.is_over():
            yield
    for key in before:
        if key not in after:
            changed.add(key)
        if turn.is_over():
            yield
    return frozenset(changed)


def _differing_topics(
    before: Map[Uuid, TopicImage], after: Map[Uuid, TopicImage], turn: Turn
) -> Generator[None, None, tuple[frozenset[Uuid], Mapping[Uuid, frozenset[int]]]]:
    """The topics that only one image has, and the partitions that are new or differ."""
    intern, one_sided, partitions = Interner(), set(), {}
    for topic_id, topic in after.items():
        old = before.get(topic_id)
        if old is None:
            one_sided.add(topic_id)
        changed = frozenset[int]() if old is topic else _differing_partitions(old, topic)
        if changed:
            partitions[topic_id] = intern(changed)
        if turn.is_over(1 if old is topic else 1 + len(topic.partitions)):
            yield
    for topic_id in before:
        if topic_id not in after:
            one_sided.add(topic_id)
        if turn.is_over():
            yield
    return frozenset(one_sided), partitions


def _differing_partitions(before: TopicImage | None, after: TopicImage) -> frozenset[int]:
    if before is None:
        return frozenset(after.partitions)
    old = before.partitions
    return frozenset(number for number, state in after.partitions.items() if old.get(number) != state)
