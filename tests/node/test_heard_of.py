"""No session of a broker ends because the controller is busy: contact counts when a heartbeat arrives."""

from __future__ import annotations

import asyncio
from pathlib import Path

from migrator.node.node import _listeners
from migrator.node.stop_reason import StopReason
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import CONTROLLER_APIS, build, request_type
from tests.node.support.cluster import CLUSTER_ID, running, until
from tests.node.support.phases import register

BROKER = 1
HEARTBEAT = 63
SECONDS = 60.0


async def test_a_heartbeat_that_waits_for_its_turn_keeps_its_session(tmp_path: Path) -> None:
    async with running(tmp_path, 1) as cluster:
        node = await cluster.leader()
        await register(node, BROKER)
        (listener,) = _listeners(cluster.settings(1), CLUSTER_ID, node, StopReason())
        client = KafkaClient("127.0.0.1", await listener.start("127.0.0.1", 0), "broker")

        def contact_ms() -> int:
            session = node.keeper.sessions.get(BROKER)
            return -1 if session is None else session.last_contact_ms

        async def ask(epoch: int) -> object:
            fields = {"broker_id": BROKER, "broker_epoch": epoch, "current_metadata_offset": 0}
            return await client.request(
                build(request_type(HEARTBEAT, CONTROLLER_APIS[HEARTBEAT].max), **fields), SECONDS
            )

        epoch = node.metadata.published.cluster.brokers[BROKER].epoch
        try:
            async with node.controller._turn:  # somebody decides for a long time
                before = contact_ms()
                asked = asyncio.create_task(ask(epoch))
                await until(lambda: contact_ms() > before, "contact is noted")
                assert not asked.done()
            await asked
            before = contact_ms()
            await ask(epoch + 1)
            assert contact_ms() == before, "another process has the id"
        finally:
            await client.close()
            await listener.close()
