"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A time in seconds. ``nan`` and ``inf``, which `float` accepts, are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """
        :raises click.BadParameter: the text is no finite number, or out of range.
        """
        found: float = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return found


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


def command_config_option(command: Command) -> Command:
    """``--command-config FILE``: the identity of the operator, for orders over the network."""
    return click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Your own property file, with migrator.grpc.tls.* (certificate, key, CA) and "
        "migrator.grpc.voter.principals. Default: the file of -c.",
    )(command)


def kafka_hashes_option(command: Command) -> Command:
    """``--kafka-hashes FILE``: for a release of ``--kafka`` that this program's list lacks."""
    return click.option(
        "--kafka-hashes", "hashes", metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="SHA-256 of each jar of the release, for a release that this program does not know. See docs/rehearse.md.",
    )(command)  # fmt: skip
