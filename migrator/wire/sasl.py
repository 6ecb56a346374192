"""SASL over Kafka frames: PLAIN (RFC 4616) and SCRAM (RFC 5802, 7677), both sides, without I/O.

Messages are KIP-43's and KIP-152's: SaslHandshake names the mechanism, SaslAuthenticate carries its tokens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from migrator.config.types import Secret
from migrator.errors import PeerError
from migrator.image.model import ScramCredential
from migrator.wire.principal import Principal
from migrator.wire.schemas import SASL_AUTHENTICATE, SASL_HANDSHAKE, build, response_type

PLAIN = "PLAIN"
SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS = (PLAIN, *SCRAM_HASHES)
MIN_ITERATIONS = 4096
MAX_ITERATIONS = 1_000_000
"""A server may not make us hash for ever."""


class AuthenticationError(PeerError):
    """The other side's proof is wrong; says nothing about which part."""


ScramLookup = Callable[[str, str], ScramCredential | None]
"""(mechanism, user) -> credential; None when there is none."""


def no_credentials(_mechanism: str, _user: str) -> None:
    """The `ScramLookup` of a listener that has none."""


class _Exchange(Protocol):
    """One side of one authentication."""

    user: str

    def step(self, token: bytes) -> bytes:
        """Our answer to the other side's token.

        :raises AuthenticationError: it proves nothing.
        """

    @property
    def done(self) -> bool:
        """Whether we are convinced."""


class SaslServer:
    """The server's side of one connection.

    :param plain_users: user -> password for PLAIN; None when it is not enabled.
    :param mechanisms: what is enabled.
    """

    def __init__(self, mechanisms: tuple[str, ...], plain_users: Mapping[str, str], scram: ScramLookup) -> None:
        self._mechanisms = mechanisms
        self._plain_users = plain_users
        self._scram = scram
        self._exchange: _Exchange | None = None
        self.principal: Principal | None = None
        """Who it is, once authenticated."""
        self.failure: str | None = None
        """Why the connection has to be closed after the last response."""

    def handle(self, api_key: int, version: int, request: Any) -> Any:
        """The response to a SaslHandshake or SaslAuthenticate request."""
        if api_key == SASL_HANDSHAKE:
            return self._handshake(version, request.mechanism)
        return self._authenticate(version, request.auth_bytes)

    @staticmethod
    def refuse(api_key: int, version: int) -> Any:
        """The response to either on a connection that is past authentication."""
        return build(
            response_type(api_key, version),
            error_code=ErrorCode.illegal_sasl_state,
            error_message="The connection needs no authentication any more.",
            mechanisms=(),
        )

    def _handshake(self, version: int, mechanism: str) -> Any:
        error = ErrorCode.none
        if version == 0:
            # Version 0 goes on in raw tokens without Kafka's frames (before KIP-152); no client of ours needs it.
            error, self.failure = ErrorCode.unsupported_version, "SaslHandshake of version 0"
        elif self._exchange is not None:
            error, self.failure = ErrorCode.illegal_sasl_state, "a second SaslHandshake"
        elif mechanism not in self._mechanisms:
            error, self.failure = ErrorCode.unsupported_sasl_mechanism, f"SASL mechanism {mechanism!r} is not enabled"
        elif mechanism == PLAIN:
            self._exchange = PlainServer(self._plain_users)
        else:
            self._exchange = ScramServer(mechanism, self._scram)
        return build(response_type(SASL_HANDSHAKE, version), error_code=error, mechanisms=self._mechanisms)

    def _authenticate(self, version: int, token: bytes) -> Any:
        answer = response_type(SASL_AUTHENTICATE, version)
        if self._exchange is None:
            self.failure = "SaslAuthenticate before SaslHandshake"
            return build(answer, error_code=ErrorCode.illegal_sasl_state, error_message=self.failure)
        try:
            reply = self._exchange.step(token)
        except PeerError as error:
            self.failure = str(error)
            return build(answer, error_code=ErrorCode.sasl_authentication_failed, error_message=str(error))
        if self._exchange.done:
            self.principal = Principal("User", self._exchange.user)
        return build(answer, auth_bytes=reply)


