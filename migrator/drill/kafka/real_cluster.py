"""The throw-away cluster with unmodified Kafka brokers, and clients that write and read from start to end."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from migrator.clock import wall_ms
from migrator.drill.cluster import (
    CLUSTER_ID,
    ENCODER_SECRET,
    WAIT_SECONDS,
    Cluster,
    ClusterOptions,
    ControllerProcess,
    Doors,
    speak_grpc,
)
from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.kafka import image_comparison
from migrator.drill.kafka.clients import Admin
from migrator.drill.kafka.cluster import KafkaBrokerMode, KafkaCluster
from migrator.drill.kafka.reassignment import reassign
from migrator.drill.kafka.traffic import ClientTraffic
from migrator.drill.probes import until
from migrator.drill.report import DrillReport
from migrator.drill.security.users import OPERATOR, ORDERS
from migrator.drill.workload.fill import AWKWARD_TOPICS, PLAIN_TOPIC, FillOptions, fill, topic_config
from migrator.drill.workload.workload import Workload
from migrator.errors import InvariantViolation
from migrator.image.model import MetadataImage
from migrator.parts.kafka import StockKafka

PARTITIONS_PER_TOPIC = 10
TOPICS_PER_REQUEST = 20
CLIENTS_QUOTA = {"producer_byte_rate": "1000000000", "consumer_byte_rate": "1000000000"}
"""Of the drill's own clients, so that the strange quotas around them do not apply."""
BROKER_PROPERTIES = {
    "replica.lag.time.max.ms": "10000",  # a busy machine is no reason to leave an ISR
    "auto.leader.rebalance.enable": "false",  # it would race with the preferred elections of the workload
    "auto.create.topics.enable": "false",
    "log.cleaner.dedupe.buffer.size": "16777216",  # a dynamic configuration asks for more than one thread
}
T = TypeVar("T")


