"""Accepts connections: sockets, quotas and the TLS handshake.

No peer can stop a listener from accepting for longer than the quotas say. Source of the rules: ``Acceptor`` and
``Processor`` of ``SocketServer``.

`AlertingProtocol` adds to asyncio's TLS what has no public interface there. Every use of asyncio's private names is in
this file.

It works with the releases of Python that the tests run with. On a later release a controller does not start.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import sys
from asyncio import sslproto
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any

from migrator.errors import OperatorError
from migrator.machine import machine
from migrator.observe.logins import LineRate
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind
from migrator.wire.hosts import peer_host
from migrator.wire.quotas import ConnectionQuotas, ThrottledError, TooManyConnectionsError

LAST_TESTED = (3, 13)
TLS_BUFFER_BYTES = 32_768
"""The read buffer of each TLS connection: two TLS records. With asyncio's own 256 KiB, the thousand connections that
may be in a handshake at once would take 256 MiB."""


class AlertingProtocol(sslproto.SSLProtocol):
    """Asyncio's TLS, which also sends the alert of a failed handshake, and counts encrypted bytes that are not sent
    yet.

    OpenSSL prepares the alert, but asyncio closes without sending it. A Kafka client gives up at an alert and reports
    the certificate. When a connection just ends, it tries again until its time-out, and its users never learn why.

    Encrypted bytes wait in the socket's transport, and asyncio counts them as sent.
    """

    max_size = TLS_BUFFER_BYTES
    _below: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            self._below = transport
            transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)

    def _get_write_buffer_size(self) -> int:
        below = 0 if self._below is None else self._below.get_write_buffer_size()
        return int(super()._get_write_buffer_size()) + below  # type: ignore[misc]  # not in the stubs

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        if handshake_exc is not None and self._transport is not None:
            self._process_outgoing()  # type: ignore[attr-defined]  # not in the stubs
        super()._on_handshake_complete(handshake_exc)


def use_in_asyncio(python: tuple[int, int] = sys.version_info[:2]) -> None:
    """Make `AlertingProtocol` the TLS of asyncio in this process.

    :raises OperatorError: this release of Python has not been tested.
    """
    if python > LAST_TESTED:
        tested, running = (".".join(map(str, each)) for each in (LAST_TESTED, python))
        raise OperatorError(
            f"Python {running} was not tested: this program changes parts of Python's TLS that may differ there",
            where=sys.executable,
            remedy=f"Run the controller with Python 3.11 to {tested}",
        )
    sslproto.SSLProtocol = AlertingProtocol  # type: ignore[misc]


log = logging.getLogger(__name__)

ACCEPTOR = TaskKind("listener-acceptor", OnError.RESTART)
CONNECTION = TaskKind("listener-connection", OnError.DROP)
HELD = TaskKind("listener-held-socket", OnError.DROP)
MAX_HELD = 100
"""How many sockets of addresses that connect too often are held at the same time. They are closed after a while."""
ACCEPTS_A_TURN = 8
"""Accepted connections in one turn of the event loop, so that a flood of them does not delay consensus."""
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
EXHAUSTED_PAUSE_SECONDS = 0.5
EXHAUSTED_LOG_SECONDS = 60.0

TLS_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate, and this listener demands one",
    "HTTP_REQUEST": "the client speaks HTTP, not TLS",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS: give the client the security.protocol of this listener",
    "RECORD_LAYER_FAILURE": "the client does not speak TLS: give the client the security.protocol of this listener",
    "UNSUPPORTED_PROTOCOL": "the client supports none of the TLS versions in ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "the client offers no cipher suite that this listener allows",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the CA of this listener's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client says that this listener's certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept this listener's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept this listener's certificate",
}
"""OpenSSL's reasons, and the same in words for an operator."""


