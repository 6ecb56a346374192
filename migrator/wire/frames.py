"""Length-prefixed frames over asyncio: Kafka's framing, with back-pressure both ways.

A frame is an int32 size and as many bytes. Each is read straight into its own buffer, whose memory the system
hands out only as bytes arrive; reading stops while frames wait, so a peer can make us hold `MAX_WAITING` frames
and no more. Writing waits whenever the socket does, in slices, so the output buffer stays small as well.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from migrator.errors import PeerError

MAX_WAITING = 2
"""Complete frames that may wait for the reader."""
WRITE_SLICE = 256 * 1024
"""Bytes handed to the socket at a time, and the output buffer's high mark."""
LINGER_SECONDS = 5.0

_SIZE = struct.Struct(">i")


class FrameStream(asyncio.BufferedProtocol):
    """One connection as a stream of frames.

    :param max_frame_bytes: a bigger frame is a `PeerError` (``socket.request.max.bytes``). It may be changed; the
        frame that comes next obeys.
    :param connected: called with this stream once the connection (TLS included) is there.
    """

    def __init__(self, max_frame_bytes: int, connected: Callable[[FrameStream], None] | None = None) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._connected = connected
        self._transport: asyncio.Transport | None = None
        self._head = bytearray(4)
        self._body: bytearray | None = None
        self._filled = 0
        self._frames: deque[bytearray] = deque()
        self._end: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._rest: asyncio.Future[None] | None = None
        self._write_paused = False

    # --- called by the reader and the writer ---

    async def read(self) -> bytearray:
        """The next frame, without its size.

        :raises PeerError: the peer sent a negative or too big size.
        :raises ConnectionError: the connection has ended.
        """
        while not self._frames:
            if self._end is not None:
                raise self._end
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        frame = self._frames.popleft()
        if self._end is None and self._transport is not None:
            self._transport.resume_reading()
        return frame

    async def rest(self, seconds: float) -> None:
        """Wait that long, or until the connection ends. What the peer sends meanwhile waits, within `MAX_WAITING`."""
        if seconds > 0 and self._end is None:
            self._rest = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._rest,), timeout=seconds)
            self._rest = None

    async def write(self, chunks: Sequence[bytes | memoryview]) -> None:
        """Send one frame made of ``chunks``; returns when the socket has taken all but a small rest.

        Only one task may write at a time.

        :raises ConnectionError: the connection has ended.
        """
        head = _SIZE.pack(sum(map(len, chunks)))
        for part in slices((head, *chunks)):
            await self._write(part)
            if len(part) > WRITE_SLICE // 2:
                await asyncio.sleep(0)  # a peer that reads as fast as this would keep everybody else waiting

    async def _write(self, data: bytes | memoryview) -> None:
        while self._write_paused and self._end is None:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        if self._end is not None or self._transport is None:
            raise self._end if isinstance(self._end, ConnectionError) else ConnectionResetError("connection closed")
        self._transport.write(data)

    def info(self, name: str) -> Any:
        """As `asyncio.BaseTransport.get_extra_info`."""
        return None if self._transport is None else self._transport.get_extra_info(name)

    @property
    def ended(self) -> bool:
        """Whether the connection is gone, or broken by a bad frame."""
        return self._end is not None

    def close(self) -> None:
        """Close once the output buffer is sent, or after `LINGER_SECONDS` if the peer does not take it."""
        if self._transport is not None:
            self._transport.close()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.abort)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("frames need a stream transport")
        transport.set_write_buffer_limits(high=WRITE_SLICE)
        self._transport = transport
        if self._connected is not None:
            self._connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the loop's signature)
        return memoryview(self._head if self._body is None else self._body)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._body is None and self._filled == len(self._head):
            (size,) = _SIZE.unpack(self._head)
            if not 0 < size <= self.max_frame_bytes:
                self._finish(PeerError(f"frame of {size} bytes; at most {self.max_frame_bytes} are accepted"))
                self.abort()
                return
            self._body, self._filled = bytearray(size), 0
        elif self._body is not None and self._filled == len(self._body):
            self._frames.append(self._body)
            self._body, self._filled = None, 0
            if len(self._frames) >= MAX_WAITING and self._transport is not None:
                self._transport.pause_reading()
            self._wake(self._reader)

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._wake(self._writer)

    def connection_lost(self, exc: Exception | None) -> None:
        ended = exc if isinstance(exc, ConnectionError) else ConnectionResetError(str(exc or "closed by the peer"))
        self._finish(ended)

    def _finish(self, reason: Exception) -> None:
        if self._end is None:
            self._end = reason
        self._wake(self._reader)
        self._wake(self._writer)
        self._wake(self._rest)

    @staticmethod
    def _wake(waiter: asyncio.Future[None] | None) -> None:
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def slices(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes in fewer parts of at most `WRITE_SLICE`: small chunks are joined, big ones cut without a copy."""
    small: list[bytes | memoryview] = []
    size = 0
    for chunk in chunks:
        if size + len(chunk) > WRITE_SLICE and small:
            yield b"".join(small)
            small, size = [], 0
        if len(chunk) <= WRITE_SLICE:
            small.append(chunk)
            size += len(chunk)
            continue
        view = memoryview(chunk)
        for start in range(0, len(view), WRITE_SLICE):
            yield view[start : start + WRITE_SLICE]
    if small:
        yield b"".join(small)


async def open_stream(host: str, port: int, max_frame_bytes: int, tls: ssl.SSLContext | None = None) -> FrameStream:
    """Connect to a peer; with TLS its certificate must bear the name ``host``, if the context checks names.

    :raises OSError: no connection (`ssl.SSLError` when TLS failed).
    """
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(
        lambda: FrameStream(max_frame_bytes),
        host,
        port,
        ssl=tls,
        server_hostname=host if tls else None,
    )
    return stream
