"""`migrator reopen`: orders a finished migration to go on, so that the cluster can return to ZooKeeper.

It shows what stands against the order, asks twice, and sends the order to the active controller. With
``--into-empty-zookeeper`` it first writes to an empty ZooKeeper the znodes that make it the cluster's
(docs/adr/0058-reopen-a-finished-migration.md).
"""

from __future__ import annotations

from pathlib import Path

import click

from migrator.cli.controller_at import ControllerAt, controller_options
from migrator.cli.gates import broker_files_option, gates_of_files, tell_gates
from migrator.cli.terminal import ask, confirm_cluster_id, say
from migrator.config.load import load_settings
from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState
from migrator.observe.status import Gate, Goal, Status
from migrator.rpc.operator_client import OperatorClient
from migrator.zookeeper.kafka_tree import make_cluster
from migrator.zookeeper.session import ZooKeeperSession, options_from

_CONSEQUENCES = (
    "The order makes this quorum take ZooKeeper back, and write everything to ZooKeeper that has changed since the "
    "end of the migration. It overwrites what others have changed in ZooKeeper since. It deletes up to "
    "migrator.reconcile.max.deletes entities that the log does not hold. From then on ZooKeeper follows every change."
)
_UNSEEN = (
    "This command sees property files of brokers only with --brokers, and cannot see groups of the type 'consumer', "
    "whose consumers stop when brokers run in ZooKeeper mode. docs/way-back.md says what to look at before a broker is "
    "restarted."
)
_FILLING = (
    "The command will write /cluster/id and /controller_epoch of cluster {cluster} to {hosts}, which must be empty and "
    "the ZooKeeper that zookeeper.connect of every broker names."
)


@click.command("reopen")
@controller_options
@click.option("--reason", required=True, help="Why you reopen the migration. The journal and the log keep the reason.")
@click.option("--yes-cluster-id", metavar="ID", help="The cluster's id: answers all questions.")
@click.option(
    "--into-empty-zookeeper",
    "into_empty",
    is_flag=True,
    help="ZooKeeper is empty: write /cluster/id and /controller_epoch there first. Needs -c.",
)
@broker_files_option
def command(
    at: ControllerAt, reason: str, yes_cluster_id: str | None, brokers: tuple[Path, ...], *, into_empty: bool
) -> None:
    """Let a finished migration go on: ZooKeeper is written again, up to dual-writing.

    Only when every controller runs this program with the migration on. The command lists what prevents it, and asks
    twice. When the command returns, a majority of the controllers has stored the order, and every later leader carries
    it out. From dual-writing you go back to ZooKeeper as before the end; docs/way-back.md has all steps. Exit codes:
    0 reopened, 2 refused.
    """

    async def look(client: OperatorClient) -> tuple[tuple[Gate, ...], Status]:
        return await client.gates(Goal.REOPEN), await client.status()

    if into_empty:
        _fill(at.config, at.ask(lambda client: client.status()), yes_cluster_id)
    gates, status = at.ask(look)
    if brokers:
        gates += gates_of_files(at, brokers)
    if not tell_gates(gates):
        raise OperatorError(
            "the migration was not reopened",
            where="reopen",
            remedy="Do what the lines with NO say, then run the command again. Nothing "
            f"{'else ' if into_empty else ''}was changed",
        )
    if yes_cluster_id is None:
        ask(_CONSEQUENCES, _UNSEEN, "Go on?", abort=True)
    confirm_cluster_id(status.cluster_id, yes_cluster_id, whose="the cluster of this quorum")
    at.ask(lambda client: client.reopen(reason))
    say(
        "the migration is reopened; follow it with 'migrator status --watch' until it says dual-writing. Restart no "
        "broker in migration mode before. docs/way-back.md has the steps"
    )


def _fill(config: Path | None, status: Status, given_id: str | None) -> None:
    """Write to an empty ZooKeeper the znodes that make it the cluster's.

    :raises OperatorError: the command names no property file, the migration is not finished, the id is not that of the
        cluster, or ZooKeeper is not empty.
    """
    if config is None:
        raise OperatorError(
            "only the property file of a controller names ZooKeeper", where="--into-empty-zookeeper", remedy="Give -c"
        )
    if status.migration.public_state != PublicState.FINISHED.label:
        raise OperatorError(
            f"the migration is in {status.migration.public_state}, and only a finished one can be reopened",
            where="--into-empty-zookeeper",
            remedy="Nothing was written to ZooKeeper. 'migrator status' says what to do next",
        )
    settings, cluster_id = load_settings(config)[0], status.cluster_id
    if given_id is None:
        ask(_FILLING.format(hosts=settings.zookeeper_connect, cluster=cluster_id), "Go on?", abort=True)
    else:
        confirm_cluster_id(cluster_id, given_id, whose="the cluster of this quorum")
    with ZooKeeperSession(options_from(settings)) as session:
        written = make_cluster(session, cluster_id)
    say(f"/cluster/id and /controller_epoch {'were written' if written else 'are there already'}")
