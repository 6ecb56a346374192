"""Derives the writes that lead ZooKeeper from one image to the next. Nothing is read.

The operations assume that ZooKeeper holds the first image: otherwise one fails, and its entity is read again and
repaired (`reconcile.repair`). Deletions come before creations, and a topic that was deleted and created again is one
entity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from migrator.controller.acl_index import AclIndex
from migrator.image.model import Changes, MetadataImage, PartitionRegistration, QuotaKey, TopicImage
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
from migrator.records.metadata import ConfigResourceType, DelegationTokenRecord
from migrator.turns import Turn, in_order
from migrator.zookeeper.ops import Create, Delete, Op, SetData
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.acls import AclEntry, ResourcePattern, acl_path, encode_acls
from migrator.zookeeper.znodes.delegation_tokens import encode_token
from migrator.zookeeper.znodes.producer_ids import encode_producer_ids
from migrator.zookeeper.znodes.topics import encode_topic

Steps = Iterator[EntityWrite | None]
"""Writes, and None where a turn of the event loop is over."""


def delta_writes(before: MetadataImage, target: Target, changes: Changes) -> Iterator[EntityWrite]:
    """All writes of `delta_steps`, at once."""
    return filter(None, delta_steps(before, target, changes, AclIndex.of(before.acls) if changes.acls else AclIndex()))


def delta_steps(before: MetadataImage, target: Target, changes: Changes, acls: AclIndex) -> Steps:
    """Yield the writes that lead ZooKeeper from ``before`` to ``target.image``, deletions of topics first.

    :param acls: the ACLs of ``before``; used only if access control entries have changed.
    """
    yield from _topics(before, target, changes)
    yield from _configs(before, target, changes)
    yield from _clients(before, target, changes)
    if changes.producer_ids and target.image.producer_ids_next > max(before.producer_ids_next, 0):
        data = encode_producer_ids(producer_ids_block(target.image.producer_ids_next))
        yield EntityWrite(entity_name(EntityKind.PRODUCER_IDS), (SetData(paths.PRODUCER_IDS, data),))
    yield from _acls(before, target, changes, acls)
    yield from _tokens(before, target, changes)


def create_topic(topic: TopicImage, target: Target) -> Iterator[Op]:
    """Create a topic with its config, parents first. Brokers read the config when they create the logs, so it needs no
    notice."""
    yield Create(paths.topic(topic.name), encode_topic(assignment_of(topic)))
    config = target.config(names.topic_resource(topic.name))
    yield Create(paths.topic_config(topic.name), target.encode_config(config))
    yield Create(paths.partitions(topic.name), None)
    for number in sorted(topic.partitions):
        yield from create_partition(topic.name, number, topic.partitions[number], target)


def create_partition(topic: str, number: int, partition: PartitionRegistration, target: Target) -> Iterator[Op]:
    """Create a partition with its state, which is set until its version is the partition epoch."""
    yield Create(paths.partition(topic, number), None)
    yield from create_state(topic, number, partition, target)


def create_state(topic: str, number: int, partition: PartitionRegistration, target: Target) -> Iterator[Op]:
    """Like `create_partition`, where the partition's znode exists."""
    path, data = paths.partition_state(topic, number), target.partition_state(partition)
    yield Create(path, data)
    yield from target.raising(topic, path, data, partition.partition_epoch)


def _delete_topic(topic: TopicImage) -> Iterator[Op]:
    for number in sorted(topic.partitions):
        yield Delete(paths.partition_state(topic.name, number))
        yield Delete(paths.partition(topic.name, number))
    yield Delete(paths.partitions(topic.name))
    yield Delete(paths.topic_config(topic.name))
    yield Delete(paths.topic(topic.name))


def _topics(before: MetadataImage, target: Target, changes: Changes) -> Steps:
    old, new = before.topics.by_id, target.image.topics.by_id
    gone, born, turn = dict[str | None, TopicImage](), dict[str | None, TopicImage](), Turn()
    for topic_id in changes.topics:
        was, now = old.get(topic_id), new.get(topic_id)
        if was is not None and now is None:
            gone[was.name] = was
        if was is None and now is not None:
            born[now.name] = now
        if turn.is_over():
            yield None
    for name in in_order(gone):
        yield from _whole_topic(gone.get(name), born.pop(name, None), target, turn)
    for name in in_order(born):
        yield from _whole_topic(None, born.get(name), target, turn)
    for changed in in_order({*changes.partitions, *changes.topics}):
        if changed is not None and changed in old and changed in new:
            yield from _changed_topic(old[changed], new[changed], target, changes, turn)
        if changed is None or turn.is_over():
            yield None


def _whole_topic(gone: TopicImage | None, born: TopicImage | None, target: Target, turn: Turn) -> Steps:
    """Write a topic that is deleted, created, or deleted and created again. With no topic, end the turn."""
    topic = gone or born
    if topic is None:
        yield None
        return
    ops = list[Op]()
    for op in chain(() if gone is None else _delete_topic(gone), () if born is None else create_topic(born, target)):
        ops.append(op)
        if turn.is_over():
            yield None
    effect = Effect.CREATE if gone is None else Effect.DELETE if born is None else Effect.REPLACE
    yield EntityWrite(entity_name(EntityKind.TOPIC, topic.name), tuple(ops), effect=effect)


def _changed_topic(old: TopicImage, new: TopicImage, target: Target, changes: Changes, turn: Turn) -> Steps:
    numbers = changes.partitions.get(new.topic_id, frozenset([*new.partitions, *old.partitions]))
    ops: list[Op] = []
    reassigned = False
    for number in sorted(numbers):
        if turn.is_over():
            yield None
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
    """One set for each step of the partition epoch: each change of a partition raises it by one."""
    sets = after.partition_epoch - before.partition_epoch
    if sets <= 0 and _state(before) == _state(after):
        return ()
    return state_sets(paths.partition_state(topic, number), target.partition_state(after), max(1, sets))


