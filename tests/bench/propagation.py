"""How long after its acknowledgement a change is known to the last broker: single topics, one after the other."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

from kio.schema.errors import ErrorCode

from migrator.config.endpoints import parse_host_port
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import UPDATE_METADATA, build, request_type
from tests.bench.quiet_broker import QuietBroker

CHANGES = 50
REAL_CHANGES = 20
METADATA, METADATA_VERSION = 3, 12
PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.001


async def measure(create: Callable[[str], Awaitable[None]], brokers: Sequence[QuietBroker]) -> dict[str, float]:
    """Figures in ms; what is known before the acknowledgement counts as 0.

    :param create: makes a topic of that name and returns when it is acknowledged.
    :raises TimeoutError: a broker hears nothing of a change.
    """
    waits = [await _one(f"told-{number:03}", create, brokers) for number in range(CHANGES)]
    return {"told_ms": 1000 * statistics.median(waits), "told_max_ms": 1000 * max(waits)}


async def _one(name: str, create: Callable[[str], Awaitable[None]], brokers: Sequence[QuietBroker]) -> float:
    before = [len(broker.heard) for broker in brokers]
    await create(name)
    acknowledged = time.monotonic()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while None in (told := [_update_after(broker, start) for broker, start in zip(brokers, before, strict=True)]):
            await asyncio.sleep(LOOK_SECONDS)
    return max(0.0, max(at for at in told if at is not None) - acknowledged)


def _update_after(broker: QuietBroker, start: int) -> float | None:
    """When the broker heard its first UpdateMetadata behind the first ``start`` requests."""
    return next((heard.at for heard in broker.heard[start:] if heard.api_key == UPDATE_METADATA), None)


async def measure_real(create: Callable[[str], None], bootstrap: str, prefix: str) -> float:
    """The median in ms until every real broker names the new topic to a client that asks it again and again.

    :param create: makes a topic of that name, blocking, and returns when it is acknowledged.
    :param bootstrap: every broker, as ``host:port`` between commas.
    """
    addresses = [parse_host_port(address) for address in bootstrap.split(",")]
    brokers = [KafkaClient(host, port, "bench") for host, port in addresses]
    waits = []
    try:
        for number in range(REAL_CHANGES):
            name = f"{prefix}-{number:03}"
            await asyncio.to_thread(create, name)
            acknowledged = time.monotonic()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*(_until_known(broker, name) for broker in brokers))
            waits.append(time.monotonic() - acknowledged)
    finally:
        for broker in brokers:
            await broker.close()
    return 1000 * statistics.median(waits)


async def _until_known(broker: KafkaClient, name: str) -> None:
    request = build(request_type(METADATA, METADATA_VERSION), topics=({"name": name},), allow_auto_topic_creation=False)
    while (await broker.request(request, PATIENCE_SECONDS)).topics[0].error_code is not ErrorCode.none:
        await asyncio.sleep(LOOK_SECONDS)
