"""A link with a delay: a proxy that holds back the bytes in both directions.

Tests count round trips with it, instead of measuring time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SlowLink:
    """Every connection to ``port`` goes to ``target``, ``delay`` seconds late each way. ``turns`` counts how often it
    was the client's turn to speak again, which is how many round trips it waited for."""

    def __init__(self, target: int, delay: float) -> None:
        self._target = target
        self._delay = delay
        self._client_spoke = False
        self._ends: list[asyncio.StreamWriter] = []
        self.port = 0
        self.turns = 0
        self.connections = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        self.connections += 1
        there, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._ends += [writer, back]
        await asyncio.gather(
            self._pass_on(reader, back, from_client=True), self._pass_on(there, writer, from_client=False)
        )

    async def close(self) -> None:
        """Cut every connection."""
        for end in self._ends:
            end.transport.abort()
        await asyncio.gather(*(end.wait_closed() for end in self._ends), return_exceptions=True)

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, from_client: bool) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await source.read(65_536):
                self.turns += from_client and not self._client_spoke
                self._client_spoke = from_client
                loop.call_later(self._delay, _write, sink, data)
        except ConnectionError:
            pass
        loop.call_later(self._delay, sink.close)


def _write(sink: asyncio.StreamWriter, data: bytes) -> None:
    if not sink.is_closing():
        sink.write(data)


@asynccontextmanager
async def slow_link(target: int, delay: float) -> AsyncIterator[SlowLink]:
    link = SlowLink(target, delay)
    server = await asyncio.start_server(link.carry, "127.0.0.1", 0)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        server.close()
        await link.close()
