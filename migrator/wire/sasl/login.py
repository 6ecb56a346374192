"""This node's logins at peers and brokers: the client's side of each new connection.

`sasl_settings` makes one `Login` for a listener, and each connection asks it for an exchange. Calls may block on a file
or on an identity provider, so they run off the event loop. A token is renewed for the first connection late in its
lifetime; while the provider does not answer, the old one is used until it expires.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

from migrator.clock import wall_seconds
from migrator.config.types import Secret
from migrator.values import value
from migrator.wire.sasl.exchange import PLAIN, AuthenticationError, ClientExchange
from migrator.wire.sasl.oauthbearer import OAuthBearerClient
from migrator.wire.sasl.plain import PlainClient
from migrator.wire.sasl.scram import ScramClient
from migrator.wire.sasl.unsecured import unsecured_token

RENEW_AT = 0.8
"""The part of a token's lifetime after which a new one is fetched (``sasl.login.refresh.window.factor``)."""

RETRY_SECONDS = 5.0
"""Seconds after a failure in which the provider is not asked again: otherwise each connection to a peer would ask."""

Fetch = Callable[[], tuple[str, float]]
"""Returns a token and its end in seconds since 1970; raises OSError or ValueError when there is none."""


class Login(Protocol):
    """Makes exchanges for this node's own logins. A call may block, so callers run it off the event loop."""

    @property
    def mechanism(self) -> str: ...

    def exchange(self) -> ClientExchange:
        """The client's side of a new connection.

        :raises AuthenticationError: there is no credential.
        """


@value
class PasswordLogin:
    """Logins by PLAIN and SCRAM. ``is_token``: the user is a delegation token's id, the password its HMAC."""

    mechanism: str
    user: str
    password: Secret
    is_token: bool = False

    def exchange(self) -> ClientExchange:
        """The client's side of a new connection (see `Login`)."""
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self.password.reveal())
        return ScramClient(self.mechanism, self.user, self.password.reveal(), is_token=self.is_token)


class BearerLogin:
    """OAUTHBEARER. A new token is fetched when most of the old one's lifetime is over. If that fails, the old one is
    used until it expires."""

    mechanism = "OAUTHBEARER"

    def __init__(
        self, fetch: Fetch, extensions: Mapping[str, str] | None = None, wall: Callable[[], float] = wall_seconds
    ) -> None:
        self._fetch = fetch
        self._extensions = extensions or {}
        self._wall = wall
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = self._expires_at = self._retry_at = 0.0
        self._why = ""

    def exchange(self) -> ClientExchange:
        """The client's side of a new connection (see `Login`)."""
        with self._lock:
            now = self._wall()
            if now >= max(self._renew_at, self._retry_at):
                self._renew(now)
            if now >= self._expires_at:
                raise AuthenticationError(f"no token can be fetched: {self._why or 'the last token has expired'}")
            return OAuthBearerClient(self._token, self._extensions)

    def _renew(self, now: float) -> None:
        try:
            self._token, self._expires_at = self._fetch()
            self._renew_at = now + RENEW_AT * (self._expires_at - now)
        except (OSError, ValueError) as error:
            self._why, self._retry_at = str(error), self._wall() + RETRY_SECONDS  # from now: the failure may take long


def unsecured(options: Mapping[str, str]) -> Fetch:
    """A source of unsigned tokens that this program makes, for development."""
    return lambda: unsecured_token(options, wall_seconds())


def from_file(read: Callable[[], bytes]) -> Fetch:
    """A source of tokens from a file, which another program writes and renews."""

    def fetch() -> tuple[str, float]:
        token = read().decode("ascii").strip()
        return token, expiry_of(token)

    return fetch


def client_credentials(
    post: Callable[[bytes, Mapping[str, str]], bytes], client_id: str, secret: Secret, scope: str
) -> Fetch:
    """A source of tokens that a provider gives for this node's client id (RFC 6749, section 4.4)."""

    def fetch() -> tuple[str, float]:
        headers = {
            "Authorization": f"Basic {base64.b64encode(f'{client_id}:{secret.reveal()}'.encode()).decode()}",
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        answer = json.loads(post(urlencode(form).encode(), headers))
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token.strip():
            raise ValueError("the token endpoint answers without an access_token")
        return token.strip(), expiry_of(token.strip())

    return fetch


def expiry_of(token: str) -> float:
    """The end of a token, read from the token without a check: the server that gets it checks it.

    :raises ValueError: the token is malformed or has no end.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("the token is not a JSON Web Token")
    claims: Any = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    found = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise ValueError("the token does not say when it expires")  # noqa: TRY004 - a peer sent it
    return float(found)
