"""Turns an image into the records of a snapshot, in Kafka's order (``org.apache.kafka.image.MetadataImage.write``), and
back.

`migrator.log.image_snapshot` writes them, and `replay` reads them. Equal images give the same records. The records are
for the image's own metadata.version: a state that this version cannot express is an `InvariantViolation`, so no
snapshot loses anything. Steps without a record mark the end of a turn of the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import itemgetter
from typing import TypeVar

from migrator.errors import InvariantViolation, require
from migrator.image.builder import ImageBuilder
from migrator.image.model import (
    EMPTY_IMAGE,
    BrokerRegistration,
    ConfigResource,
    ControllerRegistration,
    MetadataImage,
    PartitionRegistration,
    Provenance,
    QuotaKey,
)
from migrator.image.security import acl_record, scram_record
from migrator.records import metadata as rec
from migrator.records.uuid import DIRECTORY_MIGRATING, Uuid
from migrator.records.versions import FEATURE_NAME, MINIMUM_BOOTSTRAP, MinLevel
from migrator.turns import Turn, in_order

K = TypeVar("K")
V = TypeVar("V")
Step = rec.MetadataRecord | None
"""A record; None where a turn of the event loop is over before the next record is ready."""


def snapshot_steps(image: MetadataImage) -> Iterator[Step]:
    """The records that make the image from an empty one, the same for equal images. Sorting a million topics takes many
    turns of the event loop, so some steps have no record.

    The records are for the image's own metadata.version. No image has a part of a transaction, so no snapshot does.

    :raises InvariantViolation: the image holds something for which its metadata.version has no record.
    """
    level = image.features.metadata_version
    yield from _features(image, level)
    yield from _cluster(image, level)
    yield from _topics(image, level)
    yield from _settings(image)
    yield from _security(image, level)


def load_snapshot(
    records: Iterable[tuple[rec.MetadataRecord, int]], provenance: Provenance
) -> Iterator[MetadataImage | None]:
    """Build the image of a snapshot. Yields None where a turn is over, and the image at the end.

    :param records: each record with its number of bytes.
    :param provenance: offset, epoch and append time of the last record before the snapshot's end.
    :raises InvariantViolation: a record does not fit, or is the marker of a transaction.
    """
    builder, turn = ImageBuilder(EMPTY_IMAGE), Turn()
    for number, (record, size) in enumerate(records, 1):
        try:
            builder.replay(record)
        except InvariantViolation as error:
            kind = type(record).__name__
            raise InvariantViolation(f"record {number} of the snapshot, a {kind}, does not fit: {error}") from error
        if turn.is_over(size=size):
            yield None
    yield builder.image(provenance)


def _features(image: MetadataImage, level: int) -> Iterator[rec.MetadataRecord]:
    if level >= MINIMUM_BOOTSTRAP:
        yield rec.FeatureLevelRecord(FEATURE_NAME, level)
        for name, value in sorted(image.features.levels.items()):
            if name != FEATURE_NAME:
                yield rec.FeatureLevelRecord(name, value)
    used = bool(image.features.zk_migration_state)
    if _exists("the ZooKeeper migration state", level, MinLevel.ZK_MIGRATION, used=used):
        yield image.features.migration


def _cluster(image: MetadataImage, level: int) -> Iterator[rec.MetadataRecord]:
    for _, broker in sorted(image.cluster.brokers.items()):
        yield broker_record(broker, level)
    controllers = sorted(image.cluster.controllers.items())
    if _exists("controller registrations", level, MinLevel.CONTROLLER_REGISTRATION, used=bool(controllers)):
        for _, item in controllers:
            yield controller_record(item)


def controller_record(item: ControllerRegistration) -> rec.RegisterControllerRecord:
    return rec.RegisterControllerRecord(
        controller_id=item.controller_id,
        incarnation_id=item.incarnation_id,
        zk_migration_ready=item.zk_migration_ready,
        end_points=item.listeners,
        features=item.features,
    )


def broker_record(broker: BrokerRegistration, level: int) -> rec.RegisterBrokerRecord:
    """The record of a broker's registration, at a level of metadata.version."""
    _exists("controlled shutdown", level, MinLevel.CONTROLLED_SHUTDOWN_STATE, used=broker.in_controlled_shutdown)
    _exists("a broker in migration", level, MinLevel.ZK_MIGRATION, used=broker.is_migrating_zk_broker)
    _exists("log directories", level, MinLevel.DIRECTORY_ASSIGNMENT, used=bool(broker.log_dirs))
    return rec.RegisterBrokerRecord(
        broker_id=broker.broker_id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=broker.listeners,
        features=broker.features,
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
    )


