"""A broker with a directory that was formatted for KRaft mode is named before it is stopped on its way to ZooKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.errors import OperatorError
from migrator.rollout.engine.apply import Ending, StopAt
from migrator.rollout.engine.standing import standing_of
from migrator.rollout.files.identities import IdentityError, broker_directories, version_of
from migrator.rollout.nodes import Node
from migrator.rollout.plan.jobs import directories_of
from migrator.rollout.plan.steps import Phase
from migrator.rollout.ports import BrokerMode, ExecutorError
from tests.rollout.support.model import ModelCluster, nothing
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator

BROKER = "broker-2"
OLD = b"version=0\nbroker.id=2\ncluster.id=XkYOzJkUQQ-rHVYhnWGvTg\ndirectory.id=VX0y2DpnT0SAnzn1-2DxXA\n"
NODE = model_inventory().brokers.nodes[0]
NEW = b"#made by kafka-storage\nversion=1\nnode.id=2\ncluster.id=XkYOzJkUQQ-rHVYhnWGvTg\n"


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """All brokers are in KRaft mode, and one got a directory there."""
    (tmp_path / "state").mkdir()
    operator = Operator(ModelCluster(model_inventory()), tmp_path / "state")
    assert operator.apply(StopAt(Phase.KRAFT)) is Ending.REACHED
    for node in operator.cluster.inventory.brokers.nodes:
        for directory in directories(operator, node):
            operator.cluster.files[node.name, f"{directory}/meta.properties"] = OLD
    return operator


def directories(operator: Operator, node: Node) -> list[str]:
    text = operator.cluster.files[node.name, node.properties].decode("latin-1")
    return broker_directories(node, dict(line.split("=", 1) for line in text.splitlines() if "=" in line))


def last_identity(operator: Operator) -> tuple[str, str]:
    return BROKER, f"{directories(operator, operator.node(BROKER))[-1]}/meta.properties"


def test_a_directory_that_was_formatted_for_kraft_mode_is_named_and_nothing_is_done(operator: Operator) -> None:
    operator.cluster.files[last_identity(operator)] = NEW
    with pytest.raises(IdentityError, match="version=1") as raised:
        operator.rollback()
    assert last_identity(operator)[1] in raised.value.where
    assert "broker.id=2 in place of node.id=2" in raised.value.remedy
    assert operator.cluster.modes()[BROKER] is BrokerMode.KRAFT
    standing = standing_of(operator.cluster.inventory, operator.entries, running=False)
    assert standing.failure is not None
    assert "version=1" in standing.failure.what
    operator.cluster.files[last_identity(operator)] = OLD
    assert operator.resume() is Ending.COMPLETE
    assert set(operator.cluster.modes().values()) == {BrokerMode.ZOOKEEPER}


def test_it_is_looked_at_again_before_the_broker_leaves_migration_mode(operator: Operator) -> None:
    def formats(where: str) -> None:
        if where == "after done give-back ":
            operator.cluster.files[last_identity(operator)] = NEW

    operator.cluster.points.at = formats
    with pytest.raises(IdentityError, match=f"{BROKER} on "):
        operator.rollback()
    assert operator.cluster.modes()[BROKER] is BrokerMode.MIGRATING


def test_what_cannot_be_read_holds_nothing_up_and_is_said(operator: Operator) -> None:
    read = operator.cluster.read

    async def refuses(node: Node, path: str) -> bytes | None:
        if path.endswith("meta.properties") and node.name == BROKER:
            raise ExecutorError("the directory may not be looked into", where=path)
        return await read(node, path)

    operator.cluster.read = refuses  # type: ignore[method-assign]
    assert operator.rollback() is Ending.COMPLETE
    assert [line for line in operator.said if "could not be looked at" in line]
    operator.cluster.points.at = nothing


@pytest.mark.parametrize(
    ("content", "version"), [(OLD, "0"), (NEW, "1"), (b"broker.id=2\n", "0"), (b"version = 1\n", "1"), (b"\xff", "0")]
)
def test_the_version_is_what_the_file_says(content: bytes, version: str) -> None:
    assert version_of(content) == version


def test_directories_are_those_that_kafka_takes() -> None:
    assert broker_directories(NODE, {"log.dirs": "/a, /b/", "log.dir": "/c"}) == ["/a", "/b"]
    assert broker_directories(NODE, {"log.dir": "/c"}) == ["/c"]
    for nothing_named in ({}, {"log.dirs": ","}):
        assert broker_directories(NODE, nothing_named) == ["/tmp/kafka-logs"]  # noqa: S108 - Kafka's default


def test_a_file_that_names_more_directories_than_any_node_has_is_refused() -> None:
    """Each one costs commands on its host, one after the other."""
    many = {"log.dirs": ",".join(f"/{number}" for number in range(100_000))}
    for directories in (broker_directories, directories_of):
        with pytest.raises(OperatorError, match="names 100000 directories") as raised:
            directories(NODE, many)
        assert raised.value.where == f"{NODE.name} on {NODE.host}: {NODE.properties}"
