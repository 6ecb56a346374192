"""The Kafka listener: connections in, requests to a handler, responses out in order.

As in Kafka, one request of a connection is worked on at a time, so responses are in order and the next frames wait
in the socket. A connection that breaks the protocol, idles or will not read its answers is closed; nobody else
notices. Source of the rules: ``SocketServer``, ``Selector``.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from migrator.errors import PeerError
from migrator.supervision import OnError, OnFailure, Supervisor, TaskKind
from migrator.values import value
from migrator.wire.api_versions import (
    NO_FEATURES,
    Features,
    api_versions_response,
    invalid_request_response,
    request_is_valid,
    unsupported_version_response,
)
from migrator.wire.aside import INLINE_BYTES, MESSAGES, is_big, lane_of
from migrator.wire.decode import decode_body
from migrator.wire.encode import Chunks, encode_entity
from migrator.wire.frames import BytesInFlight, FrameStream, slices
from migrator.wire.principal import ANONYMOUS, Principal
from migrator.wire.sasl import SaslServer
from migrator.wire.schemas import (
    API_VERSIONS,
    CONTROLLER_APIS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    RequestHeader,
    VersionRange,
    decode_request_header,
    encode_response_header,
    peek_request,
    request_type,
    response_type,
)
from migrator.wire.security import PLAINTEXT, ListenerSecurity

log = logging.getLogger(__name__)

MAX_REQUEST_ELEMENTS = 2_000_000
"""In the arrays of one request, whatever its size."""
ALTER_PARTITION = 56
ALTER_PARTITION_ELEMENT_BYTES = 13
"""A broker of an ISR with its epoch, the smallest element since version 3."""
CONNECTION = TaskKind("listener-connection", OnError.DROP)


@value
class RequestContext:
    """What the handler knows about a request besides its body. ``peer_host`` is an IP address."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    principal: Principal
    listener: str
    peer_host: str


class Handler(Protocol):
    """Answers requests."""

    async def handle(self, context: RequestContext, body: Any) -> Any:
        """The response: one of kio's messages of the request's API and version, or the chunks of one, encoded.

        ``body`` is kio's request, or a memoryview of its bytes for an API in `ListenerLimits.raw_apis`.

        :raises PeerError: the request is no request; its connection is closed.
        """


@value
class ListenerLimits:
    """Bounds of one listener, in Kafka's units; each after the key that it comes from."""

    max_request_bytes: int = 104_857_600
    max_bytes_in_flight: int = 268_435_456
    """In the frames of all connections together, and at least one whole frame; ours, no key of Kafka's."""
    max_idle_ms: int = 600_000
    max_connections: int = 2_147_483_647
    max_connections_per_ip: int = 2_147_483_647
    backlog: int = 50
    max_login_bytes: int = 524_288
    """Of a request before the end of SASL (``sasl.server.max.receive.size``)."""
    login_timeout_ms: int = 10_000
    """From the TLS handshake to the end of SASL; ours, no key of Kafka's."""


@dataclass(slots=True)
class ListenerCounters:
    """What a listener has seen since its start."""

    accepted: int = 0
    refused: int = 0
    malformed: int = 0
    failed: int = 0
    requests: Counter[int] = field(default_factory=Counter)


