"""A new leader asks brokers in ZooKeeper mode, on connections that it had before, whether they live."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator.clock import monotonic_ms
from migrator.controller.grace import Evidence
from migrator.image.model import Changes, ImageDelta
from migrator.node.core import NodeCore
from migrator.node.migration import witnesses as module
from migrator.node.migration.witnesses import Witnesses
from migrator.records.metadata import (
    Endpoint,
    RegisterBrokerRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from migrator.wire.schemas import API_VERSIONS, VersionRange
from migrator.wire.security import PLAINTEXT
from migrator.wire.server import KafkaListener
from tests.controller.support.leading_controller import some_uuid
from tests.node.support.cluster import running, until

BROKER = 1
SESSION_MS = 1_000


class Broker:
    """The process of a broker, which answers to ApiVersions; `die`, and another one may take its port."""

    def __init__(self) -> None:
        nothing: Any = None
        self.listener = KafkaListener("PLAINTEXT", nothing, apis={API_VERSIONS: VersionRange(0, 4)})
        self.port = 0

    async def start(self, port: int = 0) -> None:
        self.port = await self.listener.start("127.0.0.1", port)

    async def die(self) -> None:
        await self.listener.close(grace=0.0)

    @property
    def is_connected(self) -> bool:
        return bool(self.listener._connections)


@asynccontextmanager
async def leading(directory: Path, broker: Broker) -> AsyncIterator[tuple[NodeCore, Witnesses]]:
    """A controller that dual-writes, and this broker, which is not fenced."""
    async with running(directory, 1, **{"broker.session.timeout.ms": str(SESSION_MS)}) as cluster:
        node = await cluster.leader()
        witnesses = Witnesses(cluster.settings(1), node, PLAINTEXT, cluster.failures.append)
        registration = RegisterBrokerRecord(
            broker_id=BROKER,
            is_migrating_zk_broker=True,
            incarnation_id=some_uuid(BROKER),
            broker_epoch=node.storage.log.end_offset() + 1,
            end_points=(Endpoint("PLAINTEXT", "127.0.0.1", broker.port, 0),),
            features=(),
            rack=None,
            fenced=False,
            log_dirs=(some_uuid(BROKER + 1),),
        )
        epoch = node.controller.check_active()
        records = (ZkMigrationStateRecord(ZkMigrationState.MIGRATION), registration)
        last = await node.controller.append(epoch, records)
        await node.metadata.stable(last)
        try:
            yield node, witnesses
        finally:
            await witnesses.close()


def beats(node: NodeCore) -> bool:
    """The broker's heartbeats come."""
    node.keeper.sessions.heard(BROKER, node.metadata.image.cluster.brokers[BROKER].epoch, monotonic_ms())
    return True


async def until_proven(node: NodeCore, witnesses: Witnesses) -> None:
    """The leader has led long enough since now."""
    now_ms = monotonic_ms()
    await until(lambda: beats(node) and witnesses._evidence.covers(now_ms), "two sessions of a leader have passed")


def take_over(node: NodeCore, witnesses: Witnesses) -> None:
    """Become the leader of a broker whose heartbeats hang elsewhere."""
    node.keeper.begin(node.metadata.image)
    witnesses.became_active(node.controller.check_active(), node.metadata.published)


def is_graced(node: NodeCore) -> bool:
    return node.keeper.sessions.is_graced(node.metadata.image.cluster.brokers[BROKER], monotonic_ms())


def is_fenced(node: NodeCore) -> bool:
    return node.metadata.image.cluster.brokers[BROKER].fenced


async def test_a_broker_that_answers_is_fenced_when_it_dies(tmp_path: Path) -> None:
    broker = Broker()
    await broker.start()
    async with leading(tmp_path, broker) as (node, witnesses):
        await until(lambda: beats(node) and broker.is_connected, "the connection is there")
        await until_proven(node, witnesses)
        take_over(node, witnesses)
        await until(lambda: is_graced(node), "answers count")
        assert not is_fenced(node)
        await broker.die()
        await until(lambda: is_fenced(node), "it is fenced")


async def test_answers_count_before_all_topics_were_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 2,000,000 partitions and a busy loop the look took longer than a session: brokers that lived were fenced."""
    broker = Broker()
    await broker.start()
    async with leading(tmp_path, broker) as (node, witnesses):
        await until(lambda: beats(node) and broker.is_connected, "the connection is there")
        witnesses.lost_leadership(node.controller.check_active())
        await until(lambda: beats(node) and not witnesses._asks.is_set(), "no answer counts")
        await until_proven(node, witnesses)
        monkeypatch.setattr(module, "replaceable", lambda *_: itertools.repeat(None))
        take_over(node, witnesses)
        await until(lambda: is_graced(node) or is_fenced(node), "the session is over")
        assert not is_fenced(node)
    await broker.die()


async def test_a_process_that_takes_the_place_of_a_broker_is_no_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.01)
    broker, other = Broker(), Broker()
    await broker.start()
    async with leading(tmp_path, broker) as (node, witnesses):
        await until(lambda: beats(node) and broker.is_connected, "the connection is there")
        await until_proven(node, witnesses)
        await broker.die()
        await other.start(broker.port)
        await until(lambda: beats(node) and other.is_connected, "the next connection is there")
        take_over(node, witnesses)
        await until(lambda: is_graced(node) or is_fenced(node), "the session is over")
        assert is_fenced(node)
    await other.die()


async def test_records_of_an_earlier_leader_show_no_leader_that_goes_on(tmp_path: Path) -> None:
    """A new leader publishes them for as long as it is behind, and fences nobody meanwhile."""
    broker = Broker()
    await broker.start()
    async with leading(tmp_path, broker) as (node, witnesses):
        now = node.metadata.published
        earlier = replace(now, provenance=replace(now.provenance, epoch=now.provenance.epoch - 1))
        for image, is_proof in ((earlier, False), (now, True)):
            witnesses._evidence = Evidence(0)
            witnesses._published(ImageDelta(image, image, Changes()))
            assert witnesses._evidence.covers(0) is is_proof
    await broker.die()
