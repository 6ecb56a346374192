"""A real broker whose ZooKeeper session expires before the copy: it gets another znode, and is the same process."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.migration.machine.states import State
from migrator.parts.kafka import StockKafka
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import KafkaCluster
from tests.interop.support.stages import problems

pytestmark = pytest.mark.lane("test-long")
EXPIRES, LATE = 1, 2


def test_the_migration_goes_on_after_a_session_of_a_broker_expired(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(
        kafka_391,
        tmp_path,
        controllers=1,
        brokers=2,
        zookeeper=zookeeper.hosts,
        broker_properties={"zookeeper.session.timeout.ms": "6000"},
        controller_properties={"broker.session.timeout.ms": "60000"},
    ) as cluster:
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        cluster.start_controllers()
        cluster.restart_broker(EXPIRES, KafkaBrokerMode.MIGRATING)
        until("only the other broker is waited for", lambda: waits_for(cluster) == {LATE})
        znode = zookeeper_client.exists(paths.broker(EXPIRES))
        assert znode is not None
        broker = cluster.brokers[EXPIRES].process
        broker.pause()
        until("its session has expired", lambda: zookeeper_client.exists(paths.broker(EXPIRES)) is None)
        broker.resume()
        until("it has registered anew", lambda: zookeeper_client.exists(paths.broker(EXPIRES)) is not None)
        again = zookeeper_client.exists(paths.broker(EXPIRES))
        assert again is not None
        assert again.czxid != znode.czxid
        until("only the other broker is waited for again", lambda: waits_for(cluster) == {LATE})
        cluster.restart_broker(LATE, KafkaBrokerMode.MIGRATING)
        until("dual-write", lambda: cluster.migration_state() == State.DUAL_WRITING.value)


def waits_for(cluster: KafkaCluster) -> set[int]:
    found = problems(cluster)
    return {broker for broker in (EXPIRES, LATE) if f"broker {broker}" in found}
