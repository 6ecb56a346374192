"""The HTTP endpoint for Prometheus, for tools that poll beans, and for load balancers.

It has few paths, and bounds on each caller's requests. (The server of the standard library bounds neither threads nor
the time of a connection, and answers on every path.) A connection is provisional until its request is read and
admitted. When all places are taken, the oldest provisional connection is closed for the next one, so silent clients
cannot block a scrape.
"""

from __future__ import annotations

import contextlib
import io
import logging
import socket
import socketserver
import ssl
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from threading import Lock, Thread
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from migrator.config.listen_errors import cannot_listen
from migrator.machine import machine
from migrator.observe.beans import Beans, answer_for, takes_no_orders
from migrator.observe.health import NodeHealth
from migrator.observe.logins import LoginBook
from migrator.observe.metrics_access import OPEN, AccessFiles, MetricsAccess

log = logging.getLogger(__name__)

PATH: Final = "/metrics"
METHODS: Final = ("GET", "HEAD")
CONNECTIONS_MAX: Final = 64
"""The most connections; each has a thread."""
CONNECTIONS_OF_ADDRESS_MAX: Final = 32
CONNECTION_SECONDS: Final = 10.0
"""The longest time of a connection, TLS and the answer included."""
SILENCE_SECONDS: Final = 5.0
HEAD_BYTES_MAX: Final = 16_384
"""The most bytes of a request: its line and its headers. It has no body."""
DOOR: Final = "metrics"
HEALTH_PATHS: Final = ("/health", "/ready")
"""Answered without a password, because load balancers have none. The answer is one line, and names no other host."""

HealthOf = Callable[[], NodeHealth]


