"""`migrator force`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from migrator.cli.options import controller_options
from migrator.cli.terminal import ask, say
from migrator.observe.status import Force
from migrator.rpc.find_controller import active_controller

_WARNINGS = {
    Force.RECLAIM: "The cluster was rolled back to ZooKeeper, or nothing proves that this quorum wrote /migration. "
    "This "
    "quorum will take the cluster over with the metadata of its own log. It will overwrite what changed in ZooKeeper "
    "since then. Make sure that no other quorum has migrated this cluster.",
    Force.DELETES: "The controller will delete from ZooKeeper what the log does not hold, and send the full state to "
    "the brokers. Brokers delete topics that the full state does not name.",
    Force.RECONCILE: "The controller will compare all of ZooKeeper with the log, and overwrite what differs in "
    "ZooKeeper. It will delete up to migrator.reconcile.max.deletes entities.",
}


@click.command("force")
@click.argument("what", type=click.Choice([str(kind) for kind in Force]))
@controller_options
@click.option("--reason", required=True, help="Why you give this order. The journal keeps the reason.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def command(
    what: str, config: Path | None, server: str | None, command_config: Path | None, reason: str, yes: bool
) -> None:
    """Order the active controller to override a safety stop.

    \b
    reclaim    take over a cluster that was rolled back, or whose /migration cannot be proved to be ours
    deletes    delete more entities from ZooKeeper than migrator.reconcile.max.deletes
    reconcile  compare all of ZooKeeper with the log again, and write what differs to ZooKeeper

    'reclaim' and 'deletes' are refused unless the migration waits for this order. 'migrator verify --repair' orders a
    reconcile too, and compares afterwards. Exit codes: 0 ordered, 2 refused.
    """
    kind = Force(what)
    if not yes:
        ask(_WARNINGS[kind], "Go on?", abort=True)
    node_id = asyncio.run(_force(config, server, command_config, kind, reason))
    say(f"controller {node_id} has accepted the order; follow its work with 'migrator status --watch'")


async def _force(config: Path | None, server: str | None, command_config: Path | None, kind: Force, reason: str) -> int:
    async with active_controller(config, server, command_config) as client:
        await client.force(kind, reason)
        return (await client.status()).node_id
