"""Damaged requests of every API at one listener: its process lives, and honest clients are served."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import Any

from migrator.wire.client import KafkaClient
from migrator.wire.requests import RequestContext
from migrator.wire.schemas import CONTROLLER_APIS, build, request_type, response_type
from migrator.wire.server import KafkaListener
from tests.patience import PATIENCE_SECONDS
from tests.wire.support.messages import damaged_frame

CONNECTIONS = 400
AT_ONCE = 20
HEARTBEAT = 63


class Polite:
    """Answers everything."""

    async def handle(self, context: RequestContext, body: Any) -> Any:
        return build(response_type(context.api_key, context.api_version))


async def bother(port: int, source: random.Random) -> None:
    """A connection that sends a few frames, takes what comes, and hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with contextlib.suppress(ConnectionError):
        for _ in range(source.randint(1, 4)):
            writer.write(damaged_frame(source))
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await reader.read(65536):
                pass
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def fuzz(seed: int, connections: int) -> KafkaListener:
    """Bother a listener; one honest client must be served over one connection from start to end."""
    listener = KafkaListener("CONTROLLER", Polite())
    port = await listener.start("127.0.0.1", 0)
    honest = KafkaClient("127.0.0.1", port, "honest")
    try:
        heartbeat = build(request_type(HEARTBEAT, 1))
        await honest.request(heartbeat, 30)
        connection = honest.connection
        for first in range(0, connections, AT_ONCE):
            sources = [random.Random(f"{seed}/{number}") for number in range(first, first + AT_ONCE)]
            await asyncio.gather(*(bother(port, source) for source in sources))
            await honest.request(heartbeat, 30)
        assert honest.connection is connection
    finally:
        await honest.close()
        await listener.close(grace=0)
    return listener


async def test_damaged_requests_of_every_api() -> None:
    listener = await fuzz(seed=7, connections=CONNECTIONS)
    # Only the framing and the codec may refuse; whatever else goes wrong would be a bug of ours.
    assert listener.counters.failed == 0
    assert listener.counters.malformed > CONNECTIONS / 10
    assert sum(listener.counters.requests.values()) > CONNECTIONS / 2
    assert len(listener.counters.requests) > len(CONTROLLER_APIS) / 2
