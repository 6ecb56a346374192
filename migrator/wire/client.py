"""A Kafka client for one peer. It connects when needed, knows the peer's API versions, and backs off after failures.

Every outgoing connection of this program to Kafka's protocol goes through it. `KafkaClient` makes connections;
`KafkaConnection` is one of them after its login. A request of a `KafkaClient` ends with its answer or a
`TransportError`, within its timeout. After a timeout the connection closes, because answers come in the order of
requests. Before a login expires, the client logs in again (KIP-368).
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.errors import PeerError
from migrator.machine import machine
from migrator.raft.events import Failure
from migrator.raft.transport import PeerTimeoutError, TransportError, UnreachableError
from migrator.supervision import OnError, Supervisor, TaskKind
from migrator.values import value
from migrator.wire.api_versions import NO_FEATURES, OUR_SOFTWARE, Features, parse_api_versions
from migrator.wire.aside import lanes
from migrator.wire.decode import decode_body
from migrator.wire.encode import Chunks, encode_entity
from migrator.wire.frames import FrameStream, nobody_listens, open_stream
from migrator.wire.schemas import (
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    RequestHeader,
    VersionRange,
    build,
    decode_response_header,
    encode_request_header,
    request_type,
    response_type,
)
from migrator.wire.security import PLAINTEXT, ListenerSecurity

API_VERSIONS_VERSION = 4
MAX_CORRELATION_ID = 2**31 - 1
AGAIN_AT = (0.85, 0.95)
"""The part of a session's lifetime after which the client logs in again, drawn from this range as in Kafka's
clients."""
READER = TaskKind("client-answers", OnError.DROP)
"""When this task fails, waiting requests fail, and the next request connects again."""


@value
class ClientLimits:
    """The bounds of one client. The back-off doubles from the first to the second figure, with 20 % jitter."""

    max_in_flight: int = 1
    max_response_bytes: int = 104_857_600
    backoff_ms: int = 20
    max_backoff_ms: int = 1000


class SessionOverError(TransportError):
    """The session of the connection ends, and logging in again has failed. The request was not sent."""


class KafkaConnection:
    """One connection after its login. Requests are answered in order. `KafkaConnection.open` makes one."""

    def __init__(self, stream: FrameStream, client_id: str) -> None:
        self._stream = stream
        self._supervisor = Supervisor()
        self._client_id = client_id
        self._correlation = 0
        self._waiting: deque[asyncio.Future[bytearray]] = deque()
        self._sending = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None
        self._security: ListenerSecurity = PLAINTEXT
        self._log_in_again_at: float | None = None
        self.apis: Mapping[int, VersionRange] = {API_VERSIONS: VersionRange(0, API_VERSIONS_VERSION)}
        self.features: Features = NO_FEATURES

    @classmethod
    async def open(
        cls, host: str, port: int, client_id: str, security: ListenerSecurity, max_response_bytes: int
    ) -> KafkaConnection:
        """Connect, log in, ask for the API versions.

        :raises UnreachableError: no connection.
        :raises TransportError, PeerError: the peer is no Kafka server, or refuses us.
        """
        try:
            stream = await open_stream(host, port, max_response_bytes, security.client_context)
        except ssl.SSLError as error:
            raise UnreachableError(f"TLS with {host}:{port} failed: {error.reason or error}") from error
        except OSError as error:
            how = Failure.REFUSED if nobody_listens(error) else Failure.NO_ANSWER
            raise UnreachableError(f"no connection to {host}:{port}: {error}", how=how) from error
        except (ValueError, OverflowError) as error:  # the resolver raises these for an impossible host or port
            raise UnreachableError(f"no connection to {host}:{port}: {error}") from error
        connection = cls(stream, client_id)
        connection._reader = connection._supervisor.spawn(READER, connection._read(), f"answers of {host}:{port}")
        try:
            await connection._log_in(security)
            await connection._ask_versions()
        except BaseException as error:
            await connection.close()
            if isinstance(error, TransportError):
                error.how = Failure.NO_ANSWER  # no Kafka server has answered, so this says nothing of the peer
            raise
        return connection

    @property
    def alive(self) -> bool:
        return self._reader is not None and not self._reader.done() and not self._stream.ended

    async def request(self, body: Any) -> Any:
        """Send a kio request and return kio's response of the same version.

        :raises TransportError: the connection broke.
        :raises PeerError: the answer is malformed.
        """
        api_key, version = body.__api_key__, body.__version__
        frame, offset = await self.request_encoded(api_key, version, encode_entity(body))
        return decode_body(response_type(api_key, version), frame, offset)

    async def request_encoded(self, api_key: int, version: int, body: Chunks) -> tuple[bytearray, int]:
        """Send a request with an encoded body.

        :returns: the response's frame, and the offset of its body.

        :raises TransportError, PeerError: as `request`.
        """
        async with self._sending:
            if self._log_in_again_at is not None and asyncio.get_running_loop().time() >= self._log_in_again_at:
                await self._log_in_again()
            header, answer = await self._send(api_key, version, body)
        return await self._answered(header, answer)

    async def _send(self, api_key: int, version: int, body: Chunks) -> tuple[RequestHeader, asyncio.Future[bytearray]]:
        if not self.alive:
            raise TransportError("the connection is closed", how=Failure.CONNECTION_LOST)
        self._correlation = (self._correlation + 1) & MAX_CORRELATION_ID
        header = RequestHeader(api_key, version, self._correlation, self._client_id)
        answer: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        try:
            await self._stream.write(encode_request_header(header) + body)
        except BaseException as error:
            answer.cancel()  # no task waits for it
            self._stream.abort()  # a part of the frame may have been sent: the next request would begin in its middle
            if isinstance(error, ConnectionError):
                raise TransportError(f"the connection broke: {error}", how=Failure.CONNECTION_LOST) from error
            raise
        return header, answer

    async def _answered(self, header: RequestHeader, answer: asyncio.Future[bytearray]) -> tuple[bytearray, int]:
        frame = await answer
        correlation, offset = decode_response_header(header.api_key, header.api_version, frame)
        if correlation != header.correlation_id:
            await self.close()
            raise PeerError(f"answer {correlation} to request {header.correlation_id}")
        return frame, offset

    async def closed(self) -> None:
        """Wait until the peer closes the connection, or we do."""
        if self._reader is not None:
            await asyncio.wait([self._reader])

    async def close(self) -> None:
        """Close; requests that wait fail with `TransportError`."""
        self._stream.abort()
        if self._reader is not None and self._reader is not asyncio.current_task():
            self._reader.cancel()
            await asyncio.wait([self._reader])
        self._fail(TransportError("the connection was closed"))

    async def _read(self) -> None:
        """Give every frame to the request that it answers."""
        try:
            while True:
                self._deliver(await self._stream.read())
        except PeerError as error:
            self._fail(error)
        except ConnectionError as error:
            self._fail(TransportError(f"the connection broke: {error}", how=Failure.CONNECTION_LOST))
        finally:
            self._stream.abort()
            self._fail(TransportError("the connection broke"))

    def _deliver(self, frame: bytearray) -> None:
        if not self._waiting:
            raise PeerError("the server sent an answer without a request")
        answer = self._waiting.popleft()
        if not answer.done():
            answer.set_result(frame)

    def _fail(self, error: Exception) -> None:
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(error)

    async def ask_features(self) -> Features:
        """Ask for the peer's features again; that takes one round trip.

        :raises TransportError, PeerError: as `request`.
        """
        await self._ask_versions()
        return self.features

    async def _ask_versions(self) -> None:
        for version in (API_VERSIONS_VERSION, 0):
            request = build(
                request_type(API_VERSIONS, version),
                client_software_name=OUR_SOFTWARE,
                client_software_version="1",
            )
            frame, offset = await self.request_encoded(API_VERSIONS, version, encode_entity(request))
            # A server that does not know our version answers in version 0 (KIP-511). Both begin with the error.
            error = int.from_bytes(frame[offset : offset + 2], "big", signed=True)
            if error == ErrorCode.unsupported_version and version > 0:
                continue
            response = decode_body(response_type(API_VERSIONS, version), frame, offset)
            if response.error_code != ErrorCode.none:
                raise PeerError(f"ApiVersions was answered with {response.error_code.name}")
            self.apis, self.features = parse_api_versions(response)
            return

    async def _log_in_again(self) -> None:
        """Log in again before the session ends.

        :raises SessionOverError: the login failed.
        """
        try:
            await self._log_in(self._security)
        except (PeerError, TransportError) as error:
            raise SessionOverError(f"cannot log in again: {error}") from error

    async def _log_in(self, security: ListenerSecurity) -> None:
        """Log in, for the first time or again (KIP-368). No other request may be sent meanwhile: the connection is not
        in use yet, or `_sending` is held.

        :raises TransportError, PeerError: the peer is gone, or refuses the login.
        """
        if security.sasl is None:
            return
        self._security, begun = security, asyncio.get_running_loop().time()
        mechanism, exchange = await lanes().own_logins.run(security.sasl.client)
        response = await self._ask(request_type(SASL_HANDSHAKE, 1)(mechanism=mechanism))
        if response.error_code != ErrorCode.none:
            raise PeerError(f"SASL mechanism {mechanism}: {response.error_code.name}")
        token = exchange.first()
        while not exchange.done:
            response = await self._ask(request_type(SASL_AUTHENTICATE, 2)(auth_bytes=token))
            if response.error_code != ErrorCode.none:
                raise PeerError(f"authentication as {exchange.user!r} failed: {response.error_message}")
            # On a lane: the peer chooses the number of SCRAM iterations, and a million take most of a second.
            token = await asyncio.to_thread(exchange.step, response.auth_bytes)
        lifetime = response.session_lifetime.total_seconds()
        self._log_in_again_at = begun + machine().random().uniform(*AGAIN_AT) * lifetime if lifetime > 0 else None

    async def _ask(self, body: Any) -> Any:
        """Send a request that is part of the login."""
        api_key, version = body.__api_key__, body.__version__
        frame, offset = await self._answered(*await self._send(api_key, version, encode_entity(body)))
        return decode_body(response_type(api_key, version), frame, offset)


class KafkaClient:
    """Talks to one peer over one connection at a time, which it makes when needed.

    A request that fails or is not answered in time ends the connection, because the order of answers is then lost.
    After a failed attempt to connect the next one waits (``reconnect.backoff``).

    :param jitter: the source of the random part of the back-off.
    """

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        *,
        security: ListenerSecurity = PLAINTEXT,
        limits: ClientLimits | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id
        self._security = security
        self._limits = limits or ClientLimits()
        self._random = jitter or machine().random()
        self._slots = asyncio.Semaphore(self._limits.max_in_flight)
        self._connecting = asyncio.Lock()
        self._connection: KafkaConnection | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._closed = False

    @property
    def connection(self) -> KafkaConnection | None:
        """The connection in use; None before the first request."""
        return self._connection

    async def connect(self, timeout: float) -> KafkaConnection:
        """The connection; a new one if there is none.

        :param timeout: seconds.
        :raises TransportError: the peer is unreachable, refuses us, or is no Kafka server.
        """
        if (standing := self._standing()) is not None:
            return standing
        try:
            async with asyncio.timeout(timeout):
                return await self._connected()
        except TimeoutError as error:
            raise PeerTimeoutError(f"no connection to {self.host}:{self.port} within {timeout} s") from error

    async def request(self, body: Any, timeout: float) -> Any:
        """Like `KafkaConnection.request`, within ``timeout`` seconds.

        :raises TransportError: the peer sends no valid answer.
        """
        api_key, version = body.__api_key__, body.__version__
        frame, offset = await self.request_encoded(api_key, version, encode_entity(body), timeout)
        try:
            return decode_body(response_type(api_key, version), frame, offset)
        except PeerError as error:
            await self._drop(self._connection)
            raise TransportError(f"{self.host}:{self.port}: {error}") from error

    async def request_encoded(self, api_key: int, version: int, body: Chunks, timeout: float) -> tuple[bytearray, int]:
        """Like `KafkaConnection.request_encoded`, within ``timeout`` seconds.

        :raises TransportError: the peer sends no valid answer.
        """
        connection: KafkaConnection | None = None
        try:
            async with asyncio.timeout(timeout), self._slots:
                connection = await self._connected()
                try:
                    return await connection.request_encoded(api_key, version, body)
                except SessionOverError:
                    await self._drop(connection)
                    connection = await self._connected()
                    return await connection.request_encoded(api_key, version, body)
        except TimeoutError as error:
            await self._drop(connection)
            raise PeerTimeoutError(f"{self.host}:{self.port} did not answer within {timeout} s") from error
        except (PeerError, TransportError) as error:
            await self._drop(connection)
            if isinstance(error, TransportError):
                raise
            raise TransportError(f"{self.host}:{self.port}: {error}") from error
        except BaseException:
            await self._drop(connection)
            raise

    async def highest_version(self, api_key: int, ours: VersionRange, timeout: float) -> int:
        """The highest version that both sides support.

        :raises TransportError: the peer is unreachable, or there is no common version.
        """
        connection = await self.connect(timeout)
        theirs = connection.apis.get(api_key)
        if theirs is None or min(theirs.max, ours.max) < max(theirs.min, ours.min):
            raise TransportError(
                f"{self.host}:{self.port} supports no version of API {api_key} that this program supports"
            )
        return min(theirs.max, ours.max)

    async def close(self) -> None:
        """Close permanently; waiting requests fail with `TransportError`."""
        self._closed = True
        await self._drop(self._connection)

    def _standing(self) -> KafkaConnection | None:
        """The connection, if it is open and usable."""
        usable = self._connection is not None and self._connection.alive and not self._closed
        return self._connection if usable else None

    async def _connected(self) -> KafkaConnection:
        if (standing := self._standing()) is not None:
            return standing
        async with self._connecting:
            await self._check_open()
            if self._connection is not None and self._connection.alive:
                return self._connection
            loop = asyncio.get_running_loop()
            was_connected, self._connection = self._connection is not None, None
            await asyncio.sleep(max(0.0, self._retry_at - loop.time()))
            try:
                self._connection = await KafkaConnection.open(
                    self.host, self.port, self._client_id, self._security, self._limits.max_response_bytes
                )
            except UnreachableError as error:
                if was_connected:  # the peer closed the last connection while no request waited
                    error.how = Failure.CONNECTION_LOST
                raise
            except PeerError as error:
                raise UnreachableError(f"{self.host}:{self.port}: {error}") from error
            else:
                await self._check_open()
                self._failures = 0
                return self._connection
            finally:
                if self._connection is None or not self._connection.alive:
                    self._retry_at = loop.time() + self._backoff()
                    self._failures += 1

    async def _check_open(self) -> None:
        if self._closed:
            await self._drop(self._connection)
            raise TransportError("the client is closed")

    def _backoff(self) -> float:
        doubled = self._limits.backoff_ms * 2 ** min(self._failures, 16)
        return float(min(doubled, self._limits.max_backoff_ms)) / 1000 * self._random.uniform(0.8, 1.2)

    async def _drop(self, connection: KafkaConnection | None) -> None:
        if connection is not None:
            if self._connection is connection:
                self._connection = None
            await connection.close()
