"""The gRPC server of one node: its services on a Unix socket, on ``migrator.grpc.listener``, or on both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

from migrator.errors import OperatorError
from migrator.rpc.channel import (
    SERVER_OPTIONS,
    SOCKET_NAME,
    SocketDirectory,
    TlsFiles,
    host_port,
    refuse_open_address,
)
from migrator.rpc.noise import RefuseNoise


class Service(Protocol):
    """Something that a server can serve."""

    def register(self, server: grpc.aio.Server) -> None:
        """Add this service to a server."""


class GrpcServer:
    """Bind first (`listen`, `listen_unix`), then `start`, then `close`."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._server = grpc.aio.server(interceptors=(RefuseNoise(),), options=SERVER_OPTIONS)
        self._socket: SocketDirectory | None = None
        for service in services:
            service.register(self._server)

    def listen(self, host: str, port: int, tls: TlsFiles | None = None) -> int:
        """Bind a TCP address; gives the port, which matters when ``port`` is 0.

        :raises OperatorError: it is open to others without TLS, or cannot be bound.
        """
        refuse_open_address(host, tls)
        address = host_port(host or "::", port)
        try:
            if tls is None:
                return int(self._server.add_insecure_port(address))
            return int(self._server.add_secure_port(address, tls.server()))
        except RuntimeError as error:
            raise OperatorError(
                f"cannot listen on {address}", where="migrator.grpc.listener", remedy="Choose a free port of this host"
            ) from error

    def listen_unix(self, metadata_directory: Path) -> None:
        """Bind the operator's socket below ``metadata_directory``.

        :raises OperatorError: that cannot be.
        """
        try:
            self._socket = SocketDirectory(metadata_directory, create=True)
            self._server.add_insecure_port(self._socket.address)
        except (OSError, RuntimeError) as error:
            raise OperatorError(
                f"cannot make the operator's socket: {error}",
                where=str(metadata_directory),
                remedy="Check that this user may write to the directory",
            ) from error

    async def start(self) -> None:
        """Serve."""
        await self._server.start()

    async def close(self, grace: float = 0.5) -> None:
        """Stop; running calls get ``grace`` seconds."""
        await self._server.stop(grace)
        if self._socket is not None:
            (self._socket.path / SOCKET_NAME).unlink(missing_ok=True)
            self._socket.close()
            self._socket = None