def _topics(image: MetadataImage, level: int) -> Iterator[Step]:
    for topic in in_order(image.topics.ids.items()):
        if topic is None:
            yield None
            continue
        name, topic_id = topic
        yield rec.TopicRecord(name, topic_id)
        for item in in_order(image.topics.by_id[topic_id].partitions.items(), key=itemgetter(0)):
            yield None if item is None else partition_record(topic_id, *item, level)


def partition_record(topic_id: Uuid, number: int, partition: PartitionRegistration, level: int) -> rec.PartitionRecord:
    """The record of a partition, at a level of metadata.version."""
    directories = partition.directories
    if _exists("directories of replicas", level, MinLevel.DIRECTORY_ASSIGNMENT, used=bool(directories)):
        directories = directories or (DIRECTORY_MIGRATING,) * len(partition.replicas)  # stock writes them, too
    has_elr = bool(partition.elr or partition.last_known_elr)
    _exists("eligible leader replicas", level, MinLevel.ELIGIBLE_LEADER_REPLICAS, used=has_elr)
    return rec.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_recovery_state=int(partition.recovering),
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=directories,
        eligible_leader_replicas=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
    )


def _settings(image: MetadataImage) -> Iterator[Step]:
    configs = in_order(image.configs.items(), key=lambda item: (item[0].resource_type, item[0].name))
    yield from _each(configs, config_records)
    quotas = in_order(image.quotas.items(), key=lambda item: [_entity_order(part) for part in _sorted_entity(item[0])])
    yield from _each(quotas, quota_records)
    if image.producer_ids_next >= 0:
        yield rec.ProducerIdsRecord(-1, -1, image.producer_ids_next)


def config_records(resource: ConfigResource, config: Mapping[str, str]) -> Iterator[rec.ConfigRecord]:
    for key, text in sorted(config.items()):
        yield rec.ConfigRecord(resource.resource_type, resource.name, key, text)


def quota_records(entity: QuotaKey, quotas: Mapping[str, float]) -> Iterator[rec.ClientQuotaRecord]:
    for key, number in sorted(quotas.items()):
        yield rec.ClientQuotaRecord(_sorted_entity(entity), key, number, remove=False)


def _sorted_entity(entity: QuotaKey) -> tuple[rec.QuotaEntity, ...]:
    return tuple(sorted(entity, key=_entity_order))


def _entity_order(entity: rec.QuotaEntity) -> tuple[str, bool, str]:
    return entity.entity_type, entity.entity_name is not None, entity.entity_name or ""


def _security(image: MetadataImage, level: int) -> Iterator[Step]:
    yield from _each(in_order(image.acls.items(), key=itemgetter(0)), lambda acl_id, acl: (acl_record(acl_id, acl),))
    _exists("SCRAM credentials", level, MinLevel.SCRAM, used=bool(image.scram))
    scram = in_order(image.scram.items(), key=lambda item: (item[0].mechanism, item[0].user))
    yield from _each(scram, lambda key, item: (scram_record(key, item),))
    _exists("delegation tokens", level, MinLevel.DELEGATION_TOKENS, used=bool(image.tokens))
    yield from _each(in_order(image.tokens.items(), key=itemgetter(0)), lambda _, token: (token,))


def _each(
    items: Iterator[tuple[K, V] | None], records: Callable[[K, V], Iterable[rec.MetadataRecord]]
) -> Iterator[Step]:
    for item in items:
        if item is None:
            yield None
        else:
            yield from records(*item)


def _exists(what: str, level: int, since: MinLevel, *, used: bool) -> bool:
    """Whether a level has a feature; an `InvariantViolation` when it does not and the image uses the feature."""
    require(level >= since or not used, f"a snapshot at metadata.version level {level} cannot hold {what}")
    return level >= since
