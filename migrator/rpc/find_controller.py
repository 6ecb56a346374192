"""Connects the command line to a controller, by its property file or its address, and finds the active one.

Commands call `connect` for one controller, `active_controller` for the one that drives the migration, and
`leading_controller` for the leader. With an address, TLS must prove the name that the voter's certificate should have.
If no such controller answers, the error names the leader if one is known.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from migrator.config.endpoints import parse_host_port
from migrator.config.load import load_settings, read_properties, typed_settings
from migrator.config.principals import names_of
from migrator.config.settings import Settings
from migrator.errors import OperatorError
from migrator.observe.leaders import stock_leads, under_stock
from migrator.observe.status import Status
from migrator.rpc.channel import host_port
from migrator.rpc.operator_client import OperatorClient
from migrator.rpc.tls import tls_files

ASK_SECONDS = 5.0
"""Seconds for the answer of one controller out of several."""
CLIENT_KEYS = (
    "migrator.grpc.tls.certificate.file",
    "migrator.grpc.tls.key.file",
    "migrator.grpc.tls.ca.file",
    "migrator.grpc.voter.principals",
)
"""The keys that a client needs to reach a controller over TCP."""
DRIVES_NONE = ", or drives no migration"


def connect(
    config: Path | None, server: str | None, command_config: Path | None = None, *, voter: int | None = None
) -> OperatorClient:
    """A client of the controller at ``server`` (host:port), or without it of the one of ``config``, through its socket.

    :param command_config: a file with the client's keys migrator.grpc.tls.* and migrator.grpc.voter.principals; by
        default ``config``, with the controller's own.
    :param voter: the voter that is expected at ``server``; by default any voter.
    :raises OperatorError: neither is given, or the controller cannot be reached that way.
    """
    settings = None if config is None else load_settings(config)[0]
    if server is None:
        if settings is None:
            raise OperatorError(
                "no controller is named", where="-c, --server", remedy="Give -c FILE or --server HOST:PORT"
            )
        return OperatorClient.on_socket(settings.metadata_directory)
    try:
        address = host_port(*parse_host_port(server))
    except ValueError as error:
        raise OperatorError(str(error), where="--server", remedy="Write HOST:PORT") from error
    mine = settings if command_config is None else _own_keys(command_config)
    if mine is None:
        raise OperatorError(
            "controllers speak TLS only, and no certificate is named",
            where="--server",
            remedy=f"Give --command-config FILE, a property file with {', '.join(CLIENT_KEYS)}",
        )
    return OperatorClient.at(address, tls_files(mine), _expected(mine, voter))


@asynccontextmanager
async def active_controller(
    config: Path | None, server: str | None, command_config: Path | None = None
) -> AsyncIterator[OperatorClient]:
    """The controller that drives the migration: the one that `connect` reaches, or one of ``migrator.grpc.voters``.

    :raises OperatorError: none of them answers that it does; names the leader.
    """
    async with _first(config, server, command_config, lambda status: status.migration.active, DRIVES_NONE) as client:
        yield client


@asynccontextmanager
async def leading_controller(
    config: Path | None, server: str | None, command_config: Path | None = None
) -> AsyncIterator[OperatorClient]:
    """The controller that leads the quorum; found likewise.

    :raises OperatorError: none of them answers that it does; names the leader.
    """
    async with _first(config, server, command_config, _leads, "") as client:
        yield client


def _leads(status: Status) -> bool:
    return status.quorum.leader_id == status.node_id


@asynccontextmanager
async def _first(
    config: Path | None,
    server: str | None,
    command_config: Path | None,
    is_meant: Callable[[Status], bool],
    or_else: str,
) -> AsyncIterator[OperatorClient]:
    failure: OperatorError | None = None
    leader, answered, is_stock = -1, False, False
    for address, voter in addresses(config, server):
        try:
            client = connect(config, address, command_config, voter=voter)
        except OperatorError as error:
            failure = failure or error
            continue
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(client)
                status = await client.status(timeout=ASK_SECONDS)
            except OperatorError as error:
                failure = failure or error
                continue
            if is_meant(status):
                yield client
                return
            if status.quorum.leader_id > leader:
                leader, is_stock = status.quorum.leader_id, status.quorum.stock_leader
            answered = True
    if leader >= 0 and is_stock:
        raise OperatorError(stock_leads(leader), where="quorum", remedy=under_stock(leader))
    if leader >= 0:
        raise OperatorError(
            f"controller {leader} leads, and was not reached{or_else}",
            where="quorum",
            remedy=f"Run this with the property file of controller {leader} on its machine, or name its "
            "migrator.grpc.listener with --server",
        )
    if failure is None or answered:
        raise OperatorError(
            "no controller leads",
            where="quorum",
            remedy="Wait for an election. 'migrator status' says what it needs",
        )
    raise failure


def addresses(config: Path | None, server: str | None) -> Iterator[tuple[str | None, int | None]]:
    """The addresses to try, in order, with the voter that is expected there; None is the socket of ``config``."""
    yield server, None
    if server is None and config is not None:
        for voter in load_settings(config)[0].grpc_voters:
            yield host_port(voter.host, voter.port), voter.voter_id


def _own_keys(command_config: Path) -> Settings:
    """The settings of a client's file, which need not be a controller's."""
    return typed_settings(read_properties(command_config), str(command_config))


def _expected(settings: Settings, voter: int | None) -> frozenset[str]:
    """The names that the server's certificate may have."""
    where = f"{settings.source}: migrator.grpc.voter.principals"
    try:
        voters = settings.grpc_voter_principals
    except ValueError as error:
        raise OperatorError(str(error), where=where, remedy="Copy the value of the controllers") from error
    found = names_of(voters, voters.values() if voter is None else (voter,))
    if not found:
        raise OperatorError(
            "the key names nobody: any certificate of the CA could pass for a controller's",
            where=where,
            remedy="Copy the value of the controllers",
        )
    return found
