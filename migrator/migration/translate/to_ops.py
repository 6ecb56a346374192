"""From one image to the next, as writes to a ZooKeeper that holds the first one. Nothing is read.

The operations are blind: where ZooKeeper is not as believed, one fails, and its entity is read again and repaired
(`reconcile.repair`). Deletions come before creations, and a topic that was deleted and created again is one entity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from migrator.image.model import Changes, DelegationToken, MetadataImage, PartitionRegistration, QuotaKey, TopicImage
from migrator.migration.translate import names
from migrator.migration.translate.entity import Effect, EntityKind, EntityWrite, entity_name
from migrator.migration.translate.target import (
    Target,
    acl_notice,
    assignment_of,
    config_notice,
    entry_of,
    is_kept,
    pattern_of,
    producer_ids_block,
    state_sets,
    token_notice,
)
from migrator.records.metadata import ConfigResourceType
from migrator.zookeeper.ops import Create, Delete, Op, SetData
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import AclEntry, ResourcePattern, acl_path, encode_acls
from migrator.zookeeper.znodes.delegation_tokens import encode_token
from migrator.zookeeper.znodes.producer_ids import encode_producer_ids
from migrator.zookeeper.znodes.topics import encode_topic


def delta_writes(before: MetadataImage, target: Target, changes: Changes) -> Iterator[EntityWrite]:
    """What leads a ZooKeeper that holds ``before`` to ``target.image``, lazily, deletions of topics first."""
    yield from _topics(before, target, changes)
    yield from _configs(before, target, changes)
    yield from _clients(before, target, changes)
    if changes.producer_ids and target.image.producer_ids_next > max(before.producer_ids_next, 0):
        data = encode_producer_ids(producer_ids_block(target.image.producer_ids_next))
        yield EntityWrite(entity_name(EntityKind.PRODUCER_IDS), (SetData(paths.PRODUCER_IDS, data),))
    yield from _acls(before, target, changes)
    yield from _tokens(before, target, changes)


def create_topic(topic: TopicImage, target: Target) -> Iterator[Op]:
    """A topic with its config, parents first. Brokers read the config when they create its logs, so no notice."""
    yield Create(paths.topic(topic.name), encode_topic(assignment_of(topic)))
    config = target.config(names.topic_resource(topic.name))
    yield Create(paths.topic_config(topic.name), target.encode_config(config))
    yield Create(paths.partitions(topic.name), None)
    for number in sorted(topic.partitions):
        yield from create_partition(topic.name, number, topic.partitions[number], target)


def create_partition(topic: str, number: int, partition: PartitionRegistration, target: Target) -> Iterator[Op]:
    """A partition with its state, set until its version is the partition epoch."""
    yield Create(paths.partition(topic, number), None)
    yield from create_state(topic, number, partition, target)


def create_state(topic: str, number: int, partition: PartitionRegistration, target: Target) -> Iterator[Op]:
    """As `create_partition`, where the partition's znode exists."""
    path, data = paths.partition_state(topic, number), target.partition_state(partition)
    yield Create(path, data)
    yield from state_sets(path, data, partition.partition_epoch)


def _delete_topic(topic: TopicImage) -> Iterator[Op]:
    for number in sorted(topic.partitions):
        yield Delete(paths.partition_state(topic.name, number))
        yield Delete(paths.partition(topic.name, number))
    yield Delete(paths.partitions(topic.name))
    yield Delete(paths.topic_config(topic.name))
    yield Delete(paths.topic(topic.name))


