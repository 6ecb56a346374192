"""`migrator format`: which cluster it formats for, and which id differs from which."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from migrator.cli.format import command
from migrator.errors import OperatorError
from migrator.log.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from migrator.parts.processes import free_port
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace

CLUSTER, OTHER = "MkU3OEVBNTcwNTJENDM2Qg", "9egfFDzKSbaonHwNn88EuQ"


class Controller:
    """The property file of a controller, and its metadata directory, which is not formatted."""

    def __init__(self, directory: Path) -> None:
        self.metadata, self.file = directory / "metadata", directory / "controller.properties"

    def format(self, *more: str, zookeeper: str | None = None) -> Result:
        lines = {
            "process.roles": "controller", "node.id": "1", "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": "CONTROLLER", "listeners": "CONTROLLER://localhost:9093",
            "log.dirs": str(self.metadata), "zookeeper.connection.timeout.ms": "200",
        }  # fmt: skip
        if zookeeper is not None:
            lines["zookeeper.connect"] = zookeeper
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
