"""The way back is rehearsed: the log of a finished migration is written to a throw-away ZooKeeper, and released."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from migrator.clock import wall_ms
from migrator.drill.cluster import CLUSTER_ID
from migrator.errors import ExitCode
from migrator.log.metadata_log import MetadataLog
from migrator.records.acl_codes import ResourceType
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.metadata import (
    AccessControlEntryRecord,
    ConfigRecord,
    ConfigResourceType,
    MetadataRecord,
    PartitionChangeRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from migrator.records.uuid import Uuid
from migrator.records.versions import parse_version
from migrator.rehearse.local_log import EPOCH, LocalLog
from migrator.verify.kraft.files import read_image
from tests.cli.test_main import run as command
from tests.conftest import connect, disconnect
from tests.rehearse.conftest import MakeCluster
from tests.rehearse.support.cluster import NODE_ID, everything, property_file, request, run

ENDED = ZkMigrationStateRecord(ZkMigrationState.POST_MIGRATION)
METRICS = ConfigRecord(ConfigResourceType.CLIENT_METRICS, "all", "interval.ms", "60000")
ILLEGAL = AccessControlEntryRecord(Uuid(bytes(15) + b"\1"), ResourceType.GROUP, "a/b", 3, "User:alice", "*", 3, 3)


def append(directory: Path, records: Sequence[MetadataRecord]) -> None:
    log = MetadataLog.open(directory)
    try:
        values = encode_all(records, parse_version("3.9").level)
        log.append(build_batch(values, timestamp_ms=wall_ms(), base_offset=log.end_offset(), leader_epoch=1))
        log.sync()
    finally:
        log.close()


@pytest.mark.lane("test-all")
async def test_what_a_reopening_would_write_is_counted_and_the_copy_is_equal(
    new_cluster: MakeCluster, tmp_path: Path
) -> None:
    """What differs: a state that has changed three times, a config, and a topic that was under deletion."""
    hosts = new_cluster()
    await run(request(hosts, tmp_path))
    file = property_file(hosts, tmp_path)
    file.write_text(file.read_text().replace("unformatted", "out"))
    image = read_image(tmp_path / "out")
    name = min(image.topics.ids)
    topic = image.topics.ids[name]
    moved = [PartitionChangeRecord(0, topic, isr=(each,)) for each in (1, 2, 1)]
    other = ConfigRecord(ConfigResourceType.TOPIC, max(image.topics.ids), "retention.ms", "77")
    append(tmp_path / "out", [ENDED, *moved, other])
    client = connect(hosts)
    before = everything(client)
    answer = command("rehearse", "--way-back", "-c", str(file), "--json")
    assert answer.returncode == ExitCode.OK, answer.stderr + answer.stdout
    report = json.loads(answer.stdout)
    assert report["verified"]["outcome"] == "fine", report["verified"]
    assert report["own_zookeeper"] == {"entities": 3, "operations": 8, "sets": 2}
    assert report["dropped"] == report["obstacles"] == []
    assert report["operations"] > 3 * report["counts"]["partitions"]
    assert set(report["forecast"]) == {
        "reopened to dual-write",
        "versions raised behind dual-write",
        "without a controller",
    }
    assert everything(client) == before
    client.set("/cluster/id", b'{"version":"1","id":"of-another-cluster"}')
    disconnect(client)
    foreign = command("rehearse", "--way-back", "-c", str(file), "--json", "--no-spark")
    assert foreign.returncode == ExitCode.DIFFERENT, foreign.stderr + foreign.stdout
    (obstacle,) = json.loads(foreign.stdout)["obstacles"]
    assert obstacle["what"] == f"/cluster/id is of-another-cluster, and the log is of cluster {CLUSTER_ID}"


async def test_what_zookeeper_mode_does_not_have_is_named(tmp_path: Path) -> None:
    log = LocalLog.create(tmp_path / "out", CLUSTER_ID, NODE_ID, parse_version("3.9"))
    await log.append(EPOCH, [ZkMigrationStateRecord(ZkMigrationState.MIGRATION)])
    log.commit()
    log.close()
    file = property_file("127.0.0.1:1", tmp_path)
    file.write_text(file.read_text().replace("unformatted", "out") + "zookeeper.connection.timeout.ms=500\n")
    too_early = command("rehearse", "--way-back", "-c", str(file), "--no-spark")
    assert too_early.returncode == ExitCode.REFUSED
    assert "the log holds no finished migration" in too_early.stderr
    append(tmp_path / "out", [ENDED, METRICS, ILLEGAL])
    answer = command("rehearse", "--way-back", "-c", str(file), "--no-spark")
    assert answer.returncode == ExitCode.DIFFERENT, answer.stderr
    said = " ".join(answer.stdout.split())
    assert "obstacle configs: configs of groups and of client metrics" in said
    assert "dropped /kafka-acl/Group/a/b" in said
    assert "The cluster's ZooKeeper was not read" in said
    assert "compare with the cluster's ZooKeeper, seconds" not in said, "the wait would be in the forecast"
    assert "Verdict: blocked" in said


def test_other_options_are_refused(tmp_path: Path) -> None:
    assert command("rehearse", "--way-back", "--no-spark").returncode == ExitCode.REFUSED
    file = property_file("127.0.0.1:1", tmp_path)
    assert "takes only -c" in command("rehearse", "--way-back", "-c", str(file), "-r", "3.8").stderr
