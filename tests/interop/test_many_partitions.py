"""One real broker of every release among very many partitions: what it is told never costs it a log or an offset.

The bulk lives on brokers without data; it makes what real brokers are sent as big as that of a big cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.clock import wall_ms
from migrator.drill.cluster import CLUSTER_ID, zookeeper_client
from migrator.drill.kafka import image_comparison
from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.drill.light.broker import LightBrokerOptions
from migrator.drill.workload.fill import PLAIN_TOPIC, FillOptions, write, znodes
from migrator.errors import OperatorError
from migrator.image.model import TopicImage
from migrator.parts.java import Jvm
from migrator.parts.kafka import KafkaRelease
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions
from migrator.records.versions import parse_version
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import build, request_type
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.bench.quiet_broker import QuietBroker
from tests.interop.support.cluster import Admin, KafkaCluster

RELEASES = ("3.6.2", "3.7.2", "3.8.1", "3.9.1")
LIGHT = (11, 12, 13)
METADATA = "3.6"
TOPIC, TOPIC_PARTITIONS = "orders", 6
GROUP, READ = "readers", 100
FIND_COORDINATOR, OFFSET_FETCH = (10, 4), (9, 7)
LIST_OFFSETS, LATEST = (2, 7), -1
ANSWER_SECONDS = 15.0
OFFSETS = "__consumer_offsets"


def patience(partitions: int) -> float:
    """Seconds that each step may take."""
    return 120.0 + partitions / 500


class Crowd:
    """Four real brokers, and three that hold the bulk of the partitions."""

    def __init__(self, directory: Path, zookeeper: EmbeddedZooKeeper, partitions: int) -> None:
        self.partitions = partitions
        self.seconds = patience(partitions)
        self.zookeeper = zookeeper
        self.sent = 0
        releases = {broker: KafkaRelease(version).fetch() for broker, version in enumerate(RELEASES, 1)}
        self.cluster = KafkaCluster(
            releases[1],
            directory,
            controllers=3,
            brokers=len(releases),
            zookeeper=zookeeper.hosts,
            release_version=METADATA,
            other_releases=releases,
            broker_jvm=Jvm(heap=f"{400 + partitions // 250}m"),
        )
        level = parse_version(METADATA).level
        addresses = self.cluster.controller_addresses
        self.light = [
            QuietBroker(LightBrokerOptions(broker, CLUSTER_ID, zookeeper.hosts, addresses, level)) for broker in LIGHT
        ]

    def live_and_stop(self) -> None:
        """At first: brokers in ZooKeeper mode, records, a group's offsets; then everybody stops in good order."""
        with zookeeper_client(self.zookeeper.hosts) as client:
            client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
        self.cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        admin = Admin(self.cluster.bootstrap, len(RELEASES))
        admin.create(TOPIC, TOPIC_PARTITIONS, 3)
        with Traffic(self.cluster.bootstrap, TOPIC) as traffic:
            assert len(consume(self.cluster.bootstrap, TOPIC, GROUP, READ)) == READ
        until("all is in sync", admin.in_sync)
        assert traffic.errors == []
        self.sent = traffic.sent
        for node in self.cluster.brokers.values():
            node.stop()

    def grow(self) -> None:
        """Many topics, as if they had always been there."""
        now_ms = wall_ms()
        options = FillOptions(CLUSTER_ID, LIGHT, self.partitions, now_ms)
        operations = (each for each in znodes(options) if _is_bulk(each.path))
        with zookeeper_client(self.zookeeper.hosts) as client:
            write(client, operations)

    def migrate(self) -> None:
        """The real brokers come back, in migration mode; then the quorum has all brokers."""
        self.cluster.format_controllers()
        self.cluster.resume_controllers()
        self.cluster.start_brokers(KafkaBrokerMode.MIGRATING)
        self.until_calm()

    def until_calm(self) -> None:
        """Dual-write, everybody unfenced, every partition of the real brokers in sync."""
        everybody = {*self.cluster.brokers, *LIGHT}
        until("dual-write", lambda: self.cluster.migration_state() == "dual-writing", seconds=self.seconds)
        until("all are unfenced", lambda: self.cluster.running_brokers().keys() == everybody, seconds=self.seconds)
        until("the real ones are in sync", self._in_sync, seconds=self.seconds)

    def _in_sync(self) -> bool:
        image = self.cluster.controllers[0].image()
        ours = [image.topics.by_id[image.topics.ids[name]] for name in (TOPIC, OFFSETS)]
        return all(len(each.isr) == len(each.replicas) for topic in ours for each in topic.partitions.values())

    def judge(self) -> None:
        """Each real broker knows all partitions, has just the logs that it had, and no record and no offset is lost."""
        found: list[str] = []

        def agrees() -> bool:
            found[:] = asyncio.run(self._differences())
            return not found

        with contextlib.suppress(OperatorError):
            until("the real brokers agree with the log", agrees, seconds=self.seconds)
        assert found == []

    async def _differences(self) -> list[str]:
        image = self.cluster.controllers[0].image()
        topic = image.topics.by_id[image.topics.ids[TOPIC]]
        found = []
        records = 0
        for broker, (host, port) in self.cluster.broker_addresses.items():
            node = self.cluster.brokers[broker]
            data = node.directory / "data"
            found += await image_comparison.metadata_differences(broker, host, port, image)
            found += image_comparison.log_differences(broker, data, image)
            found += image_comparison.violations(node.process.output_text(), data, image)
            if (committed := await self._committed(broker)) != READ:
                found.append(f"broker {broker}: the group is at {committed}, not at {READ}")
            records += await self._records(broker, topic)
        if records != self.sent:
            found.append(f"there are {records} records of {self.sent}")
        return found

    async def _committed(self, broker: int) -> int:
        """How many messages the group has behind it, by its coordinator, which this broker names. Clients of others
        would ask the brokers without data, too."""
        coordinators = await self._ask(broker, FIND_COORDINATOR, key_type=0, coordinator_keys=(GROUP,))
        (coordinator,) = coordinators.coordinators
        if coordinator.error_code is not ErrorCode.none:
            return -1
        topics = ({"name": TOPIC, "partition_indexes": tuple(range(TOPIC_PARTITIONS))},)
        asked = {"group_id": GROUP, "topics": topics, "require_stable": False}
        offsets = await self._ask(coordinator.node_id, OFFSET_FETCH, **asked)
        return sum(max(each.committed_offset, 0) for topic in offsets.topics for each in topic.partitions)

    async def _records(self, broker: int, topic: TopicImage) -> int:
        """How many records clients can read from the partitions that this broker leads."""
        led = [index for index, partition in topic.partitions.items() if partition.leader == broker]
        wanted = tuple({"partition_index": index, "timestamp": LATEST} for index in led)
        topics = ({"name": TOPIC, "partitions": wanted},)
        offsets = await self._ask(broker, LIST_OFFSETS, replica_id=-1, isolation_level=0, topics=topics)
        return sum(max(each.offset, 0) for topic in offsets.topics for each in topic.partitions)

    async def _ask(self, broker: int, api: tuple[int, int], **fields: object) -> Any:
        client = KafkaClient(*self.cluster.broker_addresses[broker], "crowd")
        try:
            return await client.request(build(request_type(*api), **fields), ANSWER_SECONDS)
        finally:
            await client.close()


