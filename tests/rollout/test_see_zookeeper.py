"""A rollout looks at a real ZooKeeper, also with garbage in it, or without an answer."""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pytest
from kazoo.client import KazooClient

from migrator.parts.zookeeper import EmbeddedZooKeeper
from migrator.rollout.seeing.zookeeper import ZooKeeperEyes, ZooKeeperLook
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.cluster_id import encode_cluster_id
from migrator.zookeeper.znodes.controller import ControllerClaim, encode_controller
from migrator.zookeeper.znodes.migration import MigrationState, encode_migration
from tests.conftest import ZooKeeperSpace
from tests.patience import PATIENCE_SECONDS

BROKER = {
    "version": 5,
    "host": None,
    "port": -1,
    "jmx_port": -1,
    "timestamp": "1",
    "endpoints": ["PLAINTEXT://b1:9092"],
    "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
}


@pytest.fixture
def eyes(zookeeper: ZooKeeperSpace) -> Iterator[ZooKeeperEyes]:
    with ZooKeeperSession(SessionOptions(zookeeper.hosts)) as session:
        yield ZooKeeperEyes(session)


def test_an_empty_chroot_has_no_brokers(eyes: ZooKeeperEyes) -> None:
    assert eyes.look() == ZooKeeperLook({})


def test_brokers_claim_and_mark(eyes: ZooKeeperEyes, zookeeper_client: KazooClient) -> None:
    zookeeper_client.create(paths.CLUSTER_ID, encode_cluster_id("abc"), makepath=True)
    zookeeper_client.create(paths.broker(1), orjson.dumps(BROKER), makepath=True)
    zookeeper_client.create(f"{paths.BROKER_IDS}/nobody", b"")
    zookeeper_client.create(paths.CONTROLLER, encode_controller(ControllerClaim(1, 5, -1)))
    seen = eyes.look()
    assert seen.brokers is not None
    assert (seen.cluster_id, seen.controller_broker, seen.quorum_rules, seen.written_offset) == ("abc", 1, False, -1)
    (first,) = seen.brokers.values()
    assert [(end.host, end.port) for end in first.endpoints] == [("b1", 9092)]

    assert seen.topics == 0
    for path in (f"{paths.TOPICS}/a", f"{paths.TOPICS}/b", f"{paths.TOPICS}/c", f"{paths.DELETE_TOPICS}/c"):
        zookeeper_client.create(path, b"", makepath=True)
    assert eyes.look().topics == 2

    zookeeper_client.delete(paths.broker(1))
    zookeeper_client.create(paths.broker(1), orjson.dumps(BROKER))
    zookeeper_client.set(paths.CONTROLLER, encode_controller(ControllerClaim(3001, 5, 7)))
    zookeeper_client.create(paths.MIGRATION, encode_migration(MigrationState(3001, 7, 99, 6)))
    seen = eyes.look()
    assert seen.brokers is not None
    assert seen.brokers[1].czxid > first.czxid, "it has registered anew"
    assert (seen.controller_broker, seen.quorum_rules) == (None, True)
    assert (seen.written_offset, seen.written_epoch) == (99, 6)
    assert seen.unknown == ()
    zookeeper_client.set(paths.MIGRATION, None)
    assert eyes.look().written_offset == -1


def test_what_is_written_later_says_how_old_a_registration_is(
    eyes: ZooKeeperEyes, zookeeper_client: KazooClient
) -> None:
    """By ZooKeeper's own clock: that of this machine may be another."""
    zookeeper_client.create(paths.broker(1), orjson.dumps(BROKER), makepath=True)
    zookeeper_client.create(paths.ROLLOUT, b"")
    written = zookeeper_client.exists(paths.broker(1)).mtime

    def ages() -> list[int]:
        return [each.age_ms for each in (eyes.look().brokers or {}).values()]

    while (now := zookeeper_client.set(paths.ROLLOUT, b"").mtime) <= written:
        pass
    assert ages() == [now - written]
    zookeeper_client.set(paths.broker(1), orjson.dumps(BROKER))
    assert ages() == [0]


@pytest.mark.parametrize("path", [paths.broker(1), paths.CONTROLLER, paths.MIGRATION, paths.CLUSTER_ID])
def test_garbage_is_named_and_proves_nothing(eyes: ZooKeeperEyes, zookeeper_client: KazooClient, path: str) -> None:
    zookeeper_client.create(path, b"\xff{", makepath=True)
    seen = eyes.look()
    assert seen.brokers is not None
    assert [path in sentence for sentence in seen.unknown] == [True]
    assert seen.controller_broker is None
    assert seen.quorum_rules or path == paths.broker(1)


def test_a_server_that_is_away_is_told_and_comes_back(own_zookeeper: EmbeddedZooKeeper) -> None:
    with ZooKeeperSession(SessionOptions(own_zookeeper.hosts, session_timeout_ms=10_000)) as session:
        eyes = ZooKeeperEyes(session)
        assert eyes.look().brokers == {}
        own_zookeeper.pause()
        assert eyes.look().brokers is None
        own_zookeeper.resume()
        own_zookeeper.stop()
        seen = eyes.look()
        assert seen.brokers is None
        assert "ZooKeeper" in seen.unknown[0]
        own_zookeeper.start()
        assert session.wait_connected(PATIENCE_SECONDS)
        assert eyes.look().brokers == {}
