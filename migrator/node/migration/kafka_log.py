"""The log lines of Kafka's own controllers that manuals and scripts look for, beside this program's sentences.

Word for word as Kafka writes them (``KRaftMigrationDriver``, ``ActivationRecordsGenerator``, ``FeatureControlManager``
of 3.9). Where Kafka has two wordings of one event, both are logged: that of Kafka's manual or of an older release, and
that of Kafka's code.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from migrator.migration.machine.states import State
from migrator.raft.messages import EpochOffset
from migrator.records.metadata import ZkMigrationState

log = logging.getLogger(__name__)

COMPLETED = "Completed migration of metadata from {} to KRaft"
COMPLETING = (
    "Completing the ZK migration since this controller was configured with "
    "'zookeeper.metadata.migration.enable' set to 'false'."
)

DRIVER_STATES: Mapping[State, str] = {
    State.INACTIVE: "INACTIVE",
    State.NOTHING_TO_MIGRATE: "INACTIVE",
    State.TURNED_OFF: "INACTIVE",
    State.WAITING_FOR_CONTROLLERS: "WAIT_FOR_CONTROLLER_QUORUM",
    State.WAITING_FOR_BROKERS: "WAIT_FOR_BROKERS",
    State.DECODING: "WAIT_FOR_BROKERS",
    State.CLAIMING: "BECOME_CONTROLLER",
    State.COPYING: "ZK_MIGRATION",
    State.RECONCILING: "SYNC_KRAFT_TO_ZK",
    State.COMPARING: "SYNC_KRAFT_TO_ZK",
    State.INFORMING_BROKERS: "KRAFT_CONTROLLER_TO_BROKER_COMM",
    State.DUAL_WRITING: "DUAL_WRITE",
    State.FINISHING: "INACTIVE",
    State.FINISHED: "INACTIVE",
    State.REOPENING: "INACTIVE",
}
"""``MigrationDriverState``; in a state that is missing here, Kafka's driver would keep its state."""

ENTERING: Mapping[State, tuple[str, ...]] = {
    State.WAITING_FOR_BROKERS: ("Controller Quorum is ready for Zk to KRaft migration. Now waiting for ZK brokers.",),
    State.DECODING: ("Zk brokers are registered and ready for migration",),
    State.COPYING: ("Starting ZK migration",),
    State.ABORTING: ("Aborting the metadata migration from ZooKeeper to KRaft.",),
    State.RECONCILING: ("Performing a full metadata sync from KRaft to ZK.",),
    State.COMPARING: ("Performing a full metadata sync from KRaft to ZK.",),
    State.COMPLETING: (COMPLETING,),
}
STAYING = "Staying in ZK migration mode since 'zookeeper.metadata.migration.enable' is still 'true'."
UNDER_WAY = "Migration is in already progress, not waiting on ZK brokers."


class KafkaLog:
    """Logs what Kafka's migration driver would log; one for each controller.

    :param node_id: the id of this controller, which Kafka names in each line.
    """

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._driver = DRIVER_STATES[State.INACTIVE]

    def entered(self, before: State, after: State, record: ZkMigrationState, at: EpochOffset) -> None:
        """The active controller has gone from one state to another.

        :param record: the state of the migration in the log.
        :param at: offset and epoch of the published image.
        """
        for line in (*self._events(before, after, record, at), *self._moved(after)):
            log.info("[KRaftMigrationDriver id=%d] %s", self._node_id, line)

    def replayed(self, before: ZkMigrationState, after: ZkMigrationState) -> None:
        """A record has changed the state of the migration in the log; called on every controller."""
        log.info(
            "Replayed a ZkMigrationStateRecord changing the migration state from %s to %s. "
            "Transitioning ZK migration state from %s to %s",
            *(before.name, after.name) * 2,
        )

    def _events(self, before: State, after: State, record: ZkMigrationState, at: EpochOffset) -> list[str]:
        lines = list(ENTERING.get(after, ())) if before is not after else []
        if before is State.COMMITTING and after is State.RECONCILING:
            where = f"The current metadata offset is now {at.offset} with an epoch of {at.epoch}."
            done = [f"{COMPLETED.format(spelling)}. {where}" for spelling in ("Zookeeper", "ZooKeeper")]
            return [*done, "Finished initial migration of ZK metadata to KRaft", *lines]
        if before is State.INACTIVE and after is State.EXAMINING and record is ZkMigrationState.MIGRATION:
            return [STAYING, UNDER_WAY, *lines]
        return lines

    def _moved(self, after: State) -> list[str]:
        driver = DRIVER_STATES.get(after, self._driver)
        if driver == self._driver:
            return []
        before, self._driver = self._driver, driver
        return [f"{self._node_id} transitioning from {before} to {driver} state"]
