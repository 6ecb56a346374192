"""The throw-away cluster with unmodified Kafka brokers, and clients that write and read from start to end.

`migrator.drill.run` makes it when Kafka's jars are there. It implements the steps of `Cluster` with `migrator rollout`
for the rolls, and counts every record of the clients at the end.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic
from kio.schema.errors import ErrorCode

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
from migrator.drill.kafka.traffic import ClientTraffic
from migrator.drill.probes import all_report, until
from migrator.drill.report import DrillReport
from migrator.drill.rollout.desk import DeskNode, DeskNodes, RolloutDesk
from migrator.drill.rollout.services import NodeService
from migrator.drill.security.protection import OPERATOR, ORDERS
from migrator.drill.shape import Shape
from migrator.drill.workload.fill import AWKWARD_TOPICS, PLAIN_TOPIC, FillOptions, fill, topic_config
from migrator.drill.workload.workload import Workload
from migrator.errors import ExitCode, InvariantViolation, OperatorError
from migrator.image.model import MetadataImage
from migrator.migration.machine.states import PublicState
from migrator.parts.kafka import StockKafka
from migrator.rollout.journal.summary import of_last, without_controller
from migrator.rollout.plan.steps import Phase
from migrator.rollout.target_release import parse_target
from migrator.wire.schemas import build, request_type

PARTITIONS_PER_TOPIC = 10
TOPICS_PER_REQUEST = 20
CLIENTS_QUOTA = {"producer_byte_rate": "1000000000", "consumer_byte_rate": "1000000000"}
"""The quota of the drill's own clients, so that the workload's quotas do not slow them down."""
BROKER_PROPERTIES = {
    "replica.lag.time.max.ms": "10000",  # a busy machine is no reason to leave an ISR
    "auto.leader.rebalance.enable": "false",  # it would race with the preferred elections of the workload
    "auto.create.topics.enable": "false",
    "log.cleaner.dedupe.buffer.size": "16777216",  # a dynamic configuration asks for more than one thread
    "zookeeper.session.timeout.ms": "6000",  # a rollout sees brokers serve for so long before its first restart
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
            shape=options.shape,
        )
        self.controllers = self._kafka.controllers
        self.addresses = self._kafka.controller_addresses
        if options.transport == "grpc":
            speak_grpc(self.controllers, self.security.authority)
        self._traffic = ClientTraffic(self._kafka.bootstrap, self.security)
        self._clients: Admin | None = None
        self._opened: RolloutDesk | None = None
        self._hands_over = False
        """Whether the rollout lets Kafka's controllers take over."""

    def use_controllers(self, controllers: Sequence[ControllerProcess]) -> None:
        super().use_controllers(controllers)
        self._kafka.controllers, self._kafka.controller_addresses = self.controllers, [*self.addresses]

    @property
    def _admin(self) -> Admin:
        if self._clients is None:
            raise InvariantViolation("the brokers were not started")
        return self._clients

    @property
    def _desk(self) -> RolloutDesk:
        if self._opened is None:
            raise InvariantViolation("there is no inventory yet")
        return self._opened

    async def begin(self, report: DrillReport) -> None:
        """Start ZooKeeper and brokers in ZooKeeper mode, with metadata of every kind, and note these metadata."""
        for name, text in ({} if self.options.shape is None else self.options.shape.figures).items():
            report.figure(name, text)
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

    async def prepare(self, report: DrillReport, *, hand_over: bool) -> Mapping[str, Any]:
        self._hands_over = hand_over and takes_over(self._kafka.kafka.version)
        for controller in self.controllers:
            await asyncio.to_thread(controller.write_properties)
        self._opened = RolloutDesk(
            self, nodes_of(self._kafka, self.options.shape, hand_over=self._hands_over), self._mend
        )
        await self._desk.open()
        with report.step("The plan of the rollout"):
            await self._desk.show_plan(report)
        with report.step("Preflight and rehearsal find nothing in the way"):
            # With one broker, each topic has one replica, and the rollout asks whether to continue.
            await self._desk.go(report, "apply", "--until", "rehearse", "--yes")
            rehearsal = self._desk.verdict(Phase.REHEARSE)
            if rehearsal.get("forecast") is not None:
                forecast = rehearsal["forecast"]["dual_write"]
                told = f"{forecast['seconds']:.1f} ± {forecast['error']:.1f}"
                report.figure("forecast, seconds from the last broker's registration to dual-write", told)
            return rehearsal

    async def start_quorum(self, report: DrillReport) -> None:
        await self._desk.go(report, "resume", "--until", "start")

    async def migrate_first_brokers(self, report: DrillReport) -> None:
        if len(self.broker_ids) > 1:
            await self._desk.go(report, "resume", "--pause-after", f"migrate/{self._name(self.broker_ids[-2])}")

    async def migrate_last_broker(self, report: DrillReport) -> None:
        await self._desk.go(report, "resume", "--until", "copy")

    async def soak(self, report: DrillReport) -> None:
        with report.step("Soak: both sides are written, and stay equal"):
            await self._desk.go(report, "resume", "--until", "soak")
            report.none_of("differences", self._desk.verdict(Phase.SOAK)["differences"])

    def doors(self) -> Doors:
        kafka = self._kafka
        return Doors(kafka.broker_addresses, kafka.addresses_between_brokers, kafka.running_controllers(), ORDERS)

    def workload(self) -> Workload:
        return Workload(self._channel("workload"), self.broker_ids, seed=1, forwarded=True)

    async def differences(self, image: MetadataImage) -> list[str]:
        found = []
        for broker, (host, port) in self._kafka.broker_addresses.items():
            security = self.security.at_brokers(OPERATOR)
            found += await image_comparison.metadata_differences(broker, host, port, image, security)
            found += image_comparison.log_differences(broker, self._kafka.brokers[broker].directory / "data", image)
        return found

    def violations(self, image: MetadataImage) -> Mapping[str, Sequence[str]]:
        return {
            node.name: image_comparison.violations(node.process.output_text(), node.directory / "data", image)
            for node in self._kafka.brokers.values()
        }

    async def roll_to_kraft(self, report: DrillReport) -> None:
        await self._desk.go(report, "resume", "--until", "kraft")

    async def end_migration(self, report: DrillReport) -> None:
        until_there = ("--until", "finish") if self._hands_over else ()  # else only the archive follows
        await self._desk.go(report, "resume", *until_there, "--yes")
        report.none_of("differences", self._desk.verdict(Phase.VERIFY)["differences"])
        for controller in self.controllers:  # as the rollout has written it
            controller.set_migration(enabled=False)

    async def go_back(self, report: DrillReport, *, reopens: bool) -> float | None:
        await self._desk.go(report, "rollback", *(["--reopen"] if reopens else []), "--yes")
        return without_controller(of_last(self._desk.journal()))

    def remember_quorum(self) -> None:
        for controller in self.controllers:
            directory = controller.metadata_directory
            (aside,) = directory.parent.glob(f"{directory.name}.rolled-back-*")
            aside.rename(directory)

    async def name_controllers(self, report: DrillReport, addresses: Sequence[tuple[str, int]]) -> None:
        self._kafka.find_controllers_by(addresses)
        await self._roll(self.broker_ids, KafkaBrokerMode.KRAFT, report)

    async def refuse_migrating_broker(self, report: DrillReport) -> None:
        """The rollout refuses to go back. A broker in migration mode is refused; it comes back in KRaft mode, with the
        file that the rollout has written."""
        code, said = await self._desk.type(report, "rollback", "--yes")
        report.check("the rollout refuses to go back", code == ExitCode.REFUSED, said)
        broker = self.broker_ids[0]
        node = self._kafka.brokers[broker]
        as_it_was = node.properties_file.read_bytes()
        await _blocking(lambda: self._kafka.restart_broker(broker, KafkaBrokerMode.MIGRATING))
        output = node.process.output_text

        async def refused() -> bool:
            return "BROKER_ID_NOT_REGISTERED" in output()

        what = "the registration of a broker in ZooKeeper mode is refused"
        await until(self, report, what, refused, seconds=WAIT_SECONDS)
        node.properties_file.write_bytes(as_it_was)  # a rollout refuses files that it does not know
        await _blocking(lambda: self._kafka.restart_as_it_is(broker))
        await self._in_sync(report)

    async def hand_over(self, report: DrillReport) -> None:
        with report.step(f"Stock Kafka {self._kafka.kafka.version} controllers take over"):
            if self._hands_over:  # after this only the archive follows
                await self._desk.go(report, "resume")
            else:
                for controller in self.controllers:
                    controller.set_migration(enabled=False)
                await _blocking(self._kafka.replace_controllers_by_stock)
            await self._create("drill-after-hand-over", report)

            async def agree() -> bool:
                return not await self.differences(self.controllers[0].image())

            what = "brokers know what the stock controllers' log says"
            await until(self, report, what, agree, seconds=WAIT_SECONDS)
            await _blocking(self._traffic.go_on)
        if self._hands_over:
            with report.step("The archive of the rollout is whole"):
                report.figure("files", await asyncio.to_thread(self._desk.check_archive, report))

    async def take_back(self, report: DrillReport) -> None:
        with report.step("This program's controllers take over again"):
            await _blocking(self._kafka.replace_stock_by_controllers)
            finished = partial(all_report, self, PublicState.FINISHED.label)
            await until(self, report, "every controller reports Finished", finished, seconds=WAIT_SECONDS)
            await self._in_sync(report)
            await _blocking(self._traffic.go_on)

    async def use_zookeeper_controller(self, report: DrillReport) -> None:
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
        with report.step("Every acknowledged record is read back once"):
            await self._in_sync(report)
            report.meter = None
            await _blocking(lambda: self._traffic.audit(report))

    async def close(self) -> None:
        self._traffic.abandon()
        if self._opened is not None:
            await self._opened.close()
        await asyncio.to_thread(self._kafka.close)
        await super().close()

    def _channel(self, client_id: str) -> ControllerChannel:
        addresses = list(self._kafka.broker_addresses.values())
        return ControllerChannel(addresses, client_id, self.security.at_brokers(OPERATOR))

    def _fill(self) -> None:
        """Fill ZooKeeper except for topics, for which brokers have to create the logs."""
        users = self.security.users or {"ANONYMOUS": {}}
        options = FillOptions(
            CLUSTER_ID, self.broker_ids, 0, wall_ms(), ENCODER_SECRET,
            users={user: {**CLIENTS_QUOTA, **config} for user, config in users.items()},
            permissions=self.security.permissions, set_acl=self.security.owns_znodes,
        )  # fmt: skip
        with self.zookeeper_client() as client:
            fill(client, options)

    def _create_topics(self) -> int:
        """Create topics in batches; return their number."""
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

    def _name(self, node_id: int) -> str:
        return names_of(self._kafka, self.options.shape)[node_id]

    async def _mend(self) -> None:
        """Restart brokers with an ended thread, a defect of Kafka, while the rollout waits for partitions
        (`KafkaCluster`)."""
        if not all(node.runs for node in self._kafka.brokers.values()):
            return
        for broker in await _blocking(self._kafka.without_alter_partition):
            async with self._desk.services.lock(self._name(broker)):
                if self._kafka.brokers[broker].runs:
                    await _blocking(partial(self._kafka.restart_as_it_is, broker))

    async def _in_sync(self, report: DrillReport) -> None:
        async def in_sync() -> bool:
            await _blocking(self._kafka.restart_brokers_without_alter_partition)
            try:
                return await _blocking(self._admin.in_sync)
            except KafkaException:
                return False

        await until(self, report, "all replicas are in sync", in_sync, seconds=WAIT_SECONDS)


