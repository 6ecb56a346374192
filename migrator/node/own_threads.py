"""The parts of a controller that have separate threads. All other parts use the machine and the event loop, which
the simulation controls (docs/adr/0044-the-machine.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from migrator.observe.authorizer_log import AuthorizerLog
from migrator.rpc.identity import Identities
from migrator.rpc.server import GrpcServer, Service
from migrator.rpc.tls import Connect, connect
from migrator.values import value


@value
class OwnThreads:
    """The functions that make the parts with threads of their own."""

    serve_grpc: Callable[[Sequence[Service], Identities], GrpcServer] = GrpcServer
    connect_grpc: Connect = connect
    open_authorizer_log: Callable[[Path, int], AuthorizerLog] = AuthorizerLog


OWN_THREADS: Final = OwnThreads()
