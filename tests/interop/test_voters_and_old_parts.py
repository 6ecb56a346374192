"""Voters in the log among stock parts: a stock voter takes part in the upgrade, brokers before 3.9 stay outside."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from migrator.drill.cluster import CLUSTER_ID
from migrator.drill.kafka.clients import Traffic, consume
from migrator.drill.kafka.cluster import BROKER_JVM
from migrator.parts.kafka import KafkaRelease, StockKafka, StockNode
from migrator.parts.processes import free_port
from tests.interop.support.changing_voters import ChangingVoters, Writers
from tests.interop.support.cluster import Admin
from tests.interop.support.mixed_voters import Brokers, MixedVoters, voters_of
from tests.patience import PATIENCE_SECONDS

TOPIC = "orders"
STOCK = 3
MORE_WRITES = 50
CLIENTS = 4


@pytest.mark.lane("test-long")
async def test_configured_voters_with_a_stock_one_among_them_are_upgraded_under_writes(tmp_path: Path) -> None:
    stock, newer = (KafkaRelease(version).fetch() for version in ("3.9.1", "4.1.1"))
    quorum = MixedVoters(tmp_path, stock, size=4, stock=STOCK, configured=True)
    brokers = Brokers(tmp_path, (stock, newer), quorum.servers, quorum.named)
    try:
        await asyncio.to_thread(quorum.format_and_start)
        await quorum.until_caught_up()
        await asyncio.to_thread(brokers.start)
        await asyncio.to_thread(lambda: Admin(brokers.bootstrap, 2).create(TOPIC, 2, 2))
        writers, traffic = Writers(quorum, CLIENTS), Traffic(brokers.bootstrap, TOPIC)
        await asyncio.to_thread(traffic.start)
        try:
            await quorum.until(lambda _: len(writers.acknowledged) > MORE_WRITES)
            await quorum.until_ours_leads(writers)
            await quorum.until_caught_up()  # the stock voter led perhaps, and was killed: each voter has to answer
            assert "The voters are in the log now" in await quorum.order("upgrade")
            await stock_leads_alone_with(1, quorum, writers)
            await quorum.until_ours_leads(writers)
            await quorum.reassign(1, 2, 4)
            await quorum.until(lambda found: voters_of(found) == {1, 2, 4})
            await asyncio.to_thread(quorum.controllers[STOCK].stop)
            written, sent = len(writers.acknowledged), len(traffic.acknowledged)
            await quorum.until(
                lambda _: len(writers.acknowledged) > written + MORE_WRITES and len(traffic.acknowledged) > sent
            )
        finally:
            await writers.end()
            await asyncio.to_thread(traffic.stop)
        assert writers.lost(await quorum.image()) == []
        assert traffic.errors == []
        values = await asyncio.to_thread(consume, brokers.bootstrap, TOPIC, "auditors", traffic.sent)
        assert sorted(map(int, values)) == list(range(traffic.sent))
        print(  # noqa: T201 - shown with -rP
            f"{len(writers.acknowledged)} writes acknowledged, 0 lost; {traffic.sent} records of brokers 3.9.1 and "
            f"4.1.1, 0 lost"
        )
    finally:
        await asyncio.to_thread(brokers.close)
        await asyncio.to_thread(quorum.close)


async def stock_leads_alone_with(node: int, quorum: MixedVoters, writers: Writers) -> None:
    """The stock voter restarts on the log with voters in it, and is needed for each write: one of three is away."""
    await asyncio.to_thread(quorum.stock_voter.kill)
    await asyncio.to_thread(quorum.stock_voter.start)
    await quorum.until_caught_up()
    await asyncio.to_thread(quorum.controllers[node].kill)
    written = len(writers.acknowledged)
    await quorum.until(lambda found: found.leader_id != node and len(writers.acknowledged) > written + MORE_WRITES)
    await asyncio.to_thread(quorum.controllers[node].start)
    await quorum.until_caught_up()


@pytest.mark.lane("test-long")
@pytest.mark.parametrize("version", ["3.6.2", "3.8.1"])
async def test_a_broker_before_3_9_gets_no_record_of_a_log_with_voters_in_it(tmp_path: Path, version: str) -> None:
    quorum = ChangingVoters(tmp_path, size=1, voters=1)
    old, today = (KafkaRelease(each).fetch() for each in (version, "3.9.1"))
    brokers = Brokers(tmp_path, (today,), f"127.0.0.1:{quorum.ports[1]}")
    old_broker = old_one(old, tmp_path, quorum.ports[1])
    try:
        await asyncio.to_thread(quorum.format_and_start)
        await quorum.until_caught_up()
        leader = (await quorum.until(lambda _: True)).leader_epoch
        await asyncio.to_thread(old_broker.format, CLUSTER_ID)
        old_broker.launch()
        await asyncio.to_thread(
            old_broker.process.wait_for_output, "UNSUPPORTED_VERSION", timeout_seconds=PATIENCE_SECONDS
        )
        await asyncio.to_thread(brokers.start)  # one of today comes in meanwhile
        await asyncio.to_thread(lambda: Admin(brokers.bootstrap, 1).create(TOPIC, 1, 1))
        segments = list(old_broker.directory.rglob("__cluster_metadata-0/*.log"))
        assert [segment.stat().st_size for segment in segments] in ([], [0])
        assert set((await quorum.image()).cluster.brokers) == {101}
        assert (await quorum.until(lambda _: True)).leader_epoch == leader
    finally:
        await asyncio.to_thread(old_broker.kill)
        await asyncio.to_thread(brokers.close)
        await asyncio.to_thread(quorum.close)


def old_one(kafka: StockKafka, directory: Path, controller_port: int) -> StockNode:
    properties = {
        "process.roles": "broker",
        "node.id": "7",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    return kafka.node("old broker", directory / "old-broker", properties, jvm=BROKER_JVM)
