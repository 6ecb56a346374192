"""Refuses a change that would make a znode too large for one ZooKeeper request. Pure.

Four families of znodes grow with requests of clients: assignments of topics, configs (with quotas and credentials),
ACLs of a resource, delegation tokens. Each record adds a bounded number of bytes to one entity. Only if the bounds of
the old and the new bytes together are above the limit, the znodes are encoded and measured, by the same translation
that the write-behind uses. Partition states do not grow beyond the number of brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.controller.decision import RefusedError
from migrator.controller.index import AclPattern
from migrator.image.builder import ImageBuilder
from migrator.image.model import EMPTY_IMAGE, Changes, ConfigResource, MetadataImage, ScramKey
from migrator.migration.translate.target import Target
from migrator.migration.translate.to_ops import delta_writes
from migrator.migration.write_behind.multis import Limits
from migrator.records import metadata as rec
from migrator.zookeeper.ops import Create, SetData
from migrator.zookeeper.request_size import op_bytes
from migrator.zookeeper.znodes.acls import entry_bytes_bound
from migrator.zookeeper.znodes.fields import JSON_BYTES_PER_CHARACTER
from migrator.zookeeper.znodes.passwords import PasswordEncoder

_FRAME_BYTES = 1_024
_PATH_BYTES_PER_CHARACTER = 12
"""A character has up to four bytes in UTF-8, and each may be percent-encoded."""
_PARTITION_BYTES = 48
"""The bytes of a partition in each of the three lists of an assignment: number, brackets, separators."""
_REPLICA_BYTES = 12
_LISTS = 3
_CONFIG_BYTES = 2_048
"""The bytes of a config key beside name and value: what encryption adds to a password."""
_USER_BYTES = 2_048
"""The bytes of a user's quotas, and of the second credential without its salt and keys."""
_TOKEN_BYTES = 512

Entity = tuple[str, Any]
"""The kind of an entity, and its key in the image."""


def check_sizes(
    image: MetadataImage,
    records: Sequence[rec.MetadataRecord],
    *,
    acl_bytes: Mapping[AclPattern, int],
    limits: Limits,
    passwords: PasswordEncoder,
) -> None:
    """Check the sizes of the znodes after a decision on this image. A znode that is too large already may become
    smaller.

    :param acl_bytes: see `ControllerIndex`.
    :raises RefusedError: POLICY_VIOLATION, with the znode and its size.
    """
    suspects = _suspects(image, records, acl_bytes, limits.max_op_bytes)
    if not suspects:
        return
    builder = ImageBuilder(image)
    for record in records:
        builder.replay(record)
    after, every = builder.build(image.provenance)
    changes = _narrow(every, suspects, after)
    new = _znodes(image, after, changes, passwords)
    large = {path: size for path, size in new.items() if size > limits.max_op_bytes}
    if not large:
        return
    old = _znodes(after, image, changes, passwords)
    for path, size in large.items():
        if size > old.get(path, 0):
            raise RefusedError(
                ErrorCode.policy_violation,
                f"The znode {path} would have {size} bytes, and ZooKeeper takes no more than "
                f"{limits.max_op_bytes} (migrator.zookeeper.jute.maxbuffer={limits.jute_maxbuffer}). Nothing of the "
                "request was done. Make the change smaller, or wait until the migration is finished.",
            )


def too_large(image: MetadataImage, *, limits: Limits, passwords: PasswordEncoder) -> dict[str, int]:
    """The znodes of an image that would be too large for ZooKeeper: their sizes in bytes, by path."""
    acl_bytes: dict[AclPattern, int] = {}
    for acl in image.acls.values():
        pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
        acl_bytes[pattern] = acl_bytes.get(pattern, 0) + entry_bytes_bound(acl.principal, acl.host)
    held: tuple[tuple[str, Iterable[Any]], ...] = (
        ("topic", image.topics.by_id),
        ("config", image.configs),
        ("acls", acl_bytes),
        ("user", {key.user for key in image.scram}),
        ("token", image.tokens),
    )
    entities = ((kind, name) for kind, names in held for name in names)
    suspects = {each for each in entities if _frame(each) + _held(image, each, acl_bytes) > limits.max_op_bytes}
    if not suspects:
        return {}
    everything = Changes(
        topics=frozenset(image.topics.by_id),
        partitions={name: frozenset(image.topics.by_id[name].partitions) for kind, name in suspects if kind == "topic"},
        configs=frozenset(image.configs),
        acls=frozenset(image.acls),
        scram=frozenset(image.scram),
        tokens=frozenset(image.tokens),
    )
    sizes = _znodes(EMPTY_IMAGE, image, _narrow(everything, suspects, image), passwords)
    return {path: size for path, size in sizes.items() if size > limits.max_op_bytes}


