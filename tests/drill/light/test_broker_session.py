"""Light brokers stand for election as real ones: when nobody is the controller, once, conditionally."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from migrator.drill.light.broker_session import LightBrokerSession
from migrator.records.metadata import Endpoint, SecurityProtocol
from migrator.zookeeper.session import SessionOptions
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.broker_ids import decode_broker
from migrator.zookeeper.znodes.controller import (
    ControllerClaim,
    decode_controller,
    decode_controller_epoch,
    encode_controller,
)
from tests.conftest import ZooKeeperSpace
from tests.patience import PATIENCE_SECONDS, until


@pytest.fixture
def sessions(zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient) -> Iterator[dict[int, LightBrokerSession]]:
    """Of brokers 1 and 2, not started, on a cluster whose last controller epoch was 7."""
    zookeeper_client.create(paths.CONTROLLER_EPOCH, b"7")
    made = {
        broker: LightBrokerSession(
            broker,
            SessionOptions(zookeeper.hosts),
            Endpoint("PLAINTEXT", "localhost", 9090 + broker, SecurityProtocol.PLAINTEXT),
            "rack",
            session_seconds=6.0,
        )
        for broker in (1, 2)
    }
    yield made
    for session in made.values():
        session.stop()


def wait_for_controller(client: KazooClient, broker: int) -> ControllerClaim:
    """Wait until that broker claims `/controller`."""
    seen = threading.Event()

    @client.DataWatch(paths.CONTROLLER)  # type: ignore[untyped-decorator]
    def look(data: bytes | None, _stat: object) -> bool:
        if data is not None and decode_controller(paths.CONTROLLER, data).broker_id == broker:
            seen.set()
        return not seen.is_set()

    assert seen.wait(PATIENCE_SECONDS)
    return decode_controller(paths.CONTROLLER, client.get(paths.CONTROLLER)[0])


def test_the_first_is_elected_and_the_next_takes_over(
    sessions: dict[int, LightBrokerSession], zookeeper_client: KazooClient
) -> None:
    sessions[1].start()
    sessions[2].start()
    assert decode_broker("", zookeeper_client.get(paths.broker(2))[0]).endpoints[0].port == 9092
    assert sessions[1].elections == [8]
    assert sessions[2].elections == []
    sessions[1].stop()
    assert not wait_for_controller(zookeeper_client, 2).is_kraft
    assert zookeeper_client.exists(paths.broker(1)) is None
    assert zookeeper_client.get(paths.CONTROLLER_EPOCH)[0] == b"9"


def test_a_kraft_claim_keeps_brokers_from_standing_until_it_is_deleted(
    sessions: dict[int, LightBrokerSession], zookeeper_client: KazooClient
) -> None:
    zookeeper_client.create(paths.CONTROLLER, encode_controller(ControllerClaim(3001, 0, kraft_epoch=5)))
    sessions[1].start()
    assert sessions[1].elections == []
    zookeeper_client.delete(paths.CONTROLLER)
    wait_for_controller(zookeeper_client, 1)
    until(lambda: bool(sessions[1].elections))  # its own thread hears of it later than the watch
    epoch = decode_controller_epoch(paths.CONTROLLER_EPOCH, zookeeper_client.get(paths.CONTROLLER_EPOCH)[0])
    assert sessions[1].elections == [8] == [epoch]
