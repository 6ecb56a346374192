"""`migrator controller`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from migrator.cli.options import config_option
from migrator.config.load import load_settings
from migrator.node.node import run_node
from migrator.observe.logs import set_up_logging


@click.command("controller")
@config_option("The controller's property file.", required=True)
def command(config: Path) -> None:
    """Run one controller of the quorum until SIGTERM or SIGINT.

    A stopping leader first brings ZooKeeper up to date (bounded), then hands the leadership over.

    Exit codes: 0 it stopped as told; 2 it could not start, or failed, the message says why; 3 it stopped as told, but
    ZooKeeper does not hold everything that the log holds, the message says what is missing.
    """
    settings, warnings = load_settings(config)
    set_up_logging(settings)
    asyncio.run(run_node(settings, warnings))
