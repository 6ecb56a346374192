"""How the command line reaches a controller: by its property file or its address; and how it finds the active one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from migrator.config.endpoints import parse_host_port
from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.rpc.channel import TlsFiles, host_port, tls_files
from migrator.rpc.operator_client import OperatorClient

ASK_SECONDS = 2.0
"""For one controller out of several."""


def connect(config: Path | None, server: str | None) -> OperatorClient:
    """The controller at ``server`` (host:port; TLS files are those of ``config``), else the one of ``config``, through
    its socket.

    :raises OperatorError: neither is given, or nobody can be reached that way.
    """
    settings = None if config is None else load_settings(config)[0]
    if server is not None:
        try:
            host, port = parse_host_port(server)
        except ValueError as error:
            raise OperatorError(str(error), where="--server", remedy="Write HOST:PORT") from error
        return OperatorClient.at(host_port(host, port), None if settings is None else _tls(settings))
    if settings is None:
        raise OperatorError("no controller is named", remedy="Give -c FILE or --server HOST:PORT")
    return OperatorClient.on_socket(settings.metadata_directory)


@asynccontextmanager
async def active_controller(config: Path | None, server: str | None) -> AsyncIterator[OperatorClient]:
    """The controller that drives the migration: the one that `connect` reaches, or one of ``migrator.grpc.voters``.

    :raises OperatorError: none of them answers that it does; names the leader.
    """
    failure: OperatorError | None = None
    leader, answered = -1, False
    for address in _addresses(config, server):
        try:
            client = connect(config, address)
        except OperatorError as error:
            failure = failure or error
            continue
        async with client:
            try:
                status = await client.status(timeout=ASK_SECONDS)
            except OperatorError as error:
                failure = failure or error
                continue
            if status.migration.active:
                yield client
                return
            leader, answered = max(leader, status.quorum.leader_id), True
    if leader >= 0:
        raise OperatorError(
            f"controller {leader} leads, and was not reached, or drives no migration",
            remedy=f"Run this with the property file of controller {leader} on its machine, or name its "
            "migrator.grpc.listener with --server",
        )
    if failure is None or answered:
        raise OperatorError("no controller leads", remedy="Wait for an election; see 'migrator status'")
    raise failure


def _addresses(config: Path | None, server: str | None) -> Iterator[str | None]:
    """What to try, in order; None is the socket of ``config``."""
    yield server
    if server is None and config is not None:
        for voter in load_settings(config)[0].grpc_voters:
            yield host_port(voter.host, voter.port)


def _tls(settings: Settings) -> TlsFiles | None:
    return tls_files(
        settings.migrator_grpc_tls_certificate_file,
        settings.migrator_grpc_tls_key_file,
        settings.migrator_grpc_tls_ca_file,
    )
