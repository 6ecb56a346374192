"""A caller at a Kafka listener with a socket, Python's TLS and a login by hand.

It shares no code with this program's client, so a fault of the client cannot hide one of the server.
"""

from __future__ import annotations

import dataclasses
import socket
import ssl
import tempfile
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

from kio.schema.errors import ErrorCode

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
from tests.raw_frames import receive, sized

ANSWER_SECONDS = 60.0
DENIALS = frozenset(code for code in ErrorCode if code.name.endswith("authorization_failed"))


class Outcome(Enum):
    """The result of a call."""

    SHUT = "shut"
    """No answer: the connection was refused or closed."""
    DENIED = "denied"
    """Answered with nothing but that the caller may not."""
    ANSWERED = "answered"


@value
class Login:
    """User and password for PLAIN."""

    user: str
    password: str


@value
class Caller:
    """A caller, and its login.

    :ivar authority: PEM of who signed the listener's certificate; None to speak in clear.
    :ivar key_and_certificate: PEM of both; None to show no certificate.
    """

    authority: str | None = None
    key_and_certificate: tuple[str, str] | None = None
    login: Login | None = None

    def call(self, port: int, key: int, version: int, fields: dict[str, Any]) -> Outcome:
        """Connect, log in, and ask once."""
        answer = self.answer(port, key, version, fields)
        if answer is None:
            return Outcome.SHUT
        return Outcome.DENIED if _is_denial(answer) else Outcome.ANSWERED

    def answer(self, port: int, key: int, version: int, fields: dict[str, Any]) -> Any | None:
        """The answer to `call`; None without one."""
        try:
            with self.connect(port) as connection:
                return ask(connection, key, version, fields)
        except OSError:  # TLS errors among them
            return None

    def connect(self, port: int) -> socket.socket:
        """A connection that has logged in, if this caller does.

        :raises OSError: it was refused or closed.
        """
        connection = self._connected(port)
        if self.login is not None and not log_in(connection, self.login):
            connection.close()
            raise ConnectionRefusedError(f"the login of {self.login.user} has failed")
        return connection

    def _connected(self, port: int) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        if self.authority is None:
            return plain
        context = ssl.create_default_context(cadata=self.authority)
        if self.key_and_certificate is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write("".join(self.key_and_certificate))
                file.flush()
                context.load_cert_chain(Path(file.name))
        return context.wrap_socket(plain, server_hostname="localhost")


def log_in(connection: socket.socket, login: Login) -> bool:
    chosen = ask(connection, SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    if chosen is None or chosen.error_code is not ErrorCode.none:
        return False
    token = f"\0{login.user}\0{login.password}".encode()
    done = ask(connection, SASL_AUTHENTICATE, 2, {"auth_bytes": token})
    return done is not None and done.error_code is ErrorCode.none


def request(key: int, version: int, fields: dict[str, Any]) -> bytes:
    """With its size in front."""
    return framed(build(request_type(key, version), **fields))


def framed(body: Any) -> bytes:
    """One of kio's requests with its header and its size."""
    header = encode_request_header(RequestHeader(body.__api_key__, body.__version__, 1, "caller"))
    return sized(b"".join(header + encode_entity(body)))


def ask(connection: socket.socket, key: int, version: int, fields: dict[str, Any]) -> Any | None:
    """The answer; None when there is none any more."""
    return exchange(connection, build(request_type(key, version), **fields))


def exchange(connection: socket.socket, body: Any) -> Any | None:
    """The answer to one of kio's requests; None when there is none any more."""
    connection.sendall(framed(body))
    answer = receive(connection)
    if answer is None:
        return None
    key, version = body.__api_key__, body.__version__
    _, offset = decode_response_header(key, version, answer)
    return decode_entity(response_type(key, version), answer, offset)[0]


def _is_denial(answer: Any) -> bool:
    codes = set(codes_of(answer)) - {ErrorCode.none}
    return bool(codes) and codes <= DENIALS


def codes_of(part: Any) -> Iterator[ErrorCode]:
    if isinstance(part, ErrorCode):
        yield part
    elif isinstance(part, tuple | list):
        for item in part:
            yield from codes_of(item)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from codes_of(getattr(part, field.name))
