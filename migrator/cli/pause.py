"""`migrator pause`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from migrator.cli.options import controller_options
from migrator.cli.terminal import say
from migrator.rpc.find_controller import active_controller


@click.command("pause")
@controller_options
@click.option("--reason", required=True, help="Why you pause. The journal and the status show the reason.")
def command(config: Path | None, server: str | None, command_config: Path | None, reason: str) -> None:
    """Pause the migration before it writes to ZooKeeper. After the copy has begun, a pause is refused.

    When the command returns, a majority of the controllers has stored the order. Every later leader obeys the order
    until 'migrator resume'. Exit codes: 0 paused, 2 refused.
    """
    asyncio.run(_pause(config, server, command_config, reason))
    say("the migration is paused before the copy; continue with 'migrator resume'")


async def _pause(config: Path | None, server: str | None, command_config: Path | None, reason: str) -> None:
    async with active_controller(config, server, command_config) as client:
        await client.pause(reason)
