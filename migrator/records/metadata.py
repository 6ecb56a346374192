"""Every record of the metadata log as an immutable value.

Names and meaning are Kafka's (``metadata/src/main/resources/common/metadata/*.json``). A field that a record version
lacks has its default. Times are milliseconds since 1970, epochs and offsets plain integers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum

from migrator.config.sensitive import REDACTED, broker_type, is_sensitive, topic_type
from migrator.records.uuid import Uuid
from migrator.values import value

NO_LEADER = -1
NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1


class LeaderRecoveryState(IntEnum):
    RECOVERED = 0
    RECOVERING = 1


class ConfigResourceType(IntEnum):
    """Kafka reads every other number as ``UNKNOWN``. Stock controllers keep records of that type and accept none from
    clients. So the target of a reassignment of voters is stored there (`QUORUM_RESOURCE`)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16


_TYPES_OF: Mapping[int, Callable[[str], str | None]] = {
    ConfigResourceType.TOPIC: topic_type,
    ConfigResourceType.BROKER: broker_type,
}
_OPEN_RESOURCES = frozenset({ConfigResourceType.BROKER_LOGGER, ConfigResourceType.CLIENT_METRICS})
QUORUM_RESOURCE = "migrator.quorum"
"""The resource of type `ConfigResourceType.UNKNOWN` that this program keeps in the metadata of a quorum."""


class ScramMechanism(IntEnum):
    SHA_256 = 1
    SHA_512 = 2


class ZkMigrationState(IntEnum):
    """KIP-866 state as persisted in `ZkMigrationStateRecord`."""

    NONE = 0
    MIGRATION = 1
    PRE_MIGRATION = 2
    POST_MIGRATION = 3

    @property
    def is_under_way(self) -> bool:
        """Whether the migration runs. A stock leader without the migration flag would end it at once."""
        return self in {ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION}


class SecurityProtocol(IntEnum):
    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


@value
class Endpoint:
    """A named listener of a broker or controller."""

    name: str
    host: str
    port: int
    security_protocol: int


@value
class FeatureRange:
    """A feature with the range of levels that a node supports."""

    name: str
    min_version: int
    max_version: int


@value
class RegisterBrokerRecord:
    broker_id: int
    is_migrating_zk_broker: bool
    incarnation_id: Uuid
    broker_epoch: int
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()


@value
class UnregisterBrokerRecord:
    broker_id: int
    broker_epoch: int


@value
class TopicRecord:
    name: str
    topic_id: Uuid


@value
class PartitionRecord:
    """Empty ``directories`` mean that the record has none: the image then has MIGRATING for each replica."""

    partition_id: int
    topic_id: Uuid
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@value
class ConfigRecord:
    """``value`` None deletes the key. Broker resource name "" is the default of all brokers."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None

    @property
    def is_sensitive(self) -> bool:
        """Whether the value must not be shown (``KafkaConfig.loggableValue``)."""
        if self.value is None or self.resource_type in _OPEN_RESOURCES:
            return False
        if (self.resource_type, self.resource_name) == (ConfigResourceType.UNKNOWN, QUORUM_RESOURCE):
            return False
        type_of = _TYPES_OF.get(self.resource_type)
        return type_of is None or is_sensitive(type_of(self.name))

    def __repr__(self) -> str:
        shown = REDACTED if self.is_sensitive else repr(self.value)
        return f"ConfigRecord({self.resource_type}, {self.resource_name!r}, {self.name!r}, {shown})"


@value
class PartitionChangeRecord:
    """None, `NO_LEADER_CHANGE` and `NO_RECOVERY_CHANGE` leave a field as it is."""

    partition_id: int
    topic_id: Uuid
    isr: tuple[int, ...] | None = None
    leader: int = NO_LEADER_CHANGE
    replicas: tuple[int, ...] | None = None
    removing_replicas: tuple[int, ...] | None = None
    adding_replicas: tuple[int, ...] | None = None
    leader_recovery_state: int = NO_RECOVERY_CHANGE
    directories: tuple[Uuid, ...] | None = None
    eligible_leader_replicas: tuple[int, ...] | None = None
    last_known_elr: tuple[int, ...] | None = None


@value
class FenceBrokerRecord:
    broker_id: int
    broker_epoch: int


@value
class UnfenceBrokerRecord:
    broker_id: int
    broker_epoch: int


@value
class RemoveTopicRecord:
    topic_id: Uuid


@value
class DelegationTokenRecord:
    """Principals in text, ``Type:name``; times in ms."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str


@value
class RemoveDelegationTokenRecord:
    token_id: str


@value
class UserScramCredentialRecord:
    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        """Salt and keys are not shown."""
        return f"UserScramCredentialRecord({self.name!r}, {self.mechanism}, ..., iterations={self.iterations})"


@value
class RemoveUserScramCredentialRecord:
    name: str
    mechanism: int


@value
class FeatureLevelRecord:
    name: str
    feature_level: int


@value
class QuotaEntity:
    """``entity_type`` is user, client-id or ip; ``entity_name`` None is the default entity."""

    entity_type: str
    entity_name: str | None


@value
class ClientQuotaRecord:
    entity: tuple[QuotaEntity, ...]
    key: str
    value: float
    remove: bool


@value
class ProducerIdsRecord:
    broker_id: int
    broker_epoch: int
    next_producer_id: int


@value
class BrokerRegistrationChangeRecord:
    """``fenced``: -1 unfence, 0 no change, 1 fence; ``in_controlled_shutdown``: 0 no change, 1 begin."""

    broker_id: int
    broker_epoch: int
    fenced: int = 0
    in_controlled_shutdown: int = 0
    log_dirs: tuple[Uuid, ...] = ()


@value
class AccessControlEntryRecord:
    id: Uuid
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


@value
class RemoveAccessControlEntryRecord:
    id: Uuid


@value
class NoOpRecord:
    pass


@value
class MigrationHold:
    """The operator's order not to begin the migration: the controller that got it, and the time (ms since 1970)."""

    node_id: int
    time_ms: int
    reason: str


@value
class MigrationReopening:
    """The operator's order to reopen a finished migration: given to that controller, at that time (ms since 1970)."""

    node_id: int
    time_ms: int
    reason: str


@value
class ZkMigrationStateRecord:
    """All fields but the state: tagged fields of this program, which Kafka skips (KIP-482).

    ``hold`` belongs to PRE_MIGRATION. ``reopening`` belongs to MIGRATION: the migration was finished before, and
    ZooKeeper does not hold everything yet that has changed since. ``copied_as``: the random name of the copy, from its
    end on; ``/migration`` has it, too. ``reopened``: the order of ``reopening``, from the moment in which ZooKeeper
    holds everything, up to the next end of the migration.
    """

    zk_migration_state: int
    hold: MigrationHold | None = None
    reopening: MigrationReopening | None = None
    copied_as: str | None = None
    reopened: MigrationReopening | None = None


@value
class BeginTransactionRecord:
    name: str | None = None


@value
class EndTransactionRecord:
    pass


@value
class AbortTransactionRecord:
    reason: str | None = None


@value
class RegisterControllerRecord:
    controller_id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    end_points: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


@value
class ClearElrRecord:
    """Kafka 4.x only; ``topic_name`` "" clears every topic."""

    topic_name: str = ""


MetadataRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | UserScramCredentialRecord
    | RemoveUserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RegisterControllerRecord
    | ClearElrRecord
)