class KafkaListener:
    """One listener.

    :param name: as in ``listeners``; goes into every `RequestContext`.
    :param apis: what is served; anything else closes the connection, as in Kafka.
    :param raw_apis: API keys whose bodies the handler decodes itself.
    :param features: asked at each ApiVersions request.
    :param on_violation: told of an `InvariantViolation` inside the handler, so that the process can stop.
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
        on_violation: OnFailure | None = None,
    ) -> None:
        self.name = name
        self.handler = handler
        self.apis = apis
        self.raw_apis = raw_apis
        self.features = features
        self.security = security
        self.limits = limits or ListenerLimits()
        self.counters = ListenerCounters()
        self.in_flight = BytesInFlight(max(self.limits.max_bytes_in_flight, self.limits.max_request_bytes))
        self._supervisor = Supervisor(on_violation)
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._closing = False

    async def start(self, host: str, port: int) -> int:
        """Bind and accept; gives the port, which matters when ``port`` is 0.

        :raises OSError: the address cannot be bound.
        """
        loop = asyncio.get_running_loop()
        tls = self.security.server_context
        first_frames = self.limits.max_request_bytes
        if self.security.sasl is not None:
            first_frames = min(first_frames, self.limits.max_login_bytes)
        where: dict[str, Any] = {"host": host, "port": port} if host else {"sock": _on_every_interface(port)}
        self._server = await loop.create_server(
            lambda: FrameStream(first_frames, self._accept, self.in_flight),
            ssl=tls,
            ssl_handshake_timeout=self.limits.login_timeout_ms / 1000 if tls else None,
            backlog=self.limits.backlog,
            **where,
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def close(self, grace: float = 1.0) -> None:
        """Stop accepting, close idle connections, give running requests ``grace`` seconds to be answered."""
        self._closing = True
        if self._server is not None:
            self._server.close()
        for task, connection in self._connections.items():
            if not connection.busy:
                task.cancel()
        tasks = list(self._connections)
        if tasks:
            _, running = await asyncio.wait(tasks, timeout=grace)
            for task in running:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    @property
    def closing(self) -> bool:
        """Whether `close` has begun: no connection takes another request."""
        return self._closing

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def _accept(self, stream: FrameStream) -> None:
        connection = _Connection(self, stream)
        same_host = sum(1 for other in self._connections.values() if other.host == connection.host)
        full = len(self._connections) >= self.limits.max_connections or same_host >= self.limits.max_connections_per_ip
        if full or self._closing:
            self.counters.refused += 1
            stream.abort()
            return
        self.counters.accepted += 1
        name = f"{self.name}: a connection of {connection.host}"
        task = self._supervisor.spawn(CONNECTION, self._serve(connection, stream), name)
        self._connections[task] = connection
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    async def _serve(self, connection: _Connection, stream: FrameStream) -> None:
        """A connection's life. What goes wrong in a request ends it, and nothing else."""
        host = connection.host
        try:
            await connection.run()
        except PeerError as error:
            self.counters.malformed += 1
            log.warning("%s: connection from %s closed: %s", self.name, host, error)
        except TimeoutError:
            log.info("%s: idle connection from %s closed", self.name, host)
        except ConnectionError:
            log.debug("%s: %s went away", self.name, host)
        except Exception:  # the top of a request: the supervisor logs it, and the others do not notice
            self.counters.failed += 1
            raise
        finally:
            # What has been answered still goes out; a peer that does not read it was cut off before.
            stream.close()


