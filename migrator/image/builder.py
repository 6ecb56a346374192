"""Builds the next image by replaying records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from migrator.errors import InvariantViolation
from migrator.image.cluster import ClusterBuilder
from migrator.image.model import Changes, MetadataImage, Provenance
from migrator.image.security import SecurityBuilder
from migrator.image.settings import SettingsBuilder
from migrator.image.topics import TopicsBuilder
from migrator.image.tracked import Interner
from migrator.records import metadata as rec


class ImageBuilder:
    """Replays records on top of an image, which does not change. A builder makes one image.

    Marker records of transactions are refused, as in a snapshot: the loader handles transactions.

    :param intern: shared by the builders of one log, so that equal assignments are one object throughout an image.
    """

    __slots__ = ("_base", "_cluster", "_handlers", "_security", "_settings", "_topics", "records")

    def __init__(self, base: MetadataImage, intern: Interner | None = None) -> None:
        self._base = base
        self._cluster = cluster = ClusterBuilder(base.cluster)
        self._topics = topics = TopicsBuilder(base.topics, intern or Interner())
        self._settings = settings = SettingsBuilder(base)
        self._security = security = SecurityBuilder(base)
        self.records = 0
        """How many records were replayed."""

        def remove_topic(record: rec.RemoveTopicRecord) -> None:
            settings.clear_topic_config(topics.remove(record))

        self._handlers: dict[type, Callable[[Any], object]] = {
            rec.RegisterBrokerRecord: cluster.register_broker,
            rec.UnregisterBrokerRecord: cluster.unregister_broker,
            rec.TopicRecord: topics.create,
            rec.PartitionRecord: topics.put_partition,
            rec.ConfigRecord: settings.set_config,
            rec.PartitionChangeRecord: topics.change_partition,
            rec.FenceBrokerRecord: cluster.fence,
            rec.UnfenceBrokerRecord: cluster.unfence,
            rec.RemoveTopicRecord: remove_topic,
            rec.DelegationTokenRecord: security.put_token,
            rec.RemoveDelegationTokenRecord: security.remove_token,
            rec.UserScramCredentialRecord: security.put_scram,
            rec.RemoveUserScramCredentialRecord: security.remove_scram,
            rec.FeatureLevelRecord: settings.set_feature,
            rec.ClientQuotaRecord: settings.set_quota,
            rec.ProducerIdsRecord: settings.set_producer_ids,
            rec.BrokerRegistrationChangeRecord: cluster.change_broker,
            rec.AccessControlEntryRecord: security.put_acl,
            rec.RemoveAccessControlEntryRecord: security.remove_acl,
            rec.NoOpRecord: _no_op,
            rec.ZkMigrationStateRecord: settings.set_zk_migration_state,
            rec.RegisterControllerRecord: cluster.register_controller,
            rec.ClearElrRecord: topics.clear_elr,
        }

    def replay(self, record: rec.MetadataRecord) -> None:
        """Apply one record.

        :raises InvariantViolation: the record does not fit the image, for example a partition of an unknown topic, or
            it is the marker of a transaction. The message quotes no secret. The builder must then be dropped.
        """
        handler = self._handlers.get(type(record))
        if handler is None:
            raise InvariantViolation("an image cannot hold this record")
        handler(record)
        self.records += 1

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
