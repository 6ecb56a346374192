"""Names the entities of ZooKeeper that a change of the image touches, as `reconcile.repair` takes them. Pure.

The coordinator asks it after a takeover: only these entities differ from ZooKeeper. It names too many rather than too
few, and None where it cannot know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from migrator.image.model import Changes, ImageDelta, MetadataImage
from migrator.migration.translate import names
from migrator.migration.translate.entity import EntityKind, entity_name
from migrator.migration.translate.target import is_kept, pattern_of
from migrator.records.metadata import ConfigResourceType
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import acl_path


def touched_at_most(changes: Changes) -> int:
    """An upper bound of the number of entities, from the sizes of the changes."""
    several = (changes.topics, changes.partitions, changes.configs, changes.quotas, changes.acls, changes.scram)
    return sum(map(len, several)) + len(changes.tokens) + changes.producer_ids


def znodes_of(image: MetadataImage, entities: Iterable[str]) -> int:
    """About how many znodes have to be read to compare these entities: one each, and one for each partition."""
    return sum(1 + _partitions(image, entity) for entity in entities)


def _partitions(image: MetadataImage, entity: str) -> int:
    """The number of partitions, also for the config of a topic: the whole topic is read again."""
    topic = image.topics.by_name(entity.partition(" ")[2].removeprefix("topics/"))
    return 0 if topic is None else len(topic.partitions)


def touched(delta: ImageDelta) -> frozenset[str] | None:
    """The names of the entities, from before or after the change. None when something was created and removed again
    within the change: its name is unknown here, and a leader may have written it in between."""
    names = frozenset((*_topics(delta), *_configs(delta.changes), *_others(delta)))
    return None if None in names else frozenset(filter(None, names))


def _topics(delta: ImageDelta) -> Iterator[str | None]:
    before, after = delta.before.topics.by_id, delta.after.topics.by_id
    for topic_id in {*delta.changes.topics, *delta.changes.partitions}:
        topic = after.get(topic_id, before.get(topic_id))
        yield None if topic is None else entity_name(EntityKind.TOPIC, topic.name)


def _configs(changes: Changes) -> Iterator[str]:
    for resource in filter(is_kept, changes.configs):
        if resource.resource_type == ConfigResourceType.TOPIC:
            yield entity_name(EntityKind.TOPIC, resource.name)
        else:
            yield entity_name(EntityKind.CONFIG, names.config_name(resource) or "")
    for key in {*changes.quotas, *(names.user_key(scram.user) for scram in changes.scram)}:
        name = names.quota_name(key)
        if name is not None:
            yield entity_name(EntityKind.CONFIG, "/".join(name.split("/")[:2]))


def _others(delta: ImageDelta) -> Iterator[str | None]:
    changes = delta.changes
    if changes.producer_ids:
        yield entity_name(EntityKind.PRODUCER_IDS)
    for acl_id in changes.acls:
        acls = [image.acls[acl_id] for image in (delta.before, delta.after) if acl_id in image.acls]
        if not acls:
            yield None
        for pattern in map(pattern_of, acls):
            if paths.is_legal_name(pattern.name):
                yield entity_name(EntityKind.ACLS, acl_path(pattern))
    for token_id in filter(paths.is_legal_name, changes.tokens):
        yield entity_name(EntityKind.TOKEN, token_id)
