"""`migrator controller`."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import click

from migrator.cli.options import config_option
from migrator.config.load import load_settings
from migrator.node.node import run_node
from migrator.observe.logs import set_up_logging


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
    asyncio.run(run_node(settings, warnings))