def _is_bulk(path: str) -> bool:
    """Of a plain topic or its config: the rest is there already."""
    return path.startswith((paths.topic(PLAIN_TOPIC), paths.topic_config(PLAIN_TOPIC)))


@pytest.fixture
async def crowd(tmp_path: Path, partitions: int) -> AsyncIterator[Crowd]:
    options = ZooKeeperOptions(jvm=Jvm(heap="1g"))
    with EmbeddedZooKeeper(tmp_path / "zookeeper", options=options) as zookeeper:
        crowd = Crowd(tmp_path, zookeeper, partitions)
        with crowd.cluster:
            try:
                yield crowd
            finally:
                for broker in crowd.light:
                    await broker.stop(controlled=False)


@pytest.mark.parametrize("partitions", [2_000, 200_000])
@pytest.mark.timeout(5 * patience(200_000))
async def test_no_log_and_no_offset_is_lost_in_a_crowd(crowd: Crowd) -> None:
    await asyncio.to_thread(crowd.live_and_stop)
    await asyncio.to_thread(crowd.grow)
    for broker in crowd.light:
        await broker.start()
    await asyncio.to_thread(migrate_and_restart_everybody, crowd)


def migrate_and_restart_everybody(crowd: Crowd) -> None:
    """The active controller by force."""
    crowd.migrate()
    crowd.judge()
    crowd.cluster.kill_leader()
    crowd.until_calm()
    crowd.judge()
    for broker in crowd.cluster.brokers:
        crowd.cluster.restart_broker(broker, KafkaBrokerMode.MIGRATING)
        crowd.until_calm()
    crowd.judge()
