"""`migrator resume`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from migrator.cli.options import controller_options
from migrator.cli.terminal import say
from migrator.rpc.find_controller import active_controller


@click.command("resume")
@controller_options
def command(config: Path | None, server: str | None, command_config: Path | None) -> None:
    """Continue a migration that 'migrator pause' has paused.

    Exit codes: 0 the migration continues, 2 refused.
    """
    asyncio.run(_resume(config, server, command_config))
    say("the migration continues")


async def _resume(config: Path | None, server: str | None, command_config: Path | None) -> None:
    async with active_controller(config, server, command_config) as client:
        await client.resume()
