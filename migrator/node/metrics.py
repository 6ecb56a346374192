"""One reading of this node's figures, for the metrics endpoint and the health check.

The thread of a scrape calls `LoopReader`, which takes the reading on the event loop: state that a turn of the loop is
changing must not be read from another thread. While the loop is blocked, a scrape gets the last reading. The health
check calls `node_health`, which reads single values on its own thread. A reading changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Final

from migrator.clock import monotonic_ms, wall_ms
from migrator.config.settings import Settings
from migrator.image.model import MetadataImage
from migrator.machine import machine
from migrator.migration.broker_rpcs.messenger import PLANNER
from migrator.migration.machine.states import PublicState, State, public_state
from migrator.migration.machine.volatile_state import DriverStatus
from migrator.node.access.authorization import ENTRIES
from migrator.node.access.dynamic_bounds import FOLLOWING as BOUNDS_FOLLOWING
from migrator.node.core import SNAPSHOTS, NodeCore
from migrator.node.leadership import LEADING
from migrator.node.metadata import APPLYING
from migrator.node.migration.status import MigrationInsight
from migrator.node.propagation import FOLLOWING
from migrator.node.reassignment import VoterReassignment
from migrator.observe.authorizer_log import AuthorizerLog
from migrator.observe.health import NodeHealth
from migrator.observe.loop_health import LoopHealth
from migrator.observe.metrics import MetadataType, MigrationFigures, Reading
from migrator.raft.core import QuorumInfo
from migrator.raft.states import Role
from migrator.raft.voter_set import ReplicaKey
from migrator.records.metadata import ZkMigrationState
from migrator.records.uuid import uuid_to_text
from migrator.supervision import FailureBook

TYPES = {
    ZkMigrationState.PRE_MIGRATION: MetadataType.ZOOKEEPER,
    ZkMigrationState.MIGRATION: MetadataType.DUAL,
    ZkMigrationState.POST_MIGRATION: MetadataType.KRAFT,
    ZkMigrationState.NONE: MetadataType.KRAFT,
}
READING_SECONDS: Final = 1.0
"""How long a scrape waits for a turn of the event loop."""
NO_VOTE = ReplicaKey(-1)
METADATA_TASKS = frozenset(
    kind.name for kind in (APPLYING, ENTRIES, FOLLOWING, LEADING, PLANNER, SNAPSHOTS, BOUNDS_FOLLOWING)
)
"""The tasks whose errors count as Kafka's MetadataErrorCount: they apply metadata, or follow applied metadata."""


def reader(
    settings: Settings,
    core: NodeCore,
    insight: MigrationInsight,
    reassignment: VoterReassignment,
    health: LoopHealth,
    authorizer_log: AuthorizerLog,
) -> Callable[[], Reading]:
    """A function that takes a reading. Only the event loop may call it; `LoopReader` serves other threads."""
    book = machine().own(FailureBook)

    def read() -> Reading:
        image = core.metadata.published
        counts = image.topics.counts
        failures = book.read()
        brokers = image.cluster.brokers.values()
        active = core.controller.epoch is not None
        behind = insight.write_behind_status()
        images = core.image_comparison.status
        quorum, applied = core.quorum.status(), image.provenance
        vote = quorum.vote or NO_VOTE
        return Reading(
            role=core.quorum.role.value,
            epoch=core.quorum.epoch,
            active=active,
            zk_migration_state=int(image.features.zk_migration_state),
            migration=migration_figures(
                image.features.zk_migration_state,
                insight.driver if active else None,
                enabled=settings.zookeeper_metadata_migration_enable,
            ),
            migrating_zk_brokers=sum(broker.is_migrating_zk_broker for broker in brokers),
            zk_write_behind_lag=0 if behind is None else behind.lag_records,
            partition_versions_missing=0 if behind is None else behind.versions_missing,
            zookeeper_blocking_kraft_ms=insight.blocked_ms,
            metadata_type=TYPES[image.features.zk_migration_state],
            features=dict(image.features.levels),
            event_loop_stall_ms=health.recent_stall_ms,
            active_brokers=sum(not broker.fenced for broker in brokers),
            fenced_brokers=sum(broker.fenced for broker in brokers),
            offline_brokers=_offline(core, image) if active else 0,
            graced_brokers=_graced(core, image) if active else 0,
            brokers_not_told=len(insight.broker_troubles),
            topics=len(image.topics.by_id),
            partitions=counts.all,
            offline_partitions=counts.offline,
            preferred_replica_imbalance=counts.without_preferred_leader,
            metadata_errors=sum(failures[kind].count for kind in METADATA_TASKS if kind in failures),
            last_applied_offset=applied.offset,
            last_applied_timestamp_ms=applied.timestamp_ms,
            last_applied_lag_ms=wall_ms() - applied.timestamp_ms,
            last_committed_offset=max(core.quorum.high_watermark - 1, applied.offset),
            leaders_seen=core.leadership.leaders_seen,
            leader_id=-1 if quorum.leader_id is None else quorum.leader_id,
            voted_id=vote.node_id,
            voted_directory=uuid_to_text(vote.directory_id),
            kafka_raft_state=kafka_raft_state(quorum),
            high_watermark=quorum.high_watermark,
            log_end_offset=core.storage.log.end_offset(),
            log_end_epoch=core.storage.log.last_epoch(),
            refused_appends=core.quorum.refusals.count,
            voters=len(core.addresses.voter_ids),
            voter_reassignment=reassignment.is_moving,
            voter_reassignment_idle_ms=reassignment.idle_ms,
            images_different=0 if images is None else len(images.different),
            images_age_ms=-1 if images is None else wall_ms() - images.time_ms,
            last_verdict=insight.last_verdict,
            authorizer_log_failing=authorizer_log.is_failing,
            authorizer_log_lost=authorizer_log.lost,
            task_failures=failures,
        )

    return read