class PlainServer:
    """PLAIN: user and password in one message."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.user = ""
        self.done = False

    def step(self, token: bytes) -> bytes:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise AuthenticationError("malformed PLAIN message")
        authorization, user, password = parts
        known = self._users.get(_text(user))
        matches = hmac.compare_digest(password, (known or "").encode())
        if known is None or not matches or authorization not in (b"", user):
            raise AuthenticationError("Authentication failed: Invalid username or password")
        self.user = _text(user)
        self.done = True
        return b""


class ScramServer:
    """SCRAM, the server's side: two messages each way."""

    def __init__(self, mechanism: str, lookup: ScramLookup) -> None:
        self._hash = SCRAM_HASHES[mechanism]
        self._mechanism = mechanism
        self._lookup = lookup
        self._credential: ScramCredential | None = None
        self._first = b""
        self._nonce = ""
        self.user = ""
        self.done = False

    def step(self, token: bytes) -> bytes:
        return self._final_message(token) if self._first else self._first_message(token)

    def _first_message(self, token: bytes) -> bytes:
        header, comma, bare = token.partition(b",,")
        if not comma or header not in (b"n", b"y"):
            raise AuthenticationError("malformed SCRAM message")
        fields = _fields(bare)
        self.user = _unescape(fields.get("n", ""))
        # An unknown user gets a made-up salt, so that names cannot be probed at this step.
        self._credential = self._lookup(self._mechanism, self.user)
        salt = self._credential.salt if self._credential else secrets.token_bytes(16)
        iterations = self._credential.iterations if self._credential else MIN_ITERATIONS
        self._nonce = fields.get("r", "") + secrets.token_urlsafe(18)
        reply = f"r={self._nonce},s={_b64(salt)},i={iterations}".encode()
        self._first = bare + b"," + reply
        return reply

    def _final_message(self, token: bytes) -> bytes:
        without_proof, _, _ = token.rpartition(b",p=")
        fields = _fields(token)
        proof = _unb64(fields.get("p", ""))
        if fields.get("r") != self._nonce or fields.get("c") not in ("biws", "eSws") or self._credential is None:
            raise AuthenticationError("Authentication failed during SCRAM exchange")
        message = self._first + b"," + without_proof
        signature = hmac.digest(self._credential.stored_key, message, self._hash)
        if len(proof) != len(signature):
            raise AuthenticationError("Authentication failed during SCRAM exchange")
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), self._credential.stored_key):
            raise AuthenticationError("Authentication failed during SCRAM exchange")
        self.done = True
        return b"v=" + _b64(hmac.digest(self._credential.server_key, message, self._hash)).encode()


class PlainClient:
    """PLAIN, the client's side."""

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._password = Secret(password)
        self.done = False

    def first(self) -> bytes:
        return f"\0{self.user}\0{self._password.reveal()}".encode()

    def step(self, token: bytes) -> bytes:
        if token:
            raise AuthenticationError("an answer to PLAIN")
        self.done = True
        return b""


class ScramClient:
    """SCRAM, the client's side; proves the server's knowledge too."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self._hash = SCRAM_HASHES[mechanism]
        self.user = user
        self._password = Secret(password)
        self._nonce = secrets.token_urlsafe(18)
        self._bare = f"n={_escape(user)},r={self._nonce}"
        self._expected = b""
        self.done = False

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def step(self, token: bytes) -> bytes:
        if self._expected:
            if not hmac.compare_digest(_unb64(_fields(token).get("v", "")), self._expected):
                raise AuthenticationError("the server does not know the password")
            self.done = True
            return b""
        fields = _fields(token)
        nonce, salt = fields.get("r", ""), _unb64(fields.get("s", ""))
        digits = fields.get("i", "")
        iterations = int(digits) if digits.isdecimal() and len(digits) <= len(str(MAX_ITERATIONS)) else 0
        if not nonce.startswith(self._nonce) or not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise AuthenticationError("malformed SCRAM message")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.reveal().encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        final = f"c=biws,r={nonce}".encode()
        message = self._bare.encode() + b"," + token + b"," + final
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), message, self._hash)
        self._expected = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), message, self._hash)
        return final + b",p=" + _b64(_xor(client_key, signature)).encode()


def scram_credential(mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    """What a server keeps of ``password``."""
    name = SCRAM_HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)


def _fields(message: bytes) -> dict[str, str]:
    found = {}
    for part in _text(message).split(","):
        name, _, content = part.partition("=")
        found[name] = content
    return found


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise AuthenticationError("a SASL message that is not UTF-8") from error


def _escape(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


def _unescape(user: str) -> str:
    return user.replace("=2C", ",").replace("=3D", "=")


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _unb64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # `binascii.Error` among them
        raise AuthenticationError("malformed SCRAM message") from error


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
