"""`migrator close-way-back`: after the end, lets the controllers accept changes that ZooKeeper mode does not have.

It says what becomes impossible, asks twice, and sends the order to the active controller
(docs/adr/0063-the-way-back-is-kept-open.md).
"""

from __future__ import annotations

import click

from migrator.cli.controller_at import ControllerAt, controller_options
from migrator.cli.terminal import ask, confirm_cluster_id, say
from migrator.errors import OperatorError
from migrator.migration.machine.states import PublicState

_CONSEQUENCES = (
    "From now on the controllers accept what ZooKeeper mode does not have: subscriptions to client metrics, "
    "remote.log.copy.disable and remote.log.delete.on.disable of topics, configurations of controllers. As soon as one "
    "of these is used, the migration cannot be reopened before it is deleted again. Features that only Kafka's own "
    "controllers have, as those of Kafka 4, cannot be taken back."
)


@click.command("close-way-back")
@controller_options
@click.option("--reason", required=True, help="Why you close the way back. The journal and the log keep the reason.")
@click.option("--yes-cluster-id", metavar="ID", help="The cluster's id: answers both questions.")
def command(at: ControllerAt, reason: str, yes_cluster_id: str | None) -> None:
    """Let the controllers accept, after the end of the migration, what ZooKeeper mode does not have.

    Until then they refuse it (migrator.keep.way.back), so that 'migrator reopen' can still lead back. The command asks
    twice. When it returns, a majority of the controllers has stored the order, and every controller obeys it. A
    migration that is reopened and finished again is kept open again. Exit codes: 0 closed, 2 refused.
    """
    status = at.ask(lambda client: client.status())
    if status.migration.public_state != PublicState.FINISHED.label:
        raise OperatorError(
            f"the migration is in {status.migration.public_state}: no way back has to be closed",
            where="close-way-back",
            remedy="Only after the end of the migration do the controllers refuse anything. Nothing was changed",
        )
    if yes_cluster_id is None:
        ask(_CONSEQUENCES, "Go on?", abort=True)
    confirm_cluster_id(status.cluster_id, yes_cluster_id, whose="the cluster of this quorum")
    at.ask(lambda client: client.close_way_back(reason))
    say("the controllers now accept changes that close the way back; 'migrator gates reopen' says if it is still open")
