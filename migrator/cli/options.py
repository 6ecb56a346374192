"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def config_option(help_text: str, *, required: bool = False) -> Callable[[Command], Command]:
    """``-c FILE``: a controller's property file."""
    return click.option(
        "-c",
        "--config",
        "config",
        metavar="FILE",
        required=required,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=help_text,
    )


def controller_options(command: Command) -> Command:
    """``-c FILE`` and ``--server HOST:PORT``: which controller is meant (`migrator.rpc.reach`)."""
    command = click.option(
        "--server",
        metavar="HOST:PORT",
        help="A controller's migrator.grpc.listener instead; TLS files are those of -c.",
    )(command)
    return config_option("Property file of a controller on this machine; asked through its socket.")(command)
