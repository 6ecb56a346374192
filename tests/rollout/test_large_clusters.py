"""Ten times the size: what a look costs where there are many brokers, topics and partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from migrator.config.load import typed_settings
from migrator.errors import OperatorError
from migrator.records.metadata import Endpoint
from migrator.rollout import meanwhile
from migrator.rollout.files.property_files import HOSTS_AT_ONCE, at_once
from migrator.rollout.gates.gatekeeper import Gatekeeper
from migrator.rollout.ports import Observation, Some
from migrator.rollout.seeing import observer
from migrator.rollout.seeing.brokers import BrokerEyes, PartitionList, SettingsAnswer
from migrator.rollout.seeing.observer import ClusterObserver
from migrator.rollout.seeing.zookeeper import RegisteredBroker, ZooKeeperEyes, ZooKeeperLook
from migrator.seeing.quorum import QuorumEyes, QuorumLook
from migrator.zookeeper.session import SessionOptions, ZooKeeperSession
from migrator.zookeeper.znodes import paths
from migrator.zookeeper.znodes.configs import encode_config
from tests.conftest import ZooKeeperSpace
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator
from tests.rollout.test_seen import metadata

BROKERS, CONTROLLER = 100, 42
SETTINGS = typed_settings(
    {
        "process.roles": "controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@h:1",
        "listeners": "CONTROLLER://:1",
        "log.dirs": "/data",
    },
    "access",
)
WELL = metadata({"a": [(0, 3, 3)], "b": [(1, 3, 3)]})


class Brokers(BrokerEyes):
    """Counts who is asked how partitions are.

    :param says: what each of them does then, by its port.
    """

    def __init__(self, says: Callable[[int], Coroutine[Any, Any, PartitionList | str]]) -> None:
        super().__init__(SETTINGS)
        self.asked: list[int] = []
        self._says = says

    async def ask(self, broker_id: int, endpoints: Sequence[Endpoint]) -> SettingsAnswer | str:
        return SettingsAnswer({}, "3.9")

    async def partitions(self, endpoints: Sequence[Endpoint]) -> PartitionList | str:
        self.asked.append(endpoints[0].port)
        return await self._says(endpoints[0].port)


class ZooKeeper(ZooKeeperEyes):
    """Many brokers are registered, one of them is the controller."""

    def __init__(self) -> None:
        self.topics = 2

    def look(self) -> ZooKeeperLook:
        brokers = {i: RegisteredBroker(i, (Endpoint("PLAINTEXT", "h", i, 0),)) for i in range(BROKERS)}
        return ZooKeeperLook(brokers, controller_broker=CONTROLLER, topics=self.topics)

    def min_isr_of(self, topics: Sequence[str]) -> dict[str, int] | str:
        return {}


class Quorum(QuorumEyes):
    """There is none yet."""

    async def look(self) -> QuorumLook:
        return QuorumLook(None, None, -1)


def looked(brokers: Brokers, zookeeper: ZooKeeper | None = None, **what: bool) -> Observation:
    async def look() -> Observation:
        eyes = ClusterObserver(zookeeper or ZooKeeper(), Quorum(SETTINGS), brokers, [], None)
        try:
            return await eyes.observe(**what)
        finally:
            await eyes.close()

    return asyncio.run(look())


async def refuses(_: int) -> PartitionList | str:
    return "reassignments are unknown: NOT_CONTROLLER"


async def tells(_: int) -> PartitionList | str:
    return PartitionList(WELL, 0, placed=False, reassigning=Some(), topics=())


async def hangs(_: int) -> PartitionList | str:
    await asyncio.Event().wait()
    raise AssertionError


def test_the_controller_tells_how_partitions_are_and_nobody_else_is_asked() -> None:
    brokers = Brokers(tells)
    seen = looked(brokers)
    assert seen.partitions is not None
    assert seen.partitions.topics == 2
    assert brokers.asked == [CONTROLLER]


def test_brokers_that_do_not_know_reassignments_refuse_at_once() -> None:
    brokers = Brokers(lambda port: tells(port) if port == BROKERS - 1 else refuses(port))
    assert looked(brokers).partitions is not None
    assert len(brokers.asked) == BROKERS


def test_a_look_has_one_time_out_and_not_one_for_each_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "PARTITIONS_SECONDS", 0.1)
    brokers = Brokers(hangs)
    seen = looked(brokers)
    assert (seen.partitions, brokers.asked) == (None, [CONTROLLER])
    assert "no broker says how partitions are: not within 0.1 s" in seen.unknown


def test_a_login_that_sees_too_few_topics_is_not_tried_with_every_broker() -> None:
    """Each of them would send all partitions."""
    zookeeper, brokers = ZooKeeper(), Brokers(tells)
    zookeeper.topics = 3
    seen = looked(brokers, zookeeper)
    assert (seen.partitions, brokers.asked) == (None, [CONTROLLER])
    assert any("sees 2 of 3 topics" in each for each in seen.unknown)


def test_whoever_does_not_need_partitions_does_not_ask_for_them() -> None:
    brokers = Brokers(hangs)
    seen = looked(brokers, partitions=False)
    assert (seen.partitions, brokers.asked, seen.unknown) == (None, [], ())


def test_zookeeper_tells_min_isr_of_all_topics_at_once(
    zookeeper: ZooKeeperSpace, zookeeper_client: KazooClient
) -> None:
    topics = [f"topic-{number}" for number in range(3000)]
    zookeeper_client.ensure_path(paths.TOPIC_CONFIGS)
    own = {"topic-0": "2", "topic-7": "3", "topic-8": " 1 ", "topic-9": "many"}
    for name, text in own.items():
        zookeeper_client.create(paths.topic_config(name), encode_config({"min.insync.replicas": text}))
    zookeeper_client.create(paths.topic_config("topic-10"), b"no JSON")
    zookeeper_client.create(paths.topic_config("topic-11"), encode_config({"retention.ms": "1"}))
    with ZooKeeperSession(SessionOptions(zookeeper.hosts)) as session:
        assert ZooKeeperEyes(session).min_isr_of(topics) == {"topic-0": 2, "topic-7": 3, "topic-8": 1}


def test_without_zookeeper_nobody_knows_min_isr() -> None:
    session = ZooKeeperSession(SessionOptions("127.0.0.1:1"))
    found = ZooKeeperEyes(session).min_isr_of(["a"])
    assert isinstance(found, str)
    assert found.startswith("ZooKeeper does not tell min.insync.replicas of topics: ")


def test_several_hosts_are_asked_at_once_in_order() -> None:
    busy, most = 0, 0

    async def ask(number: int) -> int:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        for _ in range(number % 7):
            await asyncio.sleep(0)
        busy -= 1
        return number

    assert asyncio.run(at_once(ask, range(300))) == list(range(300))
    assert (busy, most) == (0, HOSTS_AT_ONCE)


def test_the_first_host_that_fails_ends_it() -> None:
    asked: list[int] = []

    async def ask(number: int) -> None:
        asked.append(number)
        if number == 3:
            raise OperatorError("no such file", where="host 3")
        await asyncio.Event().wait()

    with pytest.raises(OperatorError, match="no such file"):
        asyncio.run(at_once(ask, range(300)))
    assert len(asked) <= HOSTS_AT_ONCE + 1


class Slow(ModelCluster):
    """A look ends when the operator was told that it takes long."""

    def __init__(self) -> None:
        super().__init__(model_inventory())
        self.told: list[str] = []

    async def observe(self, *, partitions: bool = True) -> Observation:
        while partitions and not any("still looks" in line for line in self.told):
            await asyncio.sleep(0)
        return await super().observe(partitions=partitions)


def test_a_look_that_takes_long_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meanwhile, "LONG_SECONDS", 0.001)
    cluster = Slow()
    operator = Operator(cluster, tmp_path)
    operator.hears = cluster.told.append
    gates = Gatekeeper(operator.parts().heard(), dict, lambda *_, **__: None)
    assert asyncio.run(gates.wait(lambda _: (), "migrate/broker-1")) == 1
    assert set(cluster.told) == {"still looks at brokers, partitions and controllers"}
