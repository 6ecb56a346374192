"""Makes the picture of `migrator top` for the README: real controllers in dual-write, one broker already in KRaft mode.

python -m tests.people.support.top_picture docs/top.svg
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from migrator.drill.cluster import zookeeper_client
from migrator.drill.light.broker import LightBroker, LightBrokerMode
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.session import SessionOptions
from tests.faults.support.cluster import FaultCluster, cluster_in, start_all
from tests.faults.support.requests import create_topic
from tests.people.support.terminal import on_terminal

TOPICS = 100
LOOK_SECONDS = 12.0


async def draw(directory: Path, picture: Path) -> None:
    """Migrate, change topics while `top` looks, and have it save what it shows."""
    with EmbeddedZooKeeper(directory / "zookeeper") as zookeeper:
        hosts = f"{zookeeper.hosts}/kafka"
        with zookeeper_client(SessionOptions(zookeeper.hosts)) as client:
            client.create("/kafka")
        (directory / "cluster").mkdir()
        async with cluster_in(directory / "cluster", hosts, partitions=300) as cluster:
            start_all(cluster)
            leader = await cluster.until_dual_writing()
            await _to_kraft(cluster.brokers[0])
            async with on_terminal("top", "-c", str(leader.property_file), "--picture", str(picture)) as terminal:
                await terminal.shows("● DualWrite")
                await _change(cluster)
                terminal.press_ctrl_c()
                await terminal.to_the_end()


async def _to_kraft(broker: LightBroker) -> None:
    await broker.stop()
    await broker.start(LightBrokerMode.KRAFT)
    await broker.running.wait()


async def _change(cluster: FaultCluster) -> None:
    client = cluster.client
    for number in range(TOPICS):
        await create_topic(client, f"orders-{number}", partitions=1 + number % 7)
        await asyncio.sleep(LOOK_SECONDS / TOPICS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(draw(Path(place), Path(sys.argv[1]).absolute()))
