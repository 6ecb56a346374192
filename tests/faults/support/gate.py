"""A relay between one controller and ZooKeeper that stops at the request that a test names, or is cut.

A test stops it before a request, and cuts it there or lets it pass. So each moment of a claim, a copy and a write can
be tried.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from typing import Self

from migrator.values import value

MULTI, MULTI_READ, CONNECT = 14, 22, 0
MAX_FRAME = 64 * 1024 * 1024


@value
class Request:
    """One request of a client. ``connection`` numbers the client's connections from 1; ``operation`` is ZooKeeper's
    number of the operation, `CONNECT` for the first frame."""

    connection: int
    operation: int
    body: bytes

    def names(self, path: str) -> bool:
        """Whether that path, and not just a longer one, is in it."""
        data = path.encode()
        start = self.body.find(data)
        while start >= 0:
            length = self.body[: start + len(data)]
            if any(length.endswith(struct.pack(">i", size) + length[-size:]) for size in _lengths(length, data)):
                return True
            start = self.body.find(data, start + 1)
        return False

    @property
    def claims(self) -> bool:
        """Whether it takes `/controller`: the one multi that names all three znodes."""
        return self.operation == MULTI and self.names("/controller") and self.names("/migration")

    @property
    def marks(self) -> bool:
        """Whether it writes metadata, or how far they are: every multi under the claim."""
        return self.operation == MULTI and self.names("/migration") and not self.names("/controller")


def _lengths(before: bytes, data: bytes) -> range:
    """Lengths of a path that ends here: its chroot may come first."""
    return range(len(data), min(len(before), len(data) + 64) + 1)


class Gate:
    """Listens on a port of its own; an async context manager."""

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._server = (host, int(port))
        self._listener: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._count = 0
        self._cut = False
        self._trap: Callable[[Request], bool] | None = None
        self._then: Callable[[], None] = _nothing
        self._open = asyncio.Event()
        self._open.set()
        self.reached = asyncio.Event()
        """Set when the request that `stop_at` waits for is there; neither it nor anything later has passed."""
        self.requests: list[Request] = []
        """The bytes that have come, in order."""

    @property
    def hosts(self) -> str:
        assert self._listener is not None
        return f"127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        self._listener.close()
        self.cut()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._listener.wait_closed()

    @property
    def claimed(self) -> bool:
        """Whether the cluster was claimed through this gate since `stop_at`."""
        return any(request.claims for request in self.requests)

    @property
    def reads_since_claim(self) -> int:
        """How many multiReads have come since the last claim."""
        last = max(index for index, request in enumerate(self.requests) if request.claims)
        return sum(request.operation == MULTI_READ for request in self.requests[last:])

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    def opened(self, connection: int) -> bool:
        """Whether that connection is a worker's: the controller's own is older."""
        return connection > min((request.connection for request in self.requests), default=connection)

    def stop_at(self, trap: Callable[[Request], bool], then: Callable[[], None] | None = None) -> None:
        """From the first request on for which that holds, let nothing pass. What waits already waits for `release`.

        :param then: called as that request comes, before anything else can.
        """
        self.reached.clear()
        self.requests.clear()
        self._trap = trap
        self._then = then or _nothing

    def release(self) -> None:
        """Let everything pass that waits, and what follows up to the next trap."""
        self._open.set()

    def go_on(self) -> None:
        """Let everything pass that waits, and what follows."""
        self._trap = None
        self.release()

    def cut(self) -> None:
        """End all connections, and refuse new ones until `mend`."""
        self._cut = True
        self.go_on()
        for connection in self._connections:
            connection.cancel()

    def mend(self) -> None:
        """Undo `cut`."""
        self._cut = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._count += 1
        try:
            if not self._cut:
                await self._relay(self._count, reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _relay(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(*self._server)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._requests(number, reader, to_server))
                group.create_task(_copy(from_server, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            to_server.transport.abort()

    async def _requests(self, number: int, reader: asyncio.StreamReader, to_server: asyncio.StreamWriter) -> None:
        first = True
        while True:
            head = await reader.readexactly(4)
            (size,) = struct.unpack(">i", head)
            assert 0 <= size < MAX_FRAME
            body = await reader.readexactly(size)
            request = Request(number, CONNECT if first else struct.unpack_from(">i", body, 4)[0], body)
            first = False
            await self._pass(request)
            to_server.write(head + body)
            await to_server.drain()

    async def _pass(self, request: Request) -> None:
        """Return when it may go on."""
        if self._trap is not None:
            self.requests.append(request)
            if self._open.is_set() and self._trap(request):
                self._open.clear()
                self.reached.set()
                self._then()
        await self._open.wait()


def _nothing() -> None:
    """Where nothing follows."""


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
    raise asyncio.IncompleteReadError(b"", 1)
