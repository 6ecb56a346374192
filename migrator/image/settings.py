"""Features, configurations, quotas and producer ids of an image under change."""

from __future__ import annotations

from migrator.errors import InvariantViolation
from migrator.image.model import ConfigResource, FeaturesImage, MetadataImage
from migrator.image.tracked import TrackedDicts, TrackedMap
from migrator.records.metadata import (
    ClientQuotaRecord,
    ConfigRecord,
    ConfigResourceType,
    FeatureLevelRecord,
    ProducerIdsRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)


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
        """Set or remove one quota of an entity."""
        entity = frozenset(record.entity)
        if record.remove:
            self.quotas.discard(entity, record.key)
        else:
            self.quotas.put(entity, record.key, record.value)

    def set_producer_ids(self, record: ProducerIdsRecord) -> None:
        """A block of producer ids was assigned. The record has the beginning of the next one."""
        self.producer_ids_next = record.next_producer_id

    def features(self) -> FeaturesImage:
        """The resulting features."""
        said = self.migration
        state = ZkMigrationState(said.zk_migration_state)
        return FeaturesImage(self.levels.snapshot(), state, said.hold, said.reopening, said.copied_as, said.reopened)
