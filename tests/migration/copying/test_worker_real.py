"""Workers against a real ZooKeeper: what they stream is what the model gives in-process."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from kazoo.client import KazooClient
from kazoo.security import make_acl, make_digest_acl

from migrator.image.model import MetadataImage
from migrator.migration.copying.compare import ReconcileEnd, WriteChunk
from migrator.migration.copying.reading import CopyBatch, CopyEnd, Decoded
from migrator.migration.copying.worker import CompareTask, CopyTask, DecodeTask, Task, Tools, Worker, ignore, results
from migrator.migration.machine import effects as ef
from migrator.migration.machine import events as ev
from migrator.migration.machine.progress import Working, WorkPhase
from migrator.migration.machine.states import State
from migrator.migration.machine.volatile_state import STALL_MS
from migrator.migration.translate.reconcile import reconcile
from migrator.raft.messages import EpochOffset
from migrator.records.batch import build_batch, iter_batches
from migrator.records.codec import encode_all
from migrator.records.metadata import FeatureLevelRecord, MetadataRecord, ZkMigrationState, ZkMigrationStateRecord
from migrator.zookeeper.session import SessionOptions
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.passwords import PasswordEncoder
from tests.conftest import ZooKeeperSpace
from tests.lanes import examples
from tests.migration.machine.test_driver import Run
from tests.migration.model.zookeeper import ModelZooKeeper
from tests.migration.support import images as some
from tests.migration.support.images import apply, comparable, empty_cluster, read_image, target

LEVEL = 21


def load(client: KazooClient, model: ModelZooKeeper) -> None:
    """The same content; children after parents, state versions included."""
    for path, data in model.dump().items():
        client.create(path, data)
        for _ in range(model.dump_versions()[path]):
            client.set(path, data)
    client.create(paths.CONTROLLER_EPOCH, b"4")
    client.create(paths.CONTROLLER, b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":5}')


@pytest.fixture(scope="module")
def image() -> MetadataImage:
    """One image with something in it. It is searched for while no client runs: kazoo's threads draw random numbers, and
    hypothesis takes that for the test's own."""
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
    image: MetadataImage, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    model = empty_cluster()
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


async def test_what_we_may_not_write_is_found_before_anything_is_claimed(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient
) -> None:
    load(zookeeper_client, empty_cluster())
    zookeeper_client.add_auth("digest", "brokers:secret")
    closed = [make_digest_acl("brokers", "secret", all=True), make_acl("world", "anyone", read=True)]
    for path in (paths.USER_CONFIGS, paths.CONTROLLER_EPOCH):
        zookeeper_client.set_acls(path, closed)
    before = zookeeper_client.get(paths.CONTROLLER_EPOCH)
    *_, decoded = await run(zookeeper.hosts, DecodeTask())
    assert isinstance(decoded, Decoded)
    assert [(gap.who, gap.reason) for gap in decoded.faults] == [
        (paths.USER_CONFIGS, "our identity world:anyone may not create znodes below it"),
        (paths.CONTROLLER_EPOCH, "our identity world:anyone may not set it"),
    ]
    assert all("identity of the brokers" in gap.remedy for gap in decoded.faults)
    assert zookeeper_client.get(paths.CONTROLLER_EPOCH) == before
    *_, only_read = await run(zookeeper.hosts, DecodeTask(may_write=False))
    assert isinstance(only_read, Decoded)
    assert only_read.faults == ()


async def test_every_phase_of_a_comparison_says_how_far_it_is(
    image: MetadataImage, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    """A worker that takes all but the limit for each of its steps is not given up (model time, real worker)."""
    model = empty_cluster()
    apply(model, reconcile(model, target(image)))
    load(zookeeper_client, model)
    copied = [batch for batch in await run(zookeeper.hosts, CopyTask(LEVEL, 10)) if isinstance(batch, CopyBatch)]
    records = [record for part in copied for batch in iter_batches(part.data) for record, _ in batch.records()]
    values = encode_all([FeatureLevelRecord("metadata.version", LEVEL), *records], LEVEL)
    parts = [build_batch([each], timestamp_ms=1, base_offset=at, leader_epoch=3) for at, each in enumerate(values)]
    (tmp_path / f"{0:020d}.log").write_bytes(b"".join(parts))
    task = CompareTask(tmp_path, EpochOffset(epoch=3, offset=len(values) - 1), 9, max_deletes=0)

    driver = Run(ZkMigrationState.MIGRATION).took_over()
    ticket = driver.asked(ef.Reconcile).ticket
    heard: list[Working] = []

    def take_in(working: Working) -> None:
        heard.append(working)
        driver.now += STALL_MS - 1_000
        driver(ev.WorkProgressed(ticket, working)).wait()

    tools = Tools(SessionOptions(zookeeper.hosts), PasswordEncoder("secret", os.urandom, iterations=1), 60, 0)
    async with Worker(task, tools) as worker:
        assert [message async for message in worker.messages(take_in)] == [ReconcileEnd(None)]
    assert driver.state() is State.RECONCILING
    assert len([working for working in heard if working.phase is WorkPhase.LOAD]) > len(values)
    last = heard[-1]
    assert (last.phase, last.done, last.of) == (WorkPhase.COMPARE, len(image.topics.by_id), len(image.topics.by_id))
    assert [working.phase for working in heard] == sorted((each.phase for each in heard), key=list(WorkPhase).index)


async def test_a_worker_reads_nothing_that_is_older_than_its_begin(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session may be on a server that lags behind the one on which the claim was won: what it sends, in order."""
    load(zookeeper_client, empty_cluster())
    sent: list[str] = []
    send = KazooClient._call

    def noted(client: KazooClient, request: Any, result: Any) -> Any:
        sent.append(type(request).__name__)
        return send(client, request, result)

    monkeypatch.setattr(KazooClient, "_call", noted)
    tools = Tools(SessionOptions(zookeeper.hosts), PasswordEncoder("secret", os.urandom, iterations=1))
    for task, syncs in ((DecodeTask(), 1), (CopyTask(LEVEL, 10), 3)):
        sent.clear()
        assert await asyncio.to_thread(list, results(task, tools, ignore))
        asked = [kind for kind in sent if kind in {"Sync", "MultiRead", "Read"}]
        assert asked[0] == "Sync"
        assert asked.count("Sync") == syncs
        assert syncs == 1 or asked[-2:] == ["Sync", "MultiRead"], "the versions of the claim are read last of all"
