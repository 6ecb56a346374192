"""`migrator format`: which cluster it formats for, and which id differs from which."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from migrator.cli.format import command
from migrator.errors import OperatorError
from migrator.log.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from migrator.log.metadata_log import MetadataLog
from migrator.parts.processes import free_port
from migrator.records.batch import build_batch
from migrator.records.codec import encode_all
from migrator.records.control import LeaderChange, Voter, build_control_batch
from migrator.records.metadata import FeatureLevelRecord
from migrator.records.versions import FEATURE_NAME, LATEST_SUPPORTED
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace

CLUSTER, OTHER = "MkU3OEVBNTcwNTJENDM2Qg", "9egfFDzKSbaonHwNn88EuQ"


def patience(zookeeper: str | None) -> str:
    """Milliseconds to find a ZooKeeper; those that are away have no chroot."""
    return "30000" if "/" in (zookeeper or "") else "200"


class Controller:
    """The property file of a controller, and its metadata directory, which is not formatted."""

    def __init__(self, directory: Path) -> None:
        self.metadata, self.file = directory / "metadata", directory / "controller.properties"

    def format(self, *more: str, zookeeper: str | None = None, migrates: bool = False) -> Result:
        lines = {
            "process.roles": "controller", "node.id": "1", "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": "CONTROLLER", "listeners": "CONTROLLER://localhost:9093",
            "log.dirs": str(self.metadata), "zookeeper.connection.timeout.ms": patience(zookeeper),
        }  # fmt: skip
        if zookeeper is not None:
            lines["zookeeper.connect"] = zookeeper
        if migrates:
            lines |= {"zookeeper.metadata.migration.enable": "true", "inter.broker.listener.name": "PLAINTEXT"}
        self.file.write_text("".join(f"{key}={text}\n" for key, text in lines.items()))
        return CliRunner().invoke(command, ["-c", str(self.file), *more], standalone_mode=False)

    @property
    def cluster_id(self) -> str | None:
        found = read_meta_properties(self.metadata)
        return None if found is None else found.cluster_id


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path)


@pytest.fixture
def hosts(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> str:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER), makepath=True)
    return zookeeper.hosts


def refused(done: Result) -> str:
    assert isinstance(done.exception, OperatorError), done.output
    assert done.exception.remedy
    return str(done.exception)


def test_the_id_is_zookeepers(controller: Controller, hosts: str) -> None:
    done = controller.format(zookeeper=hosts)
    assert done.exit_code == 0, done.exception
    assert f"The cluster id is {CLUSTER}, from /cluster/id of ZooKeeper at {hosts}" in done.output
    assert controller.cluster_id == CLUSTER


def test_the_id_that_was_typed_must_be_zookeepers(controller: Controller, hosts: str) -> None:
    assert f"{OTHER} was typed, and /cluster/id of ZooKeeper at {hosts} is {CLUSTER}" in refused(
        controller.format("-t", OTHER, zookeeper=hosts)
    )
    assert controller.cluster_id is None
    assert controller.format("-t", CLUSTER, zookeeper=hosts).exit_code == 0
    assert controller.cluster_id == CLUSTER


def test_an_id_that_somebody_has_made_up_is_the_clusters_all_the_same(
    controller: Controller, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id("kafka-prod-eu"), makepath=True)
    assert controller.format(zookeeper=zookeeper.hosts).exit_code == 0
    assert controller.cluster_id == "kafka-prod-eu"


def test_a_made_up_id_that_nobody_could_compare_is_taken_with_a_warning(controller: Controller) -> None:
    done = controller.format("-t", "kafka-prod-eu")
    assert done.exit_code == 0
    assert "cluster id 'kafka-prod-eu' does not look like one that Kafka has made" in done.stderr
    assert controller.cluster_id == "kafka-prod-eu"
    assert "the cluster id is empty" in refused(controller.format("-t", ""))


def test_empty_entries_of_log_dirs_are_no_directories(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    controller.metadata = Path(f",{controller.metadata} ,")
    assert controller.format("-t", CLUSTER).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {controller.file.name, "metadata"}


def test_a_directory_of_another_cluster_is_told_with_both_ids(controller: Controller, hosts: str) -> None:
    controller.metadata.mkdir()
    write_meta_properties(controller.metadata, MetaProperties(OTHER, 2))
    text = refused(controller.format(zookeeper=hosts))
    assert f"formatted, for node 2 of cluster {OTHER}; /cluster/id of ZooKeeper at {hosts} says" in text
    assert f"says cluster {CLUSTER}" in text
    assert "the property file says node 1" in text
    assert controller.cluster_id == OTHER


@pytest.mark.parametrize("typed", [(), ("-t", CLUSTER)])
def test_a_wrong_chroot_is_told_with_the_right_one(
    typed: tuple[str, ...], controller: Controller, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient
) -> None:
    zookeeper_client.create(f"/kafka{paths.CLUSTER_ID}", encode_cluster_id(CLUSTER), makepath=True)
    assert f"{zookeeper.chroot}/kafka" in refused(controller.format(*typed, zookeeper=zookeeper.hosts))
    assert controller.cluster_id is None


def test_a_zookeeper_that_is_away_stops_only_who_needs_it(controller: Controller) -> None:
    away = f"127.0.0.1:{free_port()}"
    assert away in refused(controller.format(zookeeper=away))
    done = controller.format("-t", CLUSTER, zookeeper=away)
    assert done.exit_code == 0, done.exception
    assert f"cluster id {CLUSTER} is not compared with ZooKeeper: {away}" in done.stderr
    assert controller.cluster_id == CLUSTER


def test_without_zookeeper_the_id_has_to_be_typed(controller: Controller) -> None:
    text = refused(controller.format())
    assert "names no ZooKeeper to ask" in text
    assert "meta.properties of a broker" in text
    assert controller.format("-t", CLUSTER).exit_code == 0


def test_a_version_that_cannot_begin_a_migration_is_refused(controller: Controller) -> None:
    away = f"127.0.0.1:{free_port()}"
    done = controller.format("-t", CLUSTER, "--release-version", "3.5", zookeeper=away, migrates=True)
    text = refused(done)
    assert text.startswith("--release-version: metadata.version is 3.5-IV2, and a migration needs 3.6-IV1 or later")
    assert "inter.broker.protocol.version of the brokers" in text
    assert not done.output, "warnings in front of the error"
    assert controller.cluster_id is None
    assert controller.format("-t", CLUSTER, "-r", "3.6", zookeeper=away, migrates=True).exit_code == 0


def test_a_directory_formatted_so_is_refused_too(controller: Controller) -> None:
    """Formatted while the flag was off, or by Kafka's tool."""
    away = f"127.0.0.1:{free_port()}"
    assert controller.format("-t", CLUSTER, "-r", "3.5").exit_code == 0
    text = refused(controller.format("-t", CLUSTER, "--ignore-formatted", zookeeper=away, migrates=True))
    assert text.startswith(f"{controller.metadata} (formatted earlier): metadata.version is 3.5-IV2, and a migration")
    assert "Empty the metadata directory" in text
    assert controller.format("-t", CLUSTER, "--ignore-formatted").exit_code == 0, "without a migration it is right"


