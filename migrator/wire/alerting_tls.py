"""What asyncio's TLS lacks, and gives no public means to add. Every use of its private names is in this file.

It serves the releases of Python that the tests run with; on a later one a controller does not start.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio import sslproto

from migrator.errors import OperatorError

LAST_TESTED = (3, 13)
TLS_BUFFER_BYTES = 32_768
"""What each TLS connection has for what it reads, two records' worth. Asyncio's own 256 KiB would be 256 MiB for the
strangers that may be in a handshake at once."""


class AlertingProtocol(sslproto.SSLProtocol):
    """Asyncio's TLS, which also tells the peer why a handshake failed, and counts what the socket has not taken.

    OpenSSL has the alert ready, and asyncio closes without sending it. Kafka's clients give up at an alert; connections
    that merely end they make again until their time is over, and their users never hear of certificates.

    What is encrypted waits in the socket's transport, where asyncio counts it as sent.
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
    """From now on, all TLS of asyncio in this process is ours.

    :raises OperatorError: nobody has tried that with this release of Python.
    """
    if python > LAST_TESTED:
        tested, running = (".".join(map(str, each)) for each in (LAST_TESTED, python))
        raise OperatorError(
            f"Python {running} was not tested: this program changes parts of Python's TLS that may differ there",
            where=sys.executable,
            remedy=f"Run the controller with Python 3.11 to {tested}",
        )
    sslproto.SSLProtocol = AlertingProtocol  # type: ignore[misc]
