"""`migrator gates`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import click

from migrator.cli.controller_at import ControllerAt, controller_options
from migrator.cli.terminal import say
from migrator.config.load import load_settings
from migrator.errors import ExitCode, OperatorError
from migrator.observe.status import Gate, Goal
from migrator.rpc.leader_over_kafka import leaders_gates


@click.command("gates")
@click.argument("goal", type=click.Choice([str(goal) for goal in Goal]))
@controller_options
def command(at: ControllerAt, goal: str) -> None:
    """List what still prevents the end of the migration, a rollback, or a reopening. Changes nothing.

    \b
    finish    the end of the migration, after which ZooKeeper gets no changes
    rollback  the return of the cluster to a ZooKeeper controller
    reopen    the way back into dual-write, when the migration is finished

    Exit codes: 0 nothing prevents it, 1 something prevents it, 2 refused.
    """
    try:
        gates = at.ask(lambda client: client.gates(Goal(goal)))
    except OperatorError:
        found = None if at.config is None else asyncio.run(leaders_gates(load_settings(at.config)[0], Goal(goal)))
        if found is None:
            raise
        gates = found
    if not tell_gates(gates):
        raise SystemExit(ExitCode.DIFFERENT)


def tell_gates(gates: Iterable[Gate]) -> bool:
    """Print a line for each gate. Returns whether all are open."""
    found = tuple(gates)
    for gate in found:
        remedy = f". {gate.remedy}" if gate.remedy and not gate.open else ""
        say(f"{'ok ' if gate.open else 'NO '} {gate.name}: {gate.what}{remedy}")
    return all(gate.open for gate in found)
