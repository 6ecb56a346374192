"""One connection to a listener, on which a test sends every message of a login by hand.

The end of the connection is an answer, too (`CLOSED`). Leaving the context closes it.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import ssl
from base64 import b64decode, b64encode
from types import TracebackType
from typing import Any, Self

from migrator.values import value
from migrator.wire.decode import decode_entity
from migrator.wire.encode import encode_entity
from migrator.wire.schemas import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    RequestHeader,
    build,
    decode_response_header,
    encode_request_header,
    request_type,
    response_type,
)
from tests.patience import PATIENCE_SECONDS
from tests.raw_frames import receive, sized

CLOSED = "closed"


@value
class Said:
    """The answer of the other side. ``token`` is its message in a login."""

    error: str
    message: str = ""
    token: bytes = b""
    lifetime_ms: int = 0
    body: Any = None

    def __str__(self) -> str:
        return f"{self.error}: {self.message}" if self.message else self.error


class Line:
    """The connection. Leaving its context closes it.

    :param authority: PEM of who signed the listener's certificate.
    """

    def __init__(self, port: int, authority: str) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
        context = ssl.create_default_context(cadata=authority)
        self._socket = context.wrap_socket(plain, server_hostname="localhost")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, key: int, version: int, **fields: Any) -> Said:
        """One request; an error `CLOSED` where the connection ends instead of an answer."""
        header = encode_request_header(RequestHeader(key, version, 1, "line"))
        return self.send(key, version, b"".join(header + encode_entity(build(request_type(key, version), **fields))))

    def send(self, key: int, version: int, frame: bytes) -> Said:
        """The same with a frame that is made already."""
        try:
            self._socket.sendall(sized(frame))
            answer = receive(self._socket)
        except OSError:
            return Said(CLOSED)
        if answer is None:
            return Said(CLOSED)
        _, offset = decode_response_header(key, version, answer)
        body = decode_entity(response_type(key, version), answer, offset)[0]
        error = getattr(body, "error_code", None)
        lifetime = getattr(body, "session_lifetime", None)
        return Said(
            "none" if error is None else error.name,
            getattr(body, "error_message", None) or "",
            getattr(body, "auth_bytes", None) or b"",
            0 if lifetime is None else round(lifetime.total_seconds() * 1000),
            body,
        )

    def choose(self, mechanism: str, version: int = 1) -> Said:
        """SaslHandshake."""
        return self.ask(SASL_HANDSHAKE, version, mechanism=mechanism)

    def say(self, token: bytes, version: int = 2) -> Said:
        """SaslAuthenticate."""
        return self.ask(SASL_AUTHENTICATE, version, auth_bytes=token)

    def plain(self, user: str, password: str, authorization: str = "") -> Said:
        """A whole login by PLAIN."""
        self.choose("PLAIN")
        return self.say(b"\0".join(part.encode() for part in (authorization, user, password)))

    def bearer(self, token: str, authorization: str = "", extensions: str = "") -> Said:
        """A whole login by OAUTHBEARER; of a refusal, what comes after its reason was acknowledged."""
        self.choose("OAUTHBEARER")
        who = f"a={authorization}" if authorization else ""
        said = self.say(f"n,{who},\x01auth=Bearer {token}\x01{extensions}\x01".encode())
        return self.say(b"\x01") if said.token else said

    def scram(self, user: str, password: str, **more: Any) -> Said:
        """A whole login by SCRAM, see `Scram`."""
        exchange = Scram(user, password, **more)
        self.choose(exchange.mechanism)
        first = self.say(exchange.first)
        return first if first.error != "none" else self.say(exchange.final(first.token))


class Scram:
    """The client's messages of SCRAM, sound unless told otherwise. Nothing of our client.

    :param extensions: behind the nonce of the first message, e.g. ``,tokenauth=true``.
    :param header: before it.
    """

    def __init__(
        self, user: str, password: str, mechanism: str = "SCRAM-SHA-256", extensions: str = "", header: str = "n,,"
    ) -> None:
        self.mechanism = mechanism
        self._hash = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
        self._password = password.encode()
        self._header = header
        self._bare = f"n={user},r=once{extensions}"
        self.first = f"{header}{self._bare}".encode()

    def final(self, answer: bytes, *, nonce: str = "", proof: bytes | None = None, binding: str = "") -> bytes:
        """The answer to the server's first message, with something else in it if need be."""
        fields = dict(part.split("=", 1) for part in answer.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, b64decode(fields["s"]), int(fields["i"]))
        key = hmac.digest(salted, b"Client Key", self._hash)
        unproved = f"c={b64encode((binding or self._header).encode()).decode()},r={nonce or fields['r']}"
        said = f"{self._bare},{answer.decode()},{unproved}".encode()
        signature = hmac.digest(hashlib.new(self._hash, key).digest(), said, self._hash)
        sound = bytes(one ^ other for one, other in zip(key, signature, strict=True))
        return f"{unproved},p={b64encode(sound if proof is None else proof).decode()}".encode()
