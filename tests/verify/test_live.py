"""A cluster that changes all the time while it is compared: no false alarm, and what really differs is found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from migrator.drill.light.cluster import LightWorkload
from migrator.drill.workload.fill import PLAIN_TOPIC
from migrator.errors import ExitCode
from migrator.verify.recheck import Patience
from migrator.verify.verdict import Verdict, VerifyRequest
from migrator.verify.verify import verify_in
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import encode_config
from tests.conftest import ZooKeeperSpace
from tests.faults.support.cluster import FaultCluster, cluster_in, start_all

PATIENT = Patience(total=120.0, rest=30.0)
PASSES = 3
CHANGED = 20 * PASSES


@asynccontextmanager
async def changing(cluster: FaultCluster) -> AsyncIterator[LightWorkload]:
    """Every kind of metadata changes meanwhile, some hundred times a second."""
    workload = LightWorkload(cluster.client, cluster.brokers, seed=1)
    running = asyncio.create_task(workload.run())
    try:
        yield workload
    finally:
        workload.stop()
        await running


def changes(workload: LightWorkload) -> int:
    return sum(workload.acknowledged.values())


@pytest.mark.lane("test-all")
async def test_no_false_alarm_while_everything_changes_and_a_planted_difference_is_found(
    spark: SparkSession, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    async with cluster_in(tmp_path, zookeeper.hosts, controllers=1, brokers=2, partitions=60) as cluster:
        start_all(cluster)
        leader = await cluster.until_dual_writing()
        request = VerifyRequest(None, str(leader.metadata_directory), str(leader.property_file), patience=PATIENT)

        async def verdict() -> Verdict:
            return await asyncio.to_thread(verify_in, spark, request)

        async with changing(cluster) as workload:
            await cluster.until("changes are made", lambda: changes(workload) > 50)
            passes = read_again = changed = 0
            while passes < PASSES or changed < CHANGED or not read_again:  # until what is to be tried has happened
                before = changes(workload)
                found = await verdict()
                assert found.exit_code is ExitCode.OK, found
                assert found.at.zxid > 0
                assert found.at.offset > 0
                passes += 1
                changed += changes(workload) - before
                read_again += found.read_again

            topic = min(name for name in zookeeper_client.get_children(paths.TOPICS) if name.startswith(PLAIN_TOPIC))
            zookeeper_client.set(paths.topic_config(topic), encode_config({"retention.ms": "77"}))
            found = await verdict()
            (difference,) = found.comparison.examples
            assert (difference.kind, difference.entity) == ("config", f"topic:{topic}")
            assert (difference.status, difference.zookeeper) == ("missing", "77")
            assert found.exit_code is ExitCode.DIFFERENT
            assert found.undecided == ()
            assert found.comparison.differences == 1
        assert not workload.refusals