@pytest.mark.parametrize("ends", [True, False])
def test_the_version_that_the_log_has_reached_counts(controller: Controller, ends: bool) -> None:
    away = f"127.0.0.1:{free_port()}"
    assert controller.format("-t", CLUSTER, "-r", "3.5").exit_code == 0
    level = [FeatureLevelRecord(FEATURE_NAME, LATEST_SUPPORTED)] if ends else []
    with closing(MetadataLog.open(controller.metadata)) as log:
        leader = LeaderChange(1, (Voter(1),), (Voter(1),))
        log.append(build_control_batch([leader], timestamp_ms=0, base_offset=0, leader_epoch=1))
        if level:
            log.append(build_batch(encode_all(level, LATEST_SUPPORTED), timestamp_ms=0, base_offset=1, leader_epoch=1))
        log.sync()
    done = controller.format("-t", CLUSTER, "--ignore-formatted", zookeeper=away, migrates=True)
    if ends:
        assert done.exit_code == 0, done.exception
    else:
        assert "metadata.version is 3.5-IV2" in refused(done), "an election alone changes nothing"


def test_who_is_refused_reads_no_warnings(controller: Controller) -> None:
    assert controller.format("-t", CLUSTER).exit_code == 0
    done = controller.format("-t", CLUSTER)
    assert "already formatted" in refused(done)
    assert not done.output
