"""A cluster for each test; its brokers answer from this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.conftest import ZooKeeperSpace
from tests.preflight.support.ready_cluster import ReadyCluster, answering_broker


@pytest.fixture(scope="session")
def broker_port() -> Iterator[int]:
    with answering_broker(add_partitions_to_txn=4, fetch=17) as port:
        yield port


@pytest.fixture(scope="session")
def old_broker_port() -> Iterator[int]:
    with answering_broker(add_partitions_to_txn=3, fetch=13) as port:
        yield port


@pytest.fixture
def cluster(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path, broker_port: int, old_broker_port: int
) -> Iterator[ReadyCluster]:
    made = ReadyCluster(zookeeper_client, zookeeper.hosts, tmp_path, broker_port, old_broker_port)
    yield made
    for undo in reversed(made.undo):
        undo()
