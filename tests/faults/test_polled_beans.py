"""Tools that poll the beans of Kafka's controllers read the same on every controller of a real migration."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

from migrator.drill.cluster import ControllerProcess, zookeeper_client
from migrator.migration.machine.states import State
from migrator.observe.beans import CONTROLLER
from migrator.parts.processes import free_port
from migrator.records.metadata import ZkMigrationState
from migrator.zookeeper.znodes import paths
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import cluster_in, start_all
from tests.patience import PATIENCE_SECONDS

LISTENER = "migrator.metrics.listener"
PARTITIONS = 30


def ask(controller: ControllerProcess, path: str) -> Any:
    with urllib.request.urlopen(f"http://{controller.properties[LISTENER]}{path}", timeout=PATIENCE_SECONDS) as answer:
        return json.load(answer)


def bean(controller: ControllerProcess, name: str) -> dict[str, float]:
    found: dict[str, float] = ask(controller, f"/jolokia/read/{CONTROLLER}{name}")["value"]
    return found


def partitions_in(zookeeper: ZooKeeperSpace) -> int:
    with zookeeper_client(zookeeper.hosts) as client:
        return sum(len(client.get_children(paths.partitions(topic))) for topic in client.get_children(paths.TOPICS))


async def test_beans_follow_the_migration_and_the_partitions(zookeeper: ZooKeeperSpace, tmp_path: Path) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, brokers=3, partitions=PARTITIONS) as cluster:
        for controller in cluster.controllers:
            controller.properties[LISTENER] = f"127.0.0.1:{free_port()}"

        async def everywhere(name: str) -> list[float]:
            return await asyncio.to_thread(lambda: [bean(each, name)["Value"] for each in cluster.controllers])

        async def is_everywhere(name: str, value: float) -> bool:
            return await everywhere(name) == [value] * 3

        start_all(cluster)
        leader = await cluster.until_state(State.DUAL_WRITING)
        migration = ZkMigrationState.MIGRATION
        await cluster.until("all say so", lambda: is_everywhere("ZkMigrationState", migration))
        assert [ask(each, "/v1/kraft-migration/") for each in cluster.controllers] == [{"state": migration}] * 3
        assert await everywhere("GlobalPartitionCount") == [await asyncio.to_thread(partitions_in, zookeeper)] * 3
        snapshot, delta = bean(leader, "ZkWriteSnapshotTimeMs"), bean(leader, "ZkWriteDeltaTimeMs")
        assert snapshot["Count"] == 1
        assert 0 <= snapshot["Min"] == snapshot["Max"]

        before = (await everywhere("PreferredReplicaImbalanceCount"))[0]
        await cluster.brokers[0].stop(controlled=False)

        async def has_moved() -> bool:
            found = await everywhere("PreferredReplicaImbalanceCount")
            return min(found) > before and len(set(found)) == 1

        await cluster.until("the partitions of the broker have other leaders", has_moved)

        async def is_written() -> bool:
            found = await asyncio.to_thread(bean, leader, "ZkWriteDeltaTimeMs")
            return found["Count"] > delta["Count"]

        await cluster.until("ZooKeeper has the changes", is_written)
        assert await is_everywhere("MetadataErrorCount", 0)
        assert len(set(await everywhere("OfflinePartitionsCount"))) == 1
