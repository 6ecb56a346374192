"""Stock controllers in the place of ours, so that the drill's own steps can be checked against Kafka.

A check of the drill that fails with Kafka's controllers is a fault of the drill.
"""

from __future__ import annotations

import re
from pathlib import Path

from migrator.clock import wall_ms
from migrator.drill.cluster import CLUSTER_ID, ClusterOptions, ControllerProcess
from migrator.drill.light.cluster import LightCluster
from migrator.errors import OperatorError
from migrator.observe.status import MigrationStatus, NodeRole, Problem, QuorumStatus, Status
from migrator.parts.kafka import StockKafka, StockNode

JAVA_TERMINATED = 143
_STATES = {
    "INACTIVE": ("MigrationIneligible", "inactive"),
    "WAIT_FOR_CONTROLLER_QUORUM": ("MigrationIneligible", "waiting for controllers"),
    "WAIT_FOR_BROKERS": ("MigrationIneligible", "waiting for brokers"),
    "BECOME_CONTROLLER": ("MigrateZkData", "claiming"),
    "ZK_MIGRATION": ("MigrateZkData", "copying"),
    "SYNC_KRAFT_TO_ZK": ("DualWrite", "reconciling"),
    "KRAFT_CONTROLLER_TO_BROKER_COMM": ("DualWrite", "informing brokers"),
    "DUAL_WRITE": ("DualWrite", "dual-writing"),
}


class StockController(ControllerProcess):
    """One stock controller, whose state is read from what it logs."""

    def __init__(self, kafka: StockKafka, like: ControllerProcess) -> None:
        super().__init__(like.node_id, like.directory, like.stock_properties)
        self._kafka = kafka

    def _node(self) -> StockNode:
        return self._kafka.node(f"controller {self.node_id}", self.directory, self.properties)

    def format(self, release_version: str = "3.9") -> None:
        self._node().format(CLUSTER_ID, release_version=release_version)

    def run(self) -> None:
        node = self._node()
        node.launch()
        self.process = node.process

    def stop(self) -> int:
        code = super().stop()
        return 0 if code == JAVA_TERMINATED else code

    async def status(self) -> Status | None:
        if self.process is None or not self.runs:
            return None
        text = self.process.output_text()
        elected = re.findall(r"Completed transition to (Leader|Follower|Candidate|Unattached|Resigned)\w*\((.*)", text)
        if "Kafka Server started" not in text or not elected:
            return None
        epoch = re.search(r"epoch=(\d+)", elected[-1][1])
        leads = elected[-1][0] == "Leader"
        states = re.findall(r"transitioning from \w+ to (\w+) state", text)
        public, internal = _STATES.get(states[-1] if states else "INACTIVE", ("MigrationIneligible", "inactive"))
        if not leads:
            public = self._public_by_image()
        missing = re.findall(r"Still waiting for ZK brokers (\[.*?\])", text)
        problems = (Problem(missing[-1], "has not registered", "wait"),) if missing else ()
        if (
            re.search("Completing the ZK migration|migration state to POST", text)
            or self._public_by_image() == "Finished"
        ):
            public = "Finished"
        return Status(
            cluster_id=CLUSTER_ID,
            node_id=self.node_id,
            version="stock",
            time_ms=wall_ms(),
            quorum=QuorumStatus(
                NodeRole.LEADER if leads else NodeRole.FOLLOWER, -1, int(epoch.group(1)) if epoch else 0, 0, 0, 0
            ),
            migration=MigrationStatus(public, internal, 0, leads),
            problems=problems,
        )

    def _public_by_image(self) -> str:
        names = {0: "MigrationIneligible", 2: "MigrationIneligible", 1: "DualWrite", 3: "Finished"}
        try:
            return names[int(self.image().features.zk_migration_state)]
        except OperatorError:  # nothing committed yet
            return names[0]


class StockQuorumCluster(LightCluster):
    """A drill's cluster with stock controllers."""

    def __init__(self, kafka: StockKafka, directory: Path, options: ClusterOptions) -> None:
        super().__init__(directory, options)
        self.controllers = [*(StockController(kafka, controller) for controller in self.controllers)]
