"""How long after its acknowledgement a change is known to the last broker: single topics, one after the other."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

from migrator.wire.schemas import UPDATE_METADATA
from tests.bench.quiet_broker import QuietBroker

CHANGES = 50
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
