"""The throw-away cluster with light brokers, which speak the Kafka protocol, hold no data, and start in no time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kio.schema.errors import ErrorCode

from migrator.clock import wall_ms
from migrator.drill.cluster import (
    CLUSTER_ID,
    ENCODER_SECRET,
    FIRST_CONTROLLER_ID,
    WAIT_SECONDS,
    Cluster,
    ClusterOptions,
    ControllerProcess,
    Doors,
    controller_properties,
    migration_properties,
    speak_grpc,
)
from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.light import image_comparison
from migrator.drill.light.broker import LightBroker, LightBrokerMode, LightBrokerOptions
from migrator.drill.light.workload import LightWorkload
from migrator.drill.probes import until
from migrator.drill.report import DrillReport
from migrator.drill.security.users import BROKER, OPERATOR
from migrator.drill.workload.fill import AWKWARD_TOPICS, FillOptions, fill
from migrator.image.model import MetadataImage
from migrator.parts.processes import free_port
from migrator.records.metadata import SecurityProtocol


class LightCluster(Cluster):
    """Filled as a Kafka cluster would fill ZooKeeper; all brokers but the last one run from the start."""

    def __init__(self, directory: Path, options: ClusterOptions) -> None:
        super().__init__(directory, options)
        ports = {FIRST_CONTROLLER_ID + number: free_port() for number in range(options.controllers)}
        self.controllers = [
            ControllerProcess(
                node,
                directory / f"controller-{node}",
                controller_properties(node, ports)
                | self.security.of_controller(node)
                | migration_properties(self.zookeeper_hosts),
            )
            for node in ports
        ]
        if options.transport == "grpc":
            speak_grpc(self.controllers, self.security.authority)
        self.addresses = [("127.0.0.1", port) for port in ports.values()]
        self.brokers = [
            LightBroker(
                LightBrokerOptions(
                    broker,
                    CLUSTER_ID,
                    self.security.session(self.zookeeper_hosts),
                    self.addresses,
                    listener=self.security.light_listener,
                    protocol=SecurityProtocol.SASL_SSL if options.secure else SecurityProtocol.PLAINTEXT,
                    security=self.security.of_light_broker(broker),
                    at_controllers=self.security.at_controllers(BROKER),
                )
            )
            for broker in self.broker_ids
        ]

    def fill(self) -> int:
        """Start ZooKeeper and fill it; gives the number of znodes. Blocking.

        :raises OperatorError: ZooKeeper does not start, or is not empty.
        """
        self.start_zookeeper()
        return self._fill()

    def _fill(self) -> int:
        now_ms = wall_ms()
        options = FillOptions(
            CLUSTER_ID, self.broker_ids, self.options.partitions, now_ms, ENCODER_SECRET,
            users=self.security.users, permissions=self.security.permissions, set_acl=self.options.secure,
        )  # fmt: skip
        with self.zookeeper_client() as client:
            return fill(client, options)

    def channel(self, client_id: str) -> ControllerChannel:
        """A way to the active controller; the caller closes it."""
        return ControllerChannel(self.addresses, client_id, self.security.at_controllers(OPERATOR))

    async def begin(self, report: DrillReport) -> None:
        """Start ZooKeeper and brokers in ZooKeeper mode, with metadata of every kind; notes what there is."""
        report.wait_for("ZooKeeper starts")
        await asyncio.to_thread(self.start_zookeeper)
        report.wait_for(f"ZooKeeper is filled with {self.options.partitions:,} partitions")
        report.figure("znodes", await asyncio.to_thread(self._fill))
        for broker in self.brokers[:-1]:
            report.wait_for(f"light broker {broker.options.broker_id} starts")
            await broker.start()

    async def migrate_first_brokers(self, _report: DrillReport) -> None:
        """They do from their start."""

    async def migrate_last_broker(self, _report: DrillReport) -> None:
        """The last one runs in migration mode, too; what it waits for is the end of the copy (see `Cluster`)."""
        await self.brokers[-1].start()
        await asyncio.wait_for(self.brokers[-1].running.wait(), WAIT_SECONDS)

    def doors(self) -> Doors:
        """Where clients come in: controllers only, as light brokers serve nobody else (see `Cluster`)."""
        run = any(controller.runs for controller in self.controllers)
        serving = {broker.options.broker_id: ("127.0.0.1", broker.port) for broker in self.brokers if broker.port}
        return Doors({}, serving, self.addresses if run else (), AWKWARD_TOPICS[-1])

    def workload(self) -> LightWorkload:
        """Changes of every kind that brokers and their clients ask for; the caller closes it (see `Cluster`)."""
        return LightWorkload(self.channel("workload"), self.brokers, seed=1)

    async def differences(self, image: MetadataImage) -> list[str]:
        """A sentence for each thing that brokers, at rest, do not know or hold as the image says (see `Cluster`)."""
        return [found for broker in self.brokers for found in image_comparison.differences(broker, image)]

    def violations(self, _image: MetadataImage) -> Mapping[str, Sequence[str]]:
        """By whom: what it saw that nobody may see, now that the metadata are these (see `Cluster`)."""
        return {f"broker {broker.options.broker_id}": broker.violations for broker in self.brokers}

    async def roll_to_kraft(self, _report: DrillReport) -> None:
        """One broker after the other restarts in KRaft mode (see `Cluster`)."""
        for broker in self.brokers:
            await broker.stop()
            await broker.start(LightBrokerMode.KRAFT)
            await asyncio.wait_for(broker.running.wait(), WAIT_SECONDS)

    async def name_controllers(self, _report: DrillReport, addresses: Sequence[tuple[str, int]]) -> None:
        """Restart one broker after the other with these addresses of controllers (see `Cluster`)."""
        for broker in self.brokers:
            await broker.stop()
            broker.options = replace(broker.options, controllers=addresses)
            await broker.start(LightBrokerMode.KRAFT)
            await asyncio.wait_for(broker.running.wait(), WAIT_SECONDS)

    async def roll_to_zookeeper(self, _report: DrillReport) -> None:
        """One broker after the other restarts in ZooKeeper mode (see `Cluster`)."""
        for broker in self.brokers:
            await broker.stop(controlled=False)
            await broker.start(LightBrokerMode.ZOOKEEPER)

    async def refuse_migrating_broker(self, report: DrillReport) -> None:
        """Start a broker in migration mode after the end, and wait until its registration is refused."""
        broker = self.brokers[0]
        await broker.stop()
        broker.errors.clear()
        await broker.start(LightBrokerMode.MIGRATING)

        async def refused() -> bool:
            return broker.errors.get(ErrorCode.broker_id_not_registered, 0) > 0

        what = "the registration of a broker in ZooKeeper mode is refused"
        await until(self, report, what, refused, seconds=WAIT_SECONDS)

    async def hand_over(self, _report: DrillReport) -> None:
        """Nothing: stock controllers expect brokers that replay the metadata log (see `Cluster`)."""

    async def use_zookeeper_controller(self, _report: DrillReport) -> None:
        """Nothing: a light broker that is elected does no work (see `Cluster`)."""

    async def audit_records(self, _report: DrillReport) -> None:
        """Nothing: light brokers hold no records (see `Cluster`)."""

    async def close(self) -> None:
        """End everything that runs; safe at any time, and more than once (see `Cluster`)."""
        for broker in self.brokers:
            with contextlib.suppress(OSError):
                await broker.stop(controlled=False)
        await super().close()
