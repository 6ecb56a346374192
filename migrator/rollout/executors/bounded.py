"""Runs one command to its end, bounded in time and output, in a separate process group. A file that it prints is
bounded, too, and checked against the digest in its first line."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from migrator.rollout.executors.scripts import DIGEST_LINE
from migrator.values import value

CHUNK_BYTES = 1 << 16
DRAIN_SECONDS = 2.0
"""How long to wait for output after the command has ended. A process that it left running may hold the pipe for
ever."""
END_SECONDS = 5.0
POLL_SECONDS = 0.01
ERRORS_MAX = 1 << 16


class CommandTimeoutError(Exception):
    """The command was still running, and was killed with its process group."""


class Sink(Protocol):
    """Takes the output piece by piece; it may wait for a disk, but for nothing else. An exception from it ends the
    command."""

    def begin(self) -> None:
        """A command begins; forget the output of an earlier one."""

    def add(self, chunk: bytes) -> None: ...


@value
class Ended:
    """``output`` and ``errors``: the last bytes of the two streams. ``whole``: ``output`` is complete."""

    exit_code: int
    output: bytes
    errors: bytes
    whole: bool


class _Tail:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self.dropped = False

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size > self._limit:
            self.dropped = True
            first = self._chunks.popleft()
            over = self._size - self._limit
            self._size -= len(first)
            if over < len(first):
                self._chunks.appendleft(first[over:])
                self._size += len(first) - over

    def content(self) -> bytes:
        return b"".join(self._chunks)


async def run_bounded(
    words: Sequence[str], *, stdin: bytes | None, seconds: float, output_max: int, sink: Sink | None = None
) -> Ended:
    """Run a command.

    :param stdin: its standard input; None: empty.
    :param seconds: the time limit.
    :param output_max: the most bytes of each stream that are kept.
    :param sink: takes all the output; ``output`` is empty then.
    :raises OSError: it cannot be started.
    :raises CommandTimeoutError: it did not end in time.
    """
    if sink is not None:
        sink.begin()
    process = await asyncio.create_subprocess_exec(
        *words,
        stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    output, errors = _Tail(output_max), _Tail(ERRORS_MAX)
    streams = [
        asyncio.create_task(_read(process.stdout, sink or output)),
        asyncio.create_task(_read(process.stderr, errors)),
        asyncio.create_task(_write(process.stdin, stdin)),
    ]
    try:
        async with asyncio.timeout(seconds):
            code = await _ended(process, streams[0])
        await asyncio.wait(streams, timeout=DRAIN_SECONDS)
        _raise_what_failed(streams[0])
        return Ended(code, output.content(), errors.content(), streams[0].done() and not output.dropped)
    except TimeoutError as error:
        raise CommandTimeoutError from error
    finally:
        await _end(process, streams)


async def _ended(process: asyncio.subprocess.Process, reading: asyncio.Task[None] | None = None) -> int:
    """The exit code. asyncio's own ``wait`` also waits for the pipes, which another process may hold open."""
    while process.returncode is None:
        _raise_what_failed(reading)
        await asyncio.sleep(POLL_SECONDS)
    return process.returncode


def _raise_what_failed(reading: asyncio.Task[None] | None) -> None:
    if reading is not None and reading.done():
        reading.result()


async def _read(stream: asyncio.StreamReader | None, sink: Sink | _Tail) -> None:
    while stream is not None and (chunk := await stream.read(CHUNK_BYTES)):
        sink.add(chunk)


async def _write(stream: asyncio.StreamWriter | None, content: bytes | None) -> None:
    """Write standard input. A command that does not read all of it gives the reason by its exit code, so that is no
    error."""
    if stream is None:
        return
    with contextlib.suppress(ConnectionError):
        stream.write(content or b"")
        await stream.drain()
    stream.close()


async def _end(process: asyncio.subprocess.Process, streams: Sequence[asyncio.Task[None]]) -> None:
    """Clean up. A command that did not end is killed with its group; what a command that has ended left running goes
    on."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await _ended(process)
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    process._transport.close()  # type: ignore[attr-defined] # noqa: SLF001 - or a held pipe keeps it open


HEAD_MAX = 128
"""Bytes of the line with the digest."""


class Out(Protocol):
    """Where the content goes."""

    def restart(self) -> None:
        """Forget what was written."""

    def write(self, data: bytes) -> object: ...


class TooLargeError(Exception):
    """More bytes arrived than a file may have."""


class Memory:
    """An `Out` in memory, for small files."""

    def __init__(self) -> None:
        self.content = bytearray()

    def restart(self) -> None:
        self.content.clear()

    def write(self, data: bytes) -> None:
        self.content += data


class Incoming:
    """What a command prints (a `Sink`): the line with the digest, then the content.
    The output of a plain ``cat`` has no such line.

    :param limit: the most bytes of content.
    """

    def __init__(self, out: Out, limit: int) -> None:
        self._out = out
        self.limit = limit
        self.begin()

    def begin(self) -> None:
        """Begin anew, after the output of an earlier command."""
        self._out.restart()
        self._digest = hashlib.sha256()
        self._size = 0
        self._wanted = ""
        self._head: bytes | None = b""
        """The bytes so far, while it is not clear whether the first line has a digest; None afterwards."""

    def add(self, chunk: bytes) -> None:
        """:raises TooLargeError: the content is longer than the limit."""
        if self._head is None:
            self._take(chunk)
            return
        self._head += chunk
        if not self._head.startswith(DIGEST_LINE[: len(self._head)]):
            self._begin_content("", self._head)
        elif b"\n" in self._head or len(self._head) > HEAD_MAX:
            line, _, content = self._head.partition(b"\n")
            self._begin_content(line.removeprefix(DIGEST_LINE).decode("ascii", "replace") or "none", content)

    def is_whole(self) -> bool:
        """Whether the content has the digest, after the last byte."""
        if self._head is not None and not self._head.startswith(DIGEST_LINE):
            self._begin_content("", self._head)
        return self._head is None and self._wanted in ("", self._digest.hexdigest())

    def _begin_content(self, wanted: str, content: bytes) -> None:
        self._wanted, self._head = wanted, None
        self._take(content)

    def _take(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > self.limit:
            raise TooLargeError
        self._digest.update(chunk)
        self._out.write(chunk)