def _assignment(partition: PartitionRegistration) -> tuple[object, ...]:
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def _state(partition: PartitionRegistration) -> tuple[object, ...]:
    return partition.leader, partition.leader_epoch, partition.isr, partition.recovering


def _configs(before: MetadataImage, target: Target, changes: Changes) -> Steps:
    """Configs of brokers, and of topics that both images have. The config of a new topic is created with the topic."""
    turn = Turn()
    for resource in in_order(changes.configs, key=lambda changed: (changed.resource_type, changed.name)):
        if resource is None or turn.is_over():
            yield None
        if resource is None:
            continue
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


def _clients(before: MetadataImage, target: Target, changes: Changes) -> Steps:
    """Quotas and credentials, which share the znodes of users."""
    keys, turn = set[QuotaKey](changes.quotas), Turn()
    for scram in changes.scram:
        keys.add(names.user_key(scram.user))
        if turn.is_over():
            yield None
    held = Target(before, passwords=target.passwords, controller_epoch=target.controller_epoch)
    for key in in_order(keys, key=lambda entities: names.quota_name(entities) or names.quota_text(entities)):
        if key is None or turn.is_over():
            yield None
        if key is None:
            continue
        name = names.quota_name(key)
        old, new = held.client_config(key), target.client_config(key)
        if old == new:
            continue
        if name is None:
            target.report(names.quota_text(key), "ZooKeeper has no place for it")
            continue
        yield config_write(name, target.encode_config(new), exists=bool(old), others=target.spellings.get(name, ()))


def config_write(
    name: str, data: bytes, *, exists: bool, others: Iterable[str] = (), parents: tuple[Op, ...] = ()
) -> EntityWrite:
    """Set or create a config, and tell the brokers. An empty config stays as ``{}``, as brokers leave it.

    A user and its clients are one entity: a znode of the former is the parent of the latter.

    :param others: names of znodes that the entity has beside the canonical one. All get the same content: otherwise a
        broker that reads them would bring back what was revoked. With such a znode of an ip, brokers do not start.
    """
    op, effect = _written(paths.config(name), data, exists=exists)
    more: list[Op] = [
        Delete(path) if name.startswith("ips/") else SetData(path, data) for path in map(paths.config, others)
    ]
    owner = "/".join(name.split("/")[:2])
    return EntityWrite(entity_name(EntityKind.CONFIG, owner), (*parents, op, *more), (config_notice(name),), effect)


def _acls(before: MetadataImage, target: Target, changes: Changes, held: AclIndex) -> Steps:
    """Write each resource pattern whose entries differ, as a whole."""
    if not changes.acls:
        return
    after = yield from held.follow(before.acls, target.image.acls, changes.acls)
    touched, turn = set[ResourcePattern](), Turn()
    for acl_id in changes.acls:
        touched |= {pattern_of(image.acls[acl_id]) for image in (before, target.image) if acl_id in image.acls}
        if turn.is_over():
            yield None
    for pattern in in_order(touched, key=acl_path):
        if pattern is None:
            yield None
            continue
        old, new = _entries(held, pattern), _entries(after, pattern)
        if old != new and is_writable(pattern, target):
            yield acl_write(pattern, new, exists=old is not None)
        if turn.is_over(len(old or ()) + len(new or ())):
            yield None


def _entries(index: AclIndex, pattern: ResourcePattern) -> frozenset[AclEntry] | None:
    found = index.at((int(pattern.resource_type), int(pattern.pattern_type), pattern.name))
    return None if found is None else frozenset(entry_of(acl) for each in found.values() for _, acl in each)


def acl_entries(image: MetadataImage) -> dict[ResourcePattern, frozenset[AclEntry]]:
    found: dict[ResourcePattern, set[AclEntry]] = {}
    for acl in image.acls.values():
        found.setdefault(pattern_of(acl), set()).add(entry_of(acl))
    return {pattern: frozenset(entries) for pattern, entries in found.items()}


def is_writable(pattern: ResourcePattern, target: Target) -> bool:
    """Whether ZooKeeper can hold ACLs of that name. KRaft allows a slash in it; stock controllers retry such a write
    for ever."""
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


def _tokens(before: MetadataImage, target: Target, changes: Changes) -> Steps:
    turn = Turn()
    for token_id in in_order(changes.tokens):
        if token_id is None or turn.is_over():
            yield None
        if token_id is None:
            continue
        old, new = before.tokens.get(token_id), target.image.tokens.get(token_id)
        if old == new:
            continue
        if is_writable_token(token_id, target):
            yield token_write(token_id, new, exists=old is not None)


def token_write(
    token_id: str, token: DelegationTokenRecord | None, *, exists: bool, parents: tuple[Op, ...] = ()
) -> EntityWrite:
    """Set, create or delete a delegation token, and tell the brokers."""
    op, effect = _written(paths.token(token_id), None if token is None else encode_token(token), exists=exists)
    return EntityWrite(entity_name(EntityKind.TOKEN, token_id), (*parents, op), (token_notice(token_id),), effect)


def _written(path: str, data: bytes | None, *, exists: bool) -> tuple[Op, Effect]:
    """The operations that give a znode this data, or delete it if the data are None."""
    if data is None:
        return Delete(path), Effect.DELETE
    return (SetData(path, data), Effect.CHANGE) if exists else (Create(path, data), Effect.CREATE)
