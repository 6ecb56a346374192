"""`migrator resume`."""

from __future__ import annotations

import click

from migrator.cli.controller_at import ControllerAt, controller_options
from migrator.cli.terminal import say


@click.command("resume")
@controller_options
def command(at: ControllerAt) -> None:
    """Continue a migration that 'migrator pause' has paused.

    Exit codes: 0 the migration continues, 2 refused.
    """
    at.ask(lambda client: client.resume())
    say("the migration continues")
