"""`migrator completion`: the script with which a shell completes commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from migrator.cli.terminal import say
from migrator.errors import OperatorError

SHELLS = ("bash", "zsh", "fish")
PROGRAM, VARIABLE = "migrator", "_MIGRATOR_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print what SHELL needs to complete the commands and options of migrator."""
    found = get_completion_class(shell)
    if found is None:
        raise OperatorError(
            f"there is no completion for {shell}", where="completion", remedy=f"Choose one of {', '.join(SHELLS)}"
        )
    for line in found(ctx.find_root().command, {}, PROGRAM, VARIABLE).source().splitlines():
        say(line)
