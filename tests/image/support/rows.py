"""An image as plain rows, for comparisons that name each difference; and the same rows made in the slow, obvious way.

Tests of the image compare both: `naive_rows` shares no code with the builders.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from migrator.image.model import (
    Acl,
    BrokerRegistration,
    ConfigResource,
    ControllerRegistration,
    MetadataImage,
    PartitionRegistration,
    ScramCredential,
    ScramKey,
)
from migrator.records import metadata as rec
from migrator.records.uuid import ZERO_UUID, Uuid

Rows = dict[tuple[Any, ...], Any]


def image_rows(image: MetadataImage) -> Rows:
    """Everything that the image holds but its provenance."""
    rows: Rows = {("zk",): image.features.zk_migration_state, ("producer ids",): image.producer_ids_next}
    rows.update({("feature", name): level for name, level in image.features.levels.items()})
    rows.update({("broker", key): value for key, value in image.cluster.brokers.items()})
    rows.update({("controller", key): value for key, value in image.cluster.controllers.items()})
    rows.update({("id", name): topic_id for name, topic_id in image.topics.ids.items()})
    for topic_id, topic in image.topics.by_id.items():
        rows["topic", topic_id] = (topic.topic_id, topic.name)
        rows.update({("partition", topic_id, number): value for number, value in topic.partitions.items()})
    for resource, config in image.configs.items():
        assert config, f"an empty configuration of {resource} was kept"
        rows.update({("config", resource, key): value for key, value in config.items()})
    for entity, quotas in image.quotas.items():
        assert quotas, f"an empty quota of {entity} was kept"
        rows.update({("quota", entity, key): value for key, value in quotas.items()})
    rows.update({("acl", key): value for key, value in image.acls.items()})
    rows.update({("scram", key): value for key, value in image.scram.items()})
    rows.update({("token", key): value for key, value in image.tokens.items()})
    return rows


def naive_rows(records: Iterable[rec.MetadataRecord]) -> Rows:
    """The rows that records without transactions lead to: one dictionary, changed record by record."""
    rows: Rows = {("zk",): rec.ZkMigrationState.NONE, ("producer ids",): -1}
    for record in records:
        _replay(rows, record)
    return rows


def _put(rows: Rows, key: tuple[Any, ...], item: Any, *, gone: bool) -> None:
    if gone:
        rows.pop(key, None)
    else:
        rows[key] = item


def _replay(rows: Rows, record: rec.MetadataRecord) -> None:
    match record:
        case rec.TopicRecord(name=name, topic_id=topic_id):
            rows["id", name] = topic_id
            rows["topic", topic_id] = (topic_id, name)
        case rec.RemoveTopicRecord(topic_id=topic_id):
            name = rows["topic", topic_id][1]
            resource = ConfigResource(rec.ConfigResourceType.TOPIC, name)
            gone = {("partition", topic_id), ("topic", topic_id), ("config", resource), ("id", name)}
            for key in [key for key in rows if key[:2] in gone]:
                del rows[key]
        case rec.PartitionRecord() | rec.PartitionChangeRecord():
            key = ("partition", record.topic_id, record.partition_id)
            rows[key] = _partition(record) if isinstance(record, rec.PartitionRecord) else _changed(rows[key], record)
        case rec.ConfigRecord():
            resource = ConfigResource(record.resource_type, record.resource_name)
            _put(rows, ("config", resource, record.name), record.value, gone=record.value is None)
        case rec.ClientQuotaRecord():
            _put(rows, ("quota", frozenset(record.entity), record.key), record.value, gone=record.remove)
        case rec.FeatureLevelRecord():
            _put(rows, ("feature", record.name), record.feature_level, gone=record.feature_level == 0)
        case rec.ZkMigrationStateRecord():
            rows["zk",] = rec.ZkMigrationState(record.zk_migration_state)
        case rec.ProducerIdsRecord():
            rows["producer ids",] = record.next_producer_id
        case _:
            _replay_cluster(rows, record)


def _replay_cluster(rows: Rows, record: rec.MetadataRecord) -> None:
    match record:
        case rec.RegisterBrokerRecord():
            rows["broker", record.broker_id] = _broker(record)
        case rec.UnregisterBrokerRecord():
            del rows["broker", record.broker_id]
        case rec.FenceBrokerRecord() | rec.UnfenceBrokerRecord():
            key = ("broker", record.broker_id)
            rows[key] = replace(rows[key], fenced=isinstance(record, rec.FenceBrokerRecord))
        case rec.BrokerRegistrationChangeRecord():
            old = rows["broker", record.broker_id]
            rows["broker", record.broker_id] = replace(
                old,
                fenced={-1: False, 0: old.fenced, 1: True}[record.fenced],
                in_controlled_shutdown=old.in_controlled_shutdown or record.in_controlled_shutdown == 1,
                log_dirs=record.log_dirs or old.log_dirs,
            )
        case rec.RegisterControllerRecord(controller_id, incarnation, ready, listeners, features):
            rows["controller", controller_id] = ControllerRegistration(
                controller_id, incarnation, ready, listeners, features
            )
        case _:
            _replay_security(rows, record)


def _replay_security(rows: Rows, record: rec.MetadataRecord) -> None:
    match record:
        case rec.AccessControlEntryRecord():
            fields = asdict(record)
            acl_id = fields.pop("id")
            rows["acl", acl_id] = Acl(**fields)
        case rec.RemoveAccessControlEntryRecord(acl_id):
            del rows["acl", acl_id]
        case rec.UserScramCredentialRecord(name, mechanism, salt, stored, server, iterations):
            rows["scram", ScramKey(mechanism, name)] = ScramCredential(salt, stored, server, iterations)
        case rec.RemoveUserScramCredentialRecord(name, mechanism):
            del rows["scram", ScramKey(mechanism, name)]
        case rec.DelegationTokenRecord():
            rows["token", record.token_id] = record
        case rec.RemoveDelegationTokenRecord(token_id):
            rows.pop(("token", token_id), None)
        case _:
            assert isinstance(record, rec.NoOpRecord)


def _broker(record: rec.RegisterBrokerRecord) -> BrokerRegistration:
    return BrokerRegistration(
        record.broker_id, record.broker_epoch, record.incarnation_id, record.is_migrating_zk_broker, record.end_points,
        record.features, record.rack, record.fenced, record.in_controlled_shutdown, record.log_dirs,
    )  # fmt: skip


def _normal(directories: tuple[Uuid, ...]) -> tuple[Uuid, ...]:
    return () if all(directory == ZERO_UUID for directory in directories) else directories


def _partition(record: rec.PartitionRecord) -> PartitionRegistration:
    return PartitionRegistration(
        record.replicas, record.isr, record.removing_replicas, record.adding_replicas, record.leader,
        record.leader_recovery_state == 1, record.leader_epoch, record.partition_epoch, _normal(record.directories),
    )  # fmt: skip


def _changed(old: PartitionRegistration, record: rec.PartitionChangeRecord) -> PartitionRegistration:
    named = {
        name: getattr(record, name)
        for name in ("isr", "replicas", "removing_replicas", "adding_replicas")
        if getattr(record, name) is not None
    }
    if record.leader != rec.NO_LEADER_CHANGE:
        named |= {"leader": record.leader, "leader_epoch": old.leader_epoch + 1}
    if record.leader_recovery_state != rec.NO_RECOVERY_CHANGE:
        named["recovering"] = record.leader_recovery_state == 1
    if record.directories is not None:
        named["directories"] = _normal(record.directories)
    return replace(old, partition_epoch=old.partition_epoch + 1, **named)
