"""Every controller and every log of a quorum is lost while it dual-writes; the real broker that is left goes back."""

from __future__ import annotations

import shutil
from pathlib import Path

from click.testing import CliRunner, Result
from kazoo.client import KazooClient

from migrator.cli.main import migrator
from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.drill.probes import controller_claim, highest_state_epoch
from migrator.migration.machine.states import State
from migrator.parts.kafka import StockKafka
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import Admin, KafkaCluster
from tests.interop.support.stages import broker_is_controller, stage

TOPIC = "orders"


def test_a_broker_is_elected_and_leads_again(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=1, zookeeper=zookeeper.hosts) as cluster:
        (controller,) = cluster.controllers
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        admin = Admin(cluster.bootstrap, 1)

        def rollback(*more: str) -> Result:
            arguments = ["rollback", "-c", str(controller.property_file), "--without-log", *more]
            return CliRunner().invoke(migrator, [*arguments, "--yes-cluster-id", CLUSTER_ID])

        with stage("to dual-write"):
            admin.create(TOPIC, 2, 1)
            cluster.start_controllers()
            cluster.restart_broker(1, KafkaBrokerMode.MIGRATING)
            until("dual-write", lambda: cluster.migration_state() == State.DUAL_WRITING.value)
            until("the broker runs", lambda: cluster.running_brokers() == {1: True})
        with Traffic(cluster.bootstrap, TOPIC) as traffic:
            with stage("the quorum is lost, and its claim stays"):
                assert f"controller {controller.node_id} still runs" in str(rollback().exception)
                controller.kill()
                shutil.rmtree(controller.metadata_directory)
                assert "is only in that log" in str(rollback().exception)
                claim = controller_claim(zookeeper_client)
                assert claim is not None
                assert claim.is_kraft
            with stage("the claim ends"):
                done = rollback("--accept-loss")
                assert done.exit_code == 0, done.exception
                assert "broker 1 is the controller" in done.output
                assert zookeeper_client.exists(paths.MIGRATION) is None
                assert highest_state_epoch(zookeeper_client) <= int(zookeeper_client.get(paths.CONTROLLER_EPOCH)[0])
            with stage("without the settings of the migration"):
                cluster.restart_broker(1, KafkaBrokerMode.ZOOKEEPER)
                until("the broker is the controller", lambda: broker_is_controller(zookeeper_client))
                # A client that asks just before the broker has heard of itself does not ask again for minutes.
                until("the broker says so", lambda: admin.client.list_topics(timeout=10).controller_id == 1)
                admin.create("after-all", 1, 1)
                until("the new topic has a leader", lambda: admin.topics().get("after-all") == [1])
                until("messages are acknowledged", traffic.goes_on)
            traffic.stop()
        assert traffic.errors == []
        values = consume(cluster.bootstrap, TOPIC, "auditors", traffic.sent)
        assert sorted(map(int, values)) == list(range(traffic.sent))
