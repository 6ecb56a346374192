"""Whole rollouts of real brokers over a real ssh, and with Kafka's own controllers: there, back, and there again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.clients import Admin, Traffic
from migrator.parts.kafka import StockKafka
from migrator.rollout.plan.steps import Act, Phase
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import KafkaCluster
from tests.interop.support.rollout import KillAt, RolloutDesk
from tests.interop.support.rollout_variants import SshDesk, StockDesk
from tests.interop.test_rollout import TOPIC, killed_and_resumed, nothing_is_lost
from tests.rollout.support.sshd import LoopbackSshd, require_sshd

pytestmark = pytest.mark.lane("test-long")
BROKERS = 2


@pytest.fixture
def cluster(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> Iterator[KafkaCluster]:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with KafkaCluster(kafka_391, tmp_path, controllers=3, brokers=BROKERS, zookeeper=zookeeper.hosts) as found:
        yield found


@pytest.fixture
def over_ssh(cluster: KafkaCluster, tmp_path: Path) -> Iterator[RolloutDesk]:
    require_sshd()
    with LoopbackSshd(tmp_path / "sshd") as sshd:
        yield from begun(SshDesk(cluster, tmp_path, sshd))


@pytest.fixture
def of_stock(cluster: KafkaCluster, tmp_path: Path) -> Iterator[RolloutDesk]:
    yield from begun(StockDesk(cluster, tmp_path))


def begun(desk: RolloutDesk) -> Iterator[RolloutDesk]:
    try:
        desk.prepare()
        Admin(desk.cluster.bootstrap, BROKERS).create(TOPIC, 3, BROKERS)
        yield desk
    finally:
        desk.close()


def test_over_ssh(over_ssh: RolloutDesk) -> None:
    with Traffic(over_ssh.cluster.bootstrap, TOPIC) as traffic:
        killed_and_resumed(over_ssh, [KillAt(Phase.MIGRATE, Act.RESTART)], "apply", "--yes")
        nothing_is_lost(over_ssh, traffic)
    assert "the rollout is complete" in over_ssh.output
    assert over_ssh.type("status", "--json") == 0
    assert json.loads(over_ssh.output)["state"] == "complete"


def test_kafkas_own_controllers_there_and_back_and_there(of_stock: RolloutDesk, zookeeper_client: KazooClient) -> None:
    with Traffic(of_stock.cluster.bootstrap, TOPIC) as traffic:
        assert of_stock.type("apply", "--until", "kraft") == 0, of_stock.output
        assert of_stock.type("rollback", "--yes") == 0, of_stock.output
        assert b'"kraftControllerEpoch":-1' in zookeeper_client.get(paths.CONTROLLER)[0]
        assert of_stock.type("apply", "--yes") == 0, of_stock.output
        assert "the rollout is complete" in of_stock.output
        nothing_is_lost(of_stock, traffic)
