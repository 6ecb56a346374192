"""One HTTPS request of bounded size and time, for keys and tokens of an identity provider.

Redirects are not followed, so only the server that the operator named can answer. The calls block, and run on other
threads than the event loop.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from migrator.values import value

MAX_BYTES = 1024 * 1024
TOTAL_SECONDS = 30.0


@value
class Address:
    """``path``: with the query; for a file, its path on this machine."""

    scheme: str
    host: str
    port: int
    path: str


def parse_address(text: str) -> Address:
    """A ``file:`` or ``https:`` address.

    :raises ValueError: it is another kind of address.
    """
    parts = urlsplit(text)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise ValueError("a file address needs a path on this machine")
        return Address("file", "", 0, unquote(parts.path))
    if parts.scheme != "https":
        raise ValueError(f"{parts.scheme or 'no scheme'} is neither file nor https")
    if not parts.hostname or parts.username is not None or parts.fragment:
        raise ValueError("an https address needs a host, and neither user nor fragment")
    return Address(
        "https", parts.hostname, parts.port or 443, (parts.path or "/") + (f"?{parts.query}" * bool(parts.query))
    )


def read_file(path: str) -> bytes:
    """A file of bounded size.

    :raises OSError: the file cannot be read, or is too big.
    """
    with Path(path).open("rb") as file:
        found = file.read(MAX_BYTES + 1)
    if len(found) > MAX_BYTES:
        raise OSError(f"{path} has more than {MAX_BYTES} bytes")
    return found


def request(
    at: Address,
    context: ssl.SSLContext,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    connect_s: float = 10.0,
    total_s: float = TOTAL_SECONDS,
) -> bytes:
    """The body of the answer to a GET, or to a POST of ``body``.

    :raises OSError: no answer in time, an answer that is too big, or one other than 200 or 201.
    """
    connection = http.client.HTTPSConnection(at.host, at.port, timeout=min(connect_s, total_s), context=context)
    watch = threading.Timer(total_s, _cut, (connection,))
    watch.daemon = True
    watch.start()
    try:
        connection.request("GET" if body is None else "POST", at.path, body, dict(headers or {}))
        answer = connection.getresponse()
        found = answer.read(MAX_BYTES + 1)
    except http.client.HTTPException as error:
        raise OSError(f"{at.host}:{at.port} does not speak HTTP: {type(error).__name__}") from error
    finally:
        watch.cancel()
        connection.close()
    if answer.status not in (200, 201):
        raise OSError(f"{at.host}:{at.port} answers with status {answer.status}")
    if len(found) > MAX_BYTES:
        raise OSError(f"{at.host}:{at.port} answers with more than {MAX_BYTES} bytes")
    return found


def _cut(connection: http.client.HTTPSConnection) -> None:
    """End a request that takes too long, also when its answer arrives byte by byte."""
    if isinstance(connection.sock, socket.socket):
        with contextlib.suppress(OSError):
            connection.sock.shutdown(socket.SHUT_RDWR)