class _Connection:
    """One peer: login, then request after request."""

    def __init__(self, listener: KafkaListener, stream: FrameStream) -> None:
        self._listener = listener
        self._stream = stream
        self._principal = ANONYMOUS
        self.host = _peer_host(stream)
        self.busy = False
        """Whether a request is being worked on or answered."""
        self._muted_seconds = 0.0
        """For how long the last answer told the peer to be silent: as in Kafka, it is not listened to meanwhile."""

    async def run(self) -> None:
        """Serve until the peer leaves.

        :raises PeerError: it broke the protocol.
        :raises TimeoutError: it is idle, or does not read.
        :raises ConnectionError: it left.
        """
        self._principal = self._listener.security.principal_of(self._stream.info("ssl_object"))
        if self._listener.security.sasl is not None:
            async with asyncio.timeout(self._listener.limits.login_timeout_ms / 1000):
                self._principal = await self._login(self._listener.security.sasl.server())
            self._stream.max_frame_bytes = self._listener.limits.max_request_bytes
        idle = self._listener.limits.max_idle_ms / 1000
        while not self._listener.closing:
            async with asyncio.timeout(idle):
                frame = await self._stream.read()
            self.busy = True
            chunks = await self._answer(frame)
            async with asyncio.timeout(idle):
                await self._stream.write(chunks)
            self.busy = False
            await self._stream.rest(self._muted_seconds)

    async def _login(self, sasl: SaslServer) -> Principal:
        while sasl.principal is None:
            frame = await self._stream.read()
            key, version, _ = peek_request(frame)
            if key not in (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE):
                raise PeerError(f"API {key} before authentication")
            if key == API_VERSIONS:
                await self._stream.write(self._api_versions(frame))
                continue
            header, body = await self._decode(frame)
            response = sasl.handle(key, version, body)
            await self._stream.write(_response(header, response))
            if sasl.failure is not None:
                raise PeerError(sasl.failure)
        return sasl.principal

    async def _answer(self, frame: bytearray) -> Sequence[bytes | memoryview]:
        key, version, correlation = peek_request(frame)
        self._listener.counters.requests[key] += 1
        self._muted_seconds = 0.0
        if key == API_VERSIONS:
            return self._api_versions(frame)
        if key not in self._listener.apis or version not in self._listener.apis[key]:
            raise PeerError(f"version {version} of API {key} is not served on this listener")
        header, body = await self._decode(frame)
        if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            return _response(header, SaslServer.refuse(key, version))
        context = RequestContext(
            key, version, correlation, header.client_id, self._principal, self._listener.name, self.host
        )
        try:
            response = await self._listener.handler.handle(context, body)
        except (TimeoutError, ConnectionError) as error:
            # Not this connection's: `run` must not take it for the peer's silence.
            raise RuntimeError(f"the handler let a {type(error).__name__} through") from error
        self._muted_seconds = _throttle_seconds(response)
        if not isinstance(response, list) and is_big(response):
            return await MESSAGES.run(lambda: list(slices(_response(header, response))))
        return _response(header, response)

    def _api_versions(self, frame: bytearray) -> Sequence[bytes]:
        _, version, correlation = peek_request(frame)
        if version not in self._listener.apis[API_VERSIONS]:
            header = RequestHeader(API_VERSIONS, 0, correlation, None)
            return _response(header, unsupported_version_response(self._listener.apis))
        header, offset = decode_request_header(frame)
        if not request_is_valid(decode_body(request_type(API_VERSIONS, version), frame, offset)):
            return _response(header, invalid_request_response(version))
        return _response(header, api_versions_response(version, self._listener.apis, self._listener.features()))

    async def _decode(self, frame: bytearray) -> tuple[RequestHeader, Any]:
        header, offset = decode_request_header(frame)
        if header.api_key in self._listener.raw_apis:
            return header, memoryview(frame)[offset:]
        entity_type = request_type(header.api_key, header.api_version)
        most = max_elements(header.api_key, len(frame))
        decode = partial(decode_body, entity_type, frame, offset, most)
        return header, decode() if len(frame) <= INLINE_BYTES else await lane_of(len(frame)).run(decode)


def max_elements(api_key: int, size: int) -> int:
    """How many elements the arrays of a request of so many bytes may have.

    A broker asks for every change of an ISR that waits in one AlterPartition, and asks for the same again when the
    connection breaks. So that request is bound by its bytes alone, as in Kafka (``AlterPartitionManager``).
    """
    if api_key == ALTER_PARTITION:
        return max(MAX_REQUEST_ELEMENTS, size // ALTER_PARTITION_ELEMENT_BYTES)
    return MAX_REQUEST_ELEMENTS


def _peer_host(stream: FrameStream) -> str:
    """The peer's IP address; IPv4 as such, also when it came in through IPv6."""
    peer = stream.info("peername")
    if not peer:
        return ""
    address = ipaddress.ip_address(peer[0].partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _throttle_seconds(response: Any) -> float:
    """What the answer says; nothing in an Envelope, whose broker sees to its client."""
    throttle = getattr(response, "throttle_time", None)
    return throttle.total_seconds() if throttle else 0.0


def _on_every_interface(port: int) -> socket.socket:
    """A socket on every address of this machine, IPv4 and IPv6 where there is any."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def _response(header: RequestHeader, body: Any) -> Chunks:
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    if isinstance(body, list):
        return head + body
    if not isinstance(body, response_type(header.api_key, header.api_version)):
        raise TypeError(f"a {type(body).__name__} in answer to {header}")
    return head + encode_entity(body)
