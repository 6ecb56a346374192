"""Reading many znodes fast: several hundred paths a request, several requests in flight, results in order.

One path a request costs a round trip through ZooKeeper's pipeline and kazoo's threads: 14,000 reads/s. In multiReads
of 500 paths it is 20 times as many. Servers before 3.6 get single reads, pipelined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from kazoo.exceptions import ConnectionLoss, NoNodeError, UnimplementedError, ZookeeperError
from kazoo.interfaces import IAsyncResult

from migrator.errors import OperatorError
from migrator.zookeeper import jute
from migrator.zookeeper.jute import GET_CHILDREN, GET_DATA, MultiRead, Read, ReadResult
from migrator.zookeeper.lost_connections import persistently
from migrator.zookeeper.ops import ZkError, Znode, may_not_read
from migrator.zookeeper.session import CONNECTION_ERRORS, ZooKeeperSession

T = TypeVar("T")

PATHS_MAX = 500
PATHS_AT_FIRST = 16
"""Before anything is known about the size of the replies."""
BYTES_MAX = 512 * 1024
"""Of a request, and expected of a reply: half of ``jute.maxbuffer``."""
REPLY_SECONDS = 60.0
RETRY_SECONDS = 60.0
"""How long a chunk is tried again across lost connections."""


class _Chunk:
    """Some paths that were asked for together, and the pending answer."""

    __slots__ = ("paths", "pending", "request")

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.request: MultiRead | None = None
        self.pending: list[IAsyncResult] = []


class BulkReader:
    """Reads on one session; good for any number of calls, from one thread at a time.

    :param multi_read: False for single reads from the start; a server that lacks multiRead is noticed anyhow.
    :param retry_seconds: how long to go on through lost connections before giving up.
    :param on_refused: hears of each path that our identity may not read, which then counts as missing; without it,
        the first one is an error.
    :param chroot: where paths begin instead of at the session's chroot.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        *,
        multi_read: bool = True,
        retry_seconds: float = RETRY_SECONDS,
        on_refused: Callable[[str], None] | None = None,
        chroot: str | None = None,
    ) -> None:
        self._session = session
        self._chroot = session.chroot if chroot is None else chroot
        self._multi_read = multi_read
        self._retry_seconds = retry_seconds
        self._on_refused = on_refused
        self._reply_seconds = min(retry_seconds, REPLY_SECONDS)

    def read(self, paths: Iterable[str]) -> Iterator[Znode | None]:
        """Data and Stat in the order of ``paths``; None for a missing znode. Reads ahead of what is consumed.

        :raises ZooKeeperUnavailableError: when the connection stays away for ``retry_seconds``.
        :raises OperatorError: when the server refuses a path.
        """
        return self._stream(GET_DATA, iter(paths))

    def children(self, paths: Iterable[str]) -> Iterator[tuple[str, ...] | None]:
        """Names of children in the order of ``paths``; None for a missing znode. Errors as `read`."""
        return self._stream(GET_CHILDREN, iter(paths))

    def catch_up(self) -> None:
        """Have what is read from now on show every write that anybody has finished until now. A server that follows
        may be behind the leader; a session sees its own writes only. Errors as `read`."""

        def attempt() -> None:
            if not self._session.wait_connected(self._retry_seconds):
                raise ConnectionLoss
            self._session.client.sync_async("/").get(timeout=self._reply_seconds)

        self._persistently(attempt)

    def _stream(self, kind: int, paths: Iterator[str]) -> Iterator[Any]:
        in_flight: deque[_Chunk] = deque()
        size = _ChunkSize()
        while True:
            while len(in_flight) < self._session.options.in_flight and (chunk := _take(paths, size)):
                self._send(kind, chunk)
                in_flight.append(chunk)
            if not in_flight:
                return
            chunk = in_flight.popleft()
            results = self._results(kind, chunk)
            if chunk.request is not None:
                size.learn(len(chunk.paths), chunk.request.reply_bytes)
            for path, result in zip(chunk.paths, results, strict=True):
                yield self._checked(path, result)

    def _send(self, kind: int, chunk: _Chunk) -> None:
        if self._multi_read:
            chunk.request = MultiRead(kind, chunk.paths, self._chroot)
            chunk.pending = [self._session.call(chunk.request)]
        else:
            chunk.request = None
            chunk.pending = [self._session.call(Read(kind, path, self._chroot)) for path in chunk.paths]

    def _results(self, kind: int, chunk: _Chunk) -> list[ReadResult]:
        """The answer of a chunk, asked for again when the connection went."""

        def attempt() -> list[ReadResult]:
            if not chunk.pending:
                self._send_when_connected(kind, chunk)
            pending, chunk.pending = chunk.pending, []
            if chunk.request is None:
                return [_single(result, self._reply_seconds) for result in pending]
            try:
                results: list[ReadResult] = pending[0].get(timeout=self._reply_seconds)
            except UnimplementedError as error:  # a server before 3.6, which closes the connection besides
                self._multi_read = False
                raise ConnectionLoss from error
            return results

        return self._persistently(attempt)

    def _send_when_connected(self, kind: int, chunk: _Chunk) -> None:
        """Not before: what waits for a connection inside kazoo cannot be told from what waits for an answer."""
        if not self._session.wait_connected(self._retry_seconds):
            raise ConnectionLoss
        self._send(kind, chunk)

    def _persistently(self, attempt: Callable[[], T]) -> T:
        return persistently(self._session, attempt, seconds=self._retry_seconds, done="read")

    def _checked(self, path: str, result: ReadResult) -> Znode | tuple[str, ...] | None:
        if not isinstance(result, int):
            return result
        if result == ZkError.NO_NODE.value:
            return None
        if result == ZkError.NO_AUTH.value:
            if self._on_refused is not None:
                self._on_refused(path)
                return None
            raise may_not_read(path, self._session.identity)
        raise OperatorError(
            f"ZooKeeper refused to read this znode (error {result})",
            where=path,
            remedy="Look at the log of the ZooKeeper servers, and try again",
        )


class _ChunkSize:
    """How many paths the next chunk may have, by the size of replies so far."""

    def __init__(self) -> None:
        self.paths = PATHS_AT_FIRST

    def learn(self, paths: int, reply_bytes: int) -> None:
        expected = BYTES_MAX * paths // max(reply_bytes, 1)
        self.paths = max(1, min(PATHS_MAX, expected))


def _take(paths: Iterator[str], size: _ChunkSize) -> _Chunk | None:
    """The next chunk; a request of `PATHS_MAX` of Kafka's longest paths stays far below `BYTES_MAX`."""
    taken = list(islice(paths, size.paths))
    return _Chunk(taken) if taken else None


def _single(pending: IAsyncResult, seconds: float) -> ReadResult:
    try:
        result: ReadResult = pending.get(timeout=seconds)
    except NoNodeError:
        return ZkError.NO_NODE.value
    except CONNECTION_ERRORS:
        raise
    except ZookeeperError as error:
        return int(getattr(error, "code", jute.ERROR))
    return result
