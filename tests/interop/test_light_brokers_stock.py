"""A stock controller takes our filled ZooKeeper and our light brokers for a real cluster, and migrates it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from kazoo.client import KazooClient

from migrator.clock import wall_ms
from migrator.drill.controller_channel import ControllerChannel
from migrator.drill.light.broker import LightBroker, LightBrokerOptions
from migrator.drill.light.cluster import LightWorkload
from migrator.drill.light.image_comparison import differences
from migrator.drill.light.metadata_cache import CachedPartition
from migrator.drill.workload.fill import CONTROLLER_EPOCH, DOOMED_TOPIC, FillOptions, fill
from migrator.parts.kafka import StockKafka, StockNode
from migrator.parts.processes import free_port
from migrator.verify.kraft.files import read_image
from migrator.wire.schemas import LEADER_AND_ISR, UPDATE_METADATA
from migrator.zookeeper.znodes import paths
from tests.conftest import ZooKeeperSpace
from tests.patience import PATIENCE_SECONDS

CLUSTER_ID = "XkYOzJkUQQ-rHVYhnWGvTg"
BROKERS = (1, 2, 3)
PARTITIONS = 200
SECRET = "encoder-secret"


def stock_controller(kafka: StockKafka, directory: Path, zookeeper: str, port: int) -> StockNode:
    properties = {
        "process.roles": "controller",
        "node.id": "3000",
        "controller.quorum.voters": f"3000@127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "zookeeper.connect": zookeeper,
        "zookeeper.metadata.migration.enable": "true",
        "password.encoder.secret": SECRET,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "token-secret",
    }
    return kafka.node("controller", directory, properties)


async def test_a_stock_controller_migrates_the_drills_cluster(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    options = FillOptions(CLUSTER_ID, BROKERS, PARTITIONS, wall_ms(), encoder_secret=SECRET)
    await asyncio.to_thread(fill, zookeeper_client, options)
    port = free_port()
    controller = stock_controller(kafka_391, tmp_path / "controller", zookeeper.hosts, port)
    controller.format(CLUSTER_ID, release_version="3.9-IV0")
    brokers = [
        LightBroker(LightBrokerOptions(broker, CLUSTER_ID, zookeeper.hosts, [("127.0.0.1", port)]))
        for broker in BROKERS
    ]
    try:
        for broker in brokers:
            await broker.start()
        assert brokers[0].elections == [CONTROLLER_EPOCH + 1]
        with controller:
            await asyncio.to_thread(
                controller.process.wait_for_output, "to DUAL_WRITE state", timeout_seconds=PATIENCE_SECONDS
            )
            await until(lambda: all(settled(broker) for broker in brokers))
            workload = await worked(brokers, port)
            await brokers[2].stop()
            await until(lambda: all(partition.leader != 3 for partition in cached_partitions(brokers[0])))
    finally:
        for broker in brokers:
            await broker.stop(controlled=False)
    image = read_image(tmp_path / "controller/data")
    assert list(workload.ledger.missing_from(image)) == []
    assert workload.refusals == []
    assert len(workload.acknowledged) == 11, workload.acknowledged
    for broker in brokers:
        assert broker.violations == []
        assert broker.requests[UPDATE_METADATA] >= 2
        assert broker.requests[LEADER_AND_ISR] >= 1
    assert differences(brokers[0], image) == []
    assert differences(brokers[1], image) == []
    assert DOOMED_TOPIC not in brokers[0].cache.topics
    migration = json.loads(zookeeper_client.get(paths.MIGRATION)[0])
    assert migration["kraft_controller_id"] == 3000


async def worked(brokers: list[LightBroker], port: int) -> LightWorkload:
    """A workload that has changed a few hundred things, and is over."""
    channel = ControllerChannel([("127.0.0.1", port)], "workload")
    workload = LightWorkload(channel, brokers, seed=1)
    running = asyncio.create_task(workload.run())
    try:
        await until(lambda: running.done() or sum(workload.acknowledged.values()) >= 200)
    finally:
        workload.stop()
        await running
        await channel.close()
    return workload


async def until(condition: Callable[[], bool]) -> None:
    """Brokers act on their own; nothing tells a test when they have."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(0.05)


def settled(broker: LightBroker) -> bool:
    """Unfenced, informed of everything, and every partition's ISR is complete."""
    return (
        broker.running.is_set()
        and sum(len(topic) for topic in broker.cache.topics.values()) == PARTITIONS - 1
        and all(set(partition.isr) == set(partition.replicas) for partition in cached_partitions(broker))
    )


def cached_partitions(broker: LightBroker) -> list[CachedPartition]:
    return [partition for topic in broker.cache.topics.values() for partition in topic.values()]
