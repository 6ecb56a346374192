"""Options that several commands share.

Each function returns a click decorator or converts a value. An option has the same name and type in all commands that
take it, and a value that cannot be used is refused before the work begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from migrator.errors import OperatorError

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


def sources_options(command: Command) -> Command:
    """The options of `verify` and `ask`: the sources of both sides, and the Spark that reads them."""
    for option in reversed(_SOURCES):
        command = option(command)
    return command


def settings_of_spark(conf: tuple[str, ...]) -> dict[str, str]:
    """The values of ``--conf``.

    :raises OperatorError: a text is not KEY=VALUE.
    """
    for pair in conf:
        if "=" not in pair:
            raise OperatorError(f"{pair!r} is not KEY=VALUE", where="--conf", remedy="Write for example a.b=c")
    return dict(pair.split("=", 1) for pair in conf)


_SOURCES: tuple[Callable[[Any], Any], ...] = (
    click.option("--zookeeper", metavar="HOSTS", help="ZooKeeper, as in zookeeper.connect: host:port[,...][/chroot]."),
    click.option(
        "--zookeeper-files",
        multiple=True,
        metavar="DIR",
        help="Read files instead: the dataDir of a ZooKeeper server, with snapshots and transaction logs, also "
        "s3://BUCKET/KEY. Repeat the option for a separate dataLogDir.",
    ),
    click.option("--chroot", metavar="PATH", help="The chroot of Kafka in those files."),
    click.option(
        "--metadata",
        "directory",
        metavar="DIR|HOST:PORT",
        help="Metadata directory of a controller, ours or stock Kafka's, also s3://BUCKET/KEY; or the listeners of "
        "running controllers, with commas: then the log is fetched from them.",
    ),
    config_option(
        "A controller's property file: ZooKeeper's address and security, password encoder, metadata directory."
    ),
    click.option("--master", help="Spark master. [default: that of spark-submit, else local[*]]"),
    click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Spark setting; may be repeated."),
)
