"""Length-prefixed frames over asyncio: Kafka's framing, with back-pressure both ways.

A frame is an int32 size and as many bytes. Each is read straight into its own buffer, which grows as bytes arrive:
the four bytes of a size cost nothing. Reading stops while frames wait, so a peer can make us hold `MAX_WAITING` frames,
or `MAX_WAITING_BYTES` of them; and while the account book (`migrator.wire.book`) has no room for more of a frame.
Writing goes in slices, each when the socket has the one before, so the output buffer stays small as well. Who sends or
takes a frame slower than `MIN_BYTES_PER_SECOND` after the first `GRACE_SECONDS` keeps our memory for itself, and is cut
off.
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
"""Complete frames that may wait for the reader."""
MAX_WAITING_BYTES = 1024 * 1024
"""From so many on, no frame is read behind those that wait."""
FIRST_BUFFER = 64 * 1024
"""Bytes of a frame's first buffer; it is doubled whenever it is full, by `LARGEST_STEP` at most."""
LARGEST_STEP = 4 * 1024 * 1024
"""To fill 50 MB with zeros took a turn of the event loop 50 milliseconds."""
WRITE_SLICE = 256 * 1024
"""Bytes handed to the socket at a time."""
LINGER_SECONDS = 5.0
GRACE_SECONDS = 30.0
"""A frame may take so long whatever its size, as a request of Kafka's clients may."""
MIN_BYTES_PER_SECOND = 65_536
"""And longer only while as many bytes come, or are taken, in the mean."""

_SIZE = struct.Struct(">i")


class FrameStream(asyncio.BufferedProtocol):
    """One connection as a stream of frames.

    :param max_frame_bytes: a bigger frame is a `PeerError` (``socket.request.max.bytes``). It may be changed; the
        frame that comes next obeys.
    :param account: on which its frames are; by default nobody counts them.
    :param connected: called with this stream once the connection (TLS included) is there, before any byte is read.
    :param lost: called once it is gone for good.
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
        """Since when the frame that arrives has no room."""
        self.charge: Charge | None = None
        """Of the frame that the reader got last, and works on."""
        self._size = 0
        self._began = 0.0
        """When the frame began that arrives now, on the loop's clock."""
        self._connected = connected
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._head = bytearray(4)
        self._body: bytearray | None = None
        self._granted = 0
        """How many bytes of the frame that arrives have room."""
        self._filled = 0
        self._noted = 0
        """How many of them had come when its sender was last known to send."""
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
            self._began = asyncio.get_running_loop().time()  # of what may have come before the reading stopped
            self._resume()
        return frame

    def done(self) -> None:
        """The reader works no longer on the frame that it got last. Until then the frame counts, even when the
        connection has ended: its bytes, and what was made of them, are still in memory."""
        if self.charge is not None:
            self.charge.close()
            self.charge = None

    def close_account(self) -> None:
        """Nobody reads from this stream any more: it holds nothing."""
        self.done()
        while self._frames:
            self._frames.popleft()[1].close()

    def check(self) -> None:
        """Returns while the connection stands.

        :raises PeerError: it was ended for this reason.
        :raises ConnectionError: it has ended.
        """
        if self._end is not None:
            raise copy(self._end)  # raised itself it would keep what it passes through, for as long as this stream

    def mute(self) -> None:
        """Read nothing more until the next frame is taken, and hold the last one no longer."""
        self.done()
        if self._end is None and self._transport is not None:
            self._transport.pause_reading()

    def is_too_slow(self, now: float) -> bool:
        """Whether the frame that arrives now takes too long."""
        reading = self._body is not None and not self._frames and self._asked is None
        return reading and now - self._began > GRACE_SECONDS + self._filled / MIN_BYTES_PER_SECOND

    def cut_off(self, reason: str) -> None:
        """Close at once; the reader gets a `PeerError`."""
        self._finish(PeerError(reason))
        self.abort()
        self._let_go()

    async def rest(self, seconds: float) -> None:
        """Wait that long, or until the connection ends. What the peer sends meanwhile waits, within `MAX_WAITING`."""
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

        :param progressed: called whenever the socket is handed another part.
        :param most_seconds: that it may take, however big it is.
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
                await asyncio.sleep(0)  # a peer that reads as fast as this would keep everybody else waiting

    async def _taken(self) -> None:
        """By the socket is everything that was written."""
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
        transport.set_write_buffer_limits(high=1)  # whatever the socket does not take pauses the writing
        self._transport = transport
        if self._connected is not None:
            self._connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the loop's signature)
        if self._body is None:
            return memoryview(self._head)[self._filled :]
        # Only here: while the loop tells of what it has read, it still holds a view, and nothing can be resized.
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
            self._arriving.handed()  # it comes as fast as an answer has to be taken

    def _grow(self, charge: Charge) -> None:
        """A bigger buffer for the frame that arrives; nothing is read until there is room for it."""
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
        """Of the frame that arrives: this connection is over. Frames that wait, or are worked on, still count."""
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
        # Another exception: this one has come through the writing of an answer, and would keep all of it.
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
    """The same bytes in fewer parts of at most `WRITE_SLICE`: small chunks are joined, big ones cut without a copy."""
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


_ERROR_NUMBER = re.compile(r"\[Errno (\d+)\]")
_NO_WAY = frozenset((errno.EADDRNOTAVAIL, errno.ENETUNREACH, errno.EAFNOSUPPORT))
"""This machine has no way to an address of that kind, IPv6 for one: it says nothing of the peer."""


def nobody_listens(error: OSError) -> bool:
    """Whether the peer's host has refused the connection, so that no process of it can be behind the port. Of a name
    with several addresses, asyncio raises one error that has only the texts of all."""
    numbers = {int(number) for number in _ERROR_NUMBER.findall(str(error))} if error.errno is None else {error.errno}
    return errno.ECONNREFUSED in numbers and numbers <= _NO_WAY | {errno.ECONNREFUSED}
