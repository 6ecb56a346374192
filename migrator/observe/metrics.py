"""Metrics of one controller for Prometheus, with the names that a JMX exporter gives to those of stock Kafka.

``kafka.controller:type=KafkaController,name=MetadataType`` is ``kafka_controller_kafkacontroller_metadatatype``. Every
sample has the node's role and epoch, so that values of a former leader can be distinguished from those of the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from migrator.observe.doors import DOOR_METRICS
from migrator.observe.propagation import PROPAGATION
from migrator.observe.write_times import METRICS as WRITE_METRICS
from migrator.supervision import TaskFailures
from migrator.values import value

LABELS = ("role", "epoch")


class MetadataType(IntEnum):
    """The place of the cluster's metadata (Kafka's MetadataType gauge)."""

    ZOOKEEPER = 1
    KRAFT = 2
    DUAL = 3


@value
class MigrationFigures:
    """The migration's figures. ``public_state``: 0 MigrationIneligible, 1 MigrateZkData, 2 DualWrite, 3 Finished.
    ``internal_states``: for every state, whether it is the present one. ``dual_writing``: whether every change is now
    written to ZooKeeper and sent to the brokers in ZooKeeper mode. ``enabled``: whether the migration is on in this
    node's property file."""

    public_state: int
    internal_states: Mapping[str, bool]
    dual_writing: bool
    enabled: bool
    state_age_ms: int
    ineligible_brokers: int
    ineligible_controllers: int


@value
class Reading:
    """All metric values of one moment. ``zk_migration_state`` has Kafka's numbers."""

    role: str
    epoch: int
    active: bool
    zk_migration_state: int
    migration: MigrationFigures
    migrating_zk_brokers: int
    zk_write_behind_lag: int
    partition_versions_missing: int
    zookeeper_blocking_kraft_ms: int
    metadata_type: MetadataType
    features: Mapping[str, int]
    event_loop_stall_ms: float
    active_brokers: int
    fenced_brokers: int
    offline_brokers: int
    graced_brokers: int
    brokers_not_told: int
    topics: int
    partitions: int
    offline_partitions: int
    preferred_replica_imbalance: int
    metadata_errors: int
    last_applied_offset: int
    last_applied_timestamp_ms: int
    last_applied_lag_ms: int
    last_committed_offset: int
    leaders_seen: int
    leader_id: int
    voted_id: int
    """-1: this node has given no vote."""
    voted_directory: str
    kafka_raft_state: str
    """Kafka's name of the state (`KafkaRaftMetrics`)."""
    high_watermark: int
    log_end_offset: int
    log_end_epoch: int
    refused_appends: int
    voters: int
    voter_reassignment: bool
    """Whether this node leads, and moves the voters to a target."""
    voter_reassignment_idle_ms: int
    images_different: int
    images_age_ms: int
    last_verdict: int
    """The result of the last verification: 1 equal, 0 different, -1 none."""
    authorizer_log_failing: bool
    authorizer_log_lost: int
    task_failures: Mapping[str, TaskFailures]


CONTROLLER_PREFIX = "kafka_controller_kafkacontroller_"
RAFT_PREFIX = "kafka_server_raft_metrics_"

