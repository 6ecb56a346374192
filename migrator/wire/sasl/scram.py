"""SCRAM-SHA-256 and -512 (RFC 5802, 7677), both sides, with Kafka's logins by delegation token (KIP-48).

The server's answers do not show whether a user exists: unknown users take the same steps, and fail with the same words.
Source: Kafka's ``ScramSaslServer``, ``ScramSaslClient``.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Protocol

from migrator.config.types import Secret
from migrator.image.model import ScramCredential
from migrator.values import value
from migrator.wire.sasl.exchange import SCRAM_HASHES, Authenticated, AuthenticationError
from migrator.wire.sasl.plain import OTHER_IDENTITY
from migrator.wire.sasl.scram_messages import (
    MIN_ITERATIONS,
    base64_text,
    client_final,
    client_first,
    escape,
    server_final,
    server_first,
)

NONCE_BYTES = 18
_TOKEN = b"tokenauth"
"""The mark in the first message of a login by delegation token. Each such login hashes a password thousands of
times."""


@value
class ScramAccount:
    """The account of a name. ``authenticated`` is None when no login with the name can succeed: ``credential`` is then
    made up, and ``why`` the reason for this node's log."""

    credential: ScramCredential
    authenticated: Authenticated | None
    why: str = ""


class ScramAccounts(Protocol):
    """The source of credentials. Its methods are also called off the event loop.

    :raises NotReadyError: the credentials are not known yet.
    """

    def user(self, mechanism: str, name: str) -> ScramAccount:
        """The account of a user."""

    def token(self, mechanism: str, token_id: str) -> ScramAccount:
        """The account of a delegation token: the account of its owner, while the token is valid."""


class NoAccounts:
    """The `ScramAccounts` of a listener without accounts."""

    def user(self, mechanism: str, name: str) -> ScramAccount:
        """See `ScramAccounts`."""
        size = hashlib.new(SCRAM_HASHES[mechanism]).digest_size
        nothing = ScramCredential(hashlib.sha256(name.encode()).digest()[:16], bytes(size), bytes(size), MIN_ITERATIONS)
        return ScramAccount(nothing, None, "unknown user")

    def token(self, mechanism: str, token_id: str) -> ScramAccount:
        """See `ScramAccounts`."""
        return self.user(mechanism, token_id)


class ScramServer:
    """The server's side of a SCRAM login: two messages each way."""

    def __init__(self, mechanism: str, accounts: ScramAccounts) -> None:
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._accounts = accounts
        self._account: ScramAccount | None = None
        self._header = b""
        self._said = ""
        self._nonce = ""
        self.tried = ""
        self.outcome: Authenticated | None = None

    def step(self, token: bytes) -> bytes:
        """See `ServerExchange`."""
        if self.outcome is not None:
            raise AuthenticationError("the client sent a third SCRAM message")
        return self._first_message(token) if self._account is None else self._final_message(token, self._account)

    def _first_message(self, token: bytes) -> bytes:
        message = client_first(token)
        self.tried = message.user
        if message.authorization not in ("", message.user):
            raise AuthenticationError("the client asks for another authorization id", OTHER_IDENTITY)
        find = self._accounts.token if message.is_token else self._accounts.user
        self._account = find(self._mechanism, message.user)
        credential = self._account.credential
        self._header = message.header.encode()
        self._nonce = message.nonce + secrets.token_urlsafe(NONCE_BYTES)
        reply = f"r={self._nonce},s={base64_text(credential.salt)},i={credential.iterations}"
        self._said = f"{message.bare},{reply}"
        return reply.encode()

    def _final_message(self, token: bytes, account: ScramAccount) -> bytes:
        message, credential = client_final(token), account.credential
        said = f"{self._said},{message.unproved}".encode()
        signature = hmac.digest(credential.stored_key, said, self._hash)
        proof = message.proof if len(message.proof) == len(signature) else bytes(len(signature))
        client_key = _xor(proof, signature)
        proved = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)
        if message.nonce != self._nonce or message.binding != self._header:
            raise AuthenticationError("the nonce or channel binding is of another exchange")
        if account.authenticated is None or not proved:
            raise AuthenticationError(account.why or "wrong password")
        self.outcome = account.authenticated
        return f"v={base64_text(hmac.digest(credential.server_key, said, self._hash))}".encode()

    def takes_long(self, token: bytes) -> bool:
        """See `ServerExchange`."""
        return self._account is None and _TOKEN in token


class ScramClient:
    """The client's side of a SCRAM login. It also checks that the server knows the password."""

    def __init__(self, mechanism: str, user: str, password: str, *, is_token: bool = False) -> None:
        self._hash = SCRAM_HASHES[mechanism]
        self.user = user
        self._password = Secret(password)
        self._nonce = secrets.token_urlsafe(NONCE_BYTES)
        extension = ",tokenauth=true" if is_token else ""
        self._bare = f"n={escape(user)},r={self._nonce}{extension}"
        self._expected = b""
        self.done = False

    def first(self) -> bytes:
        """See `ClientExchange`."""
        return f"n,,{self._bare}".encode()

    def step(self, token: bytes) -> bytes:
        """See `ClientExchange`."""
        if self._expected:
            if not hmac.compare_digest(server_final(token), self._expected):
                raise AuthenticationError("the server does not know the password")
            self.done = True
            return b""
        message = server_first(token)
        if not message.nonce.startswith(self._nonce) or message.nonce == self._nonce:
            raise AuthenticationError("the nonce is of another exchange")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.reveal().encode(), message.salt, message.iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        unproved = f"c=biws,r={message.nonce}".encode()
        said = self._bare.encode() + b"," + token + b"," + unproved
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), said, self._hash)
        self._expected = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), said, self._hash)
        return unproved + b",p=" + base64_text(_xor(client_key, signature)).encode()


def scram_credential(mechanism: str, password: str, salt: bytes, iterations: int = MIN_ITERATIONS) -> ScramCredential:
    """The credential that a server stores for ``password``."""
    name = SCRAM_HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations)
    stored_key = hashlib.new(name, hmac.digest(salted, b"Client Key", name)).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
