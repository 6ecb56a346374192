"""The gRPC server of one node: its services on a Unix socket, on ``migrator.grpc.listener``, or on both.

`migrator.node.node` makes one `GrpcServer`, binds it, starts it and closes it. TCP always has mutual TLS. The socket is
in a directory that only this user may enter; otherwise the start fails. Every call passes `doorkeeper` before a service
sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

from migrator.errors import OperatorError
from migrator.rpc.channel import MAX_CALLS, host_port, server_options
from migrator.rpc.doorkeeper import Doorkeeper
from migrator.rpc.identity import Identities
from migrator.rpc.operator_socket import SocketDirectory
from migrator.rpc.tls import TlsFiles


class Service(Protocol):
    """Something that a server can serve."""

    def register(self, server: grpc.aio.Server) -> None:
        """Add this service to a server."""


class GrpcServer:
    """Bind first (`listen`, `listen_unix`), then `start`, then `close`.

    :param identities: whom this node knows; by default nobody but the owner of the socket.
    :param options: bounds of connections, as `server_options` gives them.
    """

    def __init__(
        self,
        services: Sequence[Service],
        identities: Identities | None = None,
        options: Sequence[tuple[str, int]] | None = None,
    ) -> None:
        self._server = grpc.aio.server(
            interceptors=(Doorkeeper(identities or Identities()),),
            options=options or server_options(),
            maximum_concurrent_rpcs=MAX_CALLS,
        )
        self._socket: SocketDirectory | None = None
        for service in services:
            service.register(self._server)

    def listen(self, host: str, port: int, tls: TlsFiles) -> int:
        """Bind a TCP address, with mutual TLS; gives the port, which matters when ``port`` is 0.

        :raises OperatorError: the files of TLS cannot be used, or the address cannot be bound.
        """
        address = host_port(host or "::", port)
        credentials = tls.server()
        try:
            return int(self._server.add_secure_port(address, credentials))
        except RuntimeError as error:
            raise OperatorError(
                f"this controller cannot listen on {address}",
                where="migrator.grpc.listener",
                remedy="Choose a free port of this host",
            ) from error

    def listen_unix(self, metadata_directory: Path) -> None:
        """Bind the operator's socket below ``metadata_directory``.

        :raises OperatorError: that cannot be, or the directory is not ours alone.
        """
        try:
            self._socket = SocketDirectory(metadata_directory, create=True)
            self._server.add_insecure_port(self._socket.address)
            self._socket.protect_socket()
        except (OSError, RuntimeError) as error:
            raise OperatorError(
                f"the operator's socket cannot be made: {error}",
                where=str(metadata_directory),
                remedy="Check that this user may write to the directory",
            ) from error

    async def start(self) -> None:
        await self._server.start()

    async def close(self, grace: float = 0.5) -> None:
        """Stop; running calls get ``grace`` seconds."""
        await self._server.stop(grace)
        if self._socket is not None:
            self._socket.remove_socket()
            self._socket.close()
            self._socket = None
