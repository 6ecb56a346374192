"""The embedded ZooKeeper is a real one: it keeps its data, forms ensembles, and obeys its options."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from migrator.drill.kafka.cluster import until
from migrator.parts.zookeeper import EmbeddedZooKeeper, ZooKeeperOptions
from tests.conftest import ZooKeeperSpace, connect, disconnect
from tests.parts.support.ensemble import ZooKeeperEnsemble


@pytest.mark.lane("test-all")
def test_data_survives_kill_and_restart_until_it_is_deleted(own_zookeeper: EmbeddedZooKeeper) -> None:
    client = connect(own_zookeeper.hosts)
    try:
        client.create("/kept", b"value")
        own_zookeeper.kill()
        assert own_zookeeper.mode() is None
        own_zookeeper.start()
        assert client.retry(client.get, "/kept")[0] == b"value"
        own_zookeeper.restart()
        assert client.retry(client.get, "/kept")[0] == b"value"
    finally:
        disconnect(client)
    assert own_zookeeper.snapshots
    assert own_zookeeper.transaction_logs
    own_zookeeper.stop()
    shutil.rmtree(own_zookeeper.directory / "data")
    own_zookeeper.start()
    client = connect(own_zookeeper.hosts)
    try:
        assert client.exists("/kept") is None
    finally:
        disconnect(client)


def test_a_paused_server_answers_nothing(own_zookeeper: EmbeddedZooKeeper) -> None:
    own_zookeeper.pause()
    until("it stands still", lambda: own_zookeeper.mode() is None)
    own_zookeeper.resume()
    assert own_zookeeper.mode() == "standalone"


def test_jute_maxbuffer_bounds_a_request(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path, options=ZooKeeperOptions(jute_maxbuffer=20_000)) as server:
        client = connect(server.hosts)
        try:
            client.create("/small", bytes(10_000))
            with pytest.raises(ConnectionLoss):
                client.create("/large", bytes(30_000))
        finally:
            disconnect(client)


def test_a_directory_may_have_letters_beyond_ascii(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    with EmbeddedZooKeeper(tmp_path / "größe") as server:
        assert server.transaction_logs or server.snapshots


@pytest.mark.lane("test-all")
def test_an_ensemble_survives_its_leader(tmp_path: Path) -> None:
    with ZooKeeperEnsemble(tmp_path) as ensemble:
        client = connect(ensemble.hosts)
        try:
            client.create("/kept", b"value")
            leader = ensemble.leader()
            assert leader is not None
            leader.kill()
            assert client.retry(client.get, "/kept")[0] == b"value"
        finally:
            disconnect(client)


def test_each_test_has_a_chroot_of_its_own(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> None:
    assert zookeeper_client.get_children("/") == []
    zookeeper_client.create("/mine", b"")
    assert zookeeper.hosts.endswith(zookeeper.chroot)
