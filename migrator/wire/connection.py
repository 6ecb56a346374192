"""One connection of a listener: login, then requests, each of which is answered before the next one is read.

`server.KafkaListener` makes a `Connection` for each socket and awaits `run`. No request is worked on before its sender
is authenticated and its share allows it (`callers`, `requests`). Each frame and answer is charged to an account while
it is in memory, so slow peers cannot fill it. A peer that breaks the protocol loses its connection, and nothing else
happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from migrator.errors import PeerError
from migrator.observe.printable import quoted
from migrator.wire.api_versions import (
    api_versions_response,
    for_others,
    invalid_request_response,
    is_from_us,
    request_is_valid,
    unsupported_version_response,
)
from migrator.wire.aside import INLINE_BYTES, is_big, lanes
from migrator.wire.book import Account, Caller, Share
from migrator.wire.callers import cost
from migrator.wire.decode import decode_body
from migrator.wire.encode import Chunks, encode_entity
from migrator.wire.envelope import Envelope, EnvelopeError
from migrator.wire.frames import FrameStream, slices
from migrator.wire.principal import ANONYMOUS
from migrator.wire.requests import REQUEST, Request, RequestContext, Session
from migrator.wire.sasl import SaslServer, SessionExpiredError
from migrator.wire.schemas import (
    API_VERSIONS,
    ENVELOPE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    RequestHeader,
    decode_request_header,
    encode_response_header,
    peek_request,
    request_type,
    response_type,
)

if TYPE_CHECKING:
    from migrator.wire.server import KafkaListener

MAX_LOGIN_ELEMENTS = 100
"""The most elements in arrays and tagged fields of a login's request. It has no array, and unknown fields cost time."""
MAX_QUESTIONS = 3
"""The ApiVersions requests before a login: one, and some with versions that this node does not know."""


class Handler(Protocol):
    """Answers requests."""

    async def handle(self, context: RequestContext, body: Any) -> Any:
        """Answer a request.

        :param body: kio's request, an `Envelope`, or a memoryview of the bytes for an API in `KafkaListener.raw_apis`.
        :returns: kio's response of the request's API and version, or the encoded chunks of one.
        :raises PeerError: the request is malformed; its connection is closed.
        """


class LoginError(PeerError):
    """A login has failed. ``tried``: the name that the peer claimed, if it got so far."""

    def __init__(self, reason: str, tried: str | None = None) -> None:
        super().__init__(reason)
        self.tried = tried


class ClientGoneError(Exception):
    """The connection has ended, so its request is not begun or not continued."""


