"""`migrator repair`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from migrator.cli.options import config_option
from migrator.cli.terminal import ask, say
from migrator.config.load import load_settings
from migrator.errors import ExitCode
from migrator.preflight.lost_states import Restored
from migrator.preflight.repair import PartitionStates, Plan
from migrator.zookeeper.session import ZooKeeperSession, options_from


@click.group("repair")
def command() -> None:
    """Restore what ZooKeeper has lost, before a migration."""


@command.command("partition-states")
@config_option("Property file of a controller: how it reaches ZooKeeper and the brokers counts.", required=True)
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def partition_states(config: Path, dry_run: bool, yes: bool) -> None:
    """Write partition states that are missing or do not decode, as the brokers know them.

    Every registered broker is asked for leader, leader epoch and in-sync replicas; the newest answer counts. Its epoch
    is raised by one, so that brokers take the state. Then /controller is deleted, as the brokers' controller reads
    partition states only when it is elected; they elect one within milliseconds. Nothing is written unless a ZooKeeper
    broker is the controller. Exit codes: 0 all are in order, or restored; 1 some are lost and were not restored; 2
    refused.
    """
    settings, _ = load_settings(config)
    with ZooKeeperSession(options_from(settings)) as session:
        states = PartitionStates(session, settings)
        plan = states.plan()
        for line in _lines(plan):
            say(line)
        if plan.restored and not dry_run:
            if not yes:
                ask("Write these, and let the brokers elect a controller?", abort=True)
            elected = states.write(plan)
            say(f"{len(plan.restored)} states are written; broker {elected.broker_id} is the controller")
    if plan.left or (plan.restored and dry_run):
        raise click.exceptions.Exit(ExitCode.DIFFERENT)


def _lines(plan: Plan) -> Iterator[str]:
    if not plan.restored and not plan.left:
        yield "every partition has a state that decodes"
    for restored in plan.restored:
        yield _described(restored)
    for lost, why in plan.left:
        yield f"{lost}: cannot be restored: {why}"


def _described(restored: Restored) -> str:
    state, lost = restored.state, restored.lost
    was = "is missing" if lost.version is None else "does not decode"
    return (
        f"{lost}: the state {was}; to write: leader {state.leader}, leader epoch {state.leader_epoch} (brokers know "
        f"{restored.reported.leader_epoch}), in sync {list(state.isr)}"
    )
