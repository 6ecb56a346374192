"""Kafka's znodes are listed, kept and removed, and those of others stay; on a real server."""

from __future__ import annotations

import base64
import json

import pytest
from kazoo.client import KazooClient

from migrator.errors import OperatorError
from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.kafka_tree import every_path, lines_of, remove
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from tests.conftest import ZooKeeperSpace

OURS = {
    paths.partition_state("orders", 0): b"{}",
    f"{paths.USER_CONFIGS}/alice": b"secret",
    paths.CONTROLLER_EPOCH: b"7",
    paths.MIGRATION: b"",
    paths.CLUSTER_ID: b"id",
    paths.ROLLOUT: b"x",
}
OTHERS = {"/hbase/master": b"h", "/brokers-of-others/1": b"o"}


@pytest.fixture
def filled(zookeeper_client: KazooClient) -> KazooClient:
    for path, data in {**OURS, **OTHERS}.items():
        zookeeper_client.create(path, data, makepath=True)
    for number in range(700):
        zookeeper_client.create_async(f"/brokers/topics/t{number}", b"{}")
    zookeeper_client.sync("/")
    return zookeeper_client


def test_everything_of_kafka_is_kept_and_removed(filled: KazooClient, zookeeper: ZooKeeperSpace) -> None:
    with ZooKeeperSession(SessionOptions(hosts=zookeeper.hosts)) as session:
        reader = BulkReader(session)
        kept = [json.loads(line) for line in lines_of(reader)]
        data = {line["path"]: base64.b64decode(line["data"]) for line in kept}
        assert {path: data[path] for path in OURS} == OURS
        assert not set(OTHERS) & set(data)
        found = list(every_path(reader))
        assert found == [line["path"] for line in kept]
        assert remove(session, found) == len(found) > 700
        assert list(every_path(reader)) == []
        assert remove(session, found) == 0
    assert set(filled.get_children("/")) == {"brokers-of-others", "hbase"}


def test_what_somebody_creates_meanwhile_is_no_loss(filled: KazooClient, zookeeper: ZooKeeperSpace) -> None:
    with ZooKeeperSession(SessionOptions(hosts=zookeeper.hosts)) as session:
        found = list(every_path(BulkReader(session)))
        filled.create("/brokers/topics/new", b"{}")
        with pytest.raises(OperatorError, match="somebody creates znodes"):
            remove(session, found)
        assert filled.exists("/brokers/topics/new")
