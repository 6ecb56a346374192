"""The interface of all SASL mechanisms: an exchange of tokens, its two sides and its results.

`server.SaslServer` drives a `ServerExchange`, `migrator.wire.client` a `ClientExchange`. Each object serves one login.
A step that needs milliseconds says so (`takes_long`) and is run off the event loop. A refusal never tells the other
side whether user or password was wrong; the reason goes to this node's log.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from typing import Protocol

from migrator.errors import PeerError
from migrator.values import value
from migrator.wire.principal import Principal

PLAIN = "PLAIN"
SCRAM_HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, *SCRAM_HASHES, OAUTHBEARER)


class AuthenticationError(PeerError):
    """The other side's proof is wrong.

    :param reason: the fault, for this node's log.
    :param public: the text for the other side; None for a sentence that does not say which part was wrong.
    """

    def __init__(self, reason: str, public: str | None = None) -> None:
        super().__init__(reason)
        self.public = public


class NotReadyError(PeerError):
    """This node cannot check logins yet. The connection is closed without an answer, and clients try again. A refusal
    would be final for many of them."""


class SessionExpiredError(PeerError):
    """The client has not authenticated again in time (``connections.max.reauth.ms``, or its token's end)."""


@value
class Authenticated:
    """The authenticated principal. ``expires_at_ms``: the end of the credential in ms since 1970, None without an
    end."""

    principal: Principal
    expires_at_ms: int | None = None


class ServerExchange(Protocol):
    """The server's side of one authentication."""

    tried: str
    """The name that the client claims, if it got so far; for this node's log."""
    outcome: Authenticated | None
    """Set when the client is authenticated."""

    def step(self, token: bytes) -> bytes:
        """Our answer to the client's token.

        :raises AuthenticationError: the proof is wrong.
        :raises NotReadyError: this node cannot check it yet.
        """

    def takes_long(self, token: bytes) -> bool:
        """Whether `step` would take milliseconds for this token, and has to run off the event loop."""


class ClientExchange(Protocol):
    """The client's side of one authentication."""

    user: str
    done: bool

    def first(self) -> bytes:
        """The token that opens the exchange."""

    def step(self, token: bytes) -> bytes:
        """Our answer to the server's token.

        :raises AuthenticationError: the server's proof is wrong.
        """


def utf8(raw: bytes) -> str:
    """A token as text.

    :raises AuthenticationError: it is not UTF-8.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise AuthenticationError("the SASL token is not UTF-8") from error


class Passwords:
    """Users and hashed passwords. A comparison takes the same time for known and unknown users."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._key = secrets.token_bytes(32)
        self._digests = {user: self._digest(password.encode()) for user, password in users.items() if password}
        self._nobody = secrets.token_bytes(32)

    def match(self, user: str, password: bytes) -> bool:
        """Whether this is the user's password. An empty password never matches, as in Kafka."""
        expected = self._digests.get(user)
        same = hmac.compare_digest(self._digest(password), self._nobody if expected is None else expected)
        return same and expected is not None

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, "sha256")
