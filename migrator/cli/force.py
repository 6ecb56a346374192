"""`migrator force`: orders the active controller to override a safety stop.

It shows what the controller waits for, with the consequences, and asks. An order that overrides facts names those that
the operator has seen; the controller refuses it when they have changed.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from migrator.cli.controller_at import ControllerAt, controller_options
from migrator.cli.terminal import ask, say
from migrator.errors import OperatorError
from migrator.migration.machine.left_out import unknown
from migrator.migration.machine.states import OVERRIDES, State, check_forceable, check_shown
from migrator.observe.status import Force, Status
from migrator.rpc.operator_client import OperatorClient

_CONSEQUENCES = {
    Force.RECLAIM: "The order makes this quorum take the cluster over with the metadata of its own log. It overwrites "
    "what changed in ZooKeeper since. This command cannot see whether another quorum has migrated this cluster "
    "meanwhile: make sure that none has.",
    Force.DELETES: "The order makes the controller delete from ZooKeeper what the log does not hold, and send the full "
    "state to the brokers. Brokers delete topics that the full state does not name. This command has not compared the "
    "two sides: 'migrator verify' does.",
    Force.RECONCILE: "The order makes the controller compare all of ZooKeeper with the log, and overwrite what differs "
    "in ZooKeeper. It deletes up to migrator.reconcile.max.deletes entities.",
    Force.FINISH: "The order leaves these nodes out for good: {nodes}. A controller that is left out is not asked "
    "whether its migration is turned off. A broker that is left out is unregistered: a partition whose only in-sync "
    "replica it holds stays without a leader. If such a broker runs in ZooKeeper mode after the end, it has no "
    "controller. Make sure that these nodes do not run.",
}
"""The consequences that the command adds to the controller's own text."""


@click.command("force")
@click.argument("what", type=click.Choice([str(kind) for kind in Force]))
@controller_options
@click.option(
    "--without",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="ID",
    help="With 'finish': the id of a controller or broker that is gone for good. Repeat it for several.",
)
@click.option("--reason", required=True, help="Why you give this order. The journal keeps the reason.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def command(
    at: ControllerAt,
    what: str,
    without: tuple[int, ...],
    reason: str,
    yes: bool,
) -> None:
    """Order the active controller to override a safety stop.

    \b
    reclaim    take over a cluster that was rolled back, or whose /migration cannot be proved to be ours
    deletes    delete more entities from ZooKeeper than migrator.reconcile.max.deletes
    reconcile  compare all of ZooKeeper with the log again, and write what differs to ZooKeeper
    finish     finish without a node that is gone for good: a controller that does not answer, or a broker in ZooKeeper
               mode that vanished (--without ID)

    'reclaim', 'deletes' and 'finish' are refused unless the migration waits for this order. 'reclaim' and 'deletes'
    override what this command shows. If something else holds when the order arrives, the order is refused.
    'migrator verify --repair' orders a reconcile too, and compares afterwards. Exit codes: 0 ordered, 2 refused.
    """
    kind = Force(what)
    _check_named(kind, without)
    status = at.ask(lambda client: client.status())
    check_forceable(kind, State(status.migration.internal_state))
    _check_known(status, without)
    overrides = status.migration.overridable if kind in OVERRIDES else ()
    if kind in OVERRIDES:
        check_shown(kind, overrides, overrides)
        for fact in overrides:
            say(f"the order overrides: {fact}")
    if not yes:
        consequences = _CONSEQUENCES[kind].format(nodes=", ".join(map(str, without)))
        ask(*_found(status), consequences, "Go on?", abort=True)

    async def order(client: OperatorClient) -> int:
        await client.force(kind, reason, without, overrides)
        return (await client.status()).node_id

    say(f"controller {at.ask(order)} has accepted the order; follow its work with 'migrator status --watch'")


def _check_named(kind: Force, without: tuple[int, ...]) -> None:
    if kind is Force.FINISH and not without:
        raise OperatorError(
            "the order names no node", where="force finish", remedy="Give --without ID. 'migrator status' names the id"
        )
    if without and kind is not Force.FINISH:
        raise OperatorError(
            "--without belongs to 'finish' only", where=f"force {kind}", remedy="Leave it out, or order 'finish'"
        )


def _check_known(status: Status, without: tuple[int, ...]) -> None:
    """Check the order before the operator is asked; the controller checks again."""
    known = {voter.node_id for voter in status.quorum.voters} | {broker.broker_id for broker in status.brokers}
    for node_id in without:
        if node_id not in known:
            raise unknown(node_id)


def _found(status: Status) -> Iterator[str]:
    """The status of the active controller."""
    yield f"controller {status.node_id}: {State(status.migration.internal_state).properties.sentence}"
    if status.migration.reopened:
        yield f"the migration was reopened after its end: {status.migration.reopened}"
    for problem in status.problems:
        yield f"  {problem.who}: {problem.what}"
