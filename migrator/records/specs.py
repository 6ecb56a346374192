"""The layout of every metadata record, as data: number, versions, fields, and the versions that each field is in.

`codec` compiles readers and writers from it. A record of Kafka keeps Kafka's numbers and names. Our own additions are
tagged fields from tag 10000 on, which Kafka's software skips. Source:
``metadata/src/main/resources/common/metadata/*.json`` of Kafka 3.9, ClearElrRecord of 4.0.
"""

from __future__ import annotations

import re

from migrator.records import metadata as m
from migrator.records.schema import (
    BOOLEAN,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT32_LIST,
    INT64,
    STRING,
    UINT16,
    UUID,
    UUID_LIST,
    Field,
    ListOf,
    Struct,
)
from migrator.values import value


@value
class RecordSpec:
    """A record type: its number (Kafka's api key), highest version and fields."""

    api_key: int
    record_type: type[m.MetadataRecord]
    latest: int
    fields: tuple[Field, ...]

    @property
    def struct(self) -> Struct:
        """The layout that `schema.compiled` takes."""
        return Struct(self.record_type, self.fields)

    @property
    def type_name(self) -> str:
        """Name of the type as Kafka's tools print it, e.g. ``REGISTER_BROKER_RECORD``."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", self.record_type.__name__).upper()


HOLD_TAG = 10_000
"""The tag of ``hold``, which Kafka does not have. Kafka numbers its tags from 0 on."""
REOPENING_TAG, COPIED_AS_TAG, REOPENED_TAG = 10_001, 10_002, 10_003
"""The tags of ``reopening``, ``copied_as`` and ``reopened``, likewise."""
_ORDER = (Field("node_id", INT32), Field("time_ms", INT64), Field("reason", STRING))
MIGRATION_HOLD = Struct(m.MigrationHold, _ORDER)
MIGRATION_REOPENING = Struct(m.MigrationReopening, _ORDER)
ENDPOINT = Struct(
    m.Endpoint,
    (Field("name", STRING), Field("host", STRING), Field("port", UINT16), Field("security_protocol", INT16)),
)
FEATURE_RANGE = Struct(
    m.FeatureRange,
    (
        Field("name", STRING),
        Field("min_version", INT16, json_name="minSupportedVersion"),
        Field("max_version", INT16, json_name="maxSupportedVersion"),
    ),
)
QUOTA_ENTITY = Struct(m.QuotaEntity, (Field("entity_type", STRING), Field("entity_name", STRING, nullable=True)))

_FENCING = (Field("broker_id", INT32, json_name="id"), Field("broker_epoch", INT64, json_name="epoch"))

SPECS = (
    RecordSpec(
        0,
        m.RegisterBrokerRecord,
        3,
        (
            Field("broker_id", INT32),
            Field("is_migrating_zk_broker", BOOLEAN, since=2, default=False),
            Field("incarnation_id", UUID),
            Field("broker_epoch", INT64),
            Field("end_points", ListOf(ENDPOINT)),
            Field("features", ListOf(FEATURE_RANGE)),
            Field("rack", STRING, nullable=True),
            Field("fenced", BOOLEAN),
            Field("in_controlled_shutdown", BOOLEAN, since=1, default=False),
            Field("log_dirs", UUID_LIST, since=3, tag=0, default=()),
        ),
    ),
    RecordSpec(1, m.UnregisterBrokerRecord, 0, (Field("broker_id", INT32), Field("broker_epoch", INT64))),
    RecordSpec(2, m.TopicRecord, 0, (Field("name", STRING), Field("topic_id", UUID))),
    RecordSpec(
        3,
        m.PartitionRecord,
        2,
        (
            Field("partition_id", INT32),
            Field("topic_id", UUID),
            Field("replicas", INT32_LIST),
            Field("isr", INT32_LIST),
            Field("removing_replicas", INT32_LIST),
            Field("adding_replicas", INT32_LIST),
            Field("leader", INT32),
            Field("leader_recovery_state", INT8, tag=0, default=0),
            Field("leader_epoch", INT32),
            Field("partition_epoch", INT32),
            Field("directories", UUID_LIST, since=1, default=()),
            Field("eligible_leader_replicas", INT32_LIST, since=2, tag=1, nullable=True),
            Field("last_known_elr", INT32_LIST, since=2, tag=2, nullable=True),
        ),
    ),
    RecordSpec(
        4,
        m.ConfigRecord,
        0,
        (
            Field("resource_type", INT8),
            Field("resource_name", STRING),
            Field("name", STRING),
            Field("value", STRING, nullable=True),
        ),
    ),
    RecordSpec(
        5,
        m.PartitionChangeRecord,
        2,
        (
            Field("partition_id", INT32),
            Field("topic_id", UUID),
            Field("isr", INT32_LIST, tag=0, nullable=True),
            Field("leader", INT32, tag=1, default=m.NO_LEADER_CHANGE),
            Field("replicas", INT32_LIST, tag=2, nullable=True),
            Field("removing_replicas", INT32_LIST, tag=3, nullable=True),
            Field("adding_replicas", INT32_LIST, tag=4, nullable=True),
            Field("leader_recovery_state", INT8, tag=5, default=m.NO_RECOVERY_CHANGE),
            Field("directories", UUID_LIST, since=1, tag=8, nullable=True),
            Field("eligible_leader_replicas", INT32_LIST, since=2, tag=6, nullable=True),
            Field("last_known_elr", INT32_LIST, since=2, tag=7, nullable=True),
        ),
    ),
    RecordSpec(7, m.FenceBrokerRecord, 0, _FENCING),
    RecordSpec(8, m.UnfenceBrokerRecord, 0, _FENCING),
    RecordSpec(9, m.RemoveTopicRecord, 0, (Field("topic_id", UUID),)),
    RecordSpec(
        10,
        m.DelegationTokenRecord,
        0,
        (
            Field("owner", STRING),
            Field("requester", STRING),
            Field("renewers", ListOf(STRING)),
            Field("issue_timestamp", INT64),
            Field("max_timestamp", INT64),
            Field("expiration_timestamp", INT64),
            Field("token_id", STRING),
        ),
    ),
    RecordSpec(
        11,
        m.UserScramCredentialRecord,
        0,
        (
            Field("name", STRING),
            Field("mechanism", INT8),
            Field("salt", BYTES),
            Field("stored_key", BYTES),
            Field("server_key", BYTES),
            Field("iterations", INT32),
        ),
    ),
    RecordSpec(12, m.FeatureLevelRecord, 0, (Field("name", STRING), Field("feature_level", INT16))),
    RecordSpec(
        14,
        m.ClientQuotaRecord,
        0,
        (
            Field("entity", ListOf(QUOTA_ENTITY)),
            Field("key", STRING),
            Field("value", FLOAT64),
            Field("remove", BOOLEAN),
        ),
    ),
    RecordSpec(
        15,
        m.ProducerIdsRecord,
        0,
        (Field("broker_id", INT32), Field("broker_epoch", INT64), Field("next_producer_id", INT64)),
    ),
    RecordSpec(
        17,
        m.BrokerRegistrationChangeRecord,
        2,
        (
            Field("broker_id", INT32),
            Field("broker_epoch", INT64),
            Field("fenced", INT8, tag=0, default=0),
            Field("in_controlled_shutdown", INT8, since=1, tag=1, default=0),
            Field("log_dirs", UUID_LIST, since=2, tag=2, default=()),
        ),
    ),
    RecordSpec(
        18,
        m.AccessControlEntryRecord,
        0,
        (
            Field("id", UUID),
            Field("resource_type", INT8),
            Field("resource_name", STRING),
            Field("pattern_type", INT8),
            Field("principal", STRING),
            Field("host", STRING),
            Field("operation", INT8),
            Field("permission_type", INT8),
        ),
    ),
    RecordSpec(19, m.RemoveAccessControlEntryRecord, 0, (Field("id", UUID),)),
    RecordSpec(20, m.NoOpRecord, 0, ()),
    RecordSpec(
        21,
        m.ZkMigrationStateRecord,
        0,
        (
            Field("zk_migration_state", INT8),
            Field("hold", MIGRATION_HOLD, tag=HOLD_TAG),
            Field("reopening", MIGRATION_REOPENING, tag=REOPENING_TAG),
            Field("copied_as", STRING, tag=COPIED_AS_TAG, nullable=True),
            Field("reopened", MIGRATION_REOPENING, tag=REOPENED_TAG),
        ),
    ),
    RecordSpec(22, m.RemoveUserScramCredentialRecord, 0, (Field("name", STRING), Field("mechanism", INT8))),
    RecordSpec(23, m.BeginTransactionRecord, 0, (Field("name", STRING, tag=0, nullable=True),)),
    RecordSpec(24, m.EndTransactionRecord, 0, ()),
    RecordSpec(25, m.AbortTransactionRecord, 0, (Field("reason", STRING, tag=0, nullable=True),)),
    RecordSpec(26, m.RemoveDelegationTokenRecord, 0, (Field("token_id", STRING),)),
    RecordSpec(
        27,
        m.RegisterControllerRecord,
        0,
        (
            Field("controller_id", INT32),
            Field("incarnation_id", UUID),
            Field("zk_migration_ready", BOOLEAN),
            Field("end_points", ListOf(ENDPOINT)),
            Field("features", ListOf(FEATURE_RANGE)),
        ),
    ),
    RecordSpec(28, m.ClearElrRecord, 0, (Field("topic_name", STRING),)),
)
