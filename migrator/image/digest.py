"""A digest of an image: whether two controllers, or an image and a replay of its log, hold the same metadata.

It is the sum of a hash for each entity, over the bytes of the record that a snapshot would hold of it (at one level of
metadata.version, whatever the cluster has). So it does not depend on the order of entities, or on how an image is kept
in memory, and leads from one image to the next over what differs between the two. A sum, as an XOR would lose two equal
terms. etcd compares its members in the same way (``HashKV``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any, TypeVar

from migrator.image.model import MetadataImage, TopicImage
from migrator.image.security import acl_record, scram_record, token_record
from migrator.image.snapshot import (
    broker_record,
    config_records,
    controller_record,
    partition_record,
    quota_records,
)
from migrator.records import metadata as rec
from migrator.records.codec import encoder
from migrator.records.uuid import Uuid
from migrator.turns import Turn

HASH_BYTES = 16
MODULUS = 1 << 8 * HASH_BYTES
DIGEST_LEVEL = 29
"""The level of metadata.version whose records are hashed. It does not follow the newest one that this program knows:
during an upgrade, controllers of two releases compare their digests. A change of it needs a field in the request."""

LOOKS_A_RECORD = 50

_encode = encoder(DIGEST_LEVEL)
_Records = Callable[[Any, Any], Iterable[rec.MetadataRecord]]
_Registration = TypeVar("_Registration", rec.RegisterBrokerRecord, rec.RegisterControllerRecord)
_Differing = tuple[int, Iterable[rec.MetadataRecord]]
"""1 for what the later image holds, -1 for what the earlier one held; 0 for an entity that is the same in both."""


def digest_steps(before: MetadataImage, after: MetadataImage) -> Iterator[int]:
    """The digest of ``after`` minus that of ``before``, in parts to be added, one for each turn of the event loop.

    What both images share costs no more than a look.
    """
    total, turn = 0, Turn()
    for sign, records in _differing(before, after):
        if turn.is_over():
            yield total
            total = 0
        for record in records:
            encoded = _encode(record)
            total += sign * int.from_bytes(blake2b(encoded, digest_size=HASH_BYTES).digest(), "big")
            if turn.is_over(size=len(encoded)):
                yield total
                total = 0
    yield total


def _differing(before: MetadataImage, after: MetadataImage) -> Iterator[_Differing]:
    yield from _between(_singles(before), _singles(after), lambda _, records: records)
    for read, records in _KINDS:
        yield from _between(read(before), read(after), records)
    old, new = before.topics.by_id, after.topics.by_id
    if old is not new:
        for looks in _some(new.items()):
            for topic_id, topic in looks:
                if topic is not old.get(topic_id):
                    yield from _topic(topic_id, old.get(topic_id), topic)
            yield 0, ()
        for looks in _some(old.items()):
            for topic_id, topic in looks:
                if topic_id not in new:
                    yield from _topic(topic_id, topic, None)
            yield 0, ()


def _topic(topic_id: Uuid, before: TopicImage | None, after: TopicImage | None) -> Iterator[_Differing]:
    for sign, topic in ((-1, before), (1, after)):
        if topic is not None:
            yield sign, (rec.TopicRecord(topic.name, topic_id),)
    old, new = ({} if topic is None else topic.partitions for topic in (before, after))
    yield from _between(old, new, partial(_partition, topic_id))


def _partition(topic_id: Uuid, number: int, partition: Any) -> Iterable[rec.MetadataRecord]:
    return (partition_record(topic_id, number, partition, DIGEST_LEVEL),)


def _in_order(record: _Registration) -> _Registration:
    """The listeners, features and directories of a registration are sets. A snapshot of a stock controller has them in
    another order than the log (``BrokerRegistration``, ``ControllerRegistration``)."""
    arrays: dict[str, Any] = {
        "end_points": tuple(sorted(record.end_points, key=lambda each: each.name)),
        "features": tuple(sorted(record.features, key=lambda each: each.name)),
    }
    if isinstance(record, rec.RegisterBrokerRecord):
        arrays["log_dirs"] = tuple(sorted(record.log_dirs))
    return replace(record, **arrays)


def _between(before: Mapping[Any, Any], after: Mapping[Any, Any], records: _Records) -> Iterator[_Differing]:
    """Equal values are one object where an image was made of the other, else they cancel each other out."""
    if before is after:
        return
    for looks in _some(after.items()):
        for key, item in looks:
            old = before.get(key)
            if old is item:
                continue
            if old is not None:
                yield -1, records(key, old)
            yield 1, records(key, item)
        yield 0, ()
    for looks in _some(before.items()):
        for key, old in looks:
            if key not in after:
                yield -1, records(key, old)
        yield 0, ()


def _some(entries: Iterable[tuple[Any, Any]]) -> Iterator[tuple[tuple[Any, Any], ...]]:
    """So many looks at what both images share take as long as the digest of one record."""
    rest = iter(entries)
    while looks := tuple(islice(rest, LOOKS_A_RECORD)):
        yield looks


def _singles(image: MetadataImage) -> Mapping[str, Iterable[rec.MetadataRecord]]:
    """What there is one of."""
    features = image.features
    return {
        "migration": (rec.ZkMigrationStateRecord(int(features.zk_migration_state), features.migration_hold),),
        "producer ids": (rec.ProducerIdsRecord(-1, -1, image.producer_ids_next),),
    }


_KINDS: tuple[tuple[Callable[[MetadataImage], Mapping[Any, Any]], _Records], ...] = (
    (lambda image: image.features.levels, lambda name, level: (rec.FeatureLevelRecord(name, level),)),
    (lambda image: image.cluster.brokers, lambda _, broker: (_in_order(broker_record(broker, DIGEST_LEVEL)),)),
    (lambda image: image.cluster.controllers, lambda _, item: (_in_order(controller_record(item)),)),
    (lambda image: image.configs, config_records),
    (lambda image: image.quotas, quota_records),
    (lambda image: image.acls, lambda acl_id, acl: (acl_record(acl_id, acl),)),
    (lambda image: image.scram, lambda key, item: (scram_record(key, item),)),
    (lambda image: image.tokens, lambda _, token: (token_record(token),)),
)
"""Maps of an image, and the records of one of their entries."""