GAUGES: tuple[tuple[str, str, Callable[[Reading], float]], ...] = (
    (CONTROLLER_PREFIX + "activecontrollercount", "1 on the active controller", lambda r: int(r.active)),
    (
        CONTROLLER_PREFIX + "zkmigrationstate",
        "0 none, 1 migration (dual-write), 2 pre-migration, 3 post-migration",
        lambda r: r.zk_migration_state,
    ),
    (
        CONTROLLER_PREFIX + "migrationineligiblebrokercount",
        "Brokers that keep the copy from starting",
        lambda r: r.migration.ineligible_brokers,
    ),
    (
        CONTROLLER_PREFIX + "migrationineligiblecontrollercount",
        "Controllers that keep the copy from starting",
        lambda r: r.migration.ineligible_controllers,
    ),
    (
        CONTROLLER_PREFIX + "migratingzkbrokercount",
        "Registered brokers in ZooKeeper mode",
        lambda r: r.migrating_zk_brokers,
    ),
    (
        CONTROLLER_PREFIX + "zookeeperwritebehindlag",
        "Committed records that ZooKeeper does not hold yet; -1 unknown; 0 while ZooKeeper is not written",
        lambda r: r.zk_write_behind_lag,
    ),
    (
        CONTROLLER_PREFIX + "zkwritebehindlag",
        "The same, by the name that Kafka ships",
        lambda r: r.zk_write_behind_lag,
    ),
    (
        CONTROLLER_PREFIX + "zookeeperblockingkraftmillis",
        "Milliseconds that administrative writes have waited for ZooKeeper",
        lambda r: r.zookeeper_blocking_kraft_ms,
    ),
    (CONTROLLER_PREFIX + "metadatatype", "1 ZooKeeper, 2 KRaft, 3 dual", lambda r: r.metadata_type),
    (CONTROLLER_PREFIX + "activebrokercount", "Unfenced brokers", lambda r: r.active_brokers),
    (CONTROLLER_PREFIX + "fencedbrokercount", "Fenced brokers", lambda r: r.fenced_brokers),
    (CONTROLLER_PREFIX + "globaltopiccount", "Topics", lambda r: r.topics),
    (CONTROLLER_PREFIX + "globalpartitioncount", "Partitions", lambda r: r.partitions),
    (CONTROLLER_PREFIX + "offlinepartitionscount", "Partitions without a leader", lambda r: r.offline_partitions),
    (
        CONTROLLER_PREFIX + "preferredreplicaimbalancecount",
        "Partitions whose leader is not their first replica",
        lambda r: r.preferred_replica_imbalance,
    ),
    (
        CONTROLLER_PREFIX + "metadataerrorcount",
        "Unexpected errors while metadata were applied, or followed",
        lambda r: r.metadata_errors,
    ),
    (
        CONTROLLER_PREFIX + "lastappliedrecordoffset",
        "Last offset of the published image",
        lambda r: r.last_applied_offset,
    ),
    (
        CONTROLLER_PREFIX + "lastappliedrecordtimestamp",
        "When the leader appended the last batch of the published image, in ms since 1970",
        lambda r: r.last_applied_timestamp_ms,
    ),
    (
        CONTROLLER_PREFIX + "lastappliedrecordlagms",
        "How long ago the leader appended the last batch of the published image",
        lambda r: r.last_applied_lag_ms,
    ),
    (
        CONTROLLER_PREFIX + "lastcommittedrecordoffset",
        "Last offset that this node knows to be committed; -1 none",
        lambda r: r.last_committed_offset,
    ),
    (
        CONTROLLER_PREFIX + "newactivecontrollerscount",
        "How often this node has learned of a new active controller, or of a new epoch of one",
        lambda r: r.leaders_seen,
    ),
    (RAFT_PREFIX + "current_leader", "Id of the leader; -1 unknown", lambda r: r.leader_id),
    (RAFT_PREFIX + "current_epoch", "Epoch of the quorum", lambda r: r.epoch),
    (RAFT_PREFIX + "current_vote", "Id of the node that this node voted for; -1 none", lambda r: r.voted_id),
    (RAFT_PREFIX + "high_watermark", "End of what is committed", lambda r: r.high_watermark),
    (RAFT_PREFIX + "log_end_offset", "End of the log", lambda r: r.log_end_offset),
    (RAFT_PREFIX + "log_end_epoch", "Epoch of the last record of the log", lambda r: r.log_end_epoch),
    (
        "migrator_log_refused_appends",
        "Appends in a row that this node's log refused; above 0 it does not follow, and its status says why",
        lambda r: r.refused_appends,
    ),
    ("migrator_voters", "Voters in force at this node", lambda r: r.voters),
    (
        "migrator_voter_reassignment",
        "1 on the active controller while the voters are to become others",
        lambda r: r.voter_reassignment,
    ),
    (
        "migrator_voter_reassignment_idle_ms",
        "How long ago that changed a voter last; 0 elsewhere",
        lambda r: r.voter_reassignment_idle_ms,
    ),
    (
        "migrator_event_loop_stall_ms",
        "Longest turn of the event loop in the last minute",
        lambda r: r.event_loop_stall_ms,
    ),
    (
        "migrator_migration_state_age_ms",
        "How long the migration has been in its internal state",
        lambda r: r.migration.state_age_ms,
    ),
    (
        "migrator_migration_public_state",
        "0 MigrationIneligible, 1 MigrateZkData, 2 DualWrite, 3 Finished",
        lambda r: r.migration.public_state,
    ),
    (
        "migrator_dual_writing",
        "1 while every change goes to ZooKeeper and to the brokers; 0 at all other times, also in DualWrite",
        lambda r: r.migration.dual_writing,
    ),
    (
        "migrator_migration_enabled",
        "Whether zookeeper.metadata.migration.enable is true on this controller",
        lambda r: r.migration.enabled,
    ),
    (
        "migrator_offline_brokers",
        "Fenced brokers that the active controller does not hear of; 0 elsewhere",
        lambda r: r.offline_brokers,
    ),
    (
        "migrator_partition_versions_missing",
        "Sets that raise versions of partition states in ZooKeeper, and are still to be made; -1 unknown",
        lambda r: r.partition_versions_missing,
    ),
    (
        "migrator_graced_brokers",
        "Brokers that send a new leader no heartbeats, and are not fenced because they answer to requests; 0 elsewhere",
        lambda r: r.graced_brokers,
    ),
    (
        "migrator_brokers_not_told",
        "Brokers in ZooKeeper mode that are up and cannot be told of changes, or do not take them",
        lambda r: r.brokers_not_told,
    ),
    (
        "migrator_images_different",
        "Controllers whose metadata are not those of the leader, at one offset; 0 elsewhere",
        lambda r: r.images_different,
    ),
    (
        "migrator_images_age_ms",
        "How long ago the leader compared its metadata with those of the others; -1 never, and elsewhere",
        lambda r: r.images_age_ms,
    ),
    (
        "migrator_authorizer_log_failing",
        "1 while the log of the authorizer cannot be written",
        lambda r: r.authorizer_log_failing,
    ),
    (
        "migrator_authorizer_log_lost_lines",
        "Lines of the log of the authorizer that found no room, since this controller was started",
        lambda r: r.authorizer_log_lost,
    ),
    ("migrator_verify_last_verdict", "1 equal, 0 different, -1 no verdict was told", lambda r: r.last_verdict),
)
"""Name, help, and how it is read."""

