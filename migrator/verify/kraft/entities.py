"""Finds the entity that a record is about: a log is divided by entities, and each is replayed alone.

A topic's id is the entity of the topic and of its partitions. A topic's *name* is another entity, for its
configuration: the record that removes a topic has only the id, and also removes the configuration of the name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from migrator.records import metadata as m
from migrator.records.codec import PREFIX_SIZE, SPEC_OF, decode, encode, prefix
from migrator.records.uuid import Uuid
from migrator.values import value
from migrator.verify.canonical import hidden, hidden_credential

_OF_PARTITIONS = frozenset(
    prefix(spec, version)
    for spec in (SPEC_OF[m.PartitionRecord], SPEC_OF[m.PartitionChangeRecord])
    for version in range(spec.latest + 1)
)
_TOPIC_ID = slice(7, 23)
"""The place of the topic's id in both kinds of records: behind frame version, key, version and the partition's
number."""

TOPIC, NAME = b"t", b"n"
"""First byte of the keys of topics by id, and by name."""

MARKERS = (m.BeginTransactionRecord, m.EndTransactionRecord, m.AbortTransactionRecord)
_SHARED = frozenset({*MARKERS, m.RemoveTopicRecord, m.ClearElrRecord})


@value
class Placed:
    """A record with its place in the order of the log; ``keys`` are the entities that it is about. ``is_shared``: other
    entities may need the record, too; only the whole log shows which (`fold.SharedRecords`)."""

    order: int
    keys: tuple[bytes, ...]
    content: bytes
    is_shared: bool = False


def placed(order: int, content: bytes, salt: bytes) -> Placed:
    """Find the entities of a record. A record of a partition is not decoded here: `partition_key` suffices.

    :param salt: the key of the hashes that replace secrets: a secret does not leave the process that decodes it.
    :raises CorruptRecordsError: its type or version is unknown, or it does not decode.
    """
    record, version = decode(content)
    kind = type(record)
    if (without := _without_secrets(record, salt)) is not record:
        content = encode(without, version)
    keys = _KEYS.get(kind)
    return Placed(order, () if keys is None else keys(record), content, kind in _SHARED)


def _without_secrets(record: m.MetadataRecord, salt: bytes) -> m.MetadataRecord:
    if isinstance(record, m.UserScramCredentialRecord):
        return replace(record, salt=b"", stored_key=hidden_credential(record, salt).encode(), server_key=b"")
    if isinstance(record, m.ConfigRecord) and record.value is not None and record.is_sensitive:
        return replace(record, value=hidden(record.value, salt))
    return record


def partition_key(content: bytes) -> bytes | None:
    """The entity of a record of a partition, which is not decoded for that; None for any other record."""
    return TOPIC + content[_TOPIC_ID] if content[:PREFIX_SIZE] in _OF_PARTITIONS else None


def topic_key(topic_id: Uuid) -> bytes:
    """The entity of a topic and of its partitions."""
    return TOPIC + topic_id


def name_key(name: str) -> bytes:
    """The entity of the configurations of all topics that have had this name."""
    return NAME + name.encode()


def _config(record: m.ConfigRecord) -> tuple[bytes, ...]:
    if record.resource_type == m.ConfigResourceType.TOPIC:
        return (name_key(record.resource_name),)
    return (b"c%d:" % record.resource_type + record.resource_name.encode(),)


def _quota(record: m.ClientQuotaRecord) -> tuple[bytes, ...]:
    return (
        b"q"
        + repr(
            sorted((part.entity_type, part.entity_name or "", part.entity_name is None) for part in record.entity)
        ).encode(),
    )


def _scram(record: m.UserScramCredentialRecord | m.RemoveUserScramCredentialRecord) -> tuple[bytes, ...]:
    return (b"u%d:" % record.mechanism + record.name.encode(),)


def _acl(record: m.AccessControlEntryRecord | m.RemoveAccessControlEntryRecord) -> tuple[bytes, ...]:
    return (b"a" + record.id,)


def _token(record: m.DelegationTokenRecord | m.RemoveDelegationTokenRecord) -> tuple[bytes, ...]:
    return (b"d" + record.token_id.encode(),)


def _broker(record: Any) -> tuple[bytes, ...]:
    return (b"b%d" % record.broker_id,)


_KEYS: dict[type, Callable[[Any], tuple[bytes, ...]]] = {
    m.TopicRecord: lambda record: (topic_key(record.topic_id), name_key(record.name)),
    m.RemoveTopicRecord: lambda record: (topic_key(record.topic_id),),
    m.ClearElrRecord: lambda record: (name_key(record.topic_name),) if record.topic_name else (),
    m.ConfigRecord: _config,
    m.ClientQuotaRecord: _quota,
    m.UserScramCredentialRecord: _scram,
    m.RemoveUserScramCredentialRecord: _scram,
    m.AccessControlEntryRecord: _acl,
    m.RemoveAccessControlEntryRecord: _acl,
    m.DelegationTokenRecord: _token,
    m.RemoveDelegationTokenRecord: _token,
    m.ProducerIdsRecord: lambda _: (b"p",),
    m.ZkMigrationStateRecord: lambda _: (b"z",),
    m.RegisterBrokerRecord: _broker,
    m.UnregisterBrokerRecord: _broker,
    m.FenceBrokerRecord: _broker,
    m.UnfenceBrokerRecord: _broker,
    m.BrokerRegistrationChangeRecord: _broker,
}
"""The keys of records that make rows or may contradict an earlier record. Other records make no row and never
contradict."""

KINDS_OF: dict[bytes, tuple[str, ...]] = {
    TOPIC: ("topic", "partition"),
    NAME: ("config",),
    b"c": ("config",),
    b"q": ("quota",),
    b"u": ("scram",),
    b"a": ("acl",),
    b"d": ("token",),
    b"p": ("producer ids",),
}
"""The kinds of the rows that an entity makes, by the first byte of its key."""
