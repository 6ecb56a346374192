"""How long tests wait for what has to come: they end earlier when it comes, and it comes late on a machine in use."""

import asyncio
import time
from collections.abc import Callable

PATIENCE_SECONDS = 300.0
PAUSE_SECONDS = 0.01


def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Ask again and again, until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(PAUSE_SECONDS)


async def eventually(condition: Callable[[], object]) -> None:
    """`until`, while the event loop goes on."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():
            await asyncio.sleep(PAUSE_SECONDS / 10)
