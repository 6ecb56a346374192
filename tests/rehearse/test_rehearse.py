"""A rehearsal against a real ZooKeeper, with a stock controller and Spark as the judges."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_acl

from migrator.drill.workload.fill import PLAIN_TOPIC
from migrator.errors import ExitCode, InvariantViolation, OperatorError
from migrator.log.image_snapshot import write_snapshot
from migrator.log.metadata_log import DIRECTORY_NAME, MetadataLog
from migrator.parts.kafka import StockKafka
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.records.batch import iter_batches
from migrator.records.control import LeaderChange, control_records
from migrator.records.metadata import BeginTransactionRecord, EndTransactionRecord, ZkMigrationStateRecord
from migrator.rehearse import stock
from migrator.rehearse.rehearse import REPORT_FILE
from migrator.rehearse.report import Outcome
from migrator.verify.kraft.files import read_image
from migrator.zookeeper.znodes import paths
from tests.conftest import connect, disconnect
from tests.rehearse.conftest import MakeCluster
from tests.rehearse.support.cluster import IMPATIENT_MS, NODE_ID, everything, make_cluster, registration, request, run

READ_ONLY = [make_acl("world", "anyone", read=True)]


@pytest.mark.lane("test-all")
async def test_a_cluster_that_may_only_be_read_is_rehearsed_and_stays_as_it_was(
    new_cluster: MakeCluster, kafka_391: StockKafka, tmp_path: Path
) -> None:
    hosts = new_cluster()
    client = connect(hosts)
    try:
        for path in everything(client):
            client.set_acls(path, READ_ONLY)
        before = everything(client)
        report = await run(request(hosts, tmp_path, kafka=kafka_391, spark=True))
        assert everything(client) == before
        with pytest.raises(NoAuthError):
            client.create("/written")
        with pytest.raises(NoAuthError):
            client.set(paths.CLUSTER_ID, b"")
    finally:
        disconnect(client)

    assert (report.outcome, report.exit_code) == (Outcome.FINE, ExitCode.OK), report.to_json()
    assert (report.kafka.outcome, report.verified.outcome) == (Outcome.FINE, Outcome.FINE)
    out = tmp_path / "out"
    image = read_image(out)
    assert report.counts["topics"] == len(image.topics.by_id) > 0
    assert report.counts["partitions"] == 59, "one of 60 belongs to a topic that is being deleted"
    assert all(report.counts.values())
    assert report.forecast is not None
    assert report.forecast.roll is not None
    assert report.forecast.roll.seconds == 3 * 14.0
    assert report.peak_memory_bytes > 50e6
    assert orjson.loads((out / REPORT_FILE).read_bytes()) == report.to_json()
    _is_one_transaction(out)

    missing = min(image.configs, key=repr)
    await write_snapshot(out / DIRECTORY_NAME, dataclasses.replace(image, configs=image.configs.delete(missing)))
    found = await asyncio.to_thread(stock.check, kafka_391, out, NODE_ID, 59)
    assert "ConfigRecord more" in found.problem, "a snapshot that lacks something is not what Kafka makes of the log"


def _is_one_transaction(out: Path) -> None:
    """Behind the bootstrap there is the migration's transaction, and nothing else; and a snapshot of it all."""
    log = MetadataLog.open(out)
    try:
        batches = [batch for chunk in log.chunks(0, log.end_offset()) for batch in iter_batches(chunk)]
        assert isinstance(control_records(batches[0])[0][0], LeaderChange)
        records = [record for batch in batches[1:] for record, _ in batch.records()]
        markers = [record for record in records if isinstance(record, BeginTransactionRecord | EndTransactionRecord)]
        begin = BeginTransactionRecord("Bootstrap records"), BeginTransactionRecord("ZK Migration")
        assert markers == [begin[0], EndTransactionRecord(), begin[1], EndTransactionRecord()]
        states = [record.zk_migration_state for record in records if isinstance(record, ZkMigrationStateRecord)]
        assert states == [2, 1], "PRE_MIGRATION, then MIGRATION"
        assert (records[0], records[-1]) == (markers[0], markers[-1])
        assert [snapshot.offset for snapshot in log.snapshots()] == [log.end_offset()]
    finally:
        log.close()


async def test_every_blocker_is_named_with_its_remedy(new_cluster: MakeCluster, tmp_path: Path) -> None:
    hosts = new_cluster()
    broken = {
        paths.topic(f"{PLAIN_TOPIC}000007"): b"{",
        paths.partition_state(f"{PLAIN_TOPIC}000008", 0): b"",
        f"{paths.USER_CONFIGS}/slow": b'{"version":1',
    }
    client = connect(hosts)
    try:
        for path, data in broken.items():
            client.set(path, data)
        client.delete("/brokers/ids/3")
        client.set("/brokers/ids/2", registration(2, "INSIDE"))
        client.delete(paths.CONTROLLER)
    finally:
        disconnect(client)
    report = await run(request(hosts, tmp_path))
    assert (report.outcome, report.exit_code) == (Outcome.BLOCKED, ExitCode.DIFFERENT)
    found = {gap.who: gap for gap in report.blockers}
    assert found.keys() == {*broken, "broker 3", "broker 2", paths.CONTROLLER}
    assert report.blockers_in_all == len(found)
    assert all(gap.reason and gap.remedy for gap in report.blockers)
    assert not (tmp_path / "out" / DIRECTORY_NAME).exists(), "a log that lacks something could be taken for whole"


