"""How long a finished migration takes from the order to reopen it until dual-write, and until every version is raised.

A real ZooKeeper, and one controller as a process; no brokers. Since the end, every partition state has changed.

python -m tests.bench.reopening [--partitions N] [--sets N]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from immutables import Map
from rich.console import Console

from migrator.clock import wall_ms
from migrator.drill.cluster import (
    CLUSTER_ID,
    COMMAND_SECONDS,
    MIGRATOR,
    ControllerProcess,
    controller_properties,
    migration_properties,
)
from migrator.drill.probes import DUAL_WRITING
from migrator.image.model import MetadataImage, TopicImage, TopicsImage
from migrator.log.metadata_log import MetadataLog
from migrator.observe.status import NodeRole, Status
from migrator.parts.processes import free_port, run_to_end
from migrator.parts.usage import ProcessorMeter
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.metadata import ZkMigrationState
from tests.bench.peers import zookeeper_jvm
from tests.bench.pieces_memory import BATCH_RECORDS, LEVEL
from tests.bench.pieces_zookeeper import Store
from tests.image.support.snapshots import snapshot_records

NODE = 3001
LOOK_SECONDS = 0.1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=200_000)
    parser.add_argument("--sets", type=int, default=1, help="by how much each partition epoch has grown")
    given = parser.parse_args(arguments)
    console = Console()
    options = ZooKeeperOptions(jvm=zookeeper_jvm(given.partitions))
    with (
        tempfile.TemporaryDirectory(prefix="migrator-bench-") as directory,
        EmbeddedZooKeeper(Path(directory), options=options) as zk,
    ):
        with Store(zk, "/kafka", given.partitions) as store:
            image = since(store.image, given.sets)
            hosts = store.hosts
        properties = controller_properties(NODE, {NODE: free_port()}) | migration_properties(hosts)
        controller = ControllerProcess(NODE, Path(directory) / "controller", properties)
        controller.format()
        write(controller, image)
        count = sum(len(topic.partitions) for topic in image.topics.by_id.values())
        console.print(f"{count:,} partition states, each {given.sets} sets behind")
        try:
            asyncio.run(measure(controller, console))
        finally:
            controller.kill()
    return 0


def since(image: MetadataImage, sets: int) -> MetadataImage:
    """The image after the end of the migration, when each leader has changed and each partition so many times."""

    def changed(topic: TopicImage) -> TopicImage:
        partitions = {
            number: replace(each, leader_epoch=each.leader_epoch + 1, partition_epoch=each.partition_epoch + sets)
            for number, each in topic.partitions.items()
        }
        return replace(topic, partitions=Map(partitions))

    topics = Map({topic_id: changed(topic) for topic_id, topic in image.topics.by_id.items()})
    features = replace(image.features, zk_migration_state=ZkMigrationState.POST_MIGRATION)
    return replace(image, topics=TopicsImage(topics, image.topics.ids), features=features)


def write(controller: ControllerProcess, image: MetadataImage) -> None:
    """As the log of a controller that was formatted."""
    log, records = MetadataLog.open(controller.metadata_directory), snapshot_records(image)
    try:
        while batch := list(islice(records, BATCH_RECORDS)):
            values = encode_all(batch, LEVEL)
            log.append(build_batch(values, timestamp_ms=wall_ms(), base_offset=log.end_offset(), leader_epoch=1))
        log.sync()
    finally:
        log.close()


async def measure(controller: ControllerProcess, console: Console) -> None:
    await asyncio.to_thread(controller.start)
    await until(controller, leads)
    order = [MIGRATOR, "reopen", "-c", str(controller.property_file), "--reason", "a figure"]
    order += ["--yes-cluster-id", CLUSTER_ID]
    assert controller.process is not None
    meter, begin = ProcessorMeter([controller.process.pid]), time.monotonic()
    await asyncio.to_thread(run_to_end, "reopen", order, timeout_seconds=COMMAND_SECONDS)
    for what, condition in (("dual-write", dual_writing), ("every version is raised", raised)):
        await until(controller, condition)
        console.print(
            f"until {what}: {time.monotonic() - begin:.1f} s; {meter.seconds:.1f} s of a processor by the controller, "
            f"others used {meter.others_share:.0%} of the processors",
            soft_wrap=True,
        )


def leads(status: Status) -> bool:
    return status.quorum.role is NodeRole.LEADER


def dual_writing(status: Status) -> bool:
    return status.migration.internal_state == DUAL_WRITING


def raised(status: Status) -> bool:
    return status.write_behind is not None and status.write_behind.versions_missing == 0


async def until(controller: ControllerProcess, condition: Callable[[Status], bool]) -> None:
    while (status := await controller.status()) is None or not condition(status):
        await asyncio.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
