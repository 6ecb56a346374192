"""`migrator pause`."""

from __future__ import annotations

import click

from migrator.cli.controller_at import ControllerAt, controller_options
from migrator.cli.terminal import say


@click.command("pause")
@controller_options
@click.option("--reason", required=True, help="Why you pause. The journal and the status show the reason.")
def command(at: ControllerAt, reason: str) -> None:
    """Pause the migration before it writes to ZooKeeper. After the copy has begun, a pause is refused.

    When the command returns, a majority of the controllers has stored the order. Every later leader obeys the order
    until 'migrator resume'. Exit codes: 0 paused, 2 refused.
    """
    at.ask(lambda client: client.pause(reason))
    say("the migration is paused before the copy; continue with 'migrator resume'")
