"""`migrator controller`: runs one controller in this process until a signal.

It sets up what the whole process shares (signals, limits, garbage collector), then calls `migrator.node.node.run_node`.
Exit code 3 says that ZooKeeper lacks changes.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from migrator.cli.options import config_option
from migrator.config.load import load_settings
from migrator.config.process_rights import rights_of_process
from migrator.config.settings import Settings
from migrator.node.access.connection_bounds import raise_limit_of_open_files
from migrator.node.node import run_node
from migrator.node.stop_reason import StopReason
from migrator.observe.logs import set_up_logging
from migrator.observe.loop_health import calm_garbage_collector, take_short_turns

log = logging.getLogger(__name__)


@click.command("controller")
@config_option("The controller's property file.", required=True)
@click.option(
    "--bootstrap",
    is_flag=True,
    help="Let an empty controller vote although migrator.quorum.require.bootstrap is true: for a new quorum.",
)
def command(config: Path, bootstrap: bool) -> None:
    """Run one controller of the quorum until SIGTERM or SIGINT.

    A leader that stops first brings ZooKeeper up to date (within a limit of time), then hands the leadership over.

    Exit codes: 0 stopped as ordered; 2 could not start, or failed: the message says why; 3 stopped as ordered, but
    ZooKeeper does not hold everything that the log holds: the message says what is missing; 70 stopped because of a
    defect of this program; 75 refused to start because of this node's own log only: start it again.
    """
    settings, warnings = load_settings(config)
    if bootstrap:
        settings = replace(settings, migrator_quorum_require_bootstrap=False)
    set_up_logging(settings)
    rights = (f"{settings.source}: {key}: {what}. {remedy}" for key, what, remedy in rights_of_process(settings))
    asyncio.run(_run(settings, (*warnings, *rights)))


async def _run(settings: Settings, warnings: Sequence[str]) -> None:
    """Run a controller in this process: set limits, signals, and the event loop's handler of unhandled errors."""
    raise_limit_of_open_files()
    take_short_turns()
    failure = StopReason()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, failure.stop.set)
    loop.set_exception_handler(failure.unhandled)
    for warning in warnings:
        log.warning("%s", warning)
    await run_node(settings, failure, when_ready=calm_garbage_collector)