class Acceptor:
    """Accepts the connections of one listener.

    :param serve: called with each connection's socket and address once it is admitted; runs until its end.
    """

    def __init__(
        self,
        name: str,
        quotas: ConnectionQuotas,
        serve: Callable[[socket.socket, str], Coroutine[Any, Any, None]],
        on_violation: OnFailure | None,
    ) -> None:
        self._name = name
        self._quotas = quotas
        self._serve = serve
        self._supervisor = Supervisor(on_violation)
        self._held: set[socket.socket] = set()
        self._free = asyncio.Event()
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._exhausted_until = 0.0
        self._full_lines = LineRate()
        self.refused = 0

    async def start(self, host: str, port: int, backlog: int) -> int:
        """Bind and accept.

        :returns: the port.
        :raises OSError: the address cannot be bound.
        :raises OperatorError: this release of Python is not supported (`use_in_asyncio`).
        """
        use_in_asyncio()
        self._sockets = await bind(host, port, backlog)
        for sock in self._sockets:
            sock.setblocking(False)
            self._tasks.append(self._supervisor.keep(ACCEPTOR, partial(self._accept, sock), self._name))
        bound: int = self._sockets[0].getsockname()[1]
        return bound

    def free(self) -> None:
        """A connection has ended, so another one may be accepted."""
        self._free.set()

    async def stop(self) -> None:
        """Accept no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for sock in (*self._sockets, *self._held):
            sock.close()
        self._held.clear()

    async def close(self) -> None:
        """Accept no more, and end the open connections."""
        await self.stop()
        await self._supervisor.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in count(1):
            while not self._quotas.has_slot(self._name):
                self._say_full()
                self._free.clear()
                await self._free.wait()
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._say_exhausted(error, loop.time())
                    await asyncio.sleep(EXHAUSTED_PAUSE_SECONDS)
                elif not isinstance(error, ConnectionError):
                    raise
                continue  # no connection: the peer closed it before it was accepted
            seconds = self._quotas.throttle(self._name, loop.time())
            self._admit(sock, peer_host(address[0], *address[3:]), loop.time())
            if seconds > 0 or number % ACCEPTS_A_TURN == 0:
                await asyncio.sleep(seconds)

    def _admit(self, sock: socket.socket, host: str, now: float) -> None:
        try:
            self._quotas.admit(self._name, host, now)
        except TooManyConnectionsError as error:
            self.refused += 1
            log.debug("%s: refused: %s", self._name, error)
            sock.close()
        except ThrottledError as error:
            self.refused += 1
            self._hold(sock, error.seconds)
        else:
            self._supervisor.spawn(CONNECTION, self._connection(sock, host), f"{self._name}: a connection of {host}")

    async def _connection(self, sock: socket.socket, host: str) -> None:
        try:
            await self._serve(sock, host)
        except asyncio.CancelledError as error:
            # Drop the traceback: its frames refer to the task, and the task to the exception. That cycle kept the
            # buffers of a failed handshake in memory until the garbage collector ran.
            raise error.with_traceback(None) from None
        finally:
            self._quotas.release(self._name, host)

    def _hold(self, sock: socket.socket, seconds: float) -> None:
        """Close the socket later: after an immediate close the peer would connect again at once."""
        if len(self._held) >= MAX_HELD:
            sock.close()
            return
        self._held.add(sock)
        self._supervisor.call_later(HELD, seconds, self._let_go, sock)

    def _let_go(self, sock: socket.socket) -> None:
        self._held.discard(sock)
        sock.close()

    def _say_full(self) -> None:
        if self._full_lines.take() is not None:
            log.warning(
                "%s: as many connections stand as there may be; others wait. See max.connections, and this process's "
                "limit of open files (LimitNOFILE, ulimit -n)",
                self._name,
            )

    def _say_exhausted(self, error: OSError, now: float) -> None:
        if now >= self._exhausted_until:
            log.error(
                "%s: cannot accept a connection: %s. Those that stand are served. Raise this process's limit of open "
                "files (LimitNOFILE, ulimit -n), or set max.connections below it",
                self._name,
                error.strerror,
            )
            self._exhausted_until = now + EXHAUSTED_LOG_SECONDS


async def bind(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Listening sockets: one for each address of ``host``, or one for every interface when it is empty.

    :raises OSError: an address cannot be bound.
    """
    if not host:
        return [machine().listen((host, port), socket.AF_UNSPEC, backlog)]
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((info[0], info[4]) for info in found):
            sockets.append(machine().listen(address, family, backlog))
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def tls_failure(error: Exception) -> str:
    """The reason of a failed handshake, for the operator."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS: {TLS_REASONS.get(error.reason or '', error.reason or str(error))}"
    return "the client did not finish the TLS handshake in time"