class RealCluster(Cluster):
    """Metadata of every kind is written to ZooKeeper before the brokers start; topics are created through them."""

    brokers_own: ClassVar[re.Pattern[str]] = re.compile(
        r"/brokers/topics/[^/]+/partitions/\d+/state|/latest_producer_id_block"
        r"|/isr_change_notification/.*|/log_dir_event_notification/.*|/admin/preferred_replica_election"
    )

    def __init__(self, directory: Path, options: ClusterOptions, kafka: StockKafka) -> None:
        super().__init__(directory, options)
        self._kafka = KafkaCluster(
            kafka,
            directory,
            controllers=options.controllers,
            brokers=options.brokers,
            zookeeper=self.zookeeper_hosts,
            broker_properties=BROKER_PROPERTIES,
            security=self.security,
        )
        self.controllers = self._kafka.controllers
        self.addresses = self._kafka.controller_addresses
        if options.transport == "grpc":
            speak_grpc(self.controllers, self.security.authority)
        self._traffic = ClientTraffic(self._kafka.bootstrap, self.security)
        self._clients: Admin | None = None

    def migration_files(self) -> Sequence[Path]:
        """The property files that the brokers are to be restarted with; brokers that are not Kafka's have none."""
        return self._kafka.write_properties(KafkaBrokerMode.MIGRATING)

    def use_controllers(self, controllers: Sequence[ControllerProcess]) -> None:
        """These are the cluster's controllers from now on (see `Cluster`)."""
        super().use_controllers(controllers)
        self._kafka.controllers, self._kafka.controller_addresses = self.controllers, [*self.addresses]

    @property
    def _admin(self) -> Admin:
        if self._clients is None:
            raise InvariantViolation("the brokers were not started")
        return self._clients

    async def begin(self, report: DrillReport) -> None:
        """Start ZooKeeper and brokers in ZooKeeper mode, with metadata of every kind; notes what there is."""
        report.wait_for("ZooKeeper starts")
        await asyncio.to_thread(self.start_zookeeper)
        report.wait_for("ZooKeeper is filled")
        await asyncio.to_thread(self._fill)
        report.wait_for(f"brokers of Kafka {self._kafka.kafka.version} start in ZooKeeper mode")
        await _blocking(lambda: self._kafka.start_brokers(KafkaBrokerMode.ZOOKEEPER))
        login = self.security.login(OPERATOR)
        self._clients = await _blocking(lambda: Admin(self._kafka.bootstrap, len(self.broker_ids), login))
        report.wait_for("topics are created")
        report.figure("topics created", await _blocking(self._create_topics))
        report.wait_for("a producer, a consumer group and a transactional producer begin")
        await _blocking(lambda: self._traffic.start(self._admin, min(len(self.broker_ids), 3)))
        await self._in_sync(report)
        report.meter = self._traffic.meter

    async def migrate_first_brokers(self, report: DrillReport) -> None:
        """All brokers but the last one run in migration mode when it returns (see `Cluster`)."""
        await self._roll(self.broker_ids[:-1], KafkaBrokerMode.MIGRATING, report)

    async def migrate_last_broker(self, report: DrillReport) -> None:
        """The last one runs in migration mode, too; what it waits for is the end of the copy (see `Cluster`)."""
        await self._roll(self.broker_ids[-1:], KafkaBrokerMode.MIGRATING, report)

    def doors(self) -> Doors:
        """The doors of brokers, controllers and ZooKeeper, as they are now (see `Cluster`)."""
        kafka = self._kafka
        return Doors(kafka.broker_addresses, kafka.addresses_between_brokers, kafka.running_controllers(), ORDERS)

    def workload(self) -> Workload:
        """Changes of every kind; brokers forward them to the controller, or refuse them themselves (see `Cluster`)."""
        return Workload(self._channel("workload"), self.broker_ids, seed=1, forwarded=True)

    async def differences(self, image: MetadataImage) -> list[str]:
        """A sentence for each thing that brokers, at rest, do not know or hold as the image says (see `Cluster`)."""
        found = []
        for broker, (host, port) in self._kafka.broker_addresses.items():
            security = self.security.at_brokers(OPERATOR)
            found += await image_comparison.metadata_differences(broker, host, port, image, security)
            found += image_comparison.log_differences(broker, self._kafka.brokers[broker].directory / "data", image)
        return found

    def violations(self, image: MetadataImage) -> Mapping[str, Sequence[str]]:
        """By whom: what it saw that nobody may see, now that the metadata are these (see `Cluster`)."""
        return {
            node.name: image_comparison.violations(node.process.output_text(), node.directory / "data", image)
            for node in self._kafka.brokers.values()
        }

    async def roll_to_kraft(self, report: DrillReport) -> None:
        """One broker after the other restarts in KRaft mode (see `Cluster`)."""
        await self._roll(self.broker_ids, KafkaBrokerMode.KRAFT, report)

    async def name_controllers(self, report: DrillReport, addresses: Sequence[tuple[str, int]]) -> None:
        """Restart one broker after the other with these addresses of controllers in its file (see `Cluster`)."""
        self._kafka.find_controllers_by(addresses)
        await self._roll(self.broker_ids, KafkaBrokerMode.KRAFT, report)

    async def roll_to_zookeeper(self, report: DrillReport) -> None:
        """One broker after the other restarts in ZooKeeper mode (see `Cluster`)."""
        await self._roll(self.broker_ids, KafkaBrokerMode.ZOOKEEPER, report)

    async def refuse_migrating_broker(self, report: DrillReport) -> None:
        """Start a broker in migration mode until it is refused; it comes back in KRaft mode (see `Cluster`)."""
        broker = self.broker_ids[0]
        await _blocking(lambda: self._kafka.restart_broker(broker, KafkaBrokerMode.MIGRATING))
        output = self._kafka.brokers[broker].process.output_text

        async def refused() -> bool:
            return "BROKER_ID_NOT_REGISTERED" in output()

        what = "the registration of a broker in ZooKeeper mode is refused"
        await until(self, report, what, refused, seconds=WAIT_SECONDS)
        await self._roll([broker], KafkaBrokerMode.KRAFT, report)

    async def hand_over(self, report: DrillReport) -> None:
        """Start unmodified controllers on the directories that ours leave (see `Cluster`)."""
        version = self._kafka.kafka.version
        with report.step(f"Stock Kafka {version} controllers take over"):
            for controller in self.controllers:
                controller.set_migration(enabled=False)
            begin = time.monotonic()
            await _blocking(self._kafka.replace_controllers_by_stock)
            await self._create("drill-after-hand-over", report)
            report.figure("seconds from our last controller's stop to a topic with leaders", time.monotonic() - begin)

            async def agree() -> bool:
                return not await self.differences(self.controllers[0].image())

            what = "brokers know what the stock controllers' log says"
            await until(self, report, what, agree, seconds=WAIT_SECONDS)
            await _blocking(self._traffic.go_on)

    async def use_zookeeper_controller(self, report: DrillReport) -> None:
        """After the way back: let the ZooKeeper controller work, if these brokers have one that does."""
        with report.step("The ZooKeeper controller elects, creates, reassigns and deletes"):
            await self._in_sync(report)
            name = "drill-after-rollback"
            await self._create(name, report)
            channel = self._channel("drill")
            try:
                replicas = await reassign(channel, name, self.broker_ids)
            finally:
                await channel.close()

            async def moved() -> bool:
                return await _blocking(lambda: self._admin.replicas(name)) == {0: replicas}

            await until(self, report, "its only partition has moved", moved, seconds=WAIT_SECONDS)
            await _blocking(lambda: self._admin.delete(name))

            async def gone() -> bool:
                return name not in await _blocking(self._admin.topics)

            await until(self, report, "it is deleted", gone, seconds=WAIT_SECONDS)
            await _blocking(self._traffic.go_on)

    async def audit_records(self, report: DrillReport) -> None:
        """At the very end: count what clients wrote and read, if these brokers hold records (see `Cluster`)."""
        with report.step("Every acknowledged record is read back once"):
            await self._in_sync(report)
            report.meter = None
            await _blocking(lambda: self._traffic.audit(report))

    async def close(self) -> None:
        """End everything that runs; safe at any time, and more than once (see `Cluster`)."""
        self._traffic.abandon()
        await asyncio.to_thread(self._kafka.close)
        await super().close()

    def _channel(self, client_id: str) -> ControllerChannel:
        addresses = list(self._kafka.broker_addresses.values())
        return ControllerChannel(addresses, client_id, self.security.at_brokers(OPERATOR))

    def _fill(self) -> None:
        """All but topics: brokers want logs of their own for those."""
        users = self.security.users or {"ANONYMOUS": {}}
        options = FillOptions(
            CLUSTER_ID, self.broker_ids, 0, wall_ms(), ENCODER_SECRET,
            users={user: {**CLIENTS_QUOTA, **config} for user, config in users.items()},
            permissions=self.security.permissions, set_acl=self.options.secure,
        )  # fmt: skip
        with self.zookeeper_client() as client:
            fill(client, options)

    def _create_topics(self) -> int:
        """In batches; gives their number."""
        topics = list(_topics(self.options.partitions, min(len(self.broker_ids), 3)))
        for start in range(0, len(topics), TOPICS_PER_REQUEST):
            self._admin.wait(self._admin.client.create_topics(topics[start : start + TOPICS_PER_REQUEST]))
        return len(topics)

    async def _create(self, name: str, report: DrillReport) -> None:
        """One topic of one partition, which gets a leader."""
        await _blocking(lambda: self._admin.create(name, 1, min(len(self.broker_ids), 2)))

        async def led() -> bool:
            leaders = (await _blocking(self._admin.topics)).get(name, [])
            return len(leaders) == 1 and leaders[0] > 0

        await until(self, report, f"topic {name} has a leader", led, seconds=WAIT_SECONDS)

    async def _roll(self, brokers: Sequence[int], mode: KafkaBrokerMode, report: DrillReport) -> None:
        for broker in brokers:
            report.wait_for(f"broker {broker} restarts in {mode.label} mode")
            await _blocking(partial(self._kafka.restart_broker, broker, mode))
            await self._in_sync(report)

    async def _in_sync(self, report: DrillReport) -> None:
        async def in_sync() -> bool:
            await _blocking(self._kafka.restart_brokers_without_alter_partition)
            try:
                return await _blocking(self._admin.in_sync)
            except KafkaException:
                return False

        await until(self, report, "all replicas are in sync", in_sync, seconds=WAIT_SECONDS)


def _topics(partitions: int, replicas: int) -> Iterator[NewTopic]:
    """So many partitions, in topics with awkward names and in plain ones."""
    awkward = [name for name in AWKWARD_TOPICS if not name.startswith("__")]
    left = partitions
    for number in itertools.count():
        if left <= 0:
            return
        name = awkward[number] if number < len(awkward) else f"{PLAIN_TOPIC}{number:06}"
        count = 1 if number < len(awkward) else min(PARTITIONS_PER_TOPIC, left)
        left -= count
        yield NewTopic(name, count, replicas, config=topic_config(number))


async def _blocking(work: Callable[[], T]) -> T:
    """In a thread, which is waited for also when this is cancelled: nothing goes on behind the back of what follows."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise
