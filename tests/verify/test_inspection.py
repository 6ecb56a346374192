"""The faults of its sources that `migrator verify` finds before it starts Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient

from migrator.cli import verify_run
from migrator.cli.verify import command
from migrator.errors import OperatorError
from migrator.log.meta_properties import MetaProperties, write_meta_properties
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.parts.processes import free_port
from migrator.verify.inspection import inspect
from migrator.verify.named import Sources
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.golden.stock import STOCK_391
from tests.verify.test_bad_input import unprivileged
from tests.verify.zookeeper.support.writer import Node, write_nodes

CLUSTER, OTHER = "MkU3OEVBNTcwNTJENDM2Qg", "AAAAAAAAAAAAAAAAAAAAAA"
SEGMENT = f"{0:020d}.log"


class SparkStartedError(Exception):
    """A line that the test waits for, or must not see."""


@pytest.fixture
def metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a controller of the cluster; whoever starts Spark fails."""

    def start(*_: object) -> NoReturn:
        raise SparkStartedError

    monkeypatch.setattr(verify_run, "spark_session", start)
    directory = tmp_path / "metadata"
    (directory / DIRECTORY_NAME).mkdir(parents=True)
    shutil.copy(STOCK_391.log, directory / DIRECTORY_NAME / SEGMENT)
    write_meta_properties(directory, MetaProperties(CLUSTER, 3000))
    return directory


@pytest.fixture
def hosts(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> str:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER), makepath=True)
    return zookeeper.hosts


def said(hosts: str, metadata: Path | str) -> str:
    """The output that the operator reads."""
    arguments = ["--zookeeper", hosts, "--metadata", str(metadata)]
    done = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert isinstance(done.exception, OperatorError), done.exception
    assert done.exception.remedy
    return str(done.exception)


def test_spark_starts_when_both_sides_are_in_order(hosts: str, metadata: Path) -> None:
    done = CliRunner().invoke(command, ["--zookeeper", hosts, "--metadata", str(metadata)], standalone_mode=False)
    assert isinstance(done.exception, SparkStartedError), done.exception
    lines = done.stderr.splitlines()
    assert [line.partition(" s  ")[2] for line in lines] == [
        "asking ZooKeeper for the cluster id",
        "looking at the metadata directory",
        "starting Spark",
    ]


@pytest.mark.parametrize("below", ["", "/elsewhere"])
def test_a_wrong_chroot_is_told_with_the_right_one(
    below: str, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, metadata: Path
) -> None:
    zookeeper_client.create(f"/kafka{paths.CLUSTER_ID}", encode_cluster_id(CLUSTER), makepath=True)
    text = said(f"{zookeeper.hosts}{below}", metadata)
    assert "no Kafka cluster is here" in text
    assert f"{zookeeper.chroot}/kafka" in text


def test_a_zookeeper_that_is_away_is_named(metadata: Path, tmp_path: Path) -> None:
    hosts = f"127.0.0.1:{free_port()}"
    config = tmp_path / "controller.properties"
    config.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@h:9093\ncontroller.listener.names=C\n"
        f"listeners=C://h:9093\nzookeeper.connect={hosts}\nzookeeper.connection.timeout.ms=200\n"
    )
    arguments = ["-c", str(config), "--metadata", str(metadata)]
    done = CliRunner().invoke(command, arguments, standalone_mode=False)
    assert isinstance(done.exception, OperatorError), done.exception
    assert hosts in str(done.exception)


def nowhere(metadata: Path) -> Path:
    return metadata / "nowhere"


def a_file(metadata: Path) -> Path:
    return metadata / DIRECTORY_NAME / SEGMENT


def without_log(metadata: Path) -> Path:
    shutil.rmtree(metadata / DIRECTORY_NAME)
    return metadata


def empty(metadata: Path) -> Path:
    (metadata / DIRECTORY_NAME / SEGMENT).write_bytes(b"")
    return metadata


def of_another_cluster(metadata: Path) -> Path:
    write_meta_properties(metadata, MetaProperties(OTHER, 3000))
    return metadata


def the_log_of_another_cluster(metadata: Path) -> Path:
    return of_another_cluster(metadata) / DIRECTORY_NAME


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        (nowhere, "there is no such directory"),
        (a_file, "this is a file, not a directory"),
        (without_log, "there is no metadata log"),
        (empty, "the metadata log is empty"),
        (of_another_cluster, f"of cluster {OTHER}, and ZooKeeper is of cluster {CLUSTER}"),
        (the_log_of_another_cluster, f"of cluster {OTHER}, and ZooKeeper is of cluster {CLUSTER}"),
    ],
)
def test_a_wrong_metadata_directory(broken: Callable[[Path], Path], expected: str, hosts: str, metadata: Path) -> None:
    text = said(hosts, broken(metadata))
    assert expected in text
    assert str(metadata) in text


def test_a_directory_that_may_not_be_read(hosts: str, metadata: Path) -> None:
    metadata.chmod(0)
    try:
        with unprivileged(), pytest.raises(OperatorError, match="Permission denied") as raised:
            inspect(Sources(zookeeper=hosts, metadata=str(metadata)), lambda _: None)
    finally:
        metadata.chmod(0o755)
    assert "the right to do that" in raised.value.remedy


@pytest.mark.parametrize(
    ("chroot", "expected"),
    [
        ("/kafka", None),
        ("/kafka/", None),
        (None, "Did you mean --chroot /kafka?"),
        ("/elsewhere", "below /elsewhere: /cluster/id is missing. Did you mean --chroot /kafka?"),
    ],
)
def test_the_files_of_a_server(chroot: str | None, expected: str | None, metadata: Path, tmp_path: Path) -> None:
    below: list[Node] = [(path, b"", 0) for path in ("/kafka", "/kafka/cluster")]
    write_nodes(tmp_path / "data", [*below, (f"/kafka{paths.CLUSTER_ID}", encode_cluster_id(CLUSTER), 0)])
    sources = Sources(zookeeper_files=(str(tmp_path / "data"),), chroot=chroot, metadata=str(metadata))
    if expected is None:
        inspect(sources, lambda _: None)
    else:
        with pytest.raises(OperatorError) as raised:
            inspect(sources, lambda _: None)
        assert expected in f"{raised.value.what}. {raised.value.remedy}"


def test_an_archive_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="there are no rows kept here"):
        inspect(Sources(archive=str(tmp_path)), lambda _: None)
    for side in ("zookeeper", "kraft"):
        (tmp_path / side).mkdir()
    inspect(Sources(archive=str(tmp_path)), lambda _: None)
