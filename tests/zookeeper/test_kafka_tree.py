"""Kafka's znodes are listed, kept and removed, and those of others stay; on a real server."""

from __future__ import annotations

import base64
import json

import orjson
import pytest
from kazoo.client import KazooClient

from migrator.zookeeper.bulk import BulkReader
from migrator.zookeeper.kafka_tree import delete_of, every_path, lines_of
from migrator.zookeeper.removal import remove
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
        assert list(every_path(reader)) == [line["path"] for line in kept]
        deletes = [delete_of(orjson.dumps(line)) for line in reversed(kept)]
        assert remove(session, deletes) == len(kept) > 700
        assert list(every_path(reader)) == []
        assert remove(session, deletes) == 0
    assert set(filled.get_children("/")) == {"brokers-of-others", "hbase"}


def test_a_line_of_something_else_is_none() -> None:
    for line in (b"", b"{", b"[]", b'{"path": "/a"}', b'{"path": "/a", "version": null}'):
        with pytest.raises(ValueError, match="not a line of a copy"):
            delete_of(line)
