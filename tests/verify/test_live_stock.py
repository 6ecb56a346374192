"""A cluster that migrates with stock Kafka 3.9.1's controller, and changes all the time, is compared as ours is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from migrator.drill.cluster import ClusterOptions, zookeeper_client
from migrator.drill.light.cluster import LightWorkload
from migrator.drill.probes import dual_writing, until
from migrator.drill.report import DrillReport
from migrator.drill.workload.fill import PLAIN_TOPIC
from migrator.errors import ExitCode
from migrator.parts.kafka import StockKafka
from migrator.verify.foreign import ForeignWriteSearch
from migrator.verify.kraft.log_tail import LogTail
from migrator.verify.recheck import Patience, Recheck
from migrator.verify.verdict import Verdict, VerifyRequest
from migrator.verify.verify import verify_in
from migrator.verify.zookeeper.side import ZooKeeperSide
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import encode_config
from tests.drill.support.stock_controllers import StockQuorumCluster
from tests.verify.test_live import changes

PASSES = 2
PARTITIONS = 100
CHANGES = 40


class TameWorkload(LightWorkload):
    """Without the removal of an entity's last quota: stock 3.9 loses that change, and the two sides then do differ."""

    def actions(self) -> list[Callable[[], Awaitable[None]]]:
        return [action for action in super().actions() if action.__name__ not in {"_remove_quota", "_set_quota"}]


async def reached(workload: LightWorkload, number: int) -> bool:
    return changes(workload) > number


@pytest.mark.lane("test-all")
async def test_a_stock_migration_is_compared_while_it_dual_writes(
    spark: SparkSession, kafka_391: StockKafka, tmp_path: Path
) -> None:
    options = ClusterOptions(partitions=PARTITIONS, controllers=1, transport="kafka")
    report = DrillReport({})
    cluster = StockQuorumCluster(kafka_391, tmp_path, options)
    try:
        (controller,) = cluster.controllers
        with report.step("stock migrates"):
            await cluster.begin(report)
            await asyncio.to_thread(controller.format)
            await asyncio.to_thread(controller.start)
            await cluster.migrate_last_broker(report)
            await until(cluster, report, "stock dual-writes", lambda: dual_writing(cluster), seconds=120)
        request = VerifyRequest(
            None,
            str(controller.metadata_directory),
            str(controller.property_file),
            patience=Patience(total=90.0, rest=30.0),
        )

        async def verdict() -> Verdict:
            return await asyncio.to_thread(verify_in, spark, request)

        workload = TameWorkload(cluster.channel("workload"), cluster.brokers, seed=2)
        running = asyncio.create_task(workload.run())
        try:
            passes = read_again = changed = 0
            while passes < PASSES or not (changed and read_again):  # until what is to be tried has happened
                before = changes(workload)
                found = await verdict()
                assert found.exit_code is ExitCode.OK, found
                passes += 1
                changed += changes(workload) - before
                read_again += found.read_again
            with (
                zookeeper_client(cluster.zookeeper_hosts) as client,
                ZooKeeperSide(None, request.config, b"salt") as side,
            ):
                log = LogTail(controller.metadata_directory)
                foreign = ForeignWriteSearch(Recheck(side, log, b"salt", request.patience))
                assert await asyncio.to_thread(foreign.look) == ()
                for _ in range(PASSES):
                    enough = changes(workload) + CHANGES
                    await until(cluster, report, "changes", partial(reached, workload, enough), seconds=60)
                    assert await asyncio.to_thread(foreign.look) == (), "nobody else wrote"
                topic = min(name for name in client.get_children(paths.TOPICS) if name.startswith(PLAIN_TOPIC))
                config = paths.topic_config(topic)  # one that the workload never changes, so stock does not mend it
                client.set(config, encode_config({"retention.ms": "77"}))
                (write,) = await asyncio.to_thread(foreign.look)
                assert (write.path, write.zxid) == (config, client.get(config)[1].mzxid)
            found = await verdict()
            assert [(one.kind, one.entity) for one in found.comparison.examples] == [("config", f"topic:{topic}")]
            assert found.exit_code is ExitCode.DIFFERENT
        finally:
            workload.stop()
            await running
            await workload.close()
    finally:
        await cluster.close()
