"""Channels to brokers: order, repetition, what a full state replaces, and what is dropped with a registration."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from migrator.image.model import BrokerRegistration
from migrator.migration.broker_rpcs import channels as rpc_channels
from migrator.migration.broker_rpcs.channels import EVERYTHING, LEADERS, Answered, BrokerChannels, forget
from migrator.migration.broker_rpcs.requests import Addressed
from migrator.raft.transport import TransportError
from migrator.records.metadata import Endpoint
from migrator.turns import TURN_BYTES
from migrator.wire.encode import encode_entity
from migrator.wire.legacy.encode import RequestEncoder
from migrator.wire.legacy.messages import (
    LeaderAndIsr,
    LegacyRequest,
    SendingController,
    StopReplica,
    UpdateMetadata,
    UpdateType,
)
from migrator.wire.schemas import build, response_type
from tests.migration.support.builders import broker
from tests.patience import PATIENCE_SECONDS

NAMES = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata"}
UPDATE = UpdateMetadata(UpdateType.UNKNOWN, (), ())
LEAD = LeaderAndIsr(UpdateType.INCREMENTAL, (), ())
STOP = StopReplica(())


class FakePeer:
    """Answers when ``open`` is set; fails ``failures`` times first."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.failures = 0
        self.error = ErrorCode.none
        self.open = asyncio.Event()
        self.open.set()
        self.closed = False
        self.news = asyncio.Condition()

    async def request_encoded(self, api_key: int, version: int, body: Any, timeout: float) -> tuple[bytearray, int]:
        await self.open.wait()
        async with self.news:
            self.heard.append(NAMES[api_key])
            self.news.notify_all()
        if self.failures:
            self.failures -= 1
            raise TransportError("gone")
        answer = build(response_type(api_key, version), error_code=self.error)
        return bytearray(b"".join(encode_entity(answer))), 0

    async def close(self) -> None:
        self.closed = True

    async def hears(self, *names: str) -> None:
        async with self.news:
            await asyncio.wait_for(self.news.wait_for(lambda: len(self.heard) >= len(names)), PATIENCE_SECONDS)
        assert self.heard == list(names)


class Rig:
    def __init__(self) -> None:
        self.peers: dict[int, FakePeer] = {}
        self.answers: list[Answered] = []
        self.overflows: list[int] = []
        self.channels = BrokerChannels(
            RequestEncoder(SendingController(3001, 7, 5)),
            self.connect,
            "REPLICATION",
            on_answer=self.answers.append,
            on_overflow=self.overflows.append,
            retry_seconds=0.001,
        )

    def connect(self, broker_id: int, endpoint: Endpoint) -> FakePeer:
        self.peers[broker_id] = FakePeer()
        return self.peers[broker_id]

    def register(self, *registrations: BrokerRegistration) -> None:
        self.channels.registered({entry.broker_id: entry for entry in registrations})

    def send(
        self,
        broker_id: int,
        *requests: LegacyRequest,
        replaces: tuple[type[LegacyRequest], ...] = (),
        epoch: int | None = None,
    ) -> None:
        at = 10 + broker_id if epoch is None else epoch
        self.channels.send([Addressed(broker_id, at, requests)], replaces=replaces)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    await made.channels.close()
    assert all(peer.closed for peer in made.peers.values())


def at(broker_id: int, port: int = 9092) -> BrokerRegistration:
    return replace(broker(broker_id), listeners=(Endpoint("REPLICATION", "localhost", port, 0),))


async def test_requests_arrive_in_order_and_are_repeated_until_answered(rig: Rig) -> None:
    rig.register(at(1))
    rig.peers[1].failures = 2
    rig.send(1, UPDATE, LEAD, STOP)
    await rig.peers[1].hears("UpdateMetadata", "UpdateMetadata", "UpdateMetadata", "LeaderAndIsr", "StopReplica")


