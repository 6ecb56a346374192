"""Both sources and the comparison on what stock Kafka 3.9.1 made: a migrated ZooKeeper and its metadata log."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import py4j.java_gateway
import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from migrator.errors import OperatorError
from migrator.parts.java import ONE_TIER
from migrator.verify.comparison import Comparison
from migrator.verify.spark.session import JAVA_OPTIONS, spark_session
from migrator.verify.verdict import VerifyRequest
from migrator.verify.verify import compare_sides, verify_in
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.migration import decode_migration, encode_migration
from tests.conftest import ZooKeeperSpace
from tests.verify.support.stock_pair import AFTER, restore, stock_metadata, stock_property_file

Compare = Callable[[], Comparison]


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    """A metadata directory with the log of the stock migration."""
    stock_metadata(tmp_path)
    return tmp_path


@pytest.fixture
def config(tmp_path: Path, zookeeper: ZooKeeperSpace) -> Path:
    return stock_property_file(tmp_path, zookeeper.hosts)


@pytest.fixture
def compare(spark: SparkSession, zookeeper_client: KazooClient, metadata: Path, config: Path) -> Compare:
    restore(zookeeper_client, AFTER)
    return lambda: compare_sides(spark, VerifyRequest(None, str(metadata), str(config)))


def test_a_stock_migration_of_every_family_is_equal(compare: Compare) -> None:
    comparison = compare()
    assert comparison.examples == ()
    assert all(counts.zookeeper > 0 and counts.kraft > 0 for counts in comparison.kinds.values()), comparison.kinds


@pytest.mark.lane("test-all")
def test_a_verdict_names_the_cluster_and_whose_controllers_write(
    spark: SparkSession, zookeeper_client: KazooClient, metadata: Path, config: Path
) -> None:
    restore(zookeeper_client, AFTER)
    cluster_id = orjson.loads(zookeeper_client.get(paths.CLUSTER_ID)[0])["id"]
    live = VerifyRequest(None, str(metadata), str(config))
    assert (verify_in(spark, live).cluster_id, verify_in(spark, live).stock) == (cluster_id, True)
    state = decode_migration(paths.MIGRATION, zookeeper_client.get(paths.MIGRATION)[0])
    assert state is not None
    zookeeper_client.set(paths.MIGRATION, encode_migration(replace(state, batch_crc=7)))
    assert verify_in(spark, live).stock is False


@pytest.mark.lane("test-all")
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


@pytest.mark.lane("test-all")
def test_a_znode_that_does_not_decode_is_no_verdict(compare: Compare, zookeeper_client: KazooClient) -> None:
    path = next(znode.path for znode in AFTER if znode.path.endswith("/state"))
    zookeeper_client.set(path, b"{")
    with pytest.raises(OperatorError, match=rf"{path}: could not tell: "):
        compare()


def test_a_session_of_this_process_is_used_and_left_to_whoever_started_it(spark: SparkSession) -> None:
    with spark_session() as used:
        assert used.sparkContext is spark.sparkContext
    assert spark.range(3).count() == 3


def test_an_interrupt_silences_py4j_alone(spark: SparkSession) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert not logging.getLogger("py4j.java_gateway").isEnabledFor(logging.ERROR)
    root, error = logging.getLogger(), (logging.ERROR, 1, "text", (), None)
    assert not root.filter(logging.LogRecord("root", error[0], py4j.java_gateway.__file__, *error[1:]))
    assert root.filter(logging.LogRecord("root", error[0], __file__, *error[1:]))
    assert logging.getLogger("migrator").isEnabledFor(logging.WARNING)
    assert spark.range(3).count() == 3


def test_java_options_of_the_operator_do_not_end_the_quiet(spark: SparkSession) -> None:
    options = str(spark.conf.get(JAVA_OPTIONS))
    assert "log4j2" in options
    assert ONE_TIER in options


def test_nobody_else_on_this_machine_may_use_the_ports_of_spark(spark: SparkSession) -> None:
    assert spark.conf.get("spark.authenticate") == "true"
