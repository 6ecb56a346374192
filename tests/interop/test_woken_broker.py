"""A real broker that has missed an election, and waits: a wake makes it the controller.

It was told that ``/controller`` was gone while it could not create it, gave up, and set its watch. Only the next
deletion that it hears of lets it try again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.parts.kafka import StockKafka
from migrator.zookeeper.claim import Claimer
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import KafkaCluster

pytestmark = pytest.mark.lane("test-long")
BROKER = 1
TIMES = 5
ASSIGNMENT = b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{},"removing_replicas":{}}'
GAVE_UP = "Error while electing or becoming controller"
NO_CREATION = [make_acl("world", "anyone", read=True, write=True, delete=True, admin=True)]


def test_a_wake_makes_a_broker_elect_each_time(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with (
        KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=1, zookeeper=zookeeper.hosts) as cluster,
        ZooKeeperSession(SessionOptions(zookeeper.hosts)) as session,
    ):
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        claimer = Claimer(session)
        broker = cluster.brokers[BROKER].process

        def gave_up(times: int) -> bool:
            return broker.output_text().count(GAVE_UP) == times

        for time in range(TIMES):
            assert claimer.wait_for_zookeeper_controller(30.0)
            topic = f"t{time}"
            zookeeper_client.create(paths.topic(topic), ASSIGNMENT)
            led = partial(zookeeper_client.exists, paths.partition_state(topic, 0))
            until("the controller has done all that was before", led)
            zookeeper_client.set_acls("/", NO_CREATION)
            zookeeper_client.delete(paths.CONTROLLER)
            until("the broker has given up", partial(gave_up, time + 1))
            zookeeper_client.set_acls("/", OPEN_ACL_UNSAFE)
            assert claimer.wake_brokers()
            assert claimer.wait_for_zookeeper_controller(), f"wake {time}"