class MetricsEndpoint:
    """Serves in separate threads until it is closed.

    :param host: "" for every IPv4 address.
    :param collectors: must be safe to call from another thread.
    :param where: the key that the address comes from, for messages.
    """

    def __init__(
        self,
        host: str,
        port: int,
        collectors: Iterable[Collector],
        *,
        access: AccessFiles = OPEN,
        where: str = "migrator.metrics.listener",
        beans: Callable[[], Beans] | None = None,
        health: HealthOf | None = None,
    ) -> None:
        """
        :param beans: for `migrator.observe.beans`; None: without those paths.
        :param health: for `HEALTH_PATHS`; None: without those paths.
        :raises OperatorError: the address can't be bound, or a file of ``access`` cannot be used.
        """
        registry = CollectorRegistry(auto_describe=False)
        for collector in collectors:
            registry.register(collector)
        checks, logins = MetricsAccess(access), machine().own(LoginBook)
        try:
            family, _, _, _, address = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM)[0]  # noqa: S104
            self._server = _Server(family, address, registry, checks, logins, beans, health)
        except OSError as error:
            raise cannot_listen(error, host, port, where) from error
        self.port: int = self._server.server_address[1]
        logins.open(DOOR)
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and end all connections."""
        with contextlib.suppress(OSError):  # wakes the thread, which otherwise looks only twice a second
            self._server.socket.shutdown(socket.SHUT_RDWR)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server.end_connections()


@dataclass(slots=True)
class _Open:
    """A connection. ``connection``: the socket to shut when its time is over. ``admitted``: its request may be
    answered."""

    connection: socket.socket
    address: str
    deadline: float
    admitted: bool = False

    def shut(self) -> None:
        """End the connection; does no harm when it has just ended."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.connection, socket.SHUT_RDWR)


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = CONNECTIONS_MAX

    def __init__(
        self,
        family: int,
        address: Any,
        registry: CollectorRegistry,
        access: MetricsAccess,
        logins: LoginBook,
        beans: Callable[[], Beans] | None,
        health: HealthOf | None,
    ) -> None:
        self.address_family = family
        self.beans = beans
        self.health = health
        self.registry = registry
        self.access = access
        self.logins = logins
        self.rendering = Lock()
        """One answer is made at a time, because each takes the interpreter from the controller's own work."""
        self._open: dict[int, _Open] = {}
        super().__init__(address, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is a free place, or a provisional connection to close."""
        address = client_address[0]
        entries = list(self._open.values())
        of_address = [entry for entry in entries if entry.address == address]
        if len(of_address) >= CONNECTIONS_OF_ADDRESS_MAX:
            entries = of_address
        elif len(entries) < CONNECTIONS_MAX:
            entries = []
        stranger = next((entry for entry in entries if not entry.admitted and entry.deadline > 0), None)
        if entries and (stranger is None or len(self._open) >= 2 * CONNECTIONS_MAX):
            self.logins.failed(
                DOOR, address, f"{len(entries)} connections are being answered, and there is no place for more"
            )
            return False
        if stranger is not None:
            self.logins.failed(DOOR, stranger.address, "the client had asked nothing when others needed the connection")
            stranger.deadline = 0  # its thread frees the place later, and only once
            stranger.shut()
        self._open[id(request)] = _Open(request, address, time.monotonic() + CONNECTION_SECONDS)
        return True

    def admitted(self, connection: socket.socket) -> None:
        """This connection is not provisional any more."""
        for entry in list(self._open.values()):
            if entry.connection is connection:
                entry.admitted = True

    def service_actions(self) -> None:
        """Called twice a second: ends connections whose time is over, even when their threads wait."""
        self.end_connections(time.monotonic())

    def end_connections(self, before: float | None = None) -> None:
        """End the connections whose deadline was before that moment; without it, all."""
        for entry in list(self._open.values()):
            if before is None or entry.deadline < before:
                entry.shut()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Runs in the connection's own thread."""
        request.settimeout(SILENCE_SECONDS)
        context = self.access.tls()
        if context is None:
            _Handler(request, client_address, self)
            return
        with context.wrap_socket(request, server_side=True, do_handshake_on_connect=False) as connection:
            self._open[id(request)].connection = connection
            try:
                connection.do_handshake()
            except ssl.SSLError as error:
                self.logins.failed(DOOR, client_address[0], f"TLS: {error.reason or error}")
                return
            _Handler(connection, client_address, self)

    def shutdown_request(self, request: Any) -> None:
        """The end of a connection, also of one that found no place."""
        super().shutdown_request(request)
        self._open.pop(id(request), None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Errors of the network are not logged; a defect is."""
        del request
        error = sys.exc_info()[1]
        level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
        log.log(level, "Metrics: the connection of %s ended", client_address[0], exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    """One connection, which has one request."""

    server: _Server
    server_version, sys_version = "migrator", ""
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(code)d %(message)s\n"
    default_request_version = "HTTP/1.0"
    requestline, request_version, command = "", default_request_version, ""

    def handle(self) -> None:
        """Read the request, answer, close."""
        head = self._head()
        if not head:
            return
        self.raw_requestline = head[0]
        self.rfile = io.BufferedReader(io.BytesIO(b"".join(head[1:])))
        if self.parse_request():
            self._answer()

    def _head(self) -> list[bytes]:
        """The lines before the empty one; empty when there is nothing to answer."""
        lines: list[bytes] = []
        left = HEAD_BYTES_MAX
        while not lines or lines[-1].strip():
            line = self.rfile.readline(left + 1)
            left -= len(line)
            if left < 0:
                self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                return []
            if not line:
                return []
            lines.append(line)
        return lines

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        if self.server.health is not None and path in HEALTH_PATHS and self.command in METHODS:
            self.server.admitted(self.request)
            self._show_health(self.server.health, path)
            return
        if not self.server.access.admits(self.headers.get("Authorization")):
            self.server.logins.failed(DOOR, self.client_address[0], "no user and password that are known")
            self._refuse(HTTPStatus.UNAUTHORIZED, "WWW-Authenticate", 'Basic realm="metrics", charset="UTF-8"')
            return
        self.server.admitted(self.request)
        make = self._metrics if path == PATH else self._bean_answer(path)
        if make is None and not (self.server.beans and self.command not in METHODS and takes_no_orders(path)):
            self.send_error(HTTPStatus.NOT_FOUND, f"Metrics are at {PATH}")
        elif make is None or self.command not in METHODS:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "Allow", ", ".join(METHODS))
        else:
            self._show(make)

    def _show_health(self, health: HealthOf, path: str) -> None:
        found = health()
        is_well = found.is_ready if path == "/ready" else found.is_alive
        self._send(HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE, found.as_json(), "application/json")

    def _metrics(self) -> tuple[bytes, str]:
        encode, kind = _encoder(" ".join(self.headers.get("Accept", "").split()))
        return encode(self.server.registry), kind

    def _bean_answer(self, path: str) -> Callable[[], tuple[bytes, str]] | None:
        beans, answer = self.server.beans, answer_for(path)
        if beans is None or answer is None:
            return None
        return lambda: (answer(beans(), int(time.time())), "application/json")

    def _show(self, make: Callable[[], tuple[bytes, str]]) -> None:
        try:
            with self.server.rendering:
                content, kind = make()
        except Exception:  # the top of a request: it alone fails, and its caller does not learn why
            log.exception("The metrics could not be read")
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self._send(HTTPStatus.OK, content, kind)

    def _send(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _refuse(self, status: HTTPStatus, header: str, text: str) -> None:
        self.send_response(status)
        self.send_header(header, text)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the standard library
        """Requests are not logged."""


def _encoder(accept: str) -> tuple[Any, str]:
    """An unknown format or version gets plain text, which every client can read."""
    try:
        return choose_encoder(accept)
    except (ValueError, TypeError):
        return choose_encoder("")
