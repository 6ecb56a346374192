"""SASL OAUTHBEARER (RFC 7628, KIP-255), both sides. A `TokenValidator` checks the tokens.

`server` and `login` use it as an exchange. Every byte of the client's message is checked against the grammar before the
token is read. The principal is that of the token; an authorization id that differs is refused. Source: Kafka's
``OAuthBearerSaslServer``, ``OAuthBearerClientInitialResponse``, ``OAuthBearerSaslClient``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Protocol

from migrator.config.types import Secret
from migrator.wire.principal import Principal
from migrator.wire.sasl.exchange import Authenticated, AuthenticationError, utf8
from migrator.wire.sasl.scram_messages import unescape

MAX_TOKEN_CHARACTERS = 65_536
OTHER_IDENTITY = (
    "Authentication failed: Client requested an authorization id ({}) "
    "that is different from the token's principal name ({})"
)
ERROR_SEEN = b"\x01"
"""The client's acknowledgement of an error; the server then refuses the login."""

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+?"
_PAIR = r"[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01"
_FIRST = re.compile(rf"[ny],(?:a=(?P<authorization>{_NAME}))?,\x01(?P<pairs>(?:{_PAIR})*)\x01")
_BEARER = re.compile(r"(?i:bearer) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x20-\x7e\t\r\n]+")


class TokenError(Exception):
    """The token is not valid.

    :param reason: why, for this node's log.
    :param scope: the scopes that the token lacks, which the client learns; empty when it fails for another reason.
    """

    def __init__(self, reason: str, scope: str = "") -> None:
        super().__init__(reason)
        self.scope = scope


class TokenValidator(Protocol):
    """Checks the tokens of OAUTHBEARER."""

    def prepare(self) -> None:
        """Begin to fetch the keys that the validator needs."""

    def validate(self, token: str) -> Authenticated:
        """The principal of the token, and its end.

        :raises TokenError: the token is not valid.
        :raises NotReadyError: this node cannot check it yet.
        """


class OAuthBearerServer:
    """The server's side of an OAUTHBEARER login."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._error = ""
        self._reason = ""
        self.tried = ""
        self.outcome: Authenticated | None = None

    def step(self, token: bytes) -> bytes:
        """See `ServerExchange`."""
        if self._error:
            raise AuthenticationError(self._reason, self._error)
        authorization, bearer = initial_response(token)
        self.tried = authorization
        try:
            found = self._validator.validate(bearer)
        except TokenError as error:
            status = "insufficient_scope" if error.scope else "invalid_token"
            scope = {"scope": error.scope} if error.scope else {}
            self._reason, self._error = str(error), json.dumps({"status": status, **scope}, separators=(",", ":"))
            return self._error.encode()
        self.tried = found.principal.name
        if authorization not in ("", found.principal.name):
            raise AuthenticationError(
                "the client asks for another authorization id", OTHER_IDENTITY.format(authorization, self.tried)
            )
        self.outcome = found
        return b""

    def takes_long(self, token: bytes) -> bool:  # noqa: ARG002 - the same for all
        """See `ServerExchange`."""
        return False


class OAuthBearerClient:
    """The client's side of an OAUTHBEARER login: one message, and the acknowledgement of an error."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        self.user = "the bearer of a token"
        self._token = Secret(token)
        self._extensions = dict(extensions or {})
        self._refused = False
        self.done = False

    def first(self) -> bytes:
        """See `ClientExchange`."""
        pairs = {"auth": f"Bearer {self._token.reveal()}", **self._extensions}
        return b"n,,\x01" + b"".join(f"{name}={text}\x01".encode() for name, text in pairs.items()) + b"\x01"

    def step(self, token: bytes) -> bytes:
        """See `ClientExchange`."""
        if self._refused:
            raise AuthenticationError("the server sent an answer after an error")
        if token:
            self._refused = True
            return ERROR_SEEN
        self.done = True
        return b""


def initial_response(token: bytes) -> tuple[str, str]:
    """The client's message: its authorization id (or ""), and its token. Other pairs are ignored, as in Kafka.

    :raises AuthenticationError: malformed.
    """
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise AuthenticationError("the token is too long")
    match = _FIRST.fullmatch(utf8(token))
    if match is None:
        raise AuthenticationError("malformed OAUTHBEARER message")
    pairs: dict[str, str] = {}
    for pair in filter(None, match["pairs"].split("\x01")):
        name, _, text = pair.partition("=")
        if name in pairs:
            raise AuthenticationError("an OAUTHBEARER key is there twice")
        pairs[name] = text
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise AuthenticationError("the OAUTHBEARER message has no token")
    return unescape(match["authorization"] or ""), bearer["token"]


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Check the extensions of the client's message.

    :raises ValueError: the message names the first invalid one.
    """
    for name, text in extensions.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(text):
            raise ValueError(f"extension {name!r} is not possible in OAUTHBEARER")


def bearer_principal(name: str) -> Principal:
    """The principal of a valid token's bearer.

    :raises TokenError: the name has an unpaired surrogate, which JSON allows and no record or answer can hold.
    """
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise TokenError("the token's principal is not text") from error
    return Principal("User", name)
