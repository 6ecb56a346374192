"""One bad broker concerns its own channel only, and is named; what fails unexpectedly is begun again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.image.model import EMPTY_IMAGE, ImageDelta
from migrator.machine import machine
from migrator.migration.broker_rpcs import messenger as subject
from migrator.migration.broker_rpcs.channels import CHANNEL, Peer
from migrator.migration.broker_rpcs.deltas import plan_delta
from migrator.migration.broker_rpcs.messenger import PLANNER, BrokerMessenger
from migrator.records import metadata as rec
from migrator.records.metadata import Endpoint
from migrator.supervision import FailureBook
from migrator.wire.client import KafkaClient
from migrator.wire.legacy.messages import SendingController, UpdateType
from tests.image.support.strategies import small_uuid
from tests.migration.broker_rpcs.test_channels import NAMES, FakePeer
from tests.migration.support.told_cluster import change
from tests.patience import PATIENCE_SECONDS

LISTENER = "REPLICATION"
CONTROLLER = SendingController(3001, 7, 5)
LONG_LABEL = "a" * 64 + ".example"
REQUEST_TYPE_AT = 17
"""Of a LeaderAndIsr: behind controller id, isKRaftController, controller epoch and broker epoch."""


def registered(broker_id: int, host: str = "localhost", listener: str = LISTENER) -> rec.RegisterBrokerRecord:
    return rec.RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=small_uuid(broker_id),
        broker_epoch=broker_id,
        end_points=(Endpoint(listener, host, 9092, 0),),
        features=(),
        rack=None,
        fenced=False,
        is_migrating_zk_broker=True,
    )


def topic(number: int, *replicas: int) -> tuple[rec.MetadataRecord, ...]:
    topic_id = small_uuid(100 + number)
    return (
        rec.TopicRecord(f"topic-{number}", topic_id),
        rec.PartitionRecord(0, topic_id, replicas, replicas, (), (), replicas[0], 0, 0, 0),
    )


class BadPeer(FakePeer):
    """Fails ``broken`` requests as nobody expects; ``full_refused``: a LeaderAndIsr of type 2 fails as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = 0
        self.full_refused = False
        self.types: list[UpdateType] = []

    async def request_encoded(self, api_key: int, version: int, body: Any, timeout: float) -> tuple[bytearray, int]:
        if self.broken:
            self.broken -= 1
            raise LookupError("planted")
        if NAMES[api_key] == "LeaderAndIsr":
            self.types.append(UpdateType(b"".join(body)[REQUEST_TYPE_AT]))
            refuses = self.full_refused and self.types[-1] is UpdateType.FULL
            self.error = ErrorCode.unknown_server_error if refuses else ErrorCode.none
        return await super().request_encoded(api_key, version, body, timeout)


class Rig:
    """A messenger with brokers 1 and 2."""

    def __init__(self) -> None:
        self.peers: dict[int, Peer] = {1: BadPeer(), 2: BadPeer()}
        self.failures: list[BaseException] = []
        self.took: list[float] = []
        self.messenger = BrokerMessenger(
            LISTENER, lambda broker_id, _: self.peers[broker_id], self.failures.append, self.took.append
        )
        self.image = EMPTY_IMAGE

    def open(self, *records: rec.MetadataRecord, listed: bool = True) -> None:
        """``listed``: whether ZooKeeper said of which topics it has the configuration."""
        self.image = change(EMPTY_IMAGE, *records).after
        has_config = set(self.image.topics.ids if listed else ())
        self.messenger.open(CONTROLLER, self.image, has_config, self.image.provenance.offset)

    def publish(self, *records: rec.MetadataRecord) -> None:
        delta = change(self.image, *records)
        self.image = delta.after
        self.messenger.publish(delta)

    def bad(self, broker_id: int) -> BadPeer:
        peer = self.peers[broker_id]
        assert isinstance(peer, BadPeer)
        return peer


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    async with asyncio.timeout(PATIENCE_SECONDS):
        yield made
    made.messenger.close()
    await made.messenger.closed()
    assert made.failures == []


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def failures_of(name: str) -> int:
    found = machine().own(FailureBook).read().get(name)
    return 0 if found is None else found.count


async def test_a_host_with_a_label_of_64_characters_is_named_and_other_brokers_are_told(rig: Rig) -> None:
    rig.peers[2] = KafkaClient(LONG_LABEL, 9092, "test")
    rig.open(registered(1), registered(2, LONG_LABEL), *topic(1, 1, 2))
    await rig.bad(1).hears("UpdateMetadata", "LeaderAndIsr")
    await until(lambda: rig.messenger.troubles)
    assert LONG_LABEL in rig.messenger.troubles[2]
    assert list(rig.messenger.troubles) == [2]
    rig.publish(*topic(2, 1))
    await until(lambda: rig.bad(1).heard[2:] == ["UpdateMetadata"])


async def test_a_broker_without_the_listener_is_named(rig: Rig) -> None:
    rig.open(registered(1), registered(2, listener="CLIENTS"), *topic(1, 1))
    await rig.bad(1).hears("UpdateMetadata", "LeaderAndIsr")
    assert list(rig.messenger.troubles) == [2]


