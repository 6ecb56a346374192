"""Shows more than the lines of a running rollout: on a terminal, one block for the gate at which it waits, drawn again
at each look; and, at once, each command of this rollout that was typed elsewhere on this host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import click
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from migrator.cli.terminal import lasting_console, prints_on_terminal
from migrator.errors import OperatorError
from migrator.log.files import PRIVATE_FILE
from migrator.log.lock import holder_note, is_in_use
from migrator.rollout.engine.step import ABORT_FILE
from migrator.rollout.journal.writer import order_of
from migrator.rollout.meanwhile import Waiting

REFUSED_FILE: Final = "refused"
"""This file in the state directory names the last command that was refused because another one ran."""
UNHEARING: Final = ("unlock", "remove-znodes")
"""Commands that exclude others, too, but take no order to stop."""
REFUSED: Final = "; it is refused while this command runs"
UNREADABLE: Final = {ABORT_FILE: "'migrator rollout abort'", REFUSED_FILE: f"a command{REFUSED}"}
WATCH_SECONDS = 1.0
WORDS_MAX = 400


def gate_block() -> Callable[[Waiting | None], None] | None:
    """Draws the condition for which the rollout waits at the end of the screen; None removes it. No function where
    there is no terminal."""
    if not prints_on_terminal():
        return None
    terminal = lasting_console()
    if not terminal.is_interactive:
        return None
    live: Live | None = None

    def draw(waiting: Waiting | None) -> None:
        nonlocal live
        if waiting is None:
            if live is not None:
                live.stop()
                live = None
            return
        if live is None:
            live = Live(console=terminal, auto_refresh=False, transient=True, vertical_overflow="crop")
            live.start()
            terminal.show_cursor()  # Ctrl-Z or a kill would leave the terminal without it
        live.update(panel(waiting), refresh=True)

    return draw


def panel(waiting: Waiting) -> Panel:
    """The block."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(overflow="fold")  # a long name is not cut, and needs no sign that the encoding may lack
    table.add_row("waits for", waiting.what)
    table.add_row("so far", f"{waiting.passed_ms // 1000} s, at most {waiting.left_ms // 1000} s more")
    if waiting.looked:
        table.add_row("last look", f"{waiting.ago_ms // 1000} s ago: {waiting.looked}")
    return Panel(table, title=Text(waiting.step), title_align="left")


def give_order(state: Path, name: str, command: str, outcome: str = "") -> None:
    """Tell the command that runs which command was typed here.

    :param name: of the file that carries the message.
    :param outcome: the end of the sentence; "" for an order that is obeyed.
    """
    path = state / name
    path.touch(PRIVATE_FILE)
    with suppress(OSError):  # on a full disk, the order counts without its words
        path.write_text(f"'migrator rollout {command}', by {order_of('')['by']}{outcome}")


def refuse_second(state: Path) -> None:
    """
    :raises OperatorError: another command of this rollout runs here.
    """
    running = running_in(state)
    if running is not None:
        typed_here = click.get_current_context().info_name or ""
        with suppress(OSError):  # another user's directory, or a full disk
            give_order(state, REFUSED_FILE, typed_here, REFUSED)
        how = "press Ctrl-C where it runs" if running in UNHEARING else "let it stop with 'migrator rollout abort'"
        raise OperatorError(
            "another command of this rollout runs on this host" + (f": {running}" if running else ""),
            where=str(state),
            remedy=f"Wait for its end, or {how}",
        )


def running_in(state: Path) -> str | None:
    """The command of this rollout that runs on this host, "" if its name is unknown; None when none runs.

    :raises OperatorError: that cannot be determined.
    """
    return holder_note(state) if state.exists() and is_in_use(state) else None


@asynccontextmanager
async def hears_orders(state: Path, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """Tell at once which command was typed elsewhere on this host. An order by a signal leaves no words."""
    task = asyncio.create_task(_watch(state, tell))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)  # an error of the display does not end the work


async def _watch(state: Path, tell: Callable[[str], None]) -> None:
    told: dict[str, str] = {}
    while True:
        for name in (ABORT_FILE, REFUSED_FILE):
            words = ""
            try:
                words = (state / name).read_text()[:WORDS_MAX]
            except FileNotFoundError:
                pass
            except (OSError, UnicodeError):  # root has typed it
                words = UNREADABLE[name]
            if words and words != told.get(name):
                tell(f"was typed elsewhere: {words}")
            told[name] = words
        await asyncio.sleep(WATCH_SECONDS)
