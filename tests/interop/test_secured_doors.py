"""An unmodified broker migrates through each door that a controller listener of Kafka's may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from migrator.clock import wall_ms
from migrator.drill.cluster import CHROOT, CLUSTER_ID, zookeeper_client
from migrator.drill.kafka.cluster import KafkaBrokerMode, until
from migrator.drill.security.protection import OPERATOR, ControllerDoor, Secured
from migrator.drill.workload.fill import FillOptions, fill
from migrator.parts.kafka import StockKafka
from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.zookeeper.session import default_acl
from tests.interop.support.cluster import Admin, KafkaCluster

pytestmark = pytest.mark.lane("test-long")
BROKERS = (1,)


@pytest.mark.parametrize("door", ControllerDoor, ids=lambda door: door.name)
def test_a_broker_migrates_and_stock_controllers_take_over(
    kafka_391: StockKafka, tmp_path: Path, door: ControllerDoor
) -> None:
    security = Secured(tmp_path / "security", door)
    with (
        EmbeddedZooKeeper(tmp_path / "zookeeper", options=security.zookeeper_options()) as server,
        KafkaCluster(
            kafka_391, tmp_path, controllers=1, brokers=len(BROKERS), zookeeper=server.hosts + CHROOT,
            security=security,
        ) as cluster,
    ):  # fmt: skip
        fill_zookeeper(server, security)
        migrate(cluster, security)


def fill_zookeeper(server: EmbeddedZooKeeper, security: Secured) -> None:
    """Users and their permissions, which brokers need at their start."""
    with zookeeper_client(security.session(server.hosts)) as client:
        client.ensure_path(CHROOT, acl=default_acl(CHROOT, set_acl=True))
    options = FillOptions(
        CLUSTER_ID, BROKERS, 0, wall_ms(), users=security.users, permissions=security.permissions,
        set_acl=True,
    )  # fmt: skip
    with zookeeper_client(security.session(server.hosts + CHROOT)) as client:
        fill(client, options)


def migrate(cluster: KafkaCluster, security: Secured) -> None:
    """From ZooKeeper to stock controllers; at each stage a topic is created, and in the end all of them are there."""
    cluster.start_brokers(KafkaBrokerMode.ZOOKEEPER)
    admin = Admin(cluster.bootstrap, len(BROKERS), security.login(OPERATOR))
    admin.create("before", 1, 1)
    cluster.start_controllers()
    cluster.roll_brokers(KafkaBrokerMode.MIGRATING, admin.in_sync)
    until("dual-write", lambda: cluster.migration_state() == "dual-writing")
    admin.create("during", 1, 1)
    cluster.roll_brokers(KafkaBrokerMode.KRAFT, admin.in_sync)
    admin.create("kraft", 1, 1)
    cluster.finish_migration()
    until("the migration is finished", lambda: cluster.public_states() == {"Finished"})
    admin.create("finished", 1, 1)
    cluster.replace_controllers_by_stock()
    admin.create("stock", 1, 1)
    expected = {"before", "during", "kraft", "finished", "stock"}
    until("every topic has a leader", lambda: expected <= {name for name, led in admin.topics().items() if led == [1]})
