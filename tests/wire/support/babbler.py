"""A server that does not speak the protocol."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def babbling(answer: bytes) -> Iterator[int]:
    """Sends ``answer`` to everyone who says something, then nothing more; gives its port.

    It has threads of its own and ends when its clients have closed their connections.
    """

    class Talk(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.settimeout(5)
                if self.request.recv(1):
                    self.request.sendall(answer)
                while self.request.recv(4096):
                    pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Talk) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
