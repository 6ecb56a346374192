"""One reading of this node's figures for the metrics endpoint."""

from __future__ import annotations

from collections.abc import Callable

from migrator.migration.states import State
from migrator.node.core import NodeCore
from migrator.node.loop_health import LoopHealth
from migrator.node.migration_status import MigrationInsight
from migrator.observe.metrics import MetadataType, Reading
from migrator.records.metadata import ZkMigrationState

TYPES = {
    ZkMigrationState.PRE_MIGRATION: MetadataType.ZOOKEEPER,
    ZkMigrationState.MIGRATION: MetadataType.DUAL,
    ZkMigrationState.POST_MIGRATION: MetadataType.KRAFT,
    ZkMigrationState.NONE: MetadataType.KRAFT,
}


def reader(core: NodeCore, insight: MigrationInsight | None, health: LoopHealth) -> Callable[[], Reading]:
    """A function that may be called from any thread: images are immutable, everything else is single numbers."""

    def read() -> Reading:
        image = core.metadata.published
        brokers = image.cluster.brokers.values()
        driver = None if insight is None else insight.driver
        readiness = None if driver is None else driver.readiness
        behind = None if insight is None else insight.write_behind_status()
        return Reading(
            role=core.quorum.role.value,
            epoch=core.quorum.epoch,
            active=core.controller.epoch is not None,
            zk_migration_state=int(image.features.zk_migration_state),
            migration_ineligible_brokers=0 if readiness is None else readiness.ineligible_brokers,
            migration_ineligible_controllers=0 if readiness is None else readiness.ineligible_controllers,
            migrating_zk_brokers=sum(broker.is_migrating_zk_broker for broker in brokers),
            zk_write_behind_lag=0 if behind is None else behind.lag_records,
            zookeeper_blocking_kraft_ms=0 if insight is None else insight.blocked_ms,
            metadata_type=TYPES[image.features.zk_migration_state],
            features=dict(image.features.levels),
            event_loop_stall_ms=health.recent_stall_ms,
            active_brokers=sum(not broker.fenced for broker in brokers),
            fenced_brokers=sum(broker.fenced for broker in brokers),
            topics=len(image.topics.by_id),
            partitions=sum(len(topic.partitions) for topic in image.topics.by_id.values()),
            last_applied_offset=image.provenance.offset,
            high_watermark=core.quorum.high_watermark,
            log_end_offset=core.storage.log.end_offset(),
            refused_appends=core.quorum.refusals.count,
            migration_state_age_ms=0 if driver is None or driver.state is State.INACTIVE else driver.age_ms,
            last_verdict=-1 if insight is None else insight.last_verdict,
        )

    return read
