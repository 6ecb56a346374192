"""`migrator pause`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from migrator.cli.options import controller_options
from migrator.cli.terminal import say
from migrator.rpc.reach import active_controller


@click.command("pause")
@controller_options
@click.option("--reason", required=True, help="For the journal, and for the status.")
def command(config: Path | None, server: str | None, command_config: Path | None, reason: str) -> None:
    """Hold the migration before it writes to ZooKeeper; only what has not begun can be held.

    A majority of the controllers has the order when this returns, and every later leader obeys it until 'migrator
    resume'. Exit codes: 0 held, 2 refused.
    """
    asyncio.run(_pause(config, server, command_config, reason))
    say("the migration is held before its copy; go on with 'migrator resume'")


async def _pause(config: Path | None, server: str | None, command_config: Path | None, reason: str) -> None:
    async with active_controller(config, server, command_config) as client:
        await client.pause(reason)
