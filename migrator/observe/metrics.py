"""Metrics of one controller for Prometheus, under the names that a JMX exporter gives to stock Kafka's.

``kafka.controller:type=KafkaController,name=MetadataType`` is ``kafka_controller_kafkacontroller_metadatatype``.
Every sample says the node's role and epoch, so that a deposed leader's figures are told from the present one's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from migrator.errors import OperatorError
from migrator.values import value

LABELS = ("role", "epoch")


class MetadataType(IntEnum):
    """Where the cluster's metadata is (Kafka's MetadataType gauge)."""

    ZOOKEEPER = 1
    KRAFT = 2
    DUAL = 3


@value
class Reading:
    """All figures at one moment. Numbers of ``zk_migration_state`` are Kafka's."""

    role: str
    epoch: int
    active: bool
    zk_migration_state: int
    migration_ineligible_brokers: int
    migration_ineligible_controllers: int
    migrating_zk_brokers: int
    zk_write_behind_lag: int
    zookeeper_blocking_kraft_ms: int
    metadata_type: MetadataType
    features: Mapping[str, int]
    event_loop_stall_ms: float
    active_brokers: int
    fenced_brokers: int
    topics: int
    partitions: int
    last_applied_offset: int
    high_watermark: int
    log_end_offset: int
    refused_appends: int
    migration_state_age_ms: int
    last_verdict: int
    """Of the last verification: 1 equal, 0 different, -1 none."""


_CONTROLLER = "kafka_controller_kafkacontroller_"
_RAFT = "kafka_server_raft_metrics_"

GAUGES: tuple[tuple[str, str, Callable[[Reading], float]], ...] = (
    (_CONTROLLER + "activecontrollercount", "1 on the active controller", lambda r: int(r.active)),
    (
        _CONTROLLER + "zkmigrationstate",
        "0 none, 1 migration (dual-write), 2 pre-migration, 3 post-migration",
        lambda r: r.zk_migration_state,
    ),
    (
        _CONTROLLER + "migrationineligiblebrokercount",
        "Brokers that keep the copy from starting",
        lambda r: r.migration_ineligible_brokers,
    ),
    (
        _CONTROLLER + "migrationineligiblecontrollercount",
        "Controllers that keep the copy from starting",
        lambda r: r.migration_ineligible_controllers,
    ),
    (
        _CONTROLLER + "migratingzkbrokercount",
        "Registered brokers in ZooKeeper mode",
        lambda r: r.migrating_zk_brokers,
    ),
    (
        _CONTROLLER + "zookeeperwritebehindlag",
        "Committed records that ZooKeeper does not hold yet; 0 where nothing is written to it",
        lambda r: r.zk_write_behind_lag,
    ),
    (
        _CONTROLLER + "zookeeperblockingkraftmillis",
        "Milliseconds that administrative writes have waited for ZooKeeper",
        lambda r: r.zookeeper_blocking_kraft_ms,
    ),
    (_CONTROLLER + "metadatatype", "1 ZooKeeper, 2 KRaft, 3 dual", lambda r: r.metadata_type),
    (_CONTROLLER + "activebrokercount", "Unfenced brokers", lambda r: r.active_brokers),
    (_CONTROLLER + "fencedbrokercount", "Fenced brokers", lambda r: r.fenced_brokers),
    (_CONTROLLER + "globaltopiccount", "Topics", lambda r: r.topics),
    (_CONTROLLER + "globalpartitioncount", "Partitions", lambda r: r.partitions),
    (_CONTROLLER + "lastappliedrecordoffset", "Last offset of the published image", lambda r: r.last_applied_offset),
    (_RAFT + "high_watermark", "End of what is committed", lambda r: r.high_watermark),
    (_RAFT + "log_end_offset", "End of the log", lambda r: r.log_end_offset),
    (
        "migrator_log_refused_appends",
        "Appends in a row that this node's log refused; above 0 it does not follow, and its status says why",
        lambda r: r.refused_appends,
    ),
    (
        "migrator_event_loop_stall_ms",
        "Longest turn of the event loop in the last minute",
        lambda r: r.event_loop_stall_ms,
    ),
    (
        "migrator_migration_state_age_ms",
        "How long the migration has been in its internal state",
        lambda r: r.migration_state_age_ms,
    ),
    ("migrator_verify_last_verdict", "1 equal, 0 different, -1 never verified", lambda r: r.last_verdict),
)
"""Name, help, and how it is read."""

FEATURE_GAUGE = "kafka_server_metadataloader_finalizedlevel"


class ReadingCollector(Collector):
    """Takes one reading per scrape."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """See `Collector`."""
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


class MetricsServer:
    """The HTTP endpoint, in a thread of its own: readings are taken from immutable images and plain numbers.

    :param read: must be safe to call from another thread.
    """

    def __init__(self, host: str, port: int, read: Callable[[], Reading]) -> None:
        """
        :raises OperatorError: the address can't be bound.
        """
        registry = CollectorRegistry(auto_describe=False)
        registry.register(ReadingCollector(read))
        try:
            self._server, self._thread = start_http_server(port, addr=host or "0.0.0.0", registry=registry)  # noqa: S104
        except OSError as error:
            raise OperatorError(
                f"can't listen on {host}:{port}: {error.strerror}",
                where="migrator.metrics.listener",
                remedy="Choose a free port of this host",
            ) from error
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