def _topics(partitions: int, replicas: int) -> Iterator[NewTopic]:
    """Topics with awkward and with plain names that have this number of partitions in all."""
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
    """Run work in a thread. A cancellation also waits for the thread, so nothing still runs afterwards."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running})
        raise


ALTER_PARTITION_REASSIGNMENTS = (45, 0)
ANSWER_SECONDS = 30.0


async def reassign(channel: ControllerChannel, topic: str, brokers: Sequence[int]) -> list[int]:
    """Move partition 0 to the last brokers, the last one first; return its future replicas.

    :raises OperatorError: the request was refused.
    """
    replicas = list(reversed(brokers))[:2]
    wanted = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": tuple(replicas)}]}]
    request = build(
        request_type(*ALTER_PARTITION_REASSIGNMENTS), topics=wanted, timeout=dt.timedelta(seconds=ANSWER_SECONDS)
    )
    answer = await channel.request(request, timeout_seconds=ANSWER_SECONDS)
    codes = {answer.error_code, *(part.error_code for each in answer.responses for part in each.partitions)}
    if codes != {ErrorCode.none}:
        raise OperatorError(f"the reassignment was refused: {answer}", where=topic)
    return replicas


def takes_over(release: str) -> bool:
    """Whether Kafka's controllers of that release can join a quorum of ours."""
    try:
        return parse_target(release).rolling
    except ValueError:
        return False