def _topics(before: MetadataImage, target: Target, changes: Changes) -> Iterator[EntityWrite]:
    old_topics, new_topics = before.topics.by_id, target.image.topics.by_id
    gone = {
        old_topics[id_].name: old_topics[id_] for id_ in changes.topics if id_ in old_topics and id_ not in new_topics
    }
    new = {
        new_topics[id_].name: new_topics[id_] for id_ in changes.topics if id_ in new_topics and id_ not in old_topics
    }
    for name in sorted(gone):
        ops = [*_delete_topic(gone[name])]
        effect = Effect.DELETE
        if name in new:
            ops += create_topic(new[name], target)
            effect = Effect.REPLACE
        yield EntityWrite(entity_name(EntityKind.TOPIC, name), tuple(ops), effect=effect)
    for name in sorted(new.keys() - gone.keys()):
        yield EntityWrite(
            entity_name(EntityKind.TOPIC, name), tuple(create_topic(new[name], target)), effect=Effect.CREATE
        )
    for topic_id in sorted({*changes.partitions, *changes.topics}):
        if topic_id in old_topics and topic_id in new_topics:
            yield from _changed_topic(old_topics[topic_id], new_topics[topic_id], target, changes)


def _changed_topic(old: TopicImage, new: TopicImage, target: Target, changes: Changes) -> Iterator[EntityWrite]:
    numbers = changes.partitions.get(new.topic_id, frozenset([*new.partitions, *old.partitions]))
    ops: list[Op] = []
    reassigned = False
    for number in sorted(numbers):
        before, after = old.partitions.get(number), new.partitions.get(number)
        if before == after or after is None:  # a topic never loses partitions
            continue
        reassigned = reassigned or before is None or _assignment(before) != _assignment(after)
        if before is None:
            ops += create_partition(new.name, number, after, target)
        else:
            ops += _state_changes(new.name, number, before, after, target)
    if reassigned:
        ops.insert(0, SetData(paths.topic(new.name), encode_topic(assignment_of(new))))
    if ops:
        yield EntityWrite(entity_name(EntityKind.TOPIC, new.name), tuple(ops))


def _state_changes(
    topic: str, number: int, before: PartitionRegistration, after: PartitionRegistration, target: Target
) -> tuple[Op, ...]:
    """As many sets as the partition epoch went up, which each change of a partition does by one."""
    sets = after.partition_epoch - before.partition_epoch
    if sets <= 0 and _state(before) == _state(after):
        return ()
    return state_sets(paths.partition_state(topic, number), target.partition_state(after), max(1, sets))


def _assignment(partition: PartitionRegistration) -> tuple[object, ...]:
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def _state(partition: PartitionRegistration) -> tuple[object, ...]:
    return partition.leader, partition.leader_epoch, partition.isr, partition.recovering


def _configs(before: MetadataImage, target: Target, changes: Changes) -> Iterator[EntityWrite]:
    """Configs of brokers, and of topics that both images have: those of new ones are created with them."""
    for resource in sorted(changes.configs, key=lambda changed: (changed.resource_type, changed.name)):
        name = names.config_name(resource)
        if name is None or not is_kept(resource) or before.configs.get(resource) == target.image.configs.get(resource):
            continue
        if resource.resource_type == ConfigResourceType.TOPIC:
            topic_id = target.image.topics.ids.get(resource.name)
            if topic_id is None or topic_id != before.topics.ids.get(resource.name):
                continue
            exists = True
        else:
            exists = resource in before.configs
        data = target.encode_config(target.config(resource))
        yield config_write(name, data, exists=exists, others=target.spellings.get(name, ()))


def _clients(before: MetadataImage, target: Target, changes: Changes) -> Iterator[EntityWrite]:
    """Quotas and credentials, which share the znodes of users."""
    keys: set[QuotaKey] = set(changes.quotas) | {names.user_key(scram.user) for scram in changes.scram}
    held = Target(before, passwords=target.passwords, controller_epoch=target.controller_epoch)
    for key in sorted(keys, key=lambda entities: names.quota_name(entities) or ""):
        name = names.quota_name(key)
        old, new = held.client_config(key), target.client_config(key)
        if old == new:
            continue
        if name is None:
            target.report(f"quota entity {sorted(map(repr, key))}", "ZooKeeper has no place for it")
            continue
        yield config_write(name, target.encode_config(new), exists=bool(old), others=target.spellings.get(name, ()))


def config_write(
    name: str, data: bytes, *, exists: bool, others: Iterable[str] = (), parents: tuple[Op, ...] = ()
) -> EntityWrite:
    """Set or create a config, and tell the brokers. An empty config stays as ``{}``, as brokers leave it.

    A user and its clients are one entity: a znode of the former is the parent of the latter.

    :param others: names of znodes that the entity has beside the canonical one. All say the same afterwards, or what
        was revoked would come back with the next broker that reads them. Brokers do not start with those of ips.
    """
    op, effect = _written(paths.config(name), data, exists=exists)
    more: list[Op] = [
        Delete(path) if name.startswith("ips/") else SetData(path, data) for path in map(paths.config, others)
    ]
    owner = "/".join(name.split("/")[:2])
    return EntityWrite(entity_name(EntityKind.CONFIG, owner), (*parents, op, *more), (config_notice(name),), effect)


def _acls(before: MetadataImage, target: Target, changes: Changes) -> Iterator[EntityWrite]:
    """Each resource pattern whose entries differ is written as a whole."""
    touched = {
        pattern_of(image.acls[acl_id])
        for image in (before, target.image)
        for acl_id in changes.acls
        if acl_id in image.acls
    }
    if not touched:
        return
    old, new = acl_entries(before, touched), acl_entries(target.image, touched)
    for pattern in sorted(touched, key=acl_path):
        if old.get(pattern) != new.get(pattern) and is_writable(pattern, target):
            yield acl_write(pattern, new.get(pattern), exists=pattern in old)


def acl_entries(
    image: MetadataImage, patterns: set[ResourcePattern] | None = None
) -> dict[ResourcePattern, frozenset[AclEntry]]:
    """The entries of all resource patterns, or of some."""
    found: dict[ResourcePattern, set[AclEntry]] = {}
    for acl in image.acls.values():
        pattern = pattern_of(acl)
        if patterns is None or pattern in patterns:
            found.setdefault(pattern, set()).add(entry_of(acl))
    return {pattern: frozenset(entries) for pattern, entries in found.items()}


def is_writable(pattern: ResourcePattern, target: Target) -> bool:
    """Whether ZooKeeper can hold ACLs of that name: KRaft allows a slash in it, which stock controllers loop over."""
    if paths.is_legal_name(pattern.name):
        return True
    target.report(acl_path(pattern), "ZooKeeper cannot hold an ACL resource of this name")
    return False


def acl_write(
    pattern: ResourcePattern, entries: frozenset[AclEntry] | None, *, exists: bool, parents: tuple[Op, ...] = ()
) -> EntityWrite:
    """Set, create or delete the ACLs of a resource pattern, and tell the brokers."""
    path = acl_path(pattern)
    op, effect = _written(path, None if entries is None else encode_acls(entries), exists=exists)
    return EntityWrite(entity_name(EntityKind.ACLS, path), (*parents, op), (acl_notice(pattern),), effect)


def is_writable_token(token_id: str, target: Target) -> bool:
    """Whether ZooKeeper can hold a token of that id."""
    if paths.is_legal_name(token_id):
        return True
    target.report(paths.token(token_id), "ZooKeeper cannot hold a token of this name")
    return False


def _tokens(before: MetadataImage, target: Target, changes: Changes) -> Iterator[EntityWrite]:
    for token_id in sorted(changes.tokens):
        old, new = before.tokens.get(token_id), target.image.tokens.get(token_id)
        if old == new:
            continue
        if is_writable_token(token_id, target):
            yield token_write(token_id, new, exists=old is not None)


def token_write(
    token_id: str, token: DelegationToken | None, *, exists: bool, parents: tuple[Op, ...] = ()
) -> EntityWrite:
    """Set, create or delete a delegation token, and tell the brokers."""
    op, effect = _written(paths.token(token_id), None if token is None else encode_token(token), exists=exists)
    return EntityWrite(entity_name(EntityKind.TOKEN, token_id), (*parents, op), (token_notice(token_id),), effect)


def _written(path: str, data: bytes | None, *, exists: bool) -> tuple[Op, Effect]:
    """What leads a znode to that data, and to be gone if that is None."""
    if data is None:
        return Delete(path), Effect.DELETE
    return (SetData(path, data), Effect.CHANGE) if exists else (Create(path, data), Effect.CREATE)
