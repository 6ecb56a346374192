"""The server's side of one connection: handshake, exchange, session, and re-authentication (KIP-43, 152, 368).

`migrator.wire.connection` gives it each request of a login. It reads no socket and no clock of its own. A session that
began with one principal never gets another. After a failed login only its answer is sent, and the connection closes.
Source: Kafka's ``SaslServerAuthenticator``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from migrator.clock import monotonic_seconds, wall_seconds
from migrator.observe.printable import quoted
from migrator.values import value
from migrator.wire.principal import Principal
from migrator.wire.sasl.exchange import OAUTHBEARER, Authenticated, AuthenticationError, ServerExchange
from migrator.wire.schemas import SASL_AUTHENTICATE, SASL_HANDSHAKE, build, response_type

MIN_SECONDS_BETWEEN = 1.0
"""The least seconds between two re-authentications of a client, as in Kafka."""
MAX_STEPS = 4
"""The most tokens in one exchange. No mechanism needs more than two."""
MAX_LIFETIME_MS = 2**53
SHORT_BYTES = 40 * 1024
"""The most bytes of a login's request, except tokens of OAUTHBEARER. A string of the protocol has at most 32,767."""


@value
class LoginFailure:
    """A failed login, for this node's log: the name that the client claimed (empty if none), and the reason."""

    reason: str
    tried: str = ""
    mechanism: str = ""
    again: bool = False

    def __str__(self) -> str:
        which = "re-authentication" if self.again else "authentication"
        return f"{self.mechanism or 'SASL'} {which}: {self.reason}"