def names_of(kafka: KafkaCluster, shape: Shape | None) -> dict[int, str]:
    """The names of controllers and brokers in the inventory, by id."""
    if shape is not None:
        return {node.node_id: node.name for node in (*shape.controllers, *shape.brokers)}
    controllers = {controller.node_id: f"controller-{controller.node_id}" for controller in kafka.controllers}
    return controllers | {broker: f"broker-{broker}" for broker in kafka.brokers}


def nodes_of(kafka: KafkaCluster, shape: Shape | None, *, hand_over: bool) -> DeskNodes:
    """Its controllers, brokers and, with a hand-over, Kafka's controllers in their place."""
    names = names_of(kafka, shape)
    racks = {} if shape is None else {node.node_id: node.rack for node in (*shape.controllers, *shape.brokers)}
    controllers = [
        DeskNode(each.node_id, names[each.node_id], each.property_file, NodeService(each), racks.get(each.node_id, ""))
        for each in kafka.controllers
    ]
    stock = kafka.stock_controllers() if hand_over else []
    return DeskNodes(
        controllers=controllers,
        stock=[
            DeskNode(node.node_id, f"{node.name}-stock", each.properties_file, NodeService(each))
            for node, each in zip(controllers, stock, strict=False)
        ],
        brokers=[
            DeskNode(broker, names[broker], node.properties_file, NodeService(node), racks.get(broker, ""))
            for broker, node in kafka.brokers.items()
        ],
        settings={**kafka.quorum_keys, "controller.listener.names": kafka.controller_listener},
        controller_protocol=_protocol(kafka.controllers[0].properties, kafka.controller_listener),
        by_rack=shape is not None and shape.by_rack,
        release=kafka.kafka.version,
    )


def _protocol(properties: Mapping[str, str], listener: str) -> str:
    entries = properties["listener.security.protocol.map"].split(",")
    return dict(entry.split(":") for entry in entries)[listener]
