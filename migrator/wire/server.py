"""The Kafka listener: it accepts connections, gives requests to a handler, and sends the responses in order.

As in Kafka, one request of a connection is worked on at a time, so responses are in order and the next frames wait in
the socket. A connection that breaks the protocol, is idle or does not read its answers is closed, without an effect on
others. Source of the rules: ``SocketServer``, ``Selector``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from migrator.errors import PeerError
from migrator.machine import machine
from migrator.observe.logins import LineRate, LoginBook, reason_of
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind
from migrator.values import value
from migrator.wire.acceptor import Acceptor, tls_failure
from migrator.wire.api_versions import NO_FEATURES, Features
from migrator.wire.book import Account, Caller, Share
from migrator.wire.callers import Callers, Trusted
from migrator.wire.connection import ClientGoneError, Connection, Handler, LoginError
from migrator.wire.frames import FrameStream
from migrator.wire.quotas import UNLIMITED, ConnectionQuotas
from migrator.wire.sasl import NotReadyError, SessionExpiredError
from migrator.wire.sasl.server import SHORT_BYTES
from migrator.wire.schemas import CONTROLLER_APIS, VersionRange
from migrator.wire.security import PLAINTEXT, ListenerSecurity, shown_certificate

log = logging.getLogger(__name__)

WATCH = TaskKind("listener-watch", OnError.RESTART)
WATCH_SECONDS = 2.0
PATIENCE_SECONDS, NAMELESS_PATIENCE_SECONDS = 5.0, 0.25
"""The seconds for which a peer may send or take nothing while others wait for room. An authenticated peer may be as
slow as `migrator.wire.frames` allows. Any other peer has to take its answer at 1 MiB a second."""


@value
class ListenerLimits:
    """The bounds of one listener, in Kafka's units. Each has the name of its configuration key."""

    max_request_bytes: int = 104_857_600
    max_idle_ms: int = 600_000
    max_connections: int = UNLIMITED
    max_connection_rate: int = UNLIMITED
    """New connections a second (``max.connection.creation.rate``)."""
    backlog: int = 50
    login_timeout_ms: int = 10_000
    """The time for the TLS handshake, and again for SASL. Kafka has no such key."""
    failed_login_delay_ms: int = 100
    """``connection.failed.authentication.delay.ms``"""


@dataclass(slots=True)
class ListenerCounters:
    """The counts of a listener since its start."""

    accepted: int = 0
    expired: int = 0
    """Connections closed because their clients did not log in again in time."""
    malformed: int = 0
    failed: int = 0
    failed_logins: int = 0
    requests: Counter[int] = field(default_factory=Counter)


