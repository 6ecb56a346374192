"""Length-prefixed frames over asyncio: Kafka's framing, with back-pressure both ways.

A frame is an int32 size and that many bytes. It is read into its own buffer, which grows as bytes arrive, so a size
alone takes no memory. Reading stops while `MAX_WAITING` frames or `MAX_WAITING_BYTES` wait for the reader, and while
the account book (`migrator.wire.book`) has no room for more of the frame. Writing goes in slices, each after the socket
has taken the one before, so the output buffer stays small, too. A peer that sends or takes a frame slower than
`MIN_BYTES_PER_SECOND` after the first `GRACE_SECONDS` is cut off, because the frame holds memory.
"""

from __future__ import annotations

import asyncio
import errno
import math
import re
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any

from migrator.errors import PeerError
from migrator.wire.book import Account, Book, Caller, Charge, Share, Stage

MAX_WAITING = 2
"""The most complete frames that wait for the reader."""
MAX_WAITING_BYTES = 1024 * 1024
"""The limit, in bytes, of waiting frames. At the limit no further frame is read."""
FIRST_BUFFER = 64 * 1024
"""The bytes of a frame's first buffer. A full buffer is doubled, but grows by `LARGEST_STEP` at most."""
LARGEST_STEP = 4 * 1024 * 1024
"""The bound of a buffer's growth: Python fills new memory with zeros, and 50 MB at once blocked the event loop for
50 ms."""
WRITE_SLICE = 256 * 1024
"""Bytes handed to the socket at a time."""
LINGER_SECONDS = 5.0
GRACE_SECONDS = 30.0
"""A frame of any size may take this long, as a request of Kafka's clients may (``request.timeout.ms``)."""
MIN_BYTES_PER_SECOND = 65_536
"""It may take longer only while this many bytes a second arrive, or are taken, on average."""

_SIZE = struct.Struct(">i")


