"""The options that name a controller (``-c``, ``--server``, ``--command-config``), and the controllers that are found
with them.

Commands with orders or questions take `controller_options`, and get a `ControllerAt` as their first argument.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from migrator.cli.options import command_config_option, config_option
from migrator.rpc.find_controller import active_controller
from migrator.rpc.operator_client import OperatorClient

T = TypeVar("T")


class ControllerAt(NamedTuple):
    """Which controller to ask, and with whose identity: the first arguments of the functions in
    `migrator.rpc.find_controller`, in their order."""

    config: Path | None
    server: str | None
    command_config: Path | None

    def ask(self, question: Callable[[OperatorClient], Awaitable[T]]) -> T:
        """Ask the controller that drives the migration. Errors as in `active_controller`, and those of the question."""

        async def asked() -> T:
            async with active_controller(*self) as client:
                return await question(client)

        return asyncio.run(asked())


def controller_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``-c FILE``, ``--server HOST:PORT`` and ``--command-config FILE``. The command gets them as one `ControllerAt`,
    its first argument."""

    @functools.wraps(command)
    def with_controller(config: Path | None, server: str | None, command_config: Path | None, **others: Any) -> Any:
        return command(ControllerAt(config, server, command_config), **others)

    with_server = click.option(
        "--server",
        metavar="HOST:PORT",
        help="Ask the controller with this migrator.grpc.listener, with the certificate of --command-config or of -c.",
    )(with_controller)
    return config_option(
        "Property file of a controller on this machine. The command uses the socket of this controller."
    )(command_config_option(with_server))