class Connection:
    """The connection of one peer.

    :param account: the account to which its frames are charged.
    :param host: its IP address, as `peer_host` spells it.
    """

    def __init__(self, listener: KafkaListener, stream: FrameStream, account: Account, host: str) -> None:
        self._listener = listener
        self.stream = self._stream = stream
        self._account = account
        self._principal = ANONYMOUS
        self._sasl: SaslServer | None = None
        self._session = Session()
        self.host = host
        self.busy = False
        """Whether a request is being worked on or answered."""
        self.heard_at = asyncio.get_running_loop().time()
        """When the peer's last request arrived, on the loop's clock."""
        self._muted_seconds = 0.0
        """The throttle time in the last answer. As in Kafka, this node reads nothing from the peer for that long."""
        self._abandons: asyncio.Task[None] | None = None
        """The task that is cancelled when the connection ends."""

    async def run(self) -> None:
        """Serve until the peer leaves.

        :raises LoginError: its login failed.
        :raises PeerError: it broke the protocol.
        :raises SessionExpiredError: it did not log in again in time.
        :raises NotReadyError: this node cannot check logins yet.
        :raises TimeoutError: it is idle, or does not read its answer.
        :raises ConnectionError: it closed the connection.
        :raises ClientGoneError: it closed the connection before its request was worked on.
        """
        await self._find_principal()
        self._identified()
        idle_ms = self._listener.limits.max_idle_ms
        idle = idle_ms / 1000 if idle_ms >= 0 else None
        while not self._listener.closing:
            await self._serve(idle)
            await self._stream.rest(self._muted_seconds)

    def gone(self) -> None:
        """The connection has ended."""
        if self._abandons is not None:
            self._abandons.cancel()

    @contextlib.contextmanager
    def _abandonable(self) -> Iterator[None]:
        """A context whose task is cancelled when the connection ends.

        :raises PeerError: the reason for which the connection ended.
        :raises ClientGoneError: the peer closed the connection.
        """
        self._check_there()
        before = self._abandons
        self._abandons = task = asyncio.current_task()
        try:
            yield
        except asyncio.CancelledError:
            if task is None or not self._stream.ended or task.uncancel() > 0:
                raise
            self._check_there()
        finally:
            self._abandons = before

    def _check_there(self) -> None:
        try:
            self._stream.check()
        except ConnectionError as error:
            raise ClientGoneError(str(error)) from None

    def _identified(self) -> Caller:
        """Determine the caller to which the connection's frames are charged.

        A principal's rights may change at any time.
        """
        caller = self._account.caller = self._listener.callers.caller(self._principal, self.host, self._stream)
        return caller

    async def _serve(self, idle: float | None) -> None:
        """Serve one request, from its first byte to its answer's last. No local variable may refer to request or answer
        while the next one is awaited: they would stay in memory."""
        self._muted_seconds = 0.0
        async with asyncio.timeout(idle):
            frame = await self._stream.read()
        self.heard_at = asyncio.get_running_loop().time()
        if self._sasl is not None and await self._belongs_to_login(self._sasl, frame):
            return
        self.busy = True
        frames = [frame]
        del frame
        await self._answer(frames, idle)
        self.busy = False

    async def _answer(self, frames: list[bytearray], idle: float | None) -> None:
        """Answer the frame in the list. The frame is removed from the list, so that it does not stay in memory while a
        slow peer reads the answer."""
        request = self._request()
        REQUEST.set(request)
        try:
            chunks = await self._response(request, frames.pop())
            await request.reserve(sum(map(len, chunks)))
            await self._stream.write(chunks, request.handed, math.inf if idle is None else idle)
        finally:
            self._stream.done()

    def _request(self) -> Request:
        """The request of the frame that was read last."""
        if self._stream.charge is None:
            raise RuntimeError("a request has a frame")
        return Request(self._stream.charge, self._account, self._abandonable)

    async def _find_principal(self) -> None:
        """Determine the principal of a connection without SASL. With SASL a certificate does not name the principal, as
        in Kafka (``DefaultKafkaPrincipalBuilder``)."""
        settings = self._listener.security.sasl
        if settings is None:
            try:
                self._principal = self._listener.security.principal_of(self._stream.info("ssl_object"))
            except PeerError as error:
                raise LoginError(str(error)) from error
            return
        self._sasl = settings.server()
        await self._log_in(self._sasl)
        self._listener.identified(self._stream, self._account)

    async def _belongs_to_login(self, sasl: SaslServer, frame: bytearray) -> bool:
        """Whether the request began another login, which has succeeded (KIP-368).

        :raises SessionExpiredError: the session is over, and the request begins no login.
        """
        key, _, _ = peek_request(frame)
        if sasl.begins_again(key):
            size = self._stream.max_frame_bytes
            await self._log_in(sasl, frame)
            self._stream.max_frame_bytes = size
            return True
        if sasl.has_expired:
            raise SessionExpiredError(
                f"the session of {quoted(str(self._principal))} has expired, and the client has not logged in again"
            )
        return False

    async def _log_in(self, sasl: SaslServer, first: bytearray | None = None) -> None:
        """Serve the requests of a login. ``first``: the request that begins it, if it has been read already."""
        try:
            async with asyncio.timeout(self._listener.limits.login_timeout_ms / 1000):
                if first is not None:
                    await self._take_step(sasl, first)
                    first = None
                questions = 0
                while not sasl.is_complete:
                    questions += await self._take_step_or_question(sasl, may_ask=questions < MAX_QUESTIONS)
        except TimeoutError as error:
            raise LoginError("the client did not log in in time", sasl.tried) from error
        self._principal = sasl.principal or ANONYMOUS

    async def _take_step_or_question(self, sasl: SaslServer, *, may_ask: bool) -> bool:
        """Serve one request of a login. Returns whether it was ApiVersions."""
        frame = await self._stream.read()
        asks = peek_request(frame)[0] == API_VERSIONS and sasl.principal is None and may_ask
        if asks:
            await self._begin_step(frame)
            await self._stream.write(self._api_versions(frame))
        else:
            await self._take_step(sasl, frame)
        return asks

    async def _begin_step(self, frame: bytearray) -> None:
        """Wait for a turn: connections that are not authenticated are served address by address."""
        await self._request().begin(cost(len(frame), MAX_LOGIN_ELEMENTS), Caller(Share.LOGINS, self.host))

    async def _take_step(self, sasl: SaslServer, frame: bytearray) -> None:
        await self._begin_step(frame)
        key, version, _ = peek_request(frame)
        if key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            raise LoginError(f"the client sent API {key} before it had logged in", sasl.tried)
        header, offset = decode_request_header(frame)
        body = decode_body(request_type(key, version), frame, offset, MAX_LOGIN_ELEMENTS)
        proof = partial(sasl.handle, key, version, body)
        response = await lanes().proofs.run(proof) if sasl.takes_long(key, body) else proof()
        self._stream.max_frame_bytes = sasl.max_request_bytes(self._listener.login_bytes)
        if sasl.failure is not None:
            # As in Kafka, a failed login is answered only after a delay, to slow down guessing.
            self._stream.mute()
            await self._stream.rest(self._listener.limits.failed_login_delay_ms / 1000)
        self._stream.done()
        await self._stream.write(_response(header, response))
        if sasl.failure is not None:
            raise LoginError(str(sasl.failure), sasl.failure.tried or None)

    async def _response(self, request: Request, frame: bytearray) -> Sequence[bytes | memoryview]:
        key, version, correlation = peek_request(frame)
        self._listener.counters.requests[key] += 1
        caller = self._identified()
        if key not in self._listener.apis or (version not in self._listener.apis[key] and key != API_VERSIONS):
            raise PeerError(f"version {version} of API {key} is not served on this listener")
        envelope = Envelope(frame) if key == ENVELOPE else None
        most = await self._begin(request, key, len(frame), caller, envelope)
        if key == API_VERSIONS:
            return self._api_versions(frame)
        header, body = await self._decode(frame, most) if envelope is None else (envelope.header, envelope)
        del frame
        if key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
            return _response(header, SaslServer.refuse(key, version))
        context = RequestContext(
            key, version, correlation, header.client_id, self._principal, self._listener.name, self.host, self._session
        )
        try:
            response = await self._listener.handler.handle(context, body)
        except (TimeoutError, ConnectionError) as error:
            # This time-out is not the connection's: `run` must not take it for the peer's silence.
            raise RuntimeError(f"the handler raised {type(error).__name__}") from error
        self._muted_seconds = _throttle_seconds(response)
        if not isinstance(response, list) and is_big(response):
            with self._abandonable():
                return await request.lane().run(lambda: list(slices(_response(header, response))))
        return _response(header, response)

    async def _begin(self, request: Request, key: int, size: int, caller: Caller, envelope: Envelope | None) -> int:
        """Wait until the request may be worked on. A forwarded request is charged to its client, not to its broker.

        :returns: the most elements that it may have.
        """
        callers = self._listener.callers
        if envelope is not None and caller.share is Share.BROKERS:
            with contextlib.suppress(EnvelopeError):
                principal, host = envelope.client
                caller, key = callers.caller(principal, host, principal), envelope.key
        most = callers.max_elements(caller.share, key, size)
        if callers.waits(caller.share, key, size):
            await request.begin(cost(size, most), caller)
        else:
            request.begun(cost(size, most))
        return most

    def _api_versions(self, frame: bytearray) -> Sequence[bytes]:
        _, version, correlation = peek_request(frame)
        if version not in self._listener.apis[API_VERSIONS]:
            header = RequestHeader(API_VERSIONS, 0, correlation, None)
            return _response(header, unsupported_version_response(self._listener.apis))
        if len(frame) > INLINE_BYTES:
            raise PeerError(f"an ApiVersions request of {len(frame)} bytes")
        header, offset = decode_request_header(frame)
        request = decode_body(request_type(API_VERSIONS, version), frame, offset)
        if not request_is_valid(request):
            return _response(header, invalid_request_response(version))
        features = self._listener.features()
        shown = features if is_from_us(request) else for_others(features)
        return _response(header, api_versions_response(version, self._listener.apis, shown))

    async def _decode(self, frame: bytearray, most: int) -> tuple[RequestHeader, Any]:
        header, offset = decode_request_header(frame)
        if header.api_key in self._listener.raw_apis:
            return header, memoryview(frame)[offset:]
        decoded = partial(decode_body, request_type(header.api_key, header.api_version), frame, offset, most)
        if len(frame) <= INLINE_BYTES:
            return header, decoded()
        with self._abandonable():
            return header, await REQUEST.get().lane(len(frame)).run(decoded)


def _throttle_seconds(response: Any) -> float:
    """The throttle time in the answer. For an Envelope it is 0, because the broker throttles its client."""
    throttle = getattr(response, "throttle_time", None)
    return throttle.total_seconds() if throttle else 0.0


def _response(header: RequestHeader, body: Any) -> Chunks:
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    if isinstance(body, list):
        return head + body
    if not isinstance(body, response_type(header.api_key, header.api_version)):
        raise TypeError(f"a {type(body).__name__} in answer to {header}")
    return head + encode_entity(body)
