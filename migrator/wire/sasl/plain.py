"""SASL PLAIN (RFC 4616), both sides. Source of the wording: Kafka's ``PlainSaslServer``.

`server` and `login` use it as an exchange. A refusal does not say whether the user or the password was wrong, and
comparing takes the same time for both.
"""

from __future__ import annotations

from migrator.config.types import Secret
from migrator.wire.principal import Principal
from migrator.wire.sasl.exchange import Authenticated, AuthenticationError, Passwords, utf8

WRONG = "Authentication failed: Invalid username or password"
OTHER_IDENTITY = "Authentication failed: Client requested an authorization id that is different from username"


class PlainServer:
    """The server's side of a PLAIN login: user and password come in one message."""

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords
        self.tried = ""
        self.outcome: Authenticated | None = None

    def step(self, token: bytes) -> bytes:
        """See `ServerExchange`."""
        parts = token.split(b"\0")
        if len(parts) != 3:
            public = f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 4)}"
            raise AuthenticationError("malformed PLAIN message", public)
        authorization, user, password = utf8(parts[0]), utf8(parts[1]), parts[2]
        self.tried = user
        for name, given in (("username", user), ("password", password)):
            if not given:
                raise AuthenticationError(f"no {name}", f"Authentication failed: {name} not specified")
        if not self._passwords.match(user, password):
            raise AuthenticationError("unknown user or wrong password", WRONG)
        if authorization not in ("", user):
            raise AuthenticationError("the client asks for another authorization id", OTHER_IDENTITY)
        self.outcome = Authenticated(Principal("User", user))
        return b""

    def takes_long(self, token: bytes) -> bool:  # noqa: ARG002 - the same for all
        """See `ServerExchange`."""
        return False


class PlainClient:
    """The client's side of a PLAIN login."""

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._password = Secret(password)
        self.done = False

    def first(self) -> bytes:
        """See `ClientExchange`."""
        return f"\0{self.user}\0{self._password.reveal()}".encode()

    def step(self, token: bytes) -> bytes:
        """See `ClientExchange`."""
        if token:
            raise AuthenticationError("the server sent a challenge in answer to PLAIN")
        self.done = True
        return b""
