"""Every published procedure, word for word, on real Apache brokers, while a client writes: no record is lost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.procedures.procedure import Procedure
from tests.interop.procedures.runner import Performance
from tests.interop.procedures.table import PROCEDURES, REPRESENTATIVE

TOPIC = "orders"
CASES = [
    pytest.param(each, id=each.name, marks=[] if each is REPRESENTATIVE else pytest.mark.lane("test-long"))
    for each in PROCEDURES
]


@pytest.fixture(params=CASES)
def performance(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> Iterator[Performance]:
    """Brokers in ZooKeeper mode, and controllers that are not formatted yet."""
    procedure: Procedure = request.param
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with Performance(procedure, tmp_path, zookeeper.hosts, zookeeper_client) as performance:
        performance.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        performance.admin.create(TOPIC, 3, 2)
        yield performance


def test_as_published(performance: Performance, record_property: pytest.RecordProperty) -> None:
    with Traffic(performance.bootstrap, TOPIC) as traffic:
        begin = time.monotonic()
        performance.perform()
        performance.admin.create("after", 2, 2)
        until("messages are acknowledged", traffic.goes_on)
        until("all is in sync", performance.admin.in_sync)
        pause = traffic.longest_pause(begin)
        traffic.stop()
    assert traffic.errors == []
    values = consume(performance.bootstrap, TOPIC, "auditors", traffic.sent)
    assert sorted(map(int, values)) == list(range(traffic.sent))
    record_property("records", traffic.sent)
    record_property("longest_pause_s", round(pause, 1))