class KafkaListener:
    """One listener.

    :param name: as in ``listeners``; it is in every `RequestContext`.
    :param apis: the served APIs; a request for another one closes the connection, as in Kafka.
    :param raw_apis: the API keys whose bodies the handler decodes itself.
    :param features: called at each ApiVersions request.
    :param quotas: shared by the listeners of a process.
    :param callers: the bounds of each caller; None when every caller is trusted.
    :param logins: notes failed logins.
    :param on_violation: called with an `InvariantViolation` of the handler, so that the process can stop.
    """

    def __init__(
        self,
        name: str,
        handler: Handler,
        *,
        apis: Mapping[int, VersionRange] = CONTROLLER_APIS,
        raw_apis: frozenset[int] = frozenset(),
        features: Callable[[], Features] = lambda: NO_FEATURES,
        security: ListenerSecurity = PLAINTEXT,
        limits: ListenerLimits | None = None,
        quotas: ConnectionQuotas | None = None,
        callers: Callers | None = None,
        logins: LoginBook | None = None,
        on_violation: OnFailure | None = None,
    ) -> None:
        self.name = name
        self.handler = handler
        self.apis = apis
        self.raw_apis = raw_apis
        self.features = features
        self.security = security
        self.limits = limits or ListenerLimits()
        self.quotas = quotas or ConnectionQuotas()
        self.callers = callers or Trusted()
        self.counters = ListenerCounters()
        self._logins = logins or machine().own(LoginBook)
        self._door = f"listener {name}"
        self._lines = LineRate()
        self._supervisor = Supervisor(on_violation)
        self._acceptor = Acceptor(name, self.quotas, self._serve, on_violation)
        self._connections: dict[asyncio.Task[None], Connection] = {}
        self._closing = False

    async def start(self, host: str, port: int) -> int:
        """Bind and accept.

        :returns: the port, which the system has chosen when ``port`` is 0.
        :raises OSError: the address cannot be bound.
        :raises InvariantViolation: the security is for outgoing connections only.
        """
        limits = self.limits
        self.security.refresh()
        _ = self.security.server_context  # raise a fault now, not at the first connection
        self.quotas.add_listener(self.name, limits.max_connections, limits.max_connection_rate, self._acceptor.free)
        self._logins.open(self._door)
        bound = await self._acceptor.start(host, port, limits.backlog)
        self._supervisor.keep(WATCH, self._watch, f"{self.name}: slow peers")
        return bound

    async def close(self, grace: float = 1.0) -> None:
        """Stop accepting, close idle connections, and wait ``grace`` seconds for the answers of running requests."""
        self._closing = True
        await self._acceptor.stop()
        for task, connection in self._connections.items():
            if not connection.busy:
                task.cancel()
        if self._connections:
            await asyncio.wait(list(self._connections), timeout=grace)
        await self._acceptor.close()
        await self._supervisor.close()

    @property
    def closing(self) -> bool:
        """Whether `close` has begun: no connection takes another request."""
        return self._closing

    @property
    def login_bytes(self) -> int:
        """The most bytes of a request during a login."""
        sasl = self.security.sasl
        most = self.limits.max_request_bytes
        return most if sasl is None else min(most, sasl.max_receive_bytes)

    @property
    def refused(self) -> int:
        """The number of connections that were refused since the start, by a quota of their address."""
        return self._acceptor.refused

    def identified(self, stream: FrameStream, account: Account) -> None:
        """Note that the peer is authenticated, so the bounds of logins no longer apply."""
        stream.max_frame_bytes = self.limits.max_request_bytes
        account.patience = PATIENCE_SECONDS
        self.quotas.logins.leave(stream)

    async def _serve(self, sock: socket.socket, host: str) -> None:
        """Serve a connection, from its TLS handshake to the last byte sent."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a connection is served in a task")
        gone = asyncio.Event()
        account = Account(self.quotas.book, Caller(Share.LOGINS, host), NAMELESS_PATIENCE_SECONDS)
        stream = FrameStream(
            self._first_bytes, partial(self._connected, account, host), account, partial(self._lost, task, gone)
        )
        if self.security != PLAINTEXT:
            self.quotas.logins.enter(stream, host, lambda: self._evict(task, host))
        try:
            if not await self._open(stream, sock, host):
                return
            self.counters.accepted += 1
            connection = self._connections[task] = Connection(self, stream, account, host)
            try:
                await self._run(connection)
            finally:
                # Answers that were written are still sent. A peer that does not read them is cut off.
                stream.close()
                del self._connections[task]
        finally:
            self.quotas.logins.leave(stream)
            stream.close_account()
        await gone.wait()

    @property
    def _first_bytes(self) -> int:
        """The most bytes of a connection's first request."""
        return self.limits.max_request_bytes if self.security.sasl is None else min(self.login_bytes, SHORT_BYTES)

    def _connected(self, account: Account, host: str, stream: FrameStream) -> None:
        """The connection is open. Without SASL the peer is authenticated now, by its certificate or as anonymous,
        before its first frame is charged: that frame is not a login's."""
        if self.security.sasl is None:
            with contextlib.suppress(PeerError):  # `Connection.run` raises the same error and ends the connection
                principal = self.security.principal_of(stream.info("ssl_object"))
                account.caller = self.callers.caller(principal, host, stream)
            if shown_certificate(stream.info("ssl_object")) is not None:
                self.identified(stream, account)
            self.quotas.logins.leave(stream)

    def _lost(self, task: asyncio.Task[None], gone: asyncio.Event) -> None:
        gone.set()
        if task in self._connections:
            self._connections[task].gone()

    async def _open(self, stream: FrameStream, sock: socket.socket, host: str) -> bool:
        """Do the TLS handshake, if the listener has TLS. False when it fails."""
        tls = self.security.server_context
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: stream,
                sock,
                ssl=tls,
                ssl_handshake_timeout=self.limits.login_timeout_ms / 1000 if tls else None,
            )
        except OSError as error:  # includes `ssl.SSLError`
            sock.close()
            if isinstance(error, ConnectionResetError | BrokenPipeError):
                log.debug("%s: %s closed the connection before it sent anything", self.name, host)
            else:
                self._login_failed(host, tls_failure(error))
            error.with_traceback(None)  # its frames form a cycle that would stay in memory until garbage collection
            return False
        return True

    async def _run(self, connection: Connection) -> None:
        """Serve requests. An error in one ends this connection, and no other."""
        host = connection.host
        try:
            await connection.run()
        except LoginError as error:
            self._login_failed(host, str(error), error.tried)
        except SessionExpiredError as error:
            self.counters.expired += 1
            self._logins.expired(self._door)
            self.say(host, str(error))
        except NotReadyError as error:
            self.say(host, f"the login cannot be checked yet: {error}")
        except PeerError as error:
            self.counters.malformed += 1
            self.say(host, str(error))
        except TimeoutError:
            self.say(host, "the client was idle, or did not read its answers")
        except (ConnectionError, ClientGoneError):
            log.debug("%s: %s closed its connection", self.name, host)
        except Exception:  # the top of a request: the supervisor logs it, and other connections go on
            self.counters.failed += 1
            raise

    def _login_failed(self, host: str, reason: str, tried: str | None = None) -> None:
        self.counters.failed_logins += 1
        self._logins.failed(self._door, host, reason, tried)

    def _evict(self, task: asyncio.Task[None], host: str) -> None:
        self._login_failed(host, "the client had not logged in when other clients needed the connection")
        task.cancel()

    def say(self, host: str, reason: str) -> None:
        """Log why a connection is closed. The number of lines per time has a bound."""
        left_out = self._lines.take()
        if left_out is not None:
            more = f" ({left_out} more were not logged)" if left_out else ""
            log.warning("%s: connection from %s closed: %s%s", self.name, host, reason_of(reason), more)

    async def _watch(self) -> None:
        """Cut off slow peers, and read changed certificate files: a broken file is reported before it is needed."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self.security.refresh()
            now = loop.time()
            for connection in self._connections.values():
                if connection.stream.is_too_slow(now):
                    connection.stream.cut_off("the client takes too long to send a request")
            self._close_excess()

    def _close_excess(self) -> None:
        """Close connections beyond a lowered ``max.connections``, the longest silent first, as in Kafka. When another
        listener does the same at the same moment, a few too many are closed; their clients connect again."""
        silent = sorted(self._connections.items(), key=lambda item: item[1].heard_at)
        for task, connection in silent[: self.quotas.excess]:
            self.say(connection.host, "there are more connections than max.connections allows now")
            task.cancel()
