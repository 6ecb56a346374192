"""`migrator repair partition-states`: shows the states that can be restored, asks, and writes them.

`migrator.preflight.repair` does the work. With ``--dry-run`` nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from migrator.cli.options import config_option
from migrator.cli.terminal import ask, say
from migrator.config.load import load_settings
from migrator.errors import ExitCode
from migrator.preflight.lost_states import Restored
from migrator.preflight.repair import PartitionStates, RepairPlan
from migrator.zookeeper.clusters import read_cluster_id
from migrator.zookeeper.session import ZooKeeperSession, options_from


@click.group("repair")
def command() -> None:
    """Restore partition states that ZooKeeper has lost, before a migration."""


@command.command("partition-states")
@config_option(
    "Property file of a controller. The command reaches ZooKeeper and the brokers as this file says.", required=True
)
@click.option("--dry-run", is_flag=True, help="Show what the command would write, and write nothing.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def partition_states(config: Path, dry_run: bool, yes: bool) -> None:
    """Restore partition states that are missing or do not decode, from what the brokers know.

    The command asks every registered broker for leader, leader epoch and in-sync replicas, and takes the newest answer.
    It raises the leader epoch by one, so that brokers accept the state. Then it deletes /controller, because the
    brokers' controller reads partition states only when it is elected; the brokers elect one within milliseconds. It
    writes nothing unless a ZooKeeper broker is the controller. Exit codes: 0 all states are in order, or restored; 1
    some states are lost and were not restored; 2 refused.
    """
    settings, _ = load_settings(config)
    with ZooKeeperSession(options_from(settings)) as session:
        read_cluster_id(session)
        states = PartitionStates(session, settings)
        plan = states.plan()
        for line in _lines(plan):
            say(line)
        if plan.restored and not dry_run:
            if not yes:
                ask("Write these states, and let the brokers elect a controller?", abort=True)
            elected = states.write(plan)
            say(f"{len(plan.restored)} states are written; broker {elected.broker_id} is the controller")
    if plan.left or (plan.restored and dry_run):
        raise click.exceptions.Exit(ExitCode.DIFFERENT)


def _lines(plan: RepairPlan) -> Iterator[str]:
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
