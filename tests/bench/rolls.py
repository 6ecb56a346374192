"""A whole migration with three unmodified brokers, by our controllers and by stock Kafka's: how long producers wait.

It goes to dual-write, back to ZooKeeper, there again and to its end. A producer sends 500 records/s with acks=all from
start to end; each phase has its longest pause between two acknowledgements. Both peers take the same steps, on the same
machine, one after the other.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from kazoo.client import KazooClient
from rich.console import Console

from migrator.drill.cluster import CHROOT, CLUSTER_ID, COMMAND_SECONDS, MIGRATOR, zookeeper_client
from migrator.drill.kafka.clients import Traffic
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.drill.probes import DUAL_WRITING
from migrator.errors import MigratorError
from migrator.parts.kafka import KafkaRelease, StockKafka
from migrator.parts.processes import run_to_end
from migrator.parts.usage import ProcessorMeter
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.bench.figures import Figure, Result
from tests.bench.observers import ZooKeeperWatch
from tests.bench.peers import STOCK_VERSION
from tests.bench.propagation import measure_real
from tests.drill.support.stock_controllers import StockController
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.interop.support.stages import broker_is_controller

TOPIC = "orders"
BROKERS = 3
RECORDS_PER_SECOND = 500
WAIT_SECONDS = 60.0
ROLL_FIGURES = (
    Figure("roll_migrating_pause", "roll into migration: longest produce pause", "s", "<= 1.5x"),
    Figure("copy_pause", "copy, claim to dual-write: longest produce pause", "s", "<= 1.5x"),
    Figure("kill_pause", "leader killed with -9: longest produce pause", "s", "<= 3"),
    Figure("give_back_pause", "controllers stopped, given back to a broker: longest produce pause", "s", "<= 1.5x"),
    Figure("roll_back_pause", "roll back to ZooKeeper mode: longest produce pause", "s", "<= 1.5x"),
    Figure("roll_kraft_pause", "roll to KRaft: longest produce pause", "s", "<= 1.5x"),
    Figure("finish_pause", "finish: longest produce pause", "s", "<= 1.5x"),
    Figure("roll_migrating", "roll into migration, three brokers", "s", "<= 1x"),
    Figure("kill_to_dual_write", "leader killed to dual-write, and it is back", "s"),
    Figure("give_back", "controllers stopped, until a broker is the controller", "s"),
    Figure("roll_back", "roll back to ZooKeeper mode, three brokers", "s", "<= 1x"),
    Figure("roll_kraft", "roll to KRaft, three brokers", "s", "<= 1x"),
    Figure("finish", "controllers restarted without the migration, to Finished", "s"),
    Figure("roll_migrating_processor", "processor time of everything, roll into migration", "s"),
    Figure("roll_back_processor", "processor time of everything, roll back", "s"),
    Figure("roll_kraft_processor", "processor time of everything, roll to KRaft", "s"),
    Figure("told_zookeeper_ms", "topic acknowledged to known by the last broker, ZooKeeper mode, median", "ms"),
    Figure("told_kraft_ms", "topic acknowledged to known by the last broker, KRaft mode, median", "ms"),
    Figure("acknowledged", "records acknowledged", ""),
    Figure("others_percent", "the processors' share that others took meanwhile", "%"),
)
"""Goals are multiples of stock's, but for the kill."""
GOAL = "goal"
TITLES = {"stock": f"stock {STOCK_VERSION}", "ours": "ours (quorum by kafka)"}


def run_rolls(peer: str, directory: Path, controllers: int, console: Console) -> Result:
    """One peer's migration; what fails ends it, with the figures so far."""
    rolls = _Rolls(peer, console)
    failure = None
    try:
        with real_cluster(peer, directory, controllers) as (cluster, zookeeper):
            meter = ProcessorMeter(())
            rolls.run(cluster, zookeeper)
            rolls.figures["others_percent"] = 100 * meter.others_share
    except (MigratorError, KafkaException, OSError) as error:
        failure = f"{type(error).__name__}: {error}"
    return Result(peer, TITLES[peer], rolls.figures, failure)


