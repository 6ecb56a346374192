"""Both sources and the comparison on what stock Kafka 3.9.1 made: a migrated ZooKeeper and its metadata log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from migrator.errors import OperatorError
from migrator.log.metadata_log import DIRECTORY_NAME
from migrator.verify.compare import Comparison
from migrator.verify.verify import VerifyRequest, compare_sides
from migrator.zookeeper.ops import Znode
from tests.conftest import ZooKeeperSpace
from tests.golden.stock import STOCK_391, read_dump

AFTER = read_dump(STOCK_391.after)
Compare = Callable[[], Comparison]


def restore(client: KazooClient, znodes: list[Znode]) -> None:
    """The znodes with their data versions; ephemeral and sequential ones as plain ones."""
    for znode in sorted(znodes, key=lambda znode: znode.path):
        data = znode.data
        client.create(znode.path, b"" if data is None else data, makepath=True)
        for _ in range(znode.stat.version):
            client.set(znode.path, b"" if data is None else data)


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    """A metadata directory with the log of the stock migration."""
    log = tmp_path / DIRECTORY_NAME
    log.mkdir()
    shutil.copy(STOCK_391.log, log / f"{0:020d}.log")
    return tmp_path


@pytest.fixture
def config(tmp_path: Path, zookeeper: ZooKeeperSpace) -> Path:
    """A controller's property file with the secrets of the stock cluster."""
    file = tmp_path / "controller.properties"
    file.write_text(
        "process.roles=controller\nnode.id=3000\ncontroller.quorum.voters=3000@localhost:9093\n"
        "controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://localhost:9093\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        f"zookeeper.connect={zookeeper.hosts}\n"
        + "".join(f"{key}={text}\n" for key, text in STOCK_391.settings().items() if key != "cluster.id")
    )
    return file


@pytest.fixture
def compare(spark: SparkSession, zookeeper_client: KazooClient, metadata: Path, config: Path) -> Compare:
    restore(zookeeper_client, AFTER)
    return lambda: compare_sides(spark, VerifyRequest(None, str(metadata), str(config)))


def test_a_stock_migration_of_every_family_is_equal(compare: Compare) -> None:
    comparison = compare()
    assert comparison.examples == ()
    assert all(counts.zookeeper > 0 and counts.kraft > 0 for counts in comparison.kinds.values()), comparison.kinds


def test_one_changed_state_is_found(compare: Compare, zookeeper_client: KazooClient) -> None:
    path = next(znode.path for znode in AFTER if znode.path.endswith("/state"))
    data, _ = zookeeper_client.get(path)
    zookeeper_client.set(path, data.replace(b'"leader_epoch":', b'"leader_epoch":7'))
    comparison = compare()
    assert [(difference.kind, difference.field) for difference in comparison.examples] == [
        ("partition", "leader_epoch")
    ]
    zookeeper_client.set(path, data)
    assert compare().differences == 0, "the same session reads again what was repaired"


def test_a_damaged_log_is_no_verdict(compare: Compare, metadata: Path) -> None:
    segment = metadata / DIRECTORY_NAME / f"{0:020d}.log"
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
    with pytest.raises(OperatorError, match=rf"{segment}: could not tell: .*checksum"):
        compare()


def test_a_znode_that_does_not_decode_is_no_verdict(compare: Compare, zookeeper_client: KazooClient) -> None:
    path = next(znode.path for znode in AFTER if znode.path.endswith("/state"))
    zookeeper_client.set(path, b"{")
    with pytest.raises(OperatorError, match=rf"{path}: could not tell: "):
        compare()