class FrameStream(asyncio.BufferedProtocol):
    """One connection as a stream of frames.

    :param max_frame_bytes: a bigger frame is a `PeerError` (``socket.request.max.bytes``). A change counts from the
        next frame on.
    :param account: the account to which its frames are charged; by default they are not counted.
    :param connected: called with this stream when the connection (TLS included) is open, before any byte is read.
    :param lost: called when the connection has ended.
    """

    def __init__(
        self,
        max_frame_bytes: int,
        connected: Callable[[FrameStream], None] | None = None,
        account: Account | None = None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._account = account or Account(Book(), Caller(Share.BROKERS, self), 0.0)
        self._arriving: Charge | None = None
        self._asked: float | None = None
        """The time since which the arriving frame waits for room; None while it does not wait."""
        self.charge: Charge | None = None
        """The charge of the frame that the reader took last and works on."""
        self._size = 0
        self._began = 0.0
        """When the arriving frame began, on the loop's clock."""
        self._connected = connected
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._head = bytearray(4)
        self._body: bytearray | None = None
        self._granted = 0
        """The bytes of the arriving frame for which the book has granted room."""
        self._filled = 0
        self._noted = 0
        """The bytes of it that had arrived when the peer was last noted as sending."""
        self._frames: deque[tuple[bytearray, Charge]] = deque()
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
        self.done()
        while not self._frames:
            self.check()
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        frame, self.charge = self._frames.popleft()
        if self._asked is None:
            self._began = asyncio.get_running_loop().time()  # a part of the frame may have arrived before the pause
            self._resume()
        return frame

    def done(self) -> None:
        """The reader has finished the frame that it took last. Until then the frame is charged, even after the end of
        the connection: its bytes, and the objects decoded from them, are still in memory."""
        if self.charge is not None:
            self.charge.close()
            self.charge = None

    def close_account(self) -> None:
        """End all charges: no task reads from this stream any more."""
        self.done()
        while self._frames:
            self._frames.popleft()[1].close()

    def check(self) -> None:
        """Return if the connection is open.

        :raises PeerError: the connection was ended for this reason.
        :raises ConnectionError: the connection has ended.
        """
        if self._end is not None:
            raise copy(self._end)  # the traceback of the original would keep its frames in memory with this stream

    def mute(self) -> None:
        """Read nothing until the reader takes the next frame, and release the last one."""
        self.done()
        if self._end is None and self._transport is not None:
            self._transport.pause_reading()

    def is_too_slow(self, now: float) -> bool:
        """Whether the arriving frame takes too long."""
        reading = self._body is not None and not self._frames and self._asked is None
        return reading and now - self._began > GRACE_SECONDS + self._filled / MIN_BYTES_PER_SECOND

    def cut_off(self, reason: str) -> None:
        """Close at once; the reader gets a `PeerError`."""
        self._finish(PeerError(reason))
        self.abort()
        self._let_go()

    async def rest(self, seconds: float) -> None:
        """Wait that long, or until the connection ends. Frames that arrive meanwhile wait, at most `MAX_WAITING`."""
        if seconds > 0 and self._end is None:
            self._rest = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._rest,), timeout=seconds)
            self._rest = None

    async def write(
        self,
        chunks: Sequence[bytes | memoryview],
        progressed: Callable[[], None] = lambda: None,
        most_seconds: float = math.inf,
    ) -> None:
        """Send one frame made of ``chunks``; returns when the socket has taken all of it.

        Only one task may write at a time.

        :param progressed: called when the socket gets another part.
        :param most_seconds: the longest time that a frame of any size may take.
        :raises ConnectionError: the connection has ended.
        :raises TimeoutError: the peer takes it too slowly.
        """
        size = sum(map(len, chunks))
        patience = min(GRACE_SECONDS + size / MIN_BYTES_PER_SECOND, most_seconds)
        deadline = asyncio.get_running_loop().time() + patience
        for part in slices((_SIZE.pack(size), *chunks)):
            progressed()
            self._check_writable().write(part)
            if self._write_paused:
                async with asyncio.timeout_at(deadline):
                    await self._taken()
            self._check_writable()
            if len(part) > WRITE_SLICE // 2:
                await asyncio.sleep(0)  # otherwise a peer that reads fast enough would keep the loop to itself

    async def _taken(self) -> None:
        """Wait until the socket has taken everything that was written."""
        while self._write_paused and self._end is None:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    def _check_writable(self) -> asyncio.Transport:
        self.check()
        if self._transport is None:
            raise ConnectionResetError("connection closed")
        return self._transport

    def info(self, name: str) -> Any:
        """Like `asyncio.BaseTransport.get_extra_info`."""
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
        transport.set_write_buffer_limits(high=1)  # writing pauses while the socket has not taken everything
        self._transport = transport
        if self._connected is not None:
            self._connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the loop's signature)
        if self._body is None:
            return memoryview(self._head)[self._filled :]
        # Only here: in `buffer_updated` the loop still holds a view of the buffer, so it cannot be resized there.
        self._body += bytes(self._granted - len(self._body))
        return memoryview(self._body)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._body is None and self._filled == len(self._head):
            (size,) = _SIZE.unpack(self._head)
            if not 0 < size <= self.max_frame_bytes:
                self.cut_off(f"frame of {size} bytes; at most {self.max_frame_bytes} are accepted")
                return
            self._size, self._filled = size, 0
            self._began = asyncio.get_running_loop().time()
            self._body, self._granted = bytearray(), 0
            self._arriving = self._account.open(self.cut_off)
            self._grow(self._arriving)
        elif self._body is not None and self._arriving is not None and self._filled == self._size:
            self._arriving.arrived()
            self._frames.append((self._body, self._arriving))
            self._body, self._arriving, self._filled = None, None, 0
            waiting = sum(len(frame) for frame, _ in self._frames)
            if self._transport is not None and (len(self._frames) >= MAX_WAITING or waiting >= MAX_WAITING_BYTES):
                self._transport.pause_reading()
            self._wake(self._reader)
        elif self._arriving is not None and self._filled == self._granted:
            self._grow(self._arriving)
        elif self._arriving is not None and self._filled - self._noted >= WRITE_SLICE:
            self._noted = self._filled
            self._arriving.handed()  # the same limit of speed as for the peer that reads an answer

    def _grow(self, charge: Charge) -> None:
        """Enlarge the buffer of the arriving frame. Reading stops until the book has room for it."""
        size = min(self._size, self._granted + min(max(FIRST_BUFFER, self._granted), LARGEST_STEP))

        def granted() -> None:
            self._granted, self._noted = size, self._filled
            charge.handed()
            if self._asked is not None:
                self._began += asyncio.get_running_loop().time() - self._asked
                self._asked = None
                self._resume()

        charge.move(Stage.READING, size, granted)
        if self._granted < size:
            self._asked = asyncio.get_running_loop().time()
            if self._transport is not None:
                self._transport.pause_reading()

    def _resume(self) -> None:
        if self._end is None and self._transport is not None:
            self._transport.resume_reading()

    def _let_go(self) -> None:
        """Release the arriving frame at the end of the connection. Frames that wait or are worked on stay charged."""
        self._body = None
        if self._arriving is not None:
            self._arriving.close()
            self._arriving = None

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._wake(self._writer)

    def connection_lost(self, exc: Exception | None) -> None:
        # A new exception: the traceback of this one leads to the written answer and would keep it in memory.
        self._finish(ConnectionResetError(str(exc or "closed by the peer")))
        self._let_go()
        self._lost()

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


def slices(chunks: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes in parts of at most `WRITE_SLICE`: small chunks are joined, big ones are cut without a copy."""
    if 0 < sum(map(len, chunks)) <= WRITE_SLICE:
        yield b"".join(chunks)
        return
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
    """Connect to a peer. With TLS its certificate must have the name ``host``, if the context checks names.

    :raises OSError: the connection failed (`ssl.SSLError` for TLS).
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


_ERROR_NUMBER = re.compile(r"\[Errno (\d+)\]")
_NO_WAY = frozenset((errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EAFNOSUPPORT))
"""Errors of a machine without a route to that kind of address, such as IPv6. They say nothing of the peer."""


def nobody_listens(error: OSError) -> bool:
    """Whether the peer's host has refused the connection, so that no process listens there. For a name with several
    addresses asyncio raises one error that has only the texts of all errors."""
    numbers = {int(number) for number in _ERROR_NUMBER.findall(str(error))} if error.errno is None else {error.errno}
    return errno.ECONNREFUSED in numbers and numbers <= _NO_WAY | {errno.ECONNREFUSED}
