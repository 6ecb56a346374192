"""A digest of an image. Equal digests show that two controllers, or an image and a replay of its log, have the same
metadata.

The digest is the sum of one hash per entity, over the bytes of the entity's record in a snapshot, at one fixed level of
metadata.version. So it does not depend on the order of entities or on their form in memory, and the next image's digest
can be computed from the differences. It is a sum because an XOR would cancel two equal terms. etcd compares its members
in the same way (``HashKV``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import Any, TypeVar

from immutables import Map

from migrator.errors import require
from migrator.image.builder import ImageBuilder
from migrator.image.model import EMPTY_IMAGE, MetadataImage, TopicImage, TopicsImage
from migrator.image.release import release
from migrator.image.security import acl_record, scram_record
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
from migrator.turns import TURN_RECORDS, Turn

HASH_BYTES = 16
MODULUS = 1 << 8 * HASH_BYTES
DIGEST_LEVEL = 29
"""The level of metadata.version whose records are hashed. It stays the same in later releases of this program, because
controllers of two releases compare digests during an upgrade. A change would need a field in the request."""

LOOKS_A_RECORD = 50

_encode = encoder(DIGEST_LEVEL)
_Records = Callable[[Any, Any], Iterable[rec.MetadataRecord]]
_Registration = TypeVar("_Registration", rec.RegisterBrokerRecord, rec.RegisterControllerRecord)
_Differing = tuple[int, Iterable[rec.MetadataRecord]]
"""The sign of records in the sum, 1 for the later image and -1 for the earlier one; 0 without records ends a group of
entries, or stands for two equal ones."""
_EQUAL: _Differing = 0, ()


def digest_steps(before: MetadataImage, after: MetadataImage) -> Iterator[int]:
    """The digest of ``after`` minus that of ``before``, in parts to be added, one for each turn of the event loop.

    Parts that both images share are skipped by a comparison of identity, and equal partitions by their content.
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
    singles = _singles(before), _singles(after)
    if singles[0] != singles[1]:
        yield from _between(*singles, lambda _, records: records)
    for read, records in _KINDS:
        old, new = read(before), read(after)
        if old is not new:
            yield from _between(old, new, records)
    if before.topics.by_id is not after.topics.by_id:
        yield from _topics(before.topics.by_id, after.topics.by_id)


def _topics(old: Mapping[Uuid, TopicImage], new: Mapping[Uuid, TopicImage]) -> Iterator[_Differing]:
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
    if before is not None and after is not None and before.name == after.name:
        yield _EQUAL
    else:
        for sign, topic in ((-1, before), (1, after)):
            if topic is not None:
                yield sign, (rec.TopicRecord(topic.name, topic_id),)
    old, new = ({} if topic is None else topic.partitions for topic in (before, after))
    if old is not new:
        yield from _between(old, new, partial(_partition, topic_id), by_content=True)


def _partition(topic_id: Uuid, number: int, partition: Any) -> Iterable[rec.MetadataRecord]:
    return (partition_record(topic_id, number, partition, DIGEST_LEVEL),)


def _in_order(record: _Registration) -> _Registration:
    """A registration with sorted listeners, features and directories. They are sets, and a stock controller's snapshot
    has them in another order than the log (``BrokerRegistration``, ``ControllerRegistration``)."""
    arrays: dict[str, Any] = {
        "end_points": tuple(sorted(record.end_points, key=lambda each: each.name)),
        "features": tuple(sorted(record.features, key=lambda each: each.name)),
    }
    if isinstance(record, rec.RegisterBrokerRecord):
        arrays["log_dirs"] = tuple(sorted(record.log_dirs))
    return replace(record, **arrays)


def _between(
    before: Mapping[Any, Any], after: Mapping[Any, Any], records: _Records, *, by_content: bool = False
) -> Iterator[_Differing]:
    """The entries that differ. Equal values that are two objects are yielded twice, with both signs, and cancel out.

    :param by_content: equal values have equal records, so they need not be yielded. False for quotas: 0.0 == -0.0, in
        different records.
    """
    for looks in _some(after.items()):
        for key, item in looks:
            old = before.get(key)
            if old is item:
                continue
            if by_content and old == item:
                yield _EQUAL
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
    """The entries in groups. Skipping a group of unchanged entries takes as long as the digest of one record."""
    rest = iter(entries)
    while looks := tuple(islice(rest, LOOKS_A_RECORD)):
        yield looks


def _singles(image: MetadataImage) -> Mapping[str, Iterable[rec.MetadataRecord]]:
    """The records of the parts of an image that are no maps. The digest of the migration without the fields that older
    releases do not know and a stock leader's snapshot does not keep."""
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
    (lambda image: image.tokens, lambda _, token: (token,)),
)
"""The maps of an image, each with the function that makes the records of an entry."""


_OF_TOPICS = frozenset({rec.TopicRecord, rec.PartitionRecord})


def read_back(image: MetadataImage, records: Iterable[tuple[rec.MetadataRecord, int]]) -> Iterator[None]:
    """Compare the records of a snapshot with its image, some topics at a time: to build the whole image anew would take
    as much memory as the image, for minutes if it is large. Yields where a turn is over.

    :param records: the records of the snapshot in the order of `snapshot_steps`, each with its number of bytes.
    :raises InvariantViolation: a record does not fit, or the records make another image.
    """
    rest, part, turn = ImageBuilder(EMPTY_IMAGE), ImageBuilder(EMPTY_IMAGE), Turn()
    wrong = f"the snapshot at offset {image.provenance.offset + 1} does not hold the image that it is of"
    difference, topics, last = 0, 0, ""
    for record, size in records:
        if isinstance(record, rec.TopicRecord):
            require(not topics or last < record.name, f"{wrong}: topic {record.name!r} comes after {last!r}")
            topics, last = topics + 1, record.name
            if part.records >= TURN_RECORDS:
                for step in _compared(image, part):
                    difference += step
                    yield
                part = ImageBuilder(EMPTY_IMAGE)
        (part if type(record) in _OF_TOPICS else rest).replay(record)
        if turn.is_over(size=size):
            yield
    for step in _compared(image, part):
        difference += step
        yield
    left = [rest.image(image.provenance)]
    for step in digest_steps(replace(image, topics=EMPTY_IMAGE.topics), *left):
        difference += step
        yield
    require(topics == len(image.topics.by_id) and difference % MODULUS == 0, wrong)
    yield from release(left)


def _compared(image: MetadataImage, part: ImageBuilder) -> Iterator[int]:
    """As `digest_steps`, of some topics that were read, and of the same topics in the image."""
    read, known = part.image(image.provenance), image.topics.by_id
    same = Map({topic_id: known[topic_id] for topic_id in read.topics.by_id if topic_id in known})
    return digest_steps(replace(read, topics=TopicsImage(same, EMPTY_IMAGE.topics.ids)), read)
