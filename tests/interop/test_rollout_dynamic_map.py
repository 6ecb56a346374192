"""Kafka itself: a broker with a dynamic listener map starts in migration mode only once that has what is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType
from kazoo.client import KazooClient

from migrator.config.keys import PROTOCOLS
from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.cluster import KafkaBrokerMode
from migrator.errors import OperatorError
from migrator.parts.kafka import StockKafka
from migrator.rollout.opening.refusals import refuse_dynamic_maps
from migrator.rollout.ports import Gate, GateKind
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.rollout.test_observer import MIGRATING, ZOOKEEPER, Eyes, in_mode

pytestmark = pytest.mark.lane("test-long")
LACKS = "PLAINTEXT:PLAINTEXT,EXTERNAL:PLAINTEXT"


def set_map(cluster: KafkaCluster, text: str) -> None:
    Admin(cluster.bootstrap, 1).alter_config(ResourceType.BROKER, "1", PROTOCOLS, text)


def test_the_message_says_what_kafka_needs(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=1, zookeeper=zookeeper.hosts) as cluster:
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        eyes = Eyes(cluster, tmp_path)
        try:
            _goes_its_way(cluster, eyes)
        finally:
            eyes.close()


def _goes_its_way(cluster: KafkaCluster, eyes: Eyes) -> None:
    seen = eyes.until(in_mode(ZOOKEEPER), Gate(GateKind.ZOOKEEPER_CONTROLLER))
    refuse_dynamic_maps(eyes.inventory, seen)
    set_map(cluster, LACKS)
    seen = eyes.wait_for(lambda seen: seen.brokers is not None and seen.brokers[1].dynamic_map == LACKS)
    with pytest.raises(OperatorError, match="listener CONTROLLER") as refused:
        refuse_dynamic_maps(eyes.inventory, seen)

    cluster.start_controllers()
    with pytest.raises(OperatorError):
        cluster.restart_broker(1, KafkaBrokerMode.MIGRATING)
    assert "SecurityProtocol.CONTROLLER" in cluster.brokers[1].process.output_text()

    cluster.brokers[1].properties = cluster.properties_of(1, KafkaBrokerMode.ZOOKEEPER)
    cluster.brokers[1].start()
    set_map(cluster, refused.value.remedy.partition("=[")[2].partition("]")[0])
    seen = eyes.wait_for(lambda seen: seen.brokers is not None and "CONTROLLER" in seen.brokers[1].dynamic_map)
    refuse_dynamic_maps(eyes.inventory, seen)
    cluster.restart_broker(1, KafkaBrokerMode.MIGRATING)
    eyes.until(in_mode(MIGRATING))
