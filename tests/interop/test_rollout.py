"""`migrator rollout` migrates unmodified Kafka brokers, is killed at its work, and goes on; there and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.clients import Admin, Traffic, consume
from migrator.errors import ExitCode
from migrator.parts.kafka import StockKafka
from migrator.rollout.journal.journal import Event
from migrator.rollout.plan.steps import Act, Phase
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from tests.conftest import ZooKeeperSpace
from tests.interop.support.cluster import KafkaCluster
from tests.interop.support.rollout import KillAt, RolloutDesk, rollout_desk

TOPIC = "orders"
FORWARD = [
    KillAt(Phase.PREFLIGHT, Act.RUN),
    KillAt(Phase.FORMAT, Act.EDIT, Event.FOUND),
    KillAt(Phase.FORMAT, Act.RUN),
    KillAt(Phase.START, Act.START),
    KillAt(Phase.MIGRATE, Act.CHECK_BEFORE, Event.PASSED),
    KillAt(Phase.MIGRATE, Act.EDIT),
    KillAt(Phase.MIGRATE, Act.RESTART),
    KillAt(Phase.COPY, Act.CHECK_AFTER, Event.PASSED),
    KillAt(Phase.SOAK, Act.SOAK, Event.SOAKED),
    KillAt(Phase.SOAK, Act.RUN),
    KillAt(Phase.KRAFT, Act.EDIT),
    KillAt(Phase.KRAFT, Act.RESTART),
    KillAt(Phase.VERIFY, Act.RUN),
    KillAt(Phase.FINISH, Act.EDIT),
    KillAt(Phase.FINISH, Act.RESTART),
    KillAt(Phase.HANDOVER, Act.EDIT),
    KillAt(Phase.HANDOVER, Act.STOP),
    KillAt(Phase.HANDOVER, Act.START),
    KillAt(Phase.ARCHIVE, Act.RUN),
]
BACK = [
    KillAt(Phase.LEAVE_KRAFT, Act.EDIT),
    KillAt(Phase.LEAVE_KRAFT, Act.RESTART),
    KillAt(Phase.DRAIN, Act.CHECK_AFTER, Event.PASSED),
    KillAt(Phase.STOP_QUORUM, Act.STOP),
    KillAt(Phase.GIVE_BACK, Act.RUN),
    KillAt(Phase.SET_ASIDE, Act.RUN),
    KillAt(Phase.LEAVE_MIGRATION, Act.EDIT),
    KillAt(Phase.LEAVE_MIGRATION, Act.RESTART),
]


@contextmanager
def desk_of(kafka: StockKafka, zookeeper: ZooKeeperSpace, directory: Path, brokers: int) -> Iterator[RolloutDesk]:
    with (
        KafkaCluster(kafka, directory, controllers=3, brokers=brokers, zookeeper=zookeeper.hosts) as cluster,
        rollout_desk(cluster, directory) as desk,
    ):
        yield desk


@pytest.fixture
def desk(
    kafka_391: StockKafka, zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient, tmp_path: Path
) -> Iterator[RolloutDesk]:
    """Three brokers in ZooKeeper mode, with a topic, and an inventory."""
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id(CLUSTER_ID), makepath=True)
    with desk_of(kafka_391, zookeeper, tmp_path, 3) as desk:
        Admin(desk.cluster.bootstrap, 3).create(TOPIC, 3, 3, min_insync_replicas="2")
        yield desk


def nothing_is_lost(desk: RolloutDesk, traffic: Traffic) -> None:
    traffic.stop()
    assert traffic.errors == []
    values = consume(desk.cluster.bootstrap, TOPIC, "auditors", traffic.sent)
    assert sorted(map(int, values)) == list(range(traffic.sent))


def killed_and_resumed(desk: RolloutDesk, kills: list[KillAt], *begin: str) -> int:
    """Each command dies at its line; the last one ends well. Gives how many restarts were under way at a death."""
    under_way = 0
    words = begin
    for kill in kills:
        assert desk.type(*words, kill_at=kill) is None, desk.output
        under_way += kill.act is Act.RESTART
        words = ("resume", "--yes")
    assert desk.type(*words) == 0, desk.output
    return under_way


def test_to_stock_controllers_with_one_kill(desk: RolloutDesk, zookeeper_client: KazooClient) -> None:
    with Traffic(desk.cluster.bootstrap, TOPIC) as traffic:
        killed_and_resumed(desk, [KillAt(Phase.KRAFT, Act.RESTART)], "apply", "--yes")
        nothing_is_lost(desk, traffic)
    assert "the rollout is complete" in desk.output
    archive = next(desk.state.glob("archive-*"))
    assert {"zookeeper.jsonl", "00000000000000000000.log", "journal.jsonl"} <= {file.name for file in archive.iterdir()}
    assert sum(map(desk.broker_starts, desk.cluster.brokers)) in (9, 10)
    assert desk.type("status", "--json") == 0
    assert json.loads(desk.output)["state"] == "complete"
    assert zookeeper_client.exists(paths.topic(TOPIC))
    assert desk.type("remove-znodes", "--cluster", "drills") == ExitCode.REFUSED
    assert zookeeper_client.exists(paths.topic(TOPIC))
    assert desk.type("remove-znodes", "--cluster", "drill") == 0, desk.output
    assert zookeeper_client.get_children("/") == []
    assert consume(desk.cluster.bootstrap, TOPIC, "later", 10)


@pytest.mark.lane("test-long")
def test_killed_at_each_kind_of_step(desk: RolloutDesk) -> None:
    with Traffic(desk.cluster.bootstrap, TOPIC) as traffic:
        under_way = killed_and_resumed(desk, FORWARD, "apply", "--yes")
        nothing_is_lost(desk, traffic)
    brokers = len(desk.cluster.brokers)
    starts = sum(map(desk.broker_starts, desk.cluster.brokers))
    assert 3 * brokers <= starts <= 3 * brokers + under_way


@pytest.mark.lane("test-long")
def test_killed_at_each_kind_of_step_on_the_way_back(desk: RolloutDesk) -> None:
    with Traffic(desk.cluster.bootstrap, TOPIC) as traffic:
        assert desk.type("apply", "--until", "kraft") == 0, desk.output
        killed_and_resumed(desk, BACK, "rollback", "--yes")
        assert not desk.statuses()
        assert desk.type("apply", "--yes") == 0, desk.output
        nothing_is_lost(desk, traffic)
