"""The throw-away cluster with light brokers, which speak the Kafka protocol, hold no data, and start in no time.

`migrator.drill.run` makes it when it gets no release of Kafka; tests use it for speed. ZooKeeper and controllers are
real. It proves nothing about records, because there are none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from kio.schema.errors import ErrorCode

from migrator.clock import wall_ms
from migrator.drill.cluster import (
    CLUSTER_ID,
    COMMAND_SECONDS,
    ENCODER_SECRET,
    FIRST_CONTROLLER_ID,
    MIGRATOR,
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
from migrator.drill.probes import answers, broker_leads, dual_writing, until
from migrator.drill.report import DrillReport
from migrator.drill.security.protection import BROKER, OPERATOR
from migrator.drill.workload.fill import AWKWARD_TOPICS, FillOptions, fill
from migrator.drill.workload.workload import Workload
from migrator.errors import ExitCode
from migrator.image.model import MetadataImage
from migrator.migration import rollback
from migrator.parts.processes import free_port, run_to_end
from migrator.records.metadata import SecurityProtocol
from migrator.wire.schemas import build, request_type
from migrator.zookeeper.session import ZooKeeperSession
from migrator.zookeeper.znodes.passwords import PasswordEncoder


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
        """Start ZooKeeper and brokers in ZooKeeper mode, with metadata of every kind, and note these metadata."""
        report.wait_for("ZooKeeper starts")
        await asyncio.to_thread(self.start_zookeeper)
        report.wait_for(f"ZooKeeper is filled with {self.options.partitions:,} partitions")
        report.figure("znodes", await asyncio.to_thread(self._fill))
        for broker in self.brokers[:-1]:
            report.wait_for(f"light broker {broker.options.broker_id} starts")
            await broker.start()

    async def start_quorum(self, report: DrillReport) -> None:
        for controller in self.controllers:
            report.wait_for(f"controller {controller.node_id} is formatted")
            await asyncio.to_thread(controller.format)
        for controller in self.controllers:
            await asyncio.to_thread(controller.start)

    async def migrate_last_broker(self, _report: DrillReport) -> None:
        await self.brokers[-1].start()
        async with asyncio.timeout(WAIT_SECONDS):
            await self.brokers[-1].running.wait()

    def doors(self) -> Doors:
        run = any(controller.runs for controller in self.controllers)
        serving = {broker.options.broker_id: ("127.0.0.1", broker.port) for broker in self.brokers if broker.port}
        return Doors({}, serving, self.addresses if run else (), AWKWARD_TOPICS[-1])

    def workload(self) -> LightWorkload:
        return LightWorkload(self.channel("workload"), self.brokers, seed=1)

    async def differences(self, image: MetadataImage) -> list[str]:
        return [found for broker in self.brokers for found in image_comparison.differences(broker, image)]

    def violations(self, _image: MetadataImage) -> Mapping[str, Sequence[str]]:
        return {f"broker {broker.options.broker_id}": broker.violations for broker in self.brokers}

    async def roll_to_kraft(self, _report: DrillReport) -> None:
        await self._roll(LightBrokerMode.KRAFT)

    async def _roll(self, mode: LightBrokerMode) -> None:
        for broker in self.brokers:
            await _restart(broker, mode)
            async with asyncio.timeout(WAIT_SECONDS):
                await broker.running.wait()

    async def name_controllers(self, _report: DrillReport, addresses: Sequence[tuple[str, int]]) -> None:
        for broker in self.brokers:
            await broker.stop()
            broker.options = replace(broker.options, controllers=addresses)
            await broker.start(LightBrokerMode.KRAFT)
            async with asyncio.timeout(WAIT_SECONDS):
                await broker.running.wait()

    async def end_migration(self, report: DrillReport) -> None:
        for controller in self.controllers:
            controller.set_migration(enabled=False)
            await self._restart(controller, report)

    async def go_back(self, report: DrillReport, *, reopens: bool) -> float:
        if reopens:
            await self._reopen(report)
        leader = await self.leader()
        for controller in sorted(self.controllers, key=lambda each: each is leader):  # a successor would be behind
            if controller.runs:
                await self._stop(controller, report)
        await asyncio.to_thread(self._run_rollback)
        what = "the brokers elect a ZooKeeper controller"
        seconds = await until(self, report, what, partial(broker_leads, self), seconds=WAIT_SECONDS)
        for broker in self.brokers:
            await broker.stop(controlled=False)
            await broker.start(LightBrokerMode.ZOOKEEPER)
        return seconds

    async def _reopen(self, report: DrillReport) -> None:
        """Turn the migration on again, give the order, and take the brokers back to migration mode."""
        for controller in self.controllers:
            controller.set_migration(enabled=True)
            await self._restart(controller, report)
        words = ["reopen", "-c", str(self.controllers[0].property_file), "--reason=drill"]
        await asyncio.to_thread(
            run_to_end, "reopen", [MIGRATOR, *words, "--yes-cluster-id", CLUSTER_ID], timeout_seconds=COMMAND_SECONDS
        )
        await until(self, report, "the leader dual-writes again", partial(dual_writing, self), seconds=WAIT_SECONDS)
        await self._roll(LightBrokerMode.MIGRATING)

    def _run_rollback(self) -> None:
        image = max((each.image() for each in self.controllers), key=lambda image: image.provenance.offset)
        with ZooKeeperSession(self.security.session(self.zookeeper_hosts)) as session:
            rollback.roll_back(session, image, PasswordEncoder(ENCODER_SECRET, os.urandom))

    async def _restart(self, controller: ControllerProcess, report: DrillReport) -> None:
        await self._stop(controller, report)
        await asyncio.to_thread(controller.start)
        back = partial(answers, self, controller.node_id)
        await until(self, report, f"controller {controller.node_id} is back", back, seconds=WAIT_SECONDS)

    async def _stop(self, controller: ControllerProcess, report: DrillReport) -> None:
        code = await asyncio.to_thread(controller.stop)
        report.check(f"controller {controller.node_id} left in good order", code == ExitCode.OK, code)

    async def refuse_migrating_broker(self, report: DrillReport) -> None:
        """A broker in migration mode is refused; it comes back in KRaft mode."""
        broker = self.brokers[0]
        broker.errors.clear()
        await _restart(broker, LightBrokerMode.MIGRATING)

        async def refused() -> bool:
            return broker.errors.get(ErrorCode.broker_id_not_registered, 0) > 0

        what = "the registration of a broker in ZooKeeper mode is refused"
        await until(self, report, what, refused, seconds=WAIT_SECONDS)
        await _restart(broker, LightBrokerMode.KRAFT)
        async with asyncio.timeout(WAIT_SECONDS):
            await broker.running.wait()

    async def close(self) -> None:
        for broker in self.brokers:
            with contextlib.suppress(OSError):
                await broker.stop(controlled=False)
        await super().close()


async def _restart(broker: LightBroker, mode: LightBrokerMode) -> None:
    await broker.stop()
    await broker.start(mode)


ALLOCATE_PRODUCER_IDS = (67, 0)


class LightWorkload(Workload):
    """Real brokers shrink ISRs and ask for producer ids without an order; light brokers need one."""

    def __init__(self, channel: ControllerChannel, brokers: Sequence[LightBroker], seed: int) -> None:
        super().__init__(channel, [broker.options.broker_id for broker in brokers], seed)
        self._brokers = brokers

    def actions(self) -> list[Callable[[], Awaitable[None]]]:
        """The actions that `run` does in turn (see `Workload`)."""
        return [*super().actions(), self._allocate_producer_ids, self._shrink_isr]

    async def _allocate_producer_ids(self) -> None:
        broker = self._random.choice(self._brokers)
        request = build(
            request_type(*ALLOCATE_PRODUCER_IDS), broker_id=broker.options.broker_id, broker_epoch=broker.epoch
        )
        answer = await self._send(request)
        if answer is not None and self._accepted("AllocateProducerIds", answer, frozenset()):
            self.producer_ids.append(answer.producer_id_start)

    async def _shrink_isr(self) -> None:
        broker = self._random.choice(self._brokers)
        keys = [
            key
            for key, replica in broker.replicas.hosted.items()
            if replica.leader == broker.options.broker_id and len(replica.isr) > 1
        ]
        if keys and await broker.shrink_isr(self._random.choice(sorted(keys))) is ErrorCode.none:
            self.acknowledged["AlterPartition"] += 1
