"""`migrator force finish --without ID` for a real broker that vanished in ZooKeeper mode, and returns after the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID, COMMAND_SECONDS, MIGRATOR
from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState, State
from migrator.parts.kafka import StockKafka
from migrator.parts.processes import run_to_end
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.interop.support.stages import problems

pytestmark = pytest.mark.lane("test-long")
TOPIC = "orders"
OTHERS, LOST = (1, 2), 3
COMMAND = f"migrator force finish --without {LOST} --reason TEXT"
TURNED_AWAY = r"Unable to register broker 3 because the controller returned error BROKER_ID_NOT_REGISTERED"


def order(cluster: KafkaCluster) -> str:
    """The output of the command."""
    (controller,) = cluster.controllers
    words = ("--without", str(LOST), "--reason", "the machine is lost, CHG-43", "--yes")
    command = [MIGRATOR, "force", "finish", "-c", str(controller.property_file), *words]
    return run_to_end("force", command, timeout_seconds=COMMAND_SECONDS)


def test_a_real_broker_vanished_in_zookeeper_mode(
    kafka_391: StockKafka,
    zookeeper: ZooKeeperSpace,
    zookeeper_client: KazooClient,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=3, zookeeper=zookeeper.hosts) as cluster:
        cluster.start_brokers(KafkaBrokerMode.MIGRATING)
        cluster.start_controllers()
        until("dual-write", lambda: cluster.migration_state() == State.DUAL_WRITING.value)
        admin = Admin(cluster.bootstrap, 3)
        admin.create(TOPIC, 3, 3)
        with Traffic(cluster.bootstrap, TOPIC) as traffic:
            cluster.brokers[LOST].kill()
            with pytest.raises(OperatorError, match=f"/brokers/ids/{LOST} exists|sends heartbeats"):
                order(cluster)
            for broker in OTHERS:
                cluster.restart_broker(broker, KafkaBrokerMode.KRAFT)
            until("the status names the command", lambda: COMMAND in problems(cluster))
            order(cluster)
            assert COMMAND not in problems(cluster)
            cluster.finish_migration()
            until("the migration is finished", lambda: cluster.public_states() == {PublicState.FINISHED.label})
            assert cluster.running_brokers() == dict.fromkeys(OTHERS, False)

            lost = cluster.brokers[LOST]
            lost.start()  # as it was, in ZooKeeper mode
            until("the broker that came back is refused", lambda: re.search(TURNED_AWAY, lost.process.output_text()))
            until("records go on", traffic.goes_on)
            lost.kill()
            lost.properties = cluster.properties_of(LOST, KafkaBrokerMode.KRAFT)
            lost.start()
            until("it is back in KRaft mode", lambda: cluster.running_brokers() == dict.fromkeys((1, 2, 3), False))
            until("all replicas are in sync", admin.in_sync)
            until("records go on", traffic.goes_on)
            traffic.stop()
        assert traffic.errors == []
        values = consume(cluster.bootstrap, TOPIC, "auditors", traffic.sent)
        record_property("produced", traffic.sent)
        record_property("lost", traffic.sent - len(values))
        assert sorted(map(int, values)) == list(range(traffic.sent))
