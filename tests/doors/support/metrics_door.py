"""Callers of the metrics of a running controller, and the expected status of each request.

Each caller differs in one thing: the authority of its certificate, its certificate or its password. Tests compare the
answers with the table here.
"""

from __future__ import annotations

import base64
import datetime as dt
import socket
import ssl
import tempfile
from collections.abc import Mapping

from cryptography.x509.oid import ExtendedKeyUsageOID

from migrator.parts.certificates import Authority
from migrator.values import value
from tests.doors.support.controllers import OPERATOR, PASSWORD, name_of
from tests.doors.support.grpc_door import itself

ANSWER_SECONDS = 60.0
JOLOKIA = "GET /jolokia/read/kafka.controller:type=KafkaController,name=ZkMigrationState"
STRIMZI = "GET /v1/kraft-migration/"
POLLED = {JOLOKIA, STRIMZI}
REQUESTS = (
    *("GET /metrics", "HEAD /metrics", "POST /metrics", "GET /", "GET /metrics/../passwords"),
    *(JOLOKIA, STRIMZI, "POST /jolokia/"),
)
SHUT = None
"""No answer: the connection was refused or closed."""


def _row(*codes: int | None) -> dict[str, int | None]:
    return dict(zip(REQUESTS, codes, strict=True))


TABLE: Mapping[str, Mapping[str, int | None]] = {
    "in clear": _row(SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT),
    "in clear, with the password": _row(SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT),
    "without a certificate": _row(SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT),
    "without a certificate, with the password": _row(SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT),
    "a certificate of another authority": _row(SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT),
    "a certificate that signs itself": _row(SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT),
    "an expired certificate": _row(SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT),
    "a certificate that does not hold yet": _row(SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT),
    "a certificate for servers only": _row(SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT, SHUT),
    "a certificate, no password": _row(401, 401, 401, 401, 401, 401, 401, 401),
    "a certificate, a wrong password": _row(401, 401, 401, 401, 401, 401, 401, 401),
    "a certificate, an unknown user": _row(401, 401, 401, 401, 401, 401, 401, 401),
    "a voter's certificate, no password": _row(401, 401, 401, 401, 401, 401, 401, 401),
    "an operator's certificate, no password": _row(401, 401, 401, 401, 401, 401, 401, 401),
    "a certificate and the password": _row(200, 200, 405, 404, 404, 200, 200, 405),
}
"""The status of each answer."""


@value
class Visitor:
    """A caller. ``authority`` None: in clear."""

    authority: Authority | None
    key_and_certificate: tuple[str, str] | None = None
    password: str = ""

    def ask(self, port: int, request: str) -> int | None:
        """The status of the answer; None without one."""
        header = (
            f"Authorization: Basic {base64.b64encode(self.password.encode()).decode()}\r\n" if self.password else ""
        )
        try:
            with self._connected(port) as connection:
                connection.sendall(f"{request} HTTP/1.1\r\nHost: x\r\n{header}\r\n".encode())
                answer = connection.recv(1 << 16)
        except OSError:  # TLS errors among them
            return SHUT
        return int(answer.split()[1]) if answer else SHUT

    def _connected(self, port: int) -> socket.socket:
        plain = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS)
        if self.authority is None:
            return plain
        context = ssl.create_default_context(cadata=self.authority.pem)
        if self.key_and_certificate is not None:
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write("".join(self.key_and_certificate))
                file.flush()
                context.load_cert_chain(file.name)
        try:
            return context.wrap_socket(plain, server_hostname="localhost")
        except OSError:
            plain.close()
            raise


def visitors(inside: Authority) -> dict[str, Visitor]:
    """The rows of `TABLE`."""
    known, later = inside.issue("prometheus"), dt.timedelta(days=1)
    other, only_servers = Authority("another authority"), (ExtendedKeyUsageOID.SERVER_AUTH,)
    expired = inside.issue("prometheus", valid_for=dt.timedelta(seconds=-1))
    return {
        "in clear": Visitor(None),
        "in clear, with the password": Visitor(None, password=PASSWORD),
        "without a certificate": Visitor(inside),
        "without a certificate, with the password": Visitor(inside, password=PASSWORD),
        "a certificate of another authority": Visitor(inside, other.issue("prometheus"), PASSWORD),
        "a certificate that signs itself": Visitor(inside, itself("prometheus"), PASSWORD),
        "an expired certificate": Visitor(inside, expired, PASSWORD),
        "a certificate that does not hold yet": Visitor(
            inside, inside.issue("prometheus", valid_after=later), PASSWORD
        ),
        "a certificate for servers only": Visitor(inside, inside.issue("prometheus", purposes=only_servers), PASSWORD),
        "a certificate, no password": Visitor(inside, known),
        "a certificate, a wrong password": Visitor(inside, known, PASSWORD + "x"),
        "a certificate, an unknown user": Visitor(inside, known, "nobody:of-the-metrics"),
        "a voter's certificate, no password": Visitor(inside, inside.issue(name_of(1))),
        "an operator's certificate, no password": Visitor(inside, inside.issue(OPERATOR)),
        "a certificate and the password": Visitor(inside, known, PASSWORD),
    }
