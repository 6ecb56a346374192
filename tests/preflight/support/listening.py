"""A listener of Kafka's protocol on a thread of its own, beside commands that ask it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from migrator.wire.schemas import VersionRange
from migrator.wire.server import KafkaListener
from tests.patience import PATIENCE_SECONDS


@contextmanager
def listening(handler: Any, apis: Mapping[int, VersionRange]) -> Iterator[int]:
    """The port.

    :param apis: what it says that it serves.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def run(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE_SECONDS)

    async def make() -> tuple[KafkaListener, int]:
        listener = KafkaListener("PLAINTEXT", handler, apis=apis)
        return listener, await listener.start("127.0.0.1", 0)

    listener, port = run(make())
    try:
        yield port
    finally:
        run(listener.close(grace=0.0))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_SECONDS)
        loop.close()