async def test_a_large_request_that_is_never_answered_is_named_with_its_size(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker closes the connection at more than its socket.request.max.bytes, and says nothing."""
    monkeypatch.setattr("migrator.migration.broker_rpcs.channels.LARGE_BYTES", 1)
    rig.register(at(1))
    peer = rig.peers[1]
    peer.failures = 1_000_000
    rig.send(1, LEAD)
    async with peer.news:
        await asyncio.wait_for(peer.news.wait_for(lambda: len(peer.heard) > 1), PATIENCE_SECONDS)
    trouble = rig.channels.troubles[1]
    assert "the LeaderAndIsr has" in trouble
    assert "socket.request.max.bytes" in trouble


async def test_a_broker_that_is_away_does_not_hold_up_another(rig: Rig) -> None:
    rig.register(at(1), at(2))
    rig.peers[1].open.clear()
    rig.send(1, UPDATE)
    rig.send(2, UPDATE, LEAD)
    await rig.peers[2].hears("UpdateMetadata", "LeaderAndIsr")
    assert rig.peers[1].heard == []


async def test_the_closing_state_replaces_leaders_but_nothing_that_caches_wait_for(rig: Rig) -> None:
    """It names topics only in UpdateMetadata: an earlier request may be the only one with the partitions."""
    rig.register(at(1))
    rig.peers[1].open.clear()
    rig.send(1, STOP)
    await asyncio.sleep(0)
    rig.send(1, UPDATE, LEAD, UPDATE)
    rig.send(1, LEAD, UPDATE, replaces=LEADERS)
    rig.peers[1].open.set()
    await rig.peers[1].hears("StopReplica", "UpdateMetadata", "UpdateMetadata", "LeaderAndIsr", "UpdateMetadata")


async def test_everything_anew_replaces_what_waits_but_for_deletions(rig: Rig) -> None:
    rig.register(at(1))
    rig.peers[1].open.clear()
    rig.send(1, UPDATE)
    await asyncio.sleep(0)
    rig.send(1, LEAD, STOP, UPDATE)
    rig.send(1, UPDATE, LEAD, replaces=EVERYTHING)
    rig.peers[1].open.set()
    heard = rig.peers[1].heard
    await asyncio.wait_for(_until(lambda: len(heard) >= 3 and heard[-1] == "LeaderAndIsr"), PATIENCE_SECONDS)
    assert heard[-3:] == ["StopReplica", "UpdateMetadata", "LeaderAndIsr"]
    assert heard.count("LeaderAndIsr") == 1


async def _until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


async def test_what_waits_for_a_broker_that_registered_anew_is_dropped(rig: Rig) -> None:
    rig.register(at(1))
    old = rig.peers[1]
    old.open.clear()
    rig.send(1, UPDATE, LEAD)
    rig.register(replace(at(1), epoch=99))
    rig.send(1, STOP)
    rig.send(1, UPDATE, epoch=99)
    await rig.peers[1].hears("UpdateMetadata")
    assert old.heard == []


async def test_brokers_in_kraft_mode_and_without_the_listener_get_nothing(rig: Rig) -> None:
    rig.register(replace(at(1), is_migrating_zk_broker=False), broker(2))
    rig.send(1, UPDATE)
    rig.send(2, UPDATE)
    assert rig.peers == {}


async def test_a_refusal_is_heard_of(rig: Rig) -> None:
    rig.register(at(1))
    rig.peers[1].error = ErrorCode.stale_controller_epoch
    rig.send(1, LEAD)
    await asyncio.wait_for(_until(lambda: rig.answers), PATIENCE_SECONDS)
    assert rig.answers == [Answered(1, "LeaderAndIsr", ErrorCode.stale_controller_epoch, {})]


async def test_a_queue_that_grows_too_long_is_thrown_away_and_asked_for_anew(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_channels, "MAX_QUEUED", 5)
    rig.register(at(1))
    rig.peers[1].open.clear()
    for _ in range(6):
        rig.send(1, LEAD)
    assert rig.overflows == [1]
    rig.send(1, LEAD)
    assert rig.channels.queued == {1: 0}, "a change makes no sense to who has missed the one before"
    rig.send(1, UPDATE, LEAD, replaces=LEADERS)
    assert rig.channels.queued == {1: 0}
    rig.send(1, UPDATE, LEAD, replaces=EVERYTHING)
    assert rig.channels.queued == {1: 2}


async def test_a_request_that_was_sent_is_freed_in_turns() -> None:
    chunks, left = 8 * [bytes(TURN_BYTES // 2)], [8]
    freeing = asyncio.create_task(forget(chunks))
    while not freeing.done():
        await asyncio.sleep(0)
        left.append(len(chunks))
    assert left[-1] == 0
    assert all(before - after <= 2 for before, after in pairwise(left))
