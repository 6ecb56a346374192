"""A throw-away cluster of our controllers and of unmodified Kafka brokers, as processes.

The drill and tests of interoperability use a `KafkaCluster`; its `close` ends all processes. It writes the property
files of each mode as the manuals say. Brokers hold real records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Self

from migrator.config.keys import FLAG
from migrator.drill.cluster import (
    CLUSTER_ID,
    ENCODER_SECRET,
    FIRST_CONTROLLER_ID,
    TOKEN_SECRET,
    WAIT_SECONDS,
    ControllerProcess,
    controller_properties,
    find_by,
    migration_properties,
    voters,
    zookeeper_client,
)
from migrator.drill.security.protection import IN_CLEAR, BrokerPorts, InClear
from migrator.drill.shape import Shape
from migrator.errors import OperatorError
from migrator.parts.java import Jvm
from migrator.parts.kafka import StockKafka, StockNode, start_together
from migrator.parts.processes import free_port
from migrator.zookeeper.znodes import paths

FIRST_BROKER_ID = 1
POLL_SECONDS = 0.05
BROKER_JVM = Jvm(heap="320m")
ALTER_PARTITION_ENDED = "-to-controller-alter-partition-channel-manager]: Error due to"
"""A defect of stock brokers: when the controller changes between KRaft and ZooKeeper, the thread that requests a larger
ISR may end (NodeToControllerRequestThread: "A metric named ... already exists"). A restart of the broker starts it
again."""


class KafkaBrokerMode(Enum):
    """The configuration of a broker: before the migration, during it, and after it."""

    ZOOKEEPER = "zookeeper"
    MIGRATING = "migrating"
    KRAFT = "kraft"

    @property
    def label(self) -> str:
        """The text for reports."""
        return {"zookeeper": "ZooKeeper", "migrating": "migration", "kraft": "KRaft"}[self.value]


class KafkaCluster:
    """Controllers and brokers as processes; leaving its context ends them.

    :param kafka: the release of the brokers and, later, of stock controllers.
    :param zookeeper: connection string of the cluster's ZooKeeper; None for a cluster that never had one.
    :param release_version: the metadata.version, and ``inter.broker.protocol.version`` of the brokers, e.g. ``3.6``;
        None: the release of ``kafka``.
    :param other_releases: by broker id, of brokers that run another release.
    :param broker_properties: properties for every broker, which override those of the cluster.
    :param controller_properties: the same for controllers.
    :param broker_jvm: of every broker.
    :param security: the protection of the nodes.
    :param shape: ids and racks of an operator's cluster, with as many nodes; None for ids of its own.
    """

    def __init__(
        self,
        kafka: StockKafka,
        directory: Path,
        *,
        controllers: int,
        brokers: int,
        zookeeper: str | None = None,
        release_version: str | None = None,
        other_releases: Mapping[int, StockKafka] = MappingProxyType({}),
        broker_properties: Mapping[str, str] = MappingProxyType({}),
        controller_properties: Mapping[str, str] = MappingProxyType({}),
        broker_jvm: Jvm = BROKER_JVM,
        security: InClear = IN_CLEAR,
        shape: Shape | None = None,
    ) -> None:
        self.directory = directory
        self.kafka = kafka
        self._zookeeper = zookeeper
        self._release_version = release_version or kafka.version.rpartition(".")[0]
        self._more_for_brokers = broker_properties
        self._more_for_controllers = controller_properties
        self._security = security
        self._racks: Mapping[int, str] = {}
        controller_ids, broker_ids = _numbered(FIRST_CONTROLLER_ID, controllers), _numbered(FIRST_BROKER_ID, brokers)
        if shape is not None:
            controller_ids = [node.node_id for node in shape.controllers]
            broker_ids = [node.node_id for node in shape.brokers]
            self._racks = {node.node_id: node.rack for node in shape.brokers if node.rack}
        controller_ports = {node: free_port() for node in controller_ids}
        self._quorum = {"controller.quorum.voters": voters(controller_ports)}
        self.controller_addresses = [("127.0.0.1", port) for port in controller_ports.values()]
        self._broker_ports = {broker: BrokerPorts(free_port(), free_port()) for broker in broker_ids}
        self.controllers = [
            ControllerProcess(
                node, directory / f"controller-{node}", self._controller_properties(node, controller_ports)
            )
            for node in controller_ports
        ]
        self.brokers = {
            broker: other_releases.get(broker, kafka).node(
                f"broker {broker}", directory / f"broker-{broker}", {}, jvm=broker_jvm
            )
            for broker in self._broker_ports
        }
        self._stock_controllers: list[StockNode] = []

    @property
    def controller_listener(self) -> str:
        return self._security.controller_listener

    @property
    def quorum_keys(self) -> Mapping[str, str]:
        """The key with which brokers find the controllers, and its value."""
        return self._quorum

    @property
    def bootstrap(self) -> str:
        """``bootstrap.servers`` of clients."""
        return ",".join(f"{host}:{port}" for host, port in self.broker_addresses.values())

    @property
    def broker_addresses(self) -> dict[int, tuple[str, int]]:
        """Host and port by broker id."""
        return {broker: ("127.0.0.1", ports.clients) for broker, ports in self._broker_ports.items()}

    @property
    def addresses_between_brokers(self) -> dict[int, tuple[str, int]]:
        """The addresses of the listener between brokers, by broker id; a cluster in clear has no separate one."""
        return {broker: ("127.0.0.1", ports.replication) for broker, ports in self._broker_ports.items()}

    def running_controllers(self) -> list[tuple[str, int]]:
        """Host and port of the controllers, ours or Kafka's, that were started."""
        run = any(each.runs for each in self.controllers) or any(each.runs for each in self._stock_controllers)
        return self.controller_addresses if run else []

    def start_brokers(self, mode: KafkaBrokerMode) -> None:
        """Start all brokers at once; those in KRaft mode are formatted before."""
        for broker, node in self.brokers.items():
            node.properties = self.properties_of(broker, mode)
            if mode is KafkaBrokerMode.KRAFT:
                node.format(CLUSTER_ID, release_version=self._release_version)
        start_together(list(self.brokers.values()))

    def find_controllers_by(self, servers: Sequence[tuple[str, int]]) -> None:
        """Let brokers find the quorum by these controllers from their next start on."""
        self._quorum = find_by(servers)

    def restart_broker(self, broker: int, mode: KafkaBrokerMode) -> None:
        """Restart a broker in another mode, with a controlled shutdown; returns when it serves."""
        node = self.brokers[broker]
        node.stop()
        if mode is not KafkaBrokerMode.KRAFT:
            self._until_forgotten(broker)
        node.properties = self.properties_of(broker, mode)
        node.start()

    def without_alter_partition(self) -> list[int]:
        """Brokers whose thread for AlterPartition has ended."""
        return [
            broker
            for broker, node in self.brokers.items()
            if node.runs and ALTER_PARTITION_ENDED in node.process.output_text()
        ]

    def restart_as_it_is(self, broker: int) -> None:
        """Restart a broker in its present mode; returns when it serves."""
        node = self.brokers[broker]
        node.stop()
        self._until_forgotten(broker)
        node.run()
        node.wait_until_started()

    def restart_brokers_without_alter_partition(self) -> None:
        """Restart the brokers whose thread for AlterPartition has ended, in their present mode."""
        for broker in self.without_alter_partition():
            self.restart_as_it_is(broker)

    def _until_forgotten(self, broker: int) -> None:
        """Wait until the broker's znode is gone: when a broker could not close its session, the znode stays until the
        session expires, and a start fails meanwhile."""
        with zookeeper_client(self._security.session(self._zookeeper or "")) as client:
            until(f"the znode of broker {broker} is gone", lambda: client.exists(paths.broker(broker)) is None)

    def stop_controllers(self) -> None:
        """Stop our controllers cleanly."""
        for controller in self.controllers:
            _must_end_well(controller)

    def stock_controllers(self) -> list[StockNode]:
        """Unmodified Kafka controllers for the directories of ours; not started."""
        self._stock_controllers = [
            self.kafka.node(
                f"stock controller {controller.node_id}",
                controller.directory,
                controller.stock_properties,
                jvm=BROKER_JVM,
            )
            for controller in self.controllers
        ]
        return self._stock_controllers

    def replace_controllers_by_stock(self) -> None:
        """Stop our controllers, and start unmodified Kafka controllers on their directories."""
        self.stop_controllers()
        start_together(self.stock_controllers())

    def replace_stock_by_controllers(self) -> None:
        """Stop Kafka's controllers, and start ours on their directories, with the files that they had."""
        for node in self._stock_controllers:
            node.stop()
        for controller in self.controllers:
            controller.run()

    def close(self) -> None:
        """Kill everything at once: clean stops have happened before."""
        for node in (*self.brokers.values(), *self._stock_controllers):
            node.kill()
        for controller in self.controllers:
            controller.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def properties_of(self, broker: int, mode: KafkaBrokerMode) -> dict[str, str]:
        """The content of a broker's property file in that mode."""
        replication = str(min(len(self._broker_ports), 3))
        properties = {
            "log.dirs": str(self.brokers[broker].directory / "data"),
            **self._security.of_broker(
                broker, self._broker_ports[broker], in_zookeeper=mode is not KafkaBrokerMode.KRAFT
            ),
            "password.encoder.secret": ENCODER_SECRET,
            "delegation.token.secret.key": TOKEN_SECRET,
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": replication,
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.replication.factor": replication,
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "replica.lag.time.max.ms": "3000",
            "log.cleaner.dedupe.buffer.size": "2097152",
            "num.network.threads": "2",
            "num.io.threads": "4",
            **self._more_for_brokers,
        }
        if broker in self._racks:
            properties["broker.rack"] = self._racks[broker]
        if mode is not KafkaBrokerMode.ZOOKEEPER:
            properties |= self._quorum | {"controller.listener.names": self.controller_listener}
        if mode is KafkaBrokerMode.KRAFT:
            return properties | {"process.roles": "broker", "node.id": str(broker)}
        return properties | {
            "broker.id": str(broker),
            "broker.id.generation.enable": "false",  # otherwise ids above the reserved ones are refused
            "zookeeper.connect": self._zookeeper or "",
            "inter.broker.protocol.version": self._release_version,
            FLAG: str(mode is KafkaBrokerMode.MIGRATING).lower(),
        }

    def _controller_properties(self, node: int, ports: Mapping[int, int]) -> dict[str, str]:
        migration = {} if self._zookeeper is None else migration_properties(self._zookeeper)
        return (
            controller_properties(node, ports, self.controller_listener)
            | self._security.of_controller(node)
            | migration
            | dict(self._more_for_controllers)
        )


def _numbered(first: int, count: int) -> list[int]:
    return list(range(first, first + count))


def _must_end_well(controller: ControllerProcess) -> None:
    code = controller.stop()
    if code != 0:
        raise OperatorError(
            f"controller {controller.node_id} ended with exit code {code}", where=str(controller.directory)
        )


def until(what: str, condition: Callable[[], object], *, seconds: float = WAIT_SECONDS) -> float:
    """Wait for a condition; return the seconds that it took.

    :raises OperatorError: the condition did not hold in time.
    """
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > seconds:
            raise OperatorError(f"not within {seconds:.0f} s: {what}")
        time.sleep(POLL_SECONDS)
    return time.monotonic() - begin
