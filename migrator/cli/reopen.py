"""`migrator reopen`."""

from __future__ import annotations

import click

from migrator.cli.confirm import confirm_cluster_id
from migrator.cli.controller_at import ControllerAt, controller_options
from migrator.cli.gates import tell_gates
from migrator.cli.terminal import ask, say
from migrator.errors import OperatorError
from migrator.observe.status import Gate, Goal, Status
from migrator.rpc.operator_client import OperatorClient

_CONSEQUENCES = (
    "The order makes this quorum take ZooKeeper back, and write everything to ZooKeeper that has changed since the "
    "end of the migration. It overwrites what others have changed in ZooKeeper since. It deletes up to "
    "migrator.reconcile.max.deletes entities that the log does not hold. From then on ZooKeeper follows every change."
)
_UNSEEN = (
    "This command cannot see the property files of the brokers, nor groups of the type 'consumer', whose consumers "
    "stop when brokers run in ZooKeeper mode. docs/way-back.md says what to look at before a broker is restarted."
)


@click.command("reopen")
@controller_options
@click.option("--reason", required=True, help="Why you reopen the migration. The journal and the log keep the reason.")
@click.option("--yes-cluster-id", metavar="ID", help="The cluster's id: answers both questions.")
def command(at: ControllerAt, reason: str, yes_cluster_id: str | None) -> None:
    """Let a finished migration go on: ZooKeeper is written again, up to dual-writing.

    Only when every controller runs this program with the migration on. The command lists what prevents it, and asks
    twice. When the command returns, a majority of the controllers has stored the order, and every later leader carries
    it out. From dual-writing you go back to ZooKeeper as before the end; docs/way-back.md has all steps. Exit codes:
    0 reopened, 2 refused.
    """

    async def look(client: OperatorClient) -> tuple[tuple[Gate, ...], Status]:
        return await client.gates(Goal.REOPEN), await client.status()

    gates, status = at.ask(look)
    if not tell_gates(gates):
        raise OperatorError(
            "the migration was not reopened",
            where="reopen",
            remedy="Do what the lines with NO say, then run the command again. Nothing was changed",
        )
    if yes_cluster_id is None:
        ask(_CONSEQUENCES, _UNSEEN, "Go on?", abort=True)
    confirm_cluster_id(status.cluster_id, yes_cluster_id, whose="the cluster of this quorum")
    at.ask(lambda client: client.reopen(reason))
    say(
        "the migration is reopened; follow it with 'migrator status --watch' until it says dual-writing. Restart no "
        "broker in migration mode before. docs/way-back.md has the steps"
    )
