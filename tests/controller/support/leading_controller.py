"""A controller's leader in a few lines: decides, applies the records to its image, keeps index and sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from migrator.config.types import Secret
from migrator.controller.assignments import NewPartitions
from migrator.controller.brokers import RegistrationRequest, register_broker
from migrator.controller.context import Context
from migrator.controller.decision import Decision
from migrator.controller.delegation_tokens import secret_key
from migrator.controller.heartbeats import HeartbeatRequest, HeartbeatResponse, heartbeat
from migrator.controller.index import ControllerIndex
from migrator.controller.mutation_quotas import MutationBuckets
from migrator.controller.sessions import Sessions
from migrator.image.builder import ImageBuilder
from migrator.image.model import EMPTY_IMAGE, MetadataImage, PartitionRegistration, Provenance
from migrator.records.metadata import (
    ConfigRecord,
    ConfigResourceType,
    Endpoint,
    FeatureLevelRecord,
    FeatureRange,
    MetadataRecord,
    TopicRecord,
)
from migrator.records.uuid import Uuid, random_uuid
from migrator.records.versions import FEATURE_NAME, LATEST_SUPPORTED

CLUSTER_ID = "qYoMEZXcS_SKP2PzAl8-WA"
SESSION_MS = 9000
LISTENER = Endpoint("PLAINTEXT", "host", 9092, 0)

R = TypeVar("R")
Q = TypeVar("Q")


def some_uuid(number: int) -> Uuid:
    """A Uuid that is not reserved."""
    return Uuid((1000 + number).to_bytes(16, "big"))


@dataclass
class SettingsOfTest:
    """Kafka's defaults, as far as decisions depend on them."""

    explicit: Mapping[str, str] = field(default_factory=dict)
    node_id: int = 3000
    num_partitions: int = 1
    default_replication_factor: int = 1
    broker_session_timeout_ms: int = SESSION_MS
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    metadata_max_idle_interval_ms: int = 500
    inter_broker_listener_name: str | None = None
    security_inter_broker_protocol: str = "PLAINTEXT"
    authorizer_class_name: str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    delete_topic_enable: bool = True
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    zookeeper_metadata_migration_enable: bool = False
    migrator_keep_way_back: bool = True
    delegation_token_secret_key: Secret | None = None
    delegation_token_master_key: Secret | None = None
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_expiry_time_ms: int = 86_400_000
    delegation_token_expiry_check_interval_ms: int = 3_600_000


class LeadingController:
    """See the module. ``history`` holds every record written."""

    def __init__(self, *records: MetadataRecord, level: int = LATEST_SUPPORTED, **settings: Any) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.settings = SettingsOfTest(**settings)
        self.index = ControllerIndex(secret_key(self.settings))
        self.sessions = Sessions(SESSION_MS)
        self.mutations = MutationBuckets()
        self.random = Random(0)
        self.now_ms = 1000
        self.wall_ms = 1_700_000_000_000
        self.transaction_open = False
        self.kraft_version = 0
        self.history: list[MetadataRecord] = []
        self.write(FeatureLevelRecord(FEATURE_NAME, level), *records)

    @property
    def next_offset(self) -> int:
        return len(self.history)

    def context(self) -> Context:
        """The input of a decision now."""
        return Context(
            cluster_id=CLUSTER_ID,
            settings=self.settings,
            voters=frozenset({3000}),
            kraft_version=self.kraft_version,
            index=self.index,
            sessions=self.sessions,
            mutations=self.mutations,
            random=self.random,
            now_ms=self.now_ms,
            wall_ms=self.wall_ms,
            next_offset=self.next_offset,
            transaction_open=self.transaction_open,
        )

    def write(self, *records: MetadataRecord) -> None:
        """Apply one batch, as a node does with what it appends."""
        builder = ImageBuilder(self.image)
        for record in records:
            builder.replay(record)
        self.history.extend(records)
        before = self.image
        self.image, changes = builder.build(Provenance(self.next_offset - 1, 1, self.wall_ms))
        for _ in self.index.apply(before, self.image, changes) or ():
            pass
        self.sessions.follow(self.image, changes.brokers, self.now_ms)

    def commit(self, decision: Decision[R]) -> R:
        """Apply what was decided, in small batches unless it is atomic."""
        if decision.atomic:
            self.write(*decision.records)
        else:
            for record in decision.records:
                self.write(record)
        if decision.note is not None:
            decision.note(self.sessions, self.next_offset - 1, self.now_ms)
        return decision.response

    def decide(self, function: Callable[[MetadataImage, Q, Context], Decision[R]], request: Q) -> R:
        return self.commit(function(self.image, request, self.context()))

    def records_of(self, function: Callable[[MetadataImage, Q, Context], Decision[R]], request: Q) -> list[Any]:
        """Decide, and return the records without applying them."""
        return list(function(self.image, request, self.context()).records)

    def register(self, broker_id: int, **changes: Any) -> int:
        """Register a broker; its epoch."""
        return self.decide(register_broker, registration(broker_id, **changes)).broker_epoch

    def beat(self, broker_id: int, **changes: Any) -> HeartbeatResponse:
        """A heartbeat of a registered broker that has caught up."""
        registration = self.image.cluster.brokers[broker_id]
        fields = {
            "broker_id": broker_id,
            "broker_epoch": registration.epoch,
            "metadata_offset": self.next_offset,
            "want_fence": False,
            "want_shut_down": False,
        }
        request = HeartbeatRequest(**{**fields, **changes})
        self.sessions.heard(broker_id, request.broker_epoch, self.now_ms)
        return self.commit(heartbeat(self.image, request, self.context()))

    def start(self, broker_ids: Iterable[int], **changes: Any) -> None:
        """Register and unfence brokers."""
        for broker_id in broker_ids:
            self.register(broker_id, **changes)
            self.beat(broker_id)

    def create(self, name: str, *assignments: tuple[int, ...], **configs: str) -> Uuid:
        """Write a topic with these replicas of partition 0, 1, ..., all active ones in sync. Underscores in a
        configuration's name stand for dots."""
        topic_id = random_uuid(self.random)
        new = NewPartitions(self.image)
        self.write(
            TopicRecord(name, topic_id),
            *(
                ConfigRecord(ConfigResourceType.TOPIC, name, key.replace("_", "."), text)
                for key, text in configs.items()
            ),
            *(new.record(topic_id, number, replicas) for number, replicas in enumerate(assignments)),
        )
        return topic_id

    def partition(self, topic: str, number: int = 0) -> PartitionRegistration:
        """A partition's state."""
        found = self.image.topics.by_name(topic)
        assert found is not None
        return found.partitions[number]


def registration(broker_id: int, **changes: Any) -> RegistrationRequest:
    """A valid registration of a KRaft broker; each incarnation number is another process."""
    incarnation = changes.pop("incarnation", 1)
    fields = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": some_uuid(100 * broker_id + incarnation),
        "listeners": (LISTENER,),
        "features": (FeatureRange(FEATURE_NAME, 1, LATEST_SUPPORTED),),
        "rack": None,
        "is_migrating_zk_broker": False,
        "log_dirs": (some_uuid(10_000 + broker_id),),
    }
    return RegistrationRequest(**{**fields, **changes})
