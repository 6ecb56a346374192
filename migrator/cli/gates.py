"""`migrator gates`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from migrator.cli.options import controller_options
from migrator.cli.terminal import say
from migrator.errors import ExitCode
from migrator.observe.status import Gate, Goal
from migrator.rpc.reach import active_controller


@click.command("gates")
@click.argument("goal", type=click.Choice([str(goal) for goal in Goal]))
@controller_options
def command(goal: str, config: Path | None, server: str | None, command_config: Path | None) -> None:
    """Say what stands between the cluster and a goal; nothing is changed.

    \b
    finish    the end of the migration, after which there is no way back
    rollback  the cluster under a ZooKeeper controller again

    Exit codes: 0 nothing stands in the way, 1 something does, 2 refused.
    """
    gates = asyncio.run(_gates(config, server, command_config, Goal(goal)))
    for gate in gates:
        remedy = f". {gate.remedy}" if gate.remedy and not gate.open else ""
        say(f"{'ok ' if gate.open else 'NO '} {gate.name}: {gate.what}{remedy}")
    if not all(gate.open for gate in gates):
        raise SystemExit(ExitCode.DIFFERENT)


async def _gates(config: Path | None, server: str | None, command_config: Path | None, goal: Goal) -> tuple[Gate, ...]:
    async with active_controller(config, server, command_config) as client:
        return await client.gates(goal)
