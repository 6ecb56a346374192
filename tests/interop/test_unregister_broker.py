"""A real broker that is gone for good, while another one is in migration mode: our command works, and Kafka's tool does
not (docs/quorum.md)."""

from __future__ import annotations

from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.errors import OperatorError
from migrator.migration.machine.states import State
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import run_to_end
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import KafkaCluster

pytestmark = pytest.mark.lane("test-long")
TOOL = "org.apache.kafka.tools.ClusterTool"
STAYS, GOES = 1, 2


def ours(cluster: KafkaCluster) -> str:
    (controller,) = cluster.controllers
    words = [MIGRATOR, "quorum", "unregister", "-c", str(controller.property_file), "--id", str(GOES)]
    return run_to_end("unregister", words, timeout_seconds=COMMAND_SECONDS)


def goes_away(cluster: KafkaCluster) -> None:
    until("it serves", lambda: cluster.running_brokers() == {STAYS: True, GOES: False})
    with pytest.raises(OperatorError, match="broker 2 serves"):
        ours(cluster)
    cluster.brokers[GOES].kill()
    until("it is missed", lambda: cluster.running_brokers() == {STAYS: True})


def test_a_broker_that_is_gone_is_registered_no_more(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=2, zookeeper=zookeeper.hosts) as cluster:
        cluster.start_brokers(KafkaBrokerMode.MIGRATING)
        cluster.start_controllers()
        until("dual-write", lambda: cluster.migration_state() == State.DUAL_WRITING.value)
        cluster.restart_broker(GOES, KafkaBrokerMode.KRAFT)
        goes_away(cluster)
        assert "broker 2 is not registered any more" in ours(cluster)
        assert "broker 2 is not registered: there is nothing to remove" in ours(cluster)

        cluster.brokers[GOES].start()
        goes_away(cluster)
        tool = (TOOL, "unregister", "--id", str(GOES))
        with pytest.raises(OperatorError, match="bootstrap"):
            kafka_391.tool(*tool, directory=tmp_path)
        at_broker = ("--bootstrap-server", cluster.bootstrap)
        assert "does not support the broker unregistration API" in kafka_391.tool(*tool, *at_broker, directory=tmp_path)
        ((host, port),) = cluster.controller_addresses
        at_controller = ("--bootstrap-controller", f"{host}:{port}")
        with pytest.raises(OperatorError, match="not yet supported when communicating directly with the controller"):
            kafka_391.tool(*tool, *at_controller, directory=tmp_path)
        assert "broker 2 is not registered any more" in ours(cluster)
