"""A partition state that ZooKeeper lost: unmodified brokers ignore an older one, and obey the one that is restored."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from kazoo.client import KazooClient

from migrator.cli.main import migrator
from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.parts.kafka import StockKafka
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from migrator.zookeeper.znodes.partition_state import PartitionState, decode_partition_state
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import Admin, KafkaCluster

TOPIC = "orders"
STATE = paths.partition_state(TOPIC, 0)
BOTH = {1, 2}


def test_brokers_obey_a_restored_state(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)

    def state() -> tuple[PartitionState, int]:
        data, stat = zookeeper_client.get(STATE)
        return decode_partition_state(STATE, data), stat.version

    def in_sync() -> bool:
        return set(state()[0].isr) == BOTH

    with KafkaCluster(kafka_391, tmp_path, controllers=1, brokers=2, zookeeper=zookeeper.hosts) as cluster:
        cluster.format_controllers()
        config = str(cluster.controllers[0].property_file)
        cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
        Admin(cluster.bootstrap, 2).create(TOPIC, 1, 2)
        with Traffic(cluster.bootstrap, TOPIC) as traffic:
            cluster.roll_brokers(KafkaBrokerMode.ZOOKEEPER, in_sync)
            known, version = state()
            assert known.leader_epoch > 0
            assert version > known.leader_epoch, "in-sync replicas changed, too"

            zookeeper_client.delete(paths.partition(TOPIC, 0), recursive=True)
            look = CliRunner().invoke(migrator, ["preflight", "-c", config])
            assert "BLOCKER M015" in look.output, look.output
            assert f"leader epoch {known.leader_epoch}, leader {known.leader}" in look.output
            done = CliRunner().invoke(migrator, ["repair", "partition-states", "-c", config, "--yes"])
            assert done.exit_code == 0, done.output
            restored, version_restored = state()
            assert (restored.leader, set(restored.isr)) == (known.leader, BOTH)
            assert restored.leader_epoch > known.leader_epoch
            assert version_restored >= version, "or brokers would ignore it"

            # The leader shrinks and extends the in-sync replicas, which it can only if it took the state for a new one.
            (follower,) = BOTH - {restored.leader}
            cluster.brokers[follower].kill()
            until("the leader shrinks the in-sync replicas", lambda: state()[0].isr == (restored.leader,))
            cluster.restart_killed_broker(follower)
            until("the leader extends them", in_sync)
            cluster.restart_broker(restored.leader, KafkaBrokerMode.ZOOKEEPER)
            until("another leads, and all are in sync", lambda: in_sync() and state()[0].leader == follower)
            until("messages are acknowledged", traffic.goes_on)
        assert traffic.errors == []
        values = consume(cluster.bootstrap, TOPIC, "auditors", traffic.sent)
        assert sorted(map(int, values)) == list(range(traffic.sent))
