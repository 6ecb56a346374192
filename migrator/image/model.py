"""The metadata of a cluster at one offset, immutable.

Maps are persistent (`immutables.Map`): the next image shares everything that did not change, so an image per appended
batch costs only the batch's changes. A `Mapping` field of a leaf (partitions of a topic, keys of a config resource) is
replaced as a whole, never changed. Source: Kafka's ``org.apache.kafka.image``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from immutables import Map

from migrator.observe.printable import utc
from migrator.records.metadata import (
    DelegationTokenRecord,
    Endpoint,
    FeatureRange,
    MigrationHold,
    MigrationReopening,
    QuotaEntity,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from migrator.records.uuid import Uuid
from migrator.records.versions import FEATURE_NAME, MINIMUM_SUPPORTED
from migrator.values import value


@value
class Provenance:
    """The point of the log at which an image is: its last offset (-1 for none), that record's leader epoch, and its
    append time in ms."""

    offset: int
    epoch: int
    timestamp_ms: int


@value
class FeaturesImage:
    """The finalized level of each feature, including ``metadata.version``; the state of the migration, the operator's
    hold if there is one, the order to reopen as long as ZooKeeper does not hold everything again, the name of the copy,
    and the order to reopen from then on (`ZkMigrationStateRecord`)."""

    levels: Map[str, int]
    zk_migration_state: ZkMigrationState
    migration_hold: MigrationHold | None = None
    migration_reopening: MigrationReopening | None = None
    migration_copied_as: str | None = None
    migration_reopened: MigrationReopening | None = None

    @property
    def migration(self) -> ZkMigrationStateRecord:
        """The record that says all that is known of the migration."""
        return ZkMigrationStateRecord(
            int(self.zk_migration_state),
            self.migration_hold,
            self.migration_reopening,
            self.migration_copied_as,
            self.migration_reopened,
        )

    @property
    def order_to_reopen(self) -> MigrationReopening | None:
        """The order that has reopened the migration; None for a migration that was never finished, or is finished."""
        return self.migration_reopening or self.migration_reopened

    @property
    def reopened(self) -> str:
        """When the migration was reopened, and why; "" if it was not."""
        order = self.order_to_reopen
        return "" if order is None else f"{utc(order.time_ms)}: {order.reason}"

    @property
    def metadata_version(self) -> int:
        """The finalized level of metadata.version; a log that names none is of the first KRaft version."""
        return self.levels.get(FEATURE_NAME, MINIMUM_SUPPORTED)


@value
class BrokerRegistration:
    broker_id: int
    epoch: int
    incarnation_id: Uuid
    is_migrating_zk_broker: bool
    listeners: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[Uuid, ...]


@value
class ControllerRegistration:
    controller_id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    listeners: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@value
class ClusterImage:
    brokers: Map[int, BrokerRegistration]
    controllers: Map[int, ControllerRegistration]


@value
class PartitionRegistration:
    """State of one partition. ``directories`` is parallel to ``replicas``; empty stands for MIGRATING everywhere.

    ``leader`` is -1 when there is none. ``recovering`` is LeaderRecoveryState.RECOVERING.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    recovering: bool
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()


@value
class TopicImage:
    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionRegistration]


@value
class PartitionCounts:
    """The numbers of all partitions: in total, without a leader, and with a leader that is not the first replica. The
    last number includes those without a leader (``ControllerMetricsChanges``)."""

    all: int = 0
    offline: int = 0
    without_preferred_leader: int = 0


@value
class TopicsImage:
    by_id: Map[Uuid, TopicImage]
    ids: Map[str, Uuid]
    """Topic name -> id."""
    counts: PartitionCounts = field(default=PartitionCounts(), compare=False)
    """Updated with each replayed record, because counting millions of partitions at once takes too long."""

    def by_name(self, name: str) -> TopicImage | None:
        topic_id = self.ids.get(name)
        return None if topic_id is None else self.by_id[topic_id]


@value
class ConfigResource:
    """``resource_type`` is a `ConfigResourceType`; broker name "" is the default of all brokers."""

    resource_type: int
    name: str


QuotaKey = frozenset[QuotaEntity]
"""An entity that quotas are set on, e.g. {user=a, client-id=None}; None is the default entity."""


@value
class ScramKey:
    """``mechanism`` is a `ScramMechanism`."""

    mechanism: int
    user: str


@value
class ScramCredential:
    """A stored SCRAM credential (``ScramCredential`` in Kafka)."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "ScramCredential([hidden])"


@value
class Acl:
    """One access control entry; numbers are Kafka's codes of ResourceType, PatternType, AclOperation and
    AclPermissionType."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@value
class MetadataImage:
    provenance: Provenance
    features: FeaturesImage
    cluster: ClusterImage
    topics: TopicsImage
    configs: Map[ConfigResource, Mapping[str, str]]
    quotas: Map[QuotaKey, Mapping[str, float]]
    producer_ids_next: int
    """The next producer id to assign; -1 when none was ever recorded."""
    acls: Map[Uuid, Acl]
    scram: Map[ScramKey, ScramCredential]
    tokens: Map[str, DelegationTokenRecord]


EMPTY_IMAGE = MetadataImage(
    provenance=Provenance(-1, -1, -1),
    features=FeaturesImage(Map(), ZkMigrationState.NONE),
    cluster=ClusterImage(Map(), Map()),
    topics=TopicsImage(Map(), Map()),
    configs=Map(),
    quotas=Map(),
    producer_ids_next=-1,
    acls=Map(),
    scram=Map(),
    tokens=Map(),
)


@value
class Changes:
    """The entities that may differ between two images; naming too many does no harm. Topics are named by id, so a topic
    that was deleted and created again is there twice. ``partitions``: the changed partitions of each topic."""

    features: bool = False
    zk_migration_state: bool = False
    brokers: frozenset[int] = frozenset()
    controllers: frozenset[int] = frozenset()
    topics: frozenset[Uuid] = frozenset()
    """Topics created or deleted."""
    partitions: Mapping[Uuid, frozenset[int]] = Map()
    """Partitions created or changed, by topic id."""
    configs: frozenset[ConfigResource] = frozenset()
    quotas: frozenset[QuotaKey] = frozenset()
    producer_ids: bool = False
    acls: frozenset[Uuid] = frozenset()
    scram: frozenset[ScramKey] = frozenset()
    tokens: frozenset[str] = frozenset()
    records: int = 0
    """The number of applied records, NoOps included."""


@value
class ImageDelta:
    """The value that subscribers get: two images, and the entities that may differ."""

    before: MetadataImage
    after: MetadataImage
    changes: Changes