def _suspects(
    image: MetadataImage, records: Sequence[rec.MetadataRecord], acl_bytes: Mapping[AclPattern, int], limit: int
) -> set[Entity]:
    """Entities that may become too large."""
    added: dict[Entity, int] = {}
    for record in records:
        for entity, size in _growth(record):
            added[entity] = added.get(entity, 0) + size
    return {entity for entity, size in added.items() if _frame(entity) + _held(image, entity, acl_bytes) + size > limit}


def _growth(record: rec.MetadataRecord) -> Iterator[tuple[Entity, int]]:
    """The entity whose znode a record makes larger, and by how many bytes at most."""
    match record:
        case rec.PartitionRecord() | rec.PartitionChangeRecord():
            lists = (record.replicas, record.adding_replicas, record.removing_replicas)
            if any(lists):
                ids = sum(len(replicas or ()) for replicas in lists)
                yield ("topic", record.topic_id), _LISTS * _PARTITION_BYTES + ids * _REPLICA_BYTES
        case rec.ConfigRecord(kind, name, key, text):
            yield ("config", ConfigResource(kind, name)), _config_bytes(key, text or "")
        case rec.AccessControlEntryRecord():
            pattern = (record.resource_type, record.resource_name, record.pattern_type)
            yield ("acls", pattern), entry_bytes_bound(record.principal, record.host)
        case rec.UserScramCredentialRecord():
            yield ("user", record.name), 2 * len(record.salt + record.stored_key + record.server_key)
        case rec.DelegationTokenRecord():
            yield ("token", record.token_id), _token_bytes(record)


def _frame(entity: Entity) -> int:
    """The most bytes of an empty znode, with its path."""
    kind, name = entity
    match kind:
        case "topic":
            return _FRAME_BYTES
        case "config":
            return _FRAME_BYTES + _PATH_BYTES_PER_CHARACTER * len(name.name)
        case "acls":
            return _FRAME_BYTES + _PATH_BYTES_PER_CHARACTER * len(name[1])
    return _FRAME_BYTES + _PATH_BYTES_PER_CHARACTER * len(name)


def _held(image: MetadataImage, entity: Entity, acl_bytes: Mapping[AclPattern, int]) -> int:
    """The most bytes of the znode before the change."""
    kind, name = entity
    match kind:
        case "topic":
            topic = image.topics.by_id.get(name)
            each = _LISTS * (_PARTITION_BYTES + _REPLICA_BYTES * len(image.cluster.brokers))
            return 0 if topic is None else each * len(topic.partitions)
        case "config":
            return sum(_config_bytes(key, text) for key, text in image.configs.get(name, {}).items())
        case "acls":
            return acl_bytes.get(name, 0)
        case "user":
            found = (image.scram.get(ScramKey(mechanism, name)) for mechanism in rec.ScramMechanism)
            keys = sum(2 * len(key.salt + key.stored_key + key.server_key) for key in found if key is not None)
            return _USER_BYTES + keys
        case "token":
            known = image.tokens.get(name)
            return 0 if known is None else _token_bytes(known)
    return 0


def _narrow(changes: Changes, suspects: set[Entity], after: MetadataImage) -> Changes:
    """The changes of the suspects only. The configuration of a new topic is written together with the topic."""
    kinds: dict[str, set[Any]] = {}
    for kind, name in suspects:
        kinds.setdefault(kind, set()).add(name)
        if kind == "config" and name.resource_type == rec.ConfigResourceType.TOPIC:
            kinds.setdefault("topic", set()).add(after.topics.ids.get(name.name))
    topics, users = kinds.get("topic", set()), kinds.get("user", set())
    return Changes(
        topics=changes.topics & topics,
        partitions={topic: numbers for topic, numbers in changes.partitions.items() if topic in topics},
        configs=changes.configs & kinds.get("config", set()),
        acls=changes.acls if "acls" in kinds else frozenset(),
        scram=frozenset(key for key in changes.scram if key.user in users),
        tokens=changes.tokens & kinds.get("token", set()),
    )


def _znodes(
    before: MetadataImage, after: MetadataImage, changes: Changes, passwords: PasswordEncoder
) -> dict[str, int]:
    """Sizes in bytes of the znodes that would be written, by path."""
    target = Target(after, passwords=passwords, controller_epoch=-1)
    return {
        op.path: op_bytes(op)
        for write in delta_writes(before, target, changes)
        for op in write.ops
        if isinstance(op, Create | SetData)
    }


def _config_bytes(key: str, text: str) -> int:
    return _CONFIG_BYTES + _text_bytes(key) + _text_bytes(text)


def _token_bytes(token: rec.DelegationTokenRecord) -> int:
    return _TOKEN_BYTES + sum(map(_text_bytes, (token.owner, token.requester, token.token_id, *token.renewers)))


def _text_bytes(text: str) -> int:
    return JSON_BYTES_PER_CHARACTER * len(text)
