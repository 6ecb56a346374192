"""Additions to asyncio's TLS for which it has no public interface. Every use of its private names is in this file.

It works with the releases of Python that the tests run with. On a later release a controller does not start.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import sslproto

from migrator.errors import OperatorError

LAST_TESTED = (3, 13)
TLS_BUFFER_BYTES = 32_768
"""The read buffer of each TLS connection: two TLS records. With asyncio's own 256 KiB, the thousand connections that
may be in a handshake at once would take 256 MiB."""


class AlertingProtocol(sslproto.SSLProtocol):
    """Asyncio's TLS, which also sends the alert of a failed handshake, and counts encrypted bytes that are not sent
    yet.

    OpenSSL prepares the alert, but asyncio closes without sending it. A Kafka client gives up at an alert and reports
    the certificate. When a connection just ends, it tries again until its time-out, and its users never learn why.

    Encrypted bytes wait in the socket's transport, and asyncio counts them as sent.
    """

    max_size = TLS_BUFFER_BYTES
    _below: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            self._below = transport
            transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)

    def _get_write_buffer_size(self) -> int:
        below = 0 if self._below is None else self._below.get_write_buffer_size()
        return int(super()._get_write_buffer_size()) + below  # type: ignore[misc]  # not in the stubs

    def _on_handshake_complete(self, handshake_exc: BaseException | None) -> None:
        if handshake_exc is not None and self._transport is not None:
            self._process_outgoing()  # type: ignore[attr-defined]  # not in the stubs
        super()._on_handshake_complete(handshake_exc)


def use_in_asyncio(python: tuple[int, int] = sys.version_info[:2]) -> None:
    """Make `AlertingProtocol` the TLS of asyncio in this process.

    :raises OperatorError: this release of Python has not been tested.
    """
    if python > LAST_TESTED:
        tested, running = (".".join(map(str, each)) for each in (LAST_TESTED, python))
        raise OperatorError(
            f"Python {running} was not tested: this program changes parts of Python's TLS that may differ there",
            where=sys.executable,
            remedy=f"Run the controller with Python 3.11 to {tested}",
        )
    sslproto.SSLProtocol = AlertingProtocol  # type: ignore[misc]
