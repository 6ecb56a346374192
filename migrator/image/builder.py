"""Builds the next image by replaying records on top of an image.

`loader`, `snapshot`, the check of sizes before a write and `verify` make an `ImageBuilder`, call `replay` for each
record, and take one image from it. The image at the bottom never changes. A record that does not fit (a partition of an
unknown topic, a change of another broker epoch) is an `InvariantViolation`: the log that holds it is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from migrator.errors import InvariantViolation
from migrator.image.model import (
    BrokerRegistration,
    Changes,
    ClusterImage,
    ConfigResource,
    ControllerRegistration,
    FeaturesImage,
    MetadataImage,
    Provenance,
)
from migrator.image.security import SecurityBuilder
from migrator.image.topics import TopicsBuilder
from migrator.image.tracked import Interner, TrackedDicts, TrackedMap
from migrator.records import metadata as rec
from migrator.records.metadata import (
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    FenceBrokerRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)

_FENCING = {-1: False, 0: None, 1: True}
_SHUTDOWN = {0: None, 1: True}


class ClusterBuilder:
    """Replays registrations. A change must name the epoch of the registration that it changes."""

    __slots__ = ("brokers", "controllers")

    def __init__(self, base: ClusterImage) -> None:
        self.brokers = TrackedMap(base.brokers)
        self.controllers = TrackedMap(base.controllers)

    def register_broker(self, record: RegisterBrokerRecord) -> None:
        """A broker's new registration, in place of an older one."""
        self.brokers.put(
            record.broker_id,
            BrokerRegistration(
                broker_id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                is_migrating_zk_broker=record.is_migrating_zk_broker,
                listeners=record.end_points,
                features=record.features,
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                log_dirs=record.log_dirs,
            ),
        )

    def unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._registration(record.broker_id, record.broker_epoch)
        self.brokers.remove(record.broker_id)

    def fence(self, record: FenceBrokerRecord) -> None:
        """Fence a broker (metadata.version below 3.3-IV2)."""
        self._set_fenced(record, fenced=True)

    def unfence(self, record: UnfenceBrokerRecord) -> None:
        """Unfence a broker (metadata.version below 3.3-IV2)."""
        self._set_fenced(record, fenced=False)

    def change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        """Fencing, controlled shutdown and log directories; fields that the record leaves out keep their values."""
        old = self._registration(record.broker_id, record.broker_epoch)
        if record.fenced not in _FENCING or record.in_controlled_shutdown not in _SHUTDOWN:
            raise InvariantViolation(
                f"unknown change of broker {record.broker_id}: fenced {record.fenced}, "
                f"in controlled shutdown {record.in_controlled_shutdown}"
            )
        fenced = _FENCING[record.fenced]
        stopping = _SHUTDOWN[record.in_controlled_shutdown]
        self.brokers.put(
            record.broker_id,
            replace(
                old,
                fenced=old.fenced if fenced is None else fenced,
                in_controlled_shutdown=old.in_controlled_shutdown if stopping is None else stopping,
                log_dirs=record.log_dirs or old.log_dirs,
            ),
        )

    def register_controller(self, record: RegisterControllerRecord) -> None:
        """A controller's new registration, in place of an older one."""
        self.controllers.put(
            record.controller_id,
            ControllerRegistration(
                controller_id=record.controller_id,
                incarnation_id=record.incarnation_id,
                zk_migration_ready=record.zk_migration_ready,
                listeners=record.end_points,
                features=record.features,
            ),
        )

    def finish(self) -> ClusterImage:
        """The resulting registrations."""
        return ClusterImage(self.brokers.snapshot(), self.controllers.snapshot())

    def _set_fenced(self, record: FenceBrokerRecord | UnfenceBrokerRecord, *, fenced: bool) -> None:
        old = self._registration(record.broker_id, record.broker_epoch)
        self.brokers.put(record.broker_id, replace(old, fenced=fenced))

    def _registration(self, broker_id: int, epoch: int) -> BrokerRegistration:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise InvariantViolation(f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise InvariantViolation(f"broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}")
        return broker


class SettingsBuilder:
    """Replays the records of cluster-wide settings."""

    __slots__ = ("configs", "levels", "migration", "producer_ids_next", "quotas")

    def __init__(self, base: MetadataImage) -> None:
        self.levels = TrackedMap(base.features.levels)
        self.migration = base.features.migration
        self.configs = TrackedDicts(base.configs)
        self.quotas = TrackedDicts(base.quotas)
        self.producer_ids_next = base.producer_ids_next

    def set_feature(self, record: FeatureLevelRecord) -> None:
        """Set the level of a feature; level 0 removes it."""
        if record.feature_level == 0:
            self.levels.remove(record.name)
        else:
            self.levels.put(record.name, record.feature_level)

    def set_zk_migration_state(self, record: ZkMigrationStateRecord) -> None:
        """Set the state of the migration. The controller checks whether the change is allowed, not this method."""
        try:
            ZkMigrationState(record.zk_migration_state)
        except ValueError as error:
            raise InvariantViolation(f"unknown ZooKeeper migration state {record.zk_migration_state}") from error
        self.migration = record

    def set_config(self, record: ConfigRecord) -> None:
        """Set or delete one key of a resource."""
        resource = ConfigResource(record.resource_type, record.resource_name)
        if record.value is None:
            self.configs.discard(resource, record.name)
        else:
            self.configs.put(resource, record.name, record.value)

    def clear_topic_config(self, topic: str) -> None:
        """Delete every key of a topic."""
        self.configs.clear(ConfigResource(ConfigResourceType.TOPIC, topic))

    def set_quota(self, record: ClientQuotaRecord) -> None:
        entity = frozenset(record.entity)
        if record.remove:
            self.quotas.discard(entity, record.key)
        else:
            self.quotas.put(entity, record.key, record.value)

    def set_producer_ids(self, record: ProducerIdsRecord) -> None:
        """A block of producer ids was assigned. The record has the beginning of the next one."""
        self.producer_ids_next = record.next_producer_id

    def features(self) -> FeaturesImage:
        said = self.migration
        state = ZkMigrationState(said.zk_migration_state)
        return FeaturesImage(self.levels.snapshot(), state, said.hold, said.reopening, said.copied_as, said.reopened)


class ImageBuilder:
    """Replays records on top of an image, which does not change. A builder makes one image.

    Marker records of transactions are refused, as in a snapshot: the loader handles transactions.

    :param intern: shared by the builders of one log, so that equal assignments are one object throughout an image.
    """

    __slots__ = ("_base", "_cluster", "_handlers", "_security", "_settings", "_topics", "records")

    def __init__(self, base: MetadataImage, intern: Interner | None = None) -> None:
        self._base = base
        self._cluster = ClusterBuilder(base.cluster)
        self._topics = TopicsBuilder(base.topics, intern or Interner())
        self._settings = SettingsBuilder(base)
        self._security = SecurityBuilder(base)
        self.records = 0
        """The number of replayed records."""
        self._handlers: dict[type, Callable[[Any], object]] = {}
        """The handlers of the record types seen so far: most batches hold one type."""

    def replay(self, record: rec.MetadataRecord) -> None:
        """Apply one record.

        :raises InvariantViolation: the record does not fit the image, for example a partition of an unknown topic, or
            it is the marker of a transaction. The message quotes no secret. The builder must then be dropped.
        """
        handler = self._handlers.get(type(record)) or self._handler(type(record))
        handler(record)
        self.records += 1

    def replay_alike(self, records: Sequence[rec.MetadataRecord], start: int, stop: int) -> None:
        """Apply the records from ``start`` on that are of one type; `records` counts them. Errors as `replay`."""
        kind = type(records[start])
        handler = self._handlers.get(kind) or self._handler(kind)
        for index in range(start, stop):
            record = records[index]
            if type(record) is not kind:
                return
            handler(record)
            self.records += 1

    def _handler(self, kind: type) -> Callable[[Any], object]:
        find = _HANDLERS.get(kind)
        if find is None:
            raise InvariantViolation("an image cannot hold this record")
        handler = self._handlers[kind] = find(self)
        return handler

    @property
    def _topic_remover(self) -> Callable[[Any], object]:
        """It holds the parts, not this builder: that would be a cycle."""
        topics, settings = self._topics, self._settings
        return lambda record: settings.clear_topic_config(topics.remove(record))

    def remove_some(self, record: rec.RemoveTopicRecord, at_most: int) -> int:
        """See `TopicsBuilder.remove_some`; `replay` has to follow when this returns 0."""
        return self._topics.remove_some(record, at_most)

    def build(self, provenance: Provenance) -> tuple[MetadataImage, Changes]:
        """The resulting image, and the changes from the base. Nothing may be replayed afterwards."""
        return self.image(provenance), self._changes()

    def image(self, provenance: Provenance) -> MetadataImage:
        """The resulting image, in a time that does not depend on the number of replayed records. Nothing may be
        replayed afterwards."""
        topics, cluster, settings, security = self._topics, self._cluster, self._settings, self._security
        return MetadataImage(
            provenance=provenance,
            features=settings.features(),
            cluster=cluster.finish(),
            topics=topics.finish(),
            configs=settings.configs.finish(),
            quotas=settings.quotas.finish(),
            producer_ids_next=settings.producer_ids_next,
            acls=security.acls.snapshot(),
            scram=security.scram.snapshot(),
            tokens=security.tokens.snapshot(),
        )

    def _changes(self) -> Changes:
        base, topics, cluster, settings, security = (
            self._base, self._topics, self._cluster, self._settings, self._security,
        )  # fmt: skip
        return Changes(
            features=bool(settings.levels.changed),
            zk_migration_state=settings.migration != base.features.migration,
            brokers=frozenset(cluster.brokers.changed),
            controllers=frozenset(cluster.controllers.changed),
            topics=topics.changed_topics(),
            partitions=topics.changed_partitions(),
            configs=frozenset(settings.configs.changed),
            quotas=frozenset(settings.quotas.changed),
            producer_ids=settings.producer_ids_next != base.producer_ids_next,
            acls=frozenset(security.acls.changed),
            scram=frozenset(security.scram.changed),
            tokens=frozenset(security.tokens.changed),
            records=self.records,
        )


def _no_op(record: rec.NoOpRecord) -> None:
    """A NoOpRecord only takes an offset."""


_HANDLERS: dict[type, Callable[[ImageBuilder], Callable[[Any], object]]] = {
    rec.RegisterBrokerRecord: attrgetter("_cluster.register_broker"),
    rec.UnregisterBrokerRecord: attrgetter("_cluster.unregister_broker"),
    rec.TopicRecord: attrgetter("_topics.create"),
    rec.PartitionRecord: attrgetter("_topics.put_partition"),
    rec.ConfigRecord: attrgetter("_settings.set_config"),
    rec.PartitionChangeRecord: attrgetter("_topics.change_partition"),
    rec.FenceBrokerRecord: attrgetter("_cluster.fence"),
    rec.UnfenceBrokerRecord: attrgetter("_cluster.unfence"),
    rec.RemoveTopicRecord: attrgetter("_topic_remover"),
    rec.DelegationTokenRecord: attrgetter("_security.put_token"),
    rec.RemoveDelegationTokenRecord: attrgetter("_security.remove_token"),
    rec.UserScramCredentialRecord: attrgetter("_security.put_scram"),
    rec.RemoveUserScramCredentialRecord: attrgetter("_security.remove_scram"),
    rec.FeatureLevelRecord: attrgetter("_settings.set_feature"),
    rec.ClientQuotaRecord: attrgetter("_settings.set_quota"),
    rec.ProducerIdsRecord: attrgetter("_settings.set_producer_ids"),
    rec.BrokerRegistrationChangeRecord: attrgetter("_cluster.change_broker"),
    rec.AccessControlEntryRecord: attrgetter("_security.put_acl"),
    rec.RemoveAccessControlEntryRecord: attrgetter("_security.remove_acl"),
    rec.NoOpRecord: lambda _: _no_op,
    rec.ZkMigrationStateRecord: attrgetter("_settings.set_zk_migration_state"),
    rec.RegisterControllerRecord: attrgetter("_cluster.register_controller"),
    rec.ClearElrRecord: attrgetter("_topics.clear_elr"),
}
"""The function that replays each record type."""