@contextmanager
def real_cluster(peer: str, directory: Path, controllers: int) -> Iterator[tuple[KafkaCluster, str]]:
    kafka: StockKafka = KafkaRelease(STOCK_VERSION).fetch()
    with EmbeddedZooKeeper(directory / "zookeeper") as server:
        hosts = server.hosts + CHROOT
        with zookeeper_client(server.hosts) as client:
            client.create(CHROOT + paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
        with KafkaCluster(kafka, directory, controllers=controllers, brokers=BROKERS, zookeeper=hosts) as cluster:
            if peer == "stock":
                cluster.controllers = [*(StockController(kafka, each) for each in cluster.controllers)]
            yield cluster, hosts


class _Rolls:
    def __init__(self, peer: str, console: Console) -> None:
        self.figures: dict[str, float] = {}
        self._peer = peer
        self._console = console

    def run(self, cluster: KafkaCluster, zookeeper: str) -> None:
        self._say("three brokers start in ZooKeeper mode")
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        admin = Admin(cluster.bootstrap, BROKERS)
        admin.create(TOPIC, 6, BROKERS, min_insync_replicas="2")
        with (
            zookeeper_client(zookeeper) as client,
            Traffic(cluster.bootstrap, TOPIC, per_second=RECORDS_PER_SECOND) as traffic,
        ):
            watch = ZooKeeperWatch(client)
            cluster.start_controllers()
            until("replicas are in sync", admin.in_sync, seconds=WAIT_SECONDS)
            self._migrate(cluster, admin, traffic, watch)
            with self._phase("kill", "kill_to_dual_write", traffic):
                cluster.kill_leader()
                until_dual_write(cluster)
            self._go_back(cluster, admin, traffic, client)
            self._say("the same migration once more")
            cluster.forget_controllers()
            cluster.start_controllers()
            cluster.roll_brokers(KafkaBrokerMode.MIGRATING, admin.in_sync)
            until_dual_write(cluster)
            self._told("told_zookeeper_ms", cluster, admin)
            with self._phase("roll_kraft", "roll_kraft", traffic):
                cluster.roll_brokers(KafkaBrokerMode.KRAFT, admin.in_sync)
            self._told("told_kraft_ms", cluster, admin)
            with self._phase("finish", "finish", traffic):
                cluster.finish_migration()
                until("Finished", lambda: cluster.public_states() == {"Finished"}, seconds=WAIT_SECONDS)
            traffic.stop()
        self.figures["acknowledged"] = len(traffic.acknowledged)
        if traffic.errors:
            raise MigratorError(f"records were not acknowledged: {traffic.errors[:3]}")

    def _told(self, figure: str, cluster: KafkaCluster, admin: Admin) -> None:
        prefix = figure.replace("_", "-")
        told = measure_real(lambda name: admin.create(name, 1, BROKERS), cluster.bootstrap, prefix)
        self.figures[figure] = asyncio.run(told)

    def _migrate(self, cluster: KafkaCluster, admin: Admin, traffic: Traffic, watch: ZooKeeperWatch) -> None:
        """The copy begins while the last broker still comes up, so its stretch of time begins before the roll ends."""
        with self._phase("roll_migrating", "roll_migrating", traffic):
            cluster.roll_brokers(KafkaBrokerMode.MIGRATING, admin.in_sync)
        until_dual_write(cluster)
        self.figures["copy_pause"] = traffic.longest_pause(watch.claims[0].at)

    def _go_back(self, cluster: KafkaCluster, admin: Admin, traffic: Traffic, client: KazooClient) -> None:
        """As each peer's documentation has it: stock's operators delete two znodes."""
        with self._phase("give_back", "give_back", traffic):
            cluster.stop_controllers()
            if self._peer == "stock":
                client.delete(paths.CONTROLLER)
                client.delete(paths.MIGRATION)
            else:
                run_to_end("rollback", _rollback(cluster), timeout_seconds=COMMAND_SECONDS)
            until("a broker is the controller", lambda: broker_is_controller(client), seconds=WAIT_SECONDS)
        with self._phase("roll_back", "roll_back", traffic):
            cluster.roll_brokers(KafkaBrokerMode.ZOOKEEPER, admin.in_sync)

    @contextmanager
    def _phase(self, name: str, seconds: str, traffic: Traffic) -> Iterator[None]:
        self._say(name.replace("_", " "))
        until("records are acknowledged", traffic.goes_on)
        begin, meter = time.monotonic(), ProcessorMeter([os.getpid()])
        yield
        self.figures[seconds] = time.monotonic() - begin
        self.figures[f"{name}_processor"] = meter.seconds
        until("records are acknowledged", traffic.goes_on)
        self.figures[f"{name}_pause"] = traffic.longest_pause(begin)

    def _say(self, text: str) -> None:
        self._console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {self._peer}: {text}")


def until_dual_write(cluster: KafkaCluster) -> None:
    until("dual-write", lambda: cluster.migration_state() == DUAL_WRITING, seconds=WAIT_SECONDS)


def _rollback(cluster: KafkaCluster) -> list[str]:
    """Names every controller's log: nobody remembers who led last."""
    first, *others = cluster.controllers
    logs = [argument for other in others for argument in ("--log", str(other.metadata_directory))]
    return [MIGRATOR, "rollback", "-c", str(first.property_file), *logs, "--yes"]
