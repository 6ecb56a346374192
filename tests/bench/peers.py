"""The two sides of a benchmark: the drill's cluster with our controllers, and with stock Kafka's in their place."""

from __future__ import annotations

import re
from pathlib import Path

from migrator.drill.cluster import CHROOT, CLUSTER_ID, ClusterOptions, ControllerProcess
from migrator.drill.light.broker import LightBrokerOptions
from migrator.drill.light.cluster import LightCluster
from migrator.drill.probes import DUAL_WRITING
from migrator.parts.java import Jvm
from migrator.parts.kafka import KafkaRelease, StockKafka, StockNode
from migrator.parts.processes import free_port
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions
from tests.bench.quiet_broker import QuietBroker
from tests.drill.support.stock_controllers import StockController

STOCK_VERSION = "3.9.1"
STOCK_JVM = Jvm(heap="4g", flags=())
ZOOKEEPER_MB_MIN = 1_024
ZOOKEEPER_BYTES_A_PARTITION = 4_096
"""Its two znodes and its share of the topic's three take half of that; without the rest sessions expire in pauses."""
_TRANSITION = re.compile(r"transitioning from \w+ to (\w+) state")


def zookeeper_jvm(partitions: int) -> Jvm:
    """For both peers. With one compiler tier: a server in use was compiled long ago, while in a run of seconds the
    second tier alone takes a second of processor time from whoever is measured."""
    megabytes = max(ZOOKEEPER_MB_MIN, partitions * ZOOKEEPER_BYTES_A_PARTITION >> 20)
    return Jvm(heap=f"{megabytes}m")


class BenchCluster(LightCluster):
    """One peer's cluster: brokers that only note what they hear, a ZooKeeper with room for it."""

    name = "ours"

    def __init__(self, directory: Path, options: ClusterOptions) -> None:
        super().__init__(directory, options)
        port = self.zookeeper.port
        self._own_zookeeper = EmbeddedZooKeeper(
            directory / "zookeeper", port=port, options=ZooKeeperOptions(jvm=zookeeper_jvm(options.partitions))
        )
        self.quiet_brokers = [
            QuietBroker(LightBrokerOptions(broker, CLUSTER_ID, self.zookeeper.hosts + CHROOT, self.addresses))
            for broker in range(1, options.brokers + 1)
        ]
        self.brokers = [*self.quiet_brokers]
        self.metrics_ports = {controller.node_id: free_port() for controller in self.controllers}
        for controller in self.controllers:
            port = self.metrics_ports[controller.node_id]
            controller.properties["migrator.metrics.listener"] = f"127.0.0.1:{port}"

    @property
    def title(self) -> str:
        return f"ours (quorum by {self.options.transport})"

    async def dual_writes(self, controller: ControllerProcess) -> bool:
        """Whether this controller, which leads, has come to dual-writing."""
        status = await controller.status()
        return status is not None and status.migration.active and status.migration.internal_state == DUAL_WRITING


class StockBenchCluster(BenchCluster):
    """Stock Kafka's controllers; what they log says what ours say in their status."""

    name = "stock"

    def __init__(self, directory: Path, options: ClusterOptions) -> None:
        super().__init__(directory, options)
        kafka = KafkaRelease(STOCK_VERSION).fetch()
        self.controllers = [_StockController(kafka, controller) for controller in self.controllers]
        self.metrics_ports = {}

    @property
    def title(self) -> str:
        return f"stock {STOCK_VERSION} (quorum by kafka)"

    async def dual_writes(self, controller: ControllerProcess) -> bool:
        """See `BenchCluster`."""
        if controller.process is None:
            return False
        states = _TRANSITION.findall(controller.process.output_text())
        return bool(states) and states[-1] == "DUAL_WRITE"


class _StockController(StockController):
    """With the memory and the compilers that a real one has."""

    def __init__(self, kafka: StockKafka, like: ControllerProcess) -> None:
        super().__init__(kafka, like)
        self._release = kafka

    def _node(self) -> StockNode:
        return self._release.node(f"controller {self.node_id}", self.directory, self.properties, jvm=STOCK_JVM)


PEERS: dict[str, type[BenchCluster]] = {peer.name: peer for peer in (StockBenchCluster, BenchCluster)}