async def test_a_channel_that_fails_unexpectedly_tells_everything_anew(rig: Rig) -> None:
    before = failures_of(CHANNEL.name)
    rig.bad(2).broken = 1
    rig.open(registered(1), registered(2), *topic(1, 1, 2))
    await rig.bad(2).hears("UpdateMetadata", "LeaderAndIsr")
    assert failures_of(CHANNEL.name) == before + 1
    await until(lambda: not rig.messenger.troubles)
    assert rig.bad(1).heard == ["UpdateMetadata", "LeaderAndIsr"], "the other broker does not notice"


async def test_a_plan_that_fails_unexpectedly_is_tried_again_with_what_came_meanwhile(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.open(registered(1), *topic(1, 1))
    await rig.bad(1).hears("UpdateMetadata", "LeaderAndIsr")
    planted = [LookupError("planted")]

    def fails_once(delta: ImageDelta, *terms: Any) -> Any:
        if planted:
            raise planted.pop()
        return plan_delta(delta, *terms)

    monkeypatch.setattr(subject, "plan_delta", fails_once)
    before = failures_of(PLANNER.name)
    rig.publish(*topic(2, 1))
    await until(lambda: "planned" in rig.messenger.troubles.get(1, ""))
    rig.publish(*topic(3, 1))
    rig.messenger.reached(rig.image.provenance.offset)
    await until(lambda: len(rig.bad(1).heard) >= 4 and not rig.messenger.troubles)
    assert failures_of(PLANNER.name) == before + 1
    assert sorted(rig.bad(1).heard[2:]) == ["LeaderAndIsr", "UpdateMetadata"]


async def test_a_broker_with_logs_without_topic_ids_gets_the_other_type_and_is_named(rig: Rig) -> None:
    """`LogManager.findStrayReplicas` throws on such a log, and the whole request fails."""
    rig.bad(2).full_refused = True
    rig.open(registered(1), registered(2), *topic(1, 1, 2))
    await rig.messenger.full()
    await until(lambda: rig.bad(2).types[-2:] == [UpdateType.FULL, UpdateType.INCREMENTAL])
    assert "topic id" in rig.messenger.troubles[2]
    assert UpdateType.FULL in rig.bad(1).types
    assert 1 not in rig.messenger.troubles


async def test_a_broker_that_is_away_is_named_until_it_answers(rig: Rig) -> None:
    rig.bad(1).failures = 3
    rig.open(registered(1), *topic(1, 1))
    await until(lambda: rig.messenger.troubles)
    assert "gone" in rig.messenger.troubles[1]
    await until(lambda: not rig.messenger.troubles and rig.bad(1).heard[-1] == "LeaderAndIsr")


async def test_nobody_is_in_trouble_after_the_claim_is_gone(rig: Rig) -> None:
    rig.bad(1).failures = 10**6
    rig.open(registered(1))
    await until(lambda: rig.messenger.troubles)
    rig.messenger.close()
    assert rig.messenger.troubles == {}


async def test_who_waits_for_the_full_state_waits_no_longer_than_the_claim(rig: Rig) -> None:
    rig.open(registered(1), *topic(1, 1))
    waiting = asyncio.create_task(rig.messenger.full())
    await asyncio.sleep(0)
    rig.messenger.close()
    assert not await waiting
    assert not await rig.messenger.full()


@pytest.mark.parametrize("first", ["the comparison ends", "the channels open"])
async def test_no_log_is_moved_aside_when_zookeeper_did_not_list_the_topics(rig: Rig, first: str) -> None:
    """The full state waits for what ZooKeeper holds, which may be known before the channels are open."""
    records = registered(1), *topic(1, 1)
    if first == "the comparison ends":
        rig.messenger.reached(len(records))
    rig.open(*records, listed=False)
    assert await rig.messenger.full()
    if first == "the channels open":
        await rig.bad(1).hears("UpdateMetadata", "UpdateMetadata")
        rig.messenger.reached(len(records))
    await until(lambda: len(rig.bad(1).heard) == 3)
    assert rig.bad(1).types == [UpdateType.FULL]


async def test_a_change_is_measured_until_the_last_broker_has_answered(rig: Rig) -> None:
    rig.open(registered(1), registered(2), *topic(1, 1, 2))
    await rig.bad(2).hears("UpdateMetadata", "LeaderAndIsr")
    rig.bad(2).open.clear()
    rig.publish(*topic(2, 1))
    await rig.bad(1).hears("UpdateMetadata", "LeaderAndIsr", "UpdateMetadata")
    await asyncio.sleep(0)
    assert rig.took == [], "one broker has not answered yet"
    rig.bad(2).open.set()
    await until(lambda: rig.took)
    assert len(rig.took) == 1
    assert rig.took[0] > 0


async def test_what_concerns_no_broker_is_not_measured(rig: Rig) -> None:
    rig.open(registered(1), *topic(1, 1))
    await rig.bad(1).hears("UpdateMetadata", "LeaderAndIsr")
    rig.publish(rec.NoOpRecord())
    rig.publish(*topic(2, 1))
    await until(lambda: rig.took)
    assert len(rig.took) == 1
