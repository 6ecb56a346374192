"""`migrator gates`: lists what still prevents the end, a rollback or a reopening.

It asks the active controller, and prints each gate with a remedy. It changes nothing. Property files of brokers are
read here, because the controller cannot see them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from migrator.cli.controller_at import ControllerAt, controller_options
from migrator.cli.terminal import say
from migrator.config.load import load_settings, read_properties
from migrator.errors import ExitCode, OperatorError
from migrator.migration.broker_file_gates import broker_file_gates
from migrator.observe.status import Gate, Goal
from migrator.rpc.leader_over_kafka import leaders_gates

broker_files_option = click.option(
    "--brokers",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A broker's property file of migration mode, or a copy; repeat for each. Looks at what no broker tells. Needs "
    "-c.",
)


@click.command("gates")
@click.argument("goal", type=click.Choice([str(goal) for goal in Goal]))
@controller_options
@broker_files_option
def command(at: ControllerAt, goal: str, brokers: tuple[Path, ...]) -> None:
    """List what still prevents the end of the migration, a rollback, or a reopening. Changes nothing.

    \b
    finish    the end of the migration, after which ZooKeeper gets no changes
    rollback  the return of the cluster to a ZooKeeper controller
    reopen    the way back into dual-write, when the migration is finished

    Exit codes: 0 nothing prevents it, 1 something prevents it, 2 refused.
    """
    if brokers and goal != Goal.REOPEN:
        raise click.UsageError("Files of brokers are looked at for the goal 'reopen' only")
    try:
        gates = at.ask(lambda client: client.gates(Goal(goal)))
        if brokers:
            gates += gates_of_files(at, brokers)
    except OperatorError:
        found = None if at.config is None else asyncio.run(leaders_gates(load_settings(at.config)[0], Goal(goal)))
        if found is None or brokers:
            raise
        gates = found
    if not tell_gates(gates):
        raise SystemExit(ExitCode.DIFFERENT)


def gates_of_files(at: ControllerAt, brokers: Sequence[Path]) -> tuple[Gate, ...]:
    """The gates in the property files of brokers.

    :raises OperatorError: no property file of a controller is named, a file cannot be read, or no controller answers.
    """
    if at.config is None:
        raise OperatorError(
            "the command compares these files with a controller's file", where="--brokers", remedy="Give -c"
        )
    version = at.ask(lambda client: client.status()).metadata_version
    files = {str(path): read_properties(path) for path in brokers}
    return broker_file_gates(files, read_properties(at.config), version)


def tell_gates(gates: Iterable[Gate]) -> bool:
    """Print a line for each gate. Returns whether all are open."""
    found = tuple(gates)
    for gate in found:
        remedy = f". {gate.remedy}" if gate.remedy and not gate.open else ""
        say(f"{'ok ' if gate.open else 'NO '} {gate.name}: {gate.what}{remedy}")
    return all(gate.open for gate in found)