class SaslServer:
    """Authentication of one connection.

    :param mechanisms: the enabled mechanisms; each makes a new exchange.
    :param max_reauth_ms: for each mechanism the time after which a client has to re-authenticate
        (``connections.max.reauth.ms``); never when it is 0 or missing.
    """

    def __init__(
        self,
        mechanisms: Mapping[str, Callable[[], ServerExchange]],
        max_reauth_ms: Mapping[str, int] | None = None,
        *,
        monotonic: Callable[[], float] = monotonic_seconds,
        wall: Callable[[], float] = wall_seconds,
    ) -> None:
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms or {}
        self._monotonic = monotonic
        self._wall = wall
        self._exchange: ServerExchange | None = None
        self._steps = 0
        self._mechanism = ""
        self._expires_at: float | None = None
        self._began_again_at: float | None = None
        self.principal: Principal | None = None
        """The principal after authentication."""
        self.failure: LoginFailure | None = None
        """Set when the login has failed. The connection has to be closed after the last response."""

    @property
    def tried(self) -> str | None:
        """The name that the client claims, without proof, if it got so far."""
        return (self._exchange.tried or None) if self._exchange is not None else None

    def max_request_bytes(self, limit: int) -> int:
        """The most bytes of the next request.

        :param limit: the listener's limit (``sasl.server.max.receive.size``).
        """
        is_long = self._exchange is not None and self._mechanism == OAUTHBEARER
        return limit if is_long else min(limit, SHORT_BYTES)

    @property
    def is_complete(self) -> bool:
        """Whether the client is authenticated and no exchange is under way."""
        return self.principal is not None and self._exchange is None

    @property
    def has_expired(self) -> bool:
        """Whether the session is over: only re-authentication is served any more."""
        return self._expires_at is not None and self._monotonic() >= self._expires_at

    def begins_again(self, api_key: int) -> bool:
        """Whether a request on an authenticated connection begins a re-authentication. Other SASL requests are answered
        with `refuse`."""
        if api_key != SASL_HANDSHAKE or self._expires_at is None:
            return False
        now, last = self._monotonic(), self._began_again_at
        if last is not None and now - last < MIN_SECONDS_BETWEEN:
            return False
        self._began_again_at = now
        return True

    def takes_long(self, api_key: int, request: Any) -> bool:
        """Whether `handle` would take milliseconds for this request, and has to run off the event loop."""
        exchange = self._exchange
        return api_key == SASL_AUTHENTICATE and exchange is not None and exchange.takes_long(request.auth_bytes)

    def handle(self, api_key: int, version: int, request: Any) -> Any:
        """The response to a SaslHandshake or SaslAuthenticate request.

        :raises NotReadyError: logins cannot be checked yet; the connection has to be closed without an answer.
        """
        if api_key == SASL_HANDSHAKE:
            return self._handshake(version, request.mechanism)
        return self._authenticate(version, request.auth_bytes)

    @staticmethod
    def refuse(api_key: int, version: int) -> Any:
        """The error response to a SASL request that is not allowed now."""
        return build(
            response_type(api_key, version),
            error_code=ErrorCode.illegal_sasl_state,
            error_message="SaslAuthenticate request received after successful authentication",
            mechanisms=(),
        )

    def _handshake(self, version: int, mechanism: str) -> Any:
        error = ErrorCode.none
        if version == 0:
            # After version 0 raw tokens follow, without Kafka's frames (before KIP-152). No client here needs that.
            error = self._fail(
                ErrorCode.unsupported_version, "the client sent SaslHandshake version 0, which is not supported"
            )
        elif self._exchange is not None:
            error = self._fail(ErrorCode.illegal_sasl_state, "the client sent a second SaslHandshake")
        elif mechanism not in self._mechanisms:
            error = self._fail(ErrorCode.unsupported_sasl_mechanism, f"mechanism {quoted(mechanism)} is not enabled")
        elif self.principal is not None and mechanism != self._mechanism:
            error = self._fail(
                ErrorCode.unsupported_sasl_mechanism, f"the client changed from {self._mechanism} to {mechanism}"
            )
        else:
            self._mechanism, self._steps = mechanism, 0
            self._exchange = self._mechanisms[mechanism]()
        return build(response_type(SASL_HANDSHAKE, version), error_code=error, mechanisms=tuple(self._mechanisms))

    def _authenticate(self, version: int, token: bytes) -> Any:
        answer = response_type(SASL_AUTHENTICATE, version)
        if self._exchange is None:
            error = self._fail(ErrorCode.illegal_sasl_state, "SaslAuthenticate before SaslHandshake")
            return build(answer, error_code=error, error_message="SaslAuthenticate before SaslHandshake")
        self._steps += 1
        lifetime_ms = 0
        try:
            if self._steps > MAX_STEPS:
                raise AuthenticationError("the client sent too many SASL tokens")  # noqa: TRY301 - answered like any other
            reply = self._exchange.step(token)
            if self._exchange.outcome is not None:
                lifetime_ms = self._succeed(self._exchange.outcome)
        except AuthenticationError as error:
            code = self._fail(ErrorCode.sasl_authentication_failed, str(error))
            return build(answer, error_code=code, error_message=error.public or self._wrong)
        return build(answer, auth_bytes=reply, session_lifetime=dt.timedelta(milliseconds=lifetime_ms))

    def _succeed(self, outcome: Authenticated) -> int:
        """The session lifetime in ms for the answer: 0 for ever, or when the session is over already.

        :raises AuthenticationError: the client had another principal before.
        """
        before, now = self.principal, outcome.principal
        if before is not None and (before.kind, before.name) != (now.kind, now.name):
            change = f"from {before.kind}.{before.name}: {now.kind}.{now.name}"
            raise AuthenticationError(
                "the client logged in again as another principal",
                f"Cannot change principals during re-authentication {change}",
            )
        limits = [self._max_reauth_ms.get(self._mechanism, 0)]
        if outcome.expires_at_ms is not None:
            limits.append(max(0, outcome.expires_at_ms - int(self._wall() * 1000)))
        lifetimes = limits[1:] if limits[0] <= 0 else limits
        self.principal, self._exchange = now, None
        if not lifetimes:
            self._expires_at = None
            return 0
        lifetime_ms = min(*lifetimes, MAX_LIFETIME_MS)
        self._expires_at = self._monotonic() + lifetime_ms / 1000
        return lifetime_ms

    def _fail(self, code: ErrorCode, reason: str) -> ErrorCode:
        tried = "" if self._exchange is None else self._exchange.tried
        self.failure = LoginFailure(reason, tried, self._mechanism, again=self.principal is not None)
        return code

    @property
    def _wrong(self) -> str:
        """The refusal in Kafka's words, which do not say which part was wrong."""
        which = "re-authentication" if self.principal is not None else "authentication"
        return f"Authentication failed during {which} due to invalid credentials with SASL mechanism {self._mechanism}"