async def test_a_cluster_that_was_copied_already_is_blocked(new_cluster: MakeCluster, tmp_path: Path) -> None:
    hosts = new_cluster()
    client = connect(hosts)
    client.create(
        paths.MIGRATION,
        b'{"version":0,"kraft_metadata_offset":9,"kraft_controller_id":1,"kraft_metadata_epoch":1,'
        b'"kraft_controller_epoch":1}',
    )
    disconnect(client)
    report = await run(request(hosts, tmp_path))
    assert report.exit_code == ExitCode.DIFFERENT
    assert "/migration" in report.blockers[0].reason


@pytest.mark.lane("test-all")
async def test_topics_that_come_and_go_while_they_are_read(new_cluster: MakeCluster, tmp_path: Path) -> None:
    """Files that do not change are copied whole; the others as they were at some time, or not at all."""
    hosts = new_cluster(partitions=3_000)
    churned = [f"{PLAIN_TOPIC}{number:06}" for number in range(20, 40)]
    ended = threading.Event()
    client = connect(hosts)

    def churn() -> None:
        while not ended.is_set():
            for name in churned:
                assignment, _ = client.get(paths.topic(name))
                states = {number: client.get(paths.partition_state(name, number))[0] for number in range(10)}
                client.delete(paths.topic(name), recursive=True)
                client.create(paths.topic(name), assignment)
                for number, state in states.items():
                    client.create(paths.partition_state(name, number), state, makepath=True)

    writer = threading.Thread(target=churn)
    writer.start()
    try:
        report = await run(request(hosts, tmp_path, batch_records=50))
    finally:
        ended.set()
        writer.join()
        disconnect(client)
    assert report.exit_code == ExitCode.OK, report.to_json()
    image = read_image(tmp_path / "out")
    whole = {topic.name for topic in image.topics.by_id.values() if len(topic.partitions) == 10}
    untouched = {f"{PLAIN_TOPIC}{number:06}" for number in (*range(7, 20), *range(40, 290))}
    assert untouched <= whole
    assert {topic.name for topic in image.topics.by_id.values()} & set(churned) <= whole


@pytest.mark.lane("test-all")
async def test_a_change_behind_the_copy_is_no_verdict(new_cluster: MakeCluster, tmp_path: Path) -> None:
    hosts = new_cluster()
    vanished = paths.topic(f"{PLAIN_TOPIC}000008")

    def on_phase(phase: str) -> None:
        if phase == "verify":
            client = connect(hosts)
            client.delete(vanished, recursive=True)
            disconnect(client)

    report = await run(request(hosts, tmp_path, spark=True), on_phase)
    assert (report.outcome, report.exit_code) == (Outcome.UNKNOWN, ExitCode.REFUSED)
    assert f"{PLAIN_TOPIC}000008" in report.verified.detail
    assert paths.TOPICS in report.verified.detail, "the znode that was written is named"


@pytest.mark.lane("test-all")
@pytest.mark.parametrize("phase", ["decode", "copy", "compare and snapshot"])
async def test_a_zookeeper_that_dies_is_no_verdict(
    own_zookeeper: EmbeddedZooKeeper, tmp_path: Path, phase: str
) -> None:
    hosts = make_cluster(own_zookeeper.hosts, "kafka")

    def on_phase(name: str) -> None:
        if name == phase:
            own_zookeeper.kill()

    with pytest.raises(OperatorError, match="could not tell") as raised:
        await run(request(hosts, tmp_path, silence_ms=IMPATIENT_MS), on_phase)
    assert own_zookeeper.hosts in str(raised.value)
    assert not (tmp_path / "out" / REPORT_FILE).exists()


@pytest.mark.lane("test-all")
async def test_a_zookeeper_that_dies_amid_the_copy_is_no_verdict(
    own_zookeeper: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    hosts = make_cluster(own_zookeeper.hosts, "kafka", partitions=15_000)
    killed = threading.Event()

    def kill_when_something_is_copied() -> None:
        folder = tmp_path / "out" / DIRECTORY_NAME
        while not killed.wait(0.001):
            if sum(path.stat().st_size for path in folder.glob("*.log")) > 20_000:
                own_zookeeper.kill()
                return

    watcher = threading.Thread(target=kill_when_something_is_copied)
    watcher.start()
    try:
        with pytest.raises(OperatorError, match="could not tell"):
            await run(request(hosts, tmp_path, batch_records=50, silence_ms=IMPATIENT_MS))
    finally:
        killed.set()
        watcher.join()
    assert not (tmp_path / "out" / REPORT_FILE).exists()


async def test_a_znode_that_may_not_be_read_is_no_verdict(new_cluster: MakeCluster, tmp_path: Path) -> None:
    hosts = new_cluster()
    secret = paths.topic_config(f"{PLAIN_TOPIC}000008")
    client = connect(hosts)
    client.set_acls(secret, [make_acl("world", "anyone", write=True)])
    disconnect(client)
    with pytest.raises(OperatorError, match=f"could not tell.*{secret}.*identity"):
        await run(request(hosts, tmp_path))


async def test_a_directory_with_something_in_it_is_refused(new_cluster: MakeCluster, tmp_path: Path) -> None:
    wanted = request(new_cluster(), tmp_path)
    wanted.directory.mkdir()
    (wanted.directory / "precious").touch()
    with pytest.raises(OperatorError, match="not empty"):
        await run(wanted)
    assert [path.name for path in wanted.directory.iterdir()] == ["precious"]


async def test_a_defect_in_a_worker_process_is_none_of_zookeeper(new_cluster: MakeCluster, tmp_path: Path) -> None:
    """Nobody is sent to correct a problem that is ours."""
    planted: Any = "many"
    with pytest.raises(InvariantViolation, match="a worker: TypeError: "):
        await run(dataclasses.replace(request(new_cluster(), tmp_path), max_deletes=planted))
