"""Workers against a real ZooKeeper: what they stream is what the model gives in-process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from kazoo.client import KazooClient

from migrator.image.model import MetadataImage
from migrator.migration.compare import ReconcileEnd, WriteChunk
from migrator.migration.copy import CopyBatch, CopyEnd, Decoded
from migrator.migration.translate.reconcile import reconcile
from migrator.migration.worker import CompareTask, CopyTask, DecodeTask, Task, Tools, Worker
from migrator.raft.messages import EpochOffset
from migrator.records.batch import build_batch, iter_batches
from migrator.records.codec import encode_all
from migrator.records.metadata import FeatureLevelRecord, MetadataRecord, ZkMigrationState, ZkMigrationStateRecord
from migrator.zookeeper.session import SessionOptions
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.conftest import ZooKeeperSpace
from tests.lanes import examples
from tests.migration import images as some
from tests.migration.images import apply, comparable, empty_cluster, read_image, target
from tests.migration.model_zookeeper import ModelZooKeeper

LEVEL = 21


def load(client: KazooClient, model: ModelZooKeeper) -> None:
    """The same content; children after parents, state versions included."""
    for path, data in model.dump().items():
        client.create(path, data)
        for _ in range(model.dump_versions()[path]):
            client.set(path, data)
    client.create(paths.CONTROLLER_EPOCH, b"4")
    client.create(paths.CONTROLLER, b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":5}')


def example() -> MetadataImage:
    """One image with something in it."""
    found: list[MetadataImage] = []

    @settings(max_examples=examples(40), database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(some.images())
    def search(image: MetadataImage) -> None:
        if image.topics.by_id and image.acls:
            found.append(image)

    search()
    return max(found, key=lambda image: len(image.acls) + len(image.topics.by_id) + len(image.quotas))


async def run(hosts: str, task: Task) -> list[object]:
    tools = Tools(SessionOptions(hosts), PasswordEncoder("secret", os.urandom, iterations=1))
    async with Worker(task, tools) as worker:
        return [message async for message in worker.messages()]


async def test_first_reading_copy_and_comparison(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    image, model = example(), empty_cluster()
    apply(model, reconcile(model, target(image)))
    load(zookeeper_client, model)

    *_, decoded = await run(zookeeper.hosts, DecodeTask())
    assert isinstance(decoded, Decoded)
    assert decoded.faults_in_all == 0

    *batches, end = await run(zookeeper.hosts, CopyTask(LEVEL, 10))
    assert isinstance(end, CopyEnd)
    assert end.read_again == 0
    assert end.controller_version == zookeeper_client.get(paths.CONTROLLER)[1].version
    copied = [batch for batch in batches if isinstance(batch, CopyBatch)]
    whole = [batch for part in copied for batch in iter_batches(part.data)]
    records = [record for batch in whole for record, _ in batch.records()]
    assert decoded.records == end.records == len(records)
    assert comparable(read_image(records)) == comparable(image)

    first: list[MetadataRecord] = [
        FeatureLevelRecord("metadata.version", LEVEL),
        ZkMigrationStateRecord(ZkMigrationState.MIGRATION),
    ]
    values = encode_all([*first, *records], LEVEL)
    (tmp_path / f"{0:020d}.log").write_bytes(build_batch(values, timestamp_ms=1, leader_epoch=3))
    at = EpochOffset(epoch=3, offset=len(values) - 1)
    assert await run(zookeeper.hosts, CompareTask(tmp_path, at, 9, max_deletes=0)) == [ReconcileEnd(None)]

    zookeeper_client.set(paths.PRODUCER_IDS, b"")
    zookeeper_client.create(f"{paths.BROKER_CONFIGS}/77", b'{"version":1,"config":{"a":"b"}}')
    *chunks, held = await run(zookeeper.hosts, CompareTask(tmp_path, at, 9, max_deletes=0))
    assert isinstance(held, ReconcileEnd)
    assert held.held is not None
    assert held.held.examples == ("config brokers/77",)
    assert all(isinstance(chunk, WriteChunk) for chunk in chunks)


@pytest.mark.parametrize("fault", [b"{", b'{"version":9}'])
async def test_a_fault_crosses_the_process_border_with_path_and_remedy(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, fault: bytes
) -> None:
    load(zookeeper_client, empty_cluster())
    zookeeper_client.create(paths.topic("broken"), fault, makepath=True)
    *_, decoded = await run(zookeeper.hosts, DecodeTask())
    assert isinstance(decoded, Decoded)
    (gap,) = decoded.faults
    assert gap.who == paths.topic("broken")
    assert gap.remedy
