"""Readers of the controllers' published images: they must see the copy as a whole or not at all."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

from kio.schema.errors import ErrorCode

from migrator.raft.transport import TransportError
from migrator.wire.client import KafkaClient
from migrator.wire.schemas import build, request_type

DESCRIBE_CONFIGS = (32, 4)
TOPIC, BROKER = 2, 4
PAUSE_SECONDS = 0.01


class Readers:
    """Asks every controller for the same things again and again; an async context manager.

    :param topics: topics of the copy. The brokers' default configuration, which is copied after them, is asked for too.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], topics: Sequence[str]) -> None:
        self.seen: Counter[tuple[bool, ...]] = Counter()
        """The values found, in the order asked for, and how often."""
        self._clients = [KafkaClient(host, port, "reader") for host, port in addresses]
        resources = [
            *({"resource_type": TOPIC, "resource_name": name, "configuration_keys": None} for name in topics),
            {"resource_type": BROKER, "resource_name": "", "configuration_keys": None},
        ]
        self._request = build(request_type(*DESCRIBE_CONFIGS), resources=resources)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._read(client)) for client in self._clients]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            await client.close()

    @property
    def partial(self) -> list[tuple[bool, ...]]:
        """Answers that had some of it, but not all."""
        return [seen for seen in self.seen if len(set(seen)) > 1]

    async def _read(self, client: KafkaClient) -> None:
        while True:
            try:
                answer = await client.request(self._request, timeout=2.0)
            except TransportError:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self.seen[tuple(map(_is_there, answer.results))] += 1
                await asyncio.sleep(PAUSE_SECONDS)


def _is_there(result: Any) -> bool:
    if result.resource_type == TOPIC:
        return bool(result.error_code is ErrorCode.none)
    return bool(result.configs)