FEATURE_GAUGE = "kafka_server_metadataloader_finalizedlevel"
STATE_GAUGE = "migrator_migration_internal_state"
TASK_COUNTER = "migrator_task_failures_total"
TASK_GAUGE = "migrator_task_last_failure_ms"
HISTOGRAM = tuple(PROPAGATION + suffix for suffix in ("_bucket", "_sum", "_count"))
METRICS = frozenset(
    {
        *(FEATURE_GAUGE, STATE_GAUGE, TASK_COUNTER, TASK_GAUGE),
        *HISTOGRAM,
        *DOOR_METRICS,
        *WRITE_METRICS,
        *(name for name, _, _ in GAUGES),
    }
)
"""All names."""


class ReadingCollector(Collector):
    """Takes one reading for each scrape."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        reading = self._read()
        labels = [reading.role, str(reading.epoch)]
        for name, text, figure in GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=LABELS)
            gauge.add_metric(labels, float(figure(reading)))
            yield gauge
        features = GaugeMetricFamily(FEATURE_GAUGE, "Finalized level of a feature", labels=(*LABELS, "feature"))
        for feature, level in sorted(reading.features.items()):
            features.add_metric([*labels, feature], level)
        yield features
        states = GaugeMetricFamily(STATE_GAUGE, "1 for the present internal state", labels=(*LABELS, "state"))
        for state, present in reading.migration.internal_states.items():
            states.add_metric([*labels, state], int(present))
        yield states
        yield from _task_failures(reading.task_failures)


def _task_failures(failures: Mapping[str, TaskFailures]) -> Iterator[Metric]:
    """Counted for the process in every role, because they outlive an epoch."""
    count = CounterMetricFamily(TASK_COUNTER, "Unexpected errors, by kind of task", labels=("task",))
    last = GaugeMetricFamily(TASK_GAUGE, "When a task last failed, in ms since 1970", labels=("task", "error"))
    for kind, failed in sorted(failures.items()):
        count.add_metric([kind], failed.count)
        last.add_metric([kind, failed.last_error], failed.last_ms)
    yield count
    yield last
