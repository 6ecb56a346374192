"""Writes of others to a ZooKeeper that is dual-written by a quorum which has much to do: named, and nothing else is."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import pytest

from migrator.drill.cluster import zookeeper_client
from migrator.drill.light.cluster import LightWorkload
from migrator.drill.workload.fill import PLAIN_TOPIC
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.verify.foreign import ForeignWrite, ForeignWriteSearch
from migrator.verify.kraft.log_tail import LogTail
from migrator.verify.recheck import Patience, Recheck
from migrator.verify.zookeeper.side import ZooKeeperSide
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import encode_config
from tests.faults.support.cluster import cluster_in, start_all
from tests.verify.test_live import changes, changing


def reached(workload: LightWorkload, number: int) -> bool:
    return changes(workload) > number


@pytest.mark.lane("test-all")
async def test_a_foreign_write_is_named_among_many_of_ours(own_zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    chroot = "/kafka"
    with zookeeper_client(own_zookeeper.hosts) as client:
        client.ensure_path(chroot)
    hosts = own_zookeeper.hosts + chroot
    async with cluster_in(tmp_path, hosts, controllers=1, brokers=2, partitions=60) as cluster:
        start_all(cluster)
        leader = await cluster.until_dual_writing()
        data = str(tmp_path / "zookeeper/data")
        with ZooKeeperSide(hosts, None, b"salt") as side, zookeeper_client(hosts) as client:
            recheck = Recheck(side, LogTail(leader.metadata_directory), b"salt", Patience(60.0, 30.0))
            watch = ForeignWriteSearch(recheck, (data,), chroot)

            async def look() -> tuple[ForeignWrite, ...]:
                return await asyncio.to_thread(watch.look)

            async with changing(cluster) as workload:
                assert await look() == ()
                for _ in range(3):
                    enough = changes(workload) + 60
                    await cluster.until("changes are made", partial(reached, workload, enough))
                    assert await look() == (), "nobody else wrote"

                topics = sorted(name for name in client.get_children(paths.TOPICS) if name.startswith(PLAIN_TOPIC))
                config, same, gone = map(paths.topic_config, topics[:3])
                client.set(config, encode_config({"retention.ms": "77"}))
                content, _ = client.get(same)
                client.set(same, content)
                client.delete(gone)
                now_ms = time.time() * 1000
                session, _ = client.client_id
                found = {write.path: write for write in await look()}
                assert set(found) == {config, same, gone}
                assert found[config].zxid == client.get(config)[1].mzxid
                assert found[same].zxid == client.get(same)[1].mzxid, "the same content again is a write, too"
                for write in found.values():
                    assert abs(write.time_ms - now_ms) < 60_000
                    assert write.session == session
                assert found[gone].zxid > found[same].zxid > found[config].zxid
                assert await look() == (), "each is told once"
