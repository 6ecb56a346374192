"""The channels to brokers belong to one claim: none is opened for a claim that was lost meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from migrator.migration.broker_rpcs.messenger import BrokerMessenger
from migrator.node.core import NodeCore
from migrator.node.migration.runtime import NodeBrokers
from tests.node.support.cluster import running
from tests.patience import PATIENCE_SECONDS

ZK_EPOCH = 7


class SlowZooKeeper:
    """Lists the topics with a configuration when it is let."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answer = threading.Event()

    def topics_with_config(self) -> frozenset[str]:
        self.asked.set()
        self.answer.wait(PATIENCE_SECONDS)
        return frozenset()


class Rig:
    def __init__(self, core: NodeCore, brokers: NodeBrokers, zookeeper: SlowZooKeeper) -> None:
        self.core = core
        self.brokers = brokers
        self.zookeeper = zookeeper

    async def begin(self) -> asyncio.Task[None]:
        """A takeover that has asked ZooKeeper and has no answer yet."""
        task = asyncio.create_task(self.brokers.take_over(ZK_EPOCH))
        await asyncio.to_thread(self.zookeeper.asked.wait, 20)
        return task


@pytest.fixture
async def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    monkeypatch.setattr(BrokerMessenger, "open", lambda _, *claim: calls.append(claim))
    return calls


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(tmp_path, 1) as cluster:
        core = await cluster.leader()
        zookeeper = SlowZooKeeper()
        messenger = BrokerMessenger("PLAINTEXT", lambda *_: pytest.fail("no broker"), cluster.failures.append)
        yield Rig(core, NodeBrokers(cluster.settings(1), core, zookeeper, messenger), zookeeper)  # type: ignore[arg-type]


async def test_a_claim_that_is_held_opens_the_channels(rig: Rig, opened: list[Any]) -> None:
    taking_over = await rig.begin()
    rig.zookeeper.answer.set()
    await taking_over
    assert [controller.controller_epoch for controller, *_ in opened] == [ZK_EPOCH]


async def test_a_claim_that_is_lost_while_zookeeper_is_read_opens_none(rig: Rig, opened: list[Any]) -> None:
    """The same leader epoch, fenced by another claim: what `StopDualWrite` does comes before the answer."""
    taking_over = await rig.begin()
    await rig.brokers.stop()
    rig.zookeeper.answer.set()
    await taking_over
    assert opened == []


async def test_of_two_claims_only_the_later_opens_them(rig: Rig, opened: list[Any]) -> None:
    taking_over = await rig.begin()
    await rig.brokers.stop()
    again = asyncio.create_task(rig.brokers.take_over(ZK_EPOCH + 1))
    await asyncio.sleep(0)
    rig.zookeeper.answer.set()
    await asyncio.gather(taking_over, again)
    assert [controller.controller_epoch for controller, *_ in opened] == [ZK_EPOCH + 1]


async def test_the_full_state_waits_for_the_first_words(rig: Rig) -> None:
    """A reconcile may end before ZooKeeper has listed the topics: the brokers are not taken for informed then."""
    taking_over = await rig.begin()
    full = asyncio.create_task(rig.brokers.send_full(ZK_EPOCH))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not full.done()
    rig.zookeeper.answer.set()
    await taking_over
    assert await full


async def test_the_full_state_of_a_claim_that_is_lost_is_not_queued(rig: Rig) -> None:
    taking_over = await rig.begin()
    full = asyncio.create_task(rig.brokers.send_full(ZK_EPOCH))
    await asyncio.sleep(0)
    await rig.brokers.stop()
    assert not await full
    rig.zookeeper.answer.set()
    await taking_over
