"""`migrator force`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from migrator.cli.options import controller_options
from migrator.cli.terminal import ask, say
from migrator.observe.status import Force
from migrator.rpc.reach import active_controller

_WARNINGS = {
    Force.RECLAIM: "The cluster was rolled back to ZooKeeper, or nothing proves that this quorum wrote /migration. It "
    "is taken over with the metadata of this quorum's log: what changed in ZooKeeper since is overwritten. Make sure "
    "that no other quorum has migrated this cluster.",
    Force.DELETES: "What ZooKeeper holds and the log does not is removed from ZooKeeper, and brokers are told the full "
    "state: they drop what it does not name.",
    Force.RECONCILE: "All of ZooKeeper is compared with the log, and what differs is overwritten in ZooKeeper. Up to "
    "migrator.reconcile.max.deletes entities are removed.",
}


@click.command("force")
@click.argument("what", type=click.Choice([str(kind) for kind in Force]))
@controller_options
@click.option("--reason", required=True, help="For the journal.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def command(
    what: str, config: Path | None, server: str | None, command_config: Path | None, reason: str, yes: bool
) -> None:
    """Make the active controller do what it does not do unasked.

    \b
    reclaim    take a cluster over again that was rolled back, or whose /migration nothing proves ours
    deletes    remove more from ZooKeeper than migrator.reconcile.max.deletes
    reconcile  compare all of ZooKeeper with the log again, write what differs

    The first two are refused unless the migration waits for just that. 'migrator verify --repair' does the third, and
    proves it. Exit codes: 0 ordered, 2 refused.
    """
    kind = Force(what)
    if not yes:
        ask(_WARNINGS[kind], "Go on?", abort=True)
    node_id = asyncio.run(_force(config, server, command_config, kind, reason))
    say(f"controller {node_id} does it now; follow it with 'migrator status --watch'")


async def _force(config: Path | None, server: str | None, command_config: Path | None, kind: Force, reason: str) -> int:
    async with active_controller(config, server, command_config) as client:
        await client.force(kind, reason)
        return (await client.status()).node_id