class LoopReader:
    """Takes readings on the event loop for callers in other threads, which must not look at state that a turn of the
    loop is changing. While the loop is blocked, callers get the last reading, with the present stall in it.

    :param read: takes a reading; called on the loop that creates this object.
    :raises TimeoutError: by a call, when the loop is blocked and there is no reading yet.
    """

    def __init__(self, read: Callable[[], Reading], health: LoopHealth) -> None:
        self._loop = asyncio.get_running_loop()
        self._read = read
        self._health = health
        self._last: Reading | None = None

    def __call__(self) -> Reading:
        """A reading of now, or the last one after `READING_SECONDS`."""
        asked: Future[Reading] = Future()
        with suppress(RuntimeError):  # the loop is closed: the controller has stopped
            self._loop.call_soon_threadsafe(self._answer, asked)
        try:
            self._last = asked.result(READING_SECONDS)
        except TimeoutError:
            asked.cancel()
            if self._last is None:
                raise
            return replace(self._last, event_loop_stall_ms=self._health.present_stall_ms)
        return self._last

    def _answer(self, asked: Future[Reading]) -> None:
        if not asked.set_running_or_notify_cancel():
            return
        try:
            asked.set_result(self._read())
        except Exception as error:  # noqa: BLE001 - raised again in the thread that asked
            asked.set_exception(error)


def kafka_raft_state(quorum: QuorumInfo) -> str:
    """The state of a node by the name that Kafka 3.9 has for it (`KafkaRaftMetrics`)."""
    match quorum.role:
        case Role.LEADER:
            return "leader"
        case Role.CANDIDATE:
            return "candidate"
        case Role.FOLLOWER:
            return "follower" if quorum.is_voter else "observer"
    return "unattached" if quorum.vote is None else "voted"


def node_health(core: NodeCore, health: LoopHealth) -> NodeHealth:
    """The health that a load balancer sees; may be called from any thread."""
    applied = core.metadata.published.provenance.offset + 1
    return NodeHealth(
        role=core.quorum.role.value,
        epoch=core.quorum.epoch,
        leader_id=core.quorum.leader_id,
        lag=max(0, core.quorum.high_watermark - applied),
        is_caught_up=core.metadata.has_reached_high_watermark,
        stall_ms=int(health.present_stall_ms),
    )


def migration_figures(record: ZkMigrationState, driver: DriverStatus | None, *, enabled: bool) -> MigrationFigures:
    """The figures of the migration that a node shows.

    :param record: the record in the published image.
    :param driver: the status of the active controller's driver; None on other nodes, which know only the record.
    :param enabled: whether the migration is on in this node's property file.
    """
    if driver is None:
        public, state = public_state(record), State.INACTIVE
    else:
        public, state = driver.public, driver.state
    waits = driver is not None and public is PublicState.MIGRATION_INELIGIBLE
    readiness = driver.readiness if driver is not None and waits else None
    return MigrationFigures(
        public_state=public.number,
        internal_states={each.value: each is state for each in State},
        dual_writing=driver is not None and state is State.DUAL_WRITING and driver.zookeeper_connected,
        enabled=enabled,
        state_age_ms=0 if driver is None or state is State.INACTIVE else driver.age_ms,
        ineligible_brokers=0 if readiness is None else readiness.ineligible_brokers,
        ineligible_controllers=0 if readiness is None else readiness.ineligible_controllers,
    )


def _graced(core: NodeCore, image: MetadataImage) -> int:
    """Brokers that this leader has not fenced only because they still answer (`migrator.controller.grace`)."""
    sessions, now_ms = core.keeper.sessions, monotonic_ms()
    return sum(sessions.is_graced(broker, now_ms) for broker in image.cluster.brokers.values())


def _offline(core: NodeCore, image: MetadataImage) -> int:
    """Fenced brokers that send this leader no heartbeats."""
    sessions, now_ms = core.keeper.sessions, monotonic_ms()
    return sum(broker.fenced and sessions.is_silent(key, now_ms) for key, broker in image.cluster.brokers.items())
