"""`migrator top`: the migration on one screen that is redrawn.

It asks like `migrator status`, or, for Kafka's controllers, looks over Kafka's protocol. `migrator.observe.top_page`
makes the content. It only reads, and Ctrl-C ends nothing but the view.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.segment import Segment
from rich.text import Text

from migrator.cli.controller_at import ControllerAt, controller_options
from migrator.cli.picture import save_picture
from migrator.cli.status import RETRY_SECONDS, every_status, table_of
from migrator.cli.terminal import console, say
from migrator.config.load import load_settings
from migrator.config.settings import Settings
from migrator.errors import ExitCode, OperatorError
from migrator.observe.loop_health import calm_garbage_collector
from migrator.observe.printable import printable
from migrator.observe.status import Status
from migrator.observe.status_page import Answers
from migrator.observe.top_page import RateMeter, StageMark, StateReached, TopPage, top_page_of
from migrator.rpc.ask_quorum import QuorumAsker
from migrator.seeing.quorum_status import SeenQuorum

STYLES = {StageMark.DONE: "green", StageMark.NOW: "bold cyan", StageMark.AHEAD: "dim"}
LEAVE = "Ctrl-C ends this view. Nothing else ends with it."
ONE_LOOK = "This is one look: the output is no terminal that can be redrawn."
EACH_CHANGE = " To see each change as a line, run 'migrator status --watch'."
TERMINATED = 128 + signal.SIGTERM


@click.command("top")
@controller_options
@click.option(
    "--controllers", "kind", type=click.Choice(["ours", "stock"]), default="ours", show_default=True,
    help="Whose controllers these are: of this program (ours), or of Kafka (stock). Kafka's are seen from outside: "
    "quorum, brokers and state of the migration, but not what they wait for. Needs -c: how they are reached.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Show one screen and end. Without a terminal this is the default.")
@click.option(
    "--picture", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the last screen to this file, as SVG, when the command ends.",
)  # fmt: skip
def command(
    at: ControllerAt,
    kind: str,
    once: bool,
    picture: Path | None,
) -> None:
    """Watch the migration on one screen: where it is, who takes part, how fast it goes, what it waits for.

    The view is the leader's, which is found as by 'migrator status'. The command only reads.

    Exit codes: 0 answered, and a controller leads; 1 answered, but no controller leads; 2 no answer.
    """
    if kind == "stock" and at.config is None:
        raise click.UsageError("--controllers stock needs -c: a property file that names the controllers")
    view, terminal = _View(), console()
    settings = load_settings(at.config)[0] if at.config is not None and kind == "stock" else None
    asker = QuorumAsker(*at)
    calm_garbage_collector()  # with Kafka's controllers this process holds a big cluster's metadata
    redraws = terminal.is_terminal and not terminal.is_dumb_terminal
    try:
        if once or not redraws:
            view.show(asyncio.run(_once(asker, settings, lambda line: say(line, err=True))))
            terminal.print(view.screen)
            if not once:
                terminal.print(Text(ONE_LOOK + ("" if settings else EACH_CHANGE), "dim"), soft_wrap=True)
        else:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # this restores the terminal
            asyncio.run(_follow(asker, settings, view, terminal))
    finally:
        if picture is not None and view.answers is not None:
            save_picture(picture, "migrator top", view.screen)
    if view.answers is not None and not view.answers.has_leader:
        sys.exit(ExitCode.DIFFERENT)


class _View:
    """The latest screen, and the earlier figures."""

    def __init__(self) -> None:
        self._meter = RateMeter()
        self.answers: Answers | None = None
        self._last: RenderableType | None = None
        self.screen: RenderableType = Text("nothing was seen yet")

    def show(self, answers: Answers) -> None:
        self.answers = answers
        self.screen = self._last = render(top_page_of(answers, self._meter.look(answers.best)))

    def fail(self, error: OperatorError) -> None:
        """Show the reason above the last screen."""
        reason = Text(f"no newer answer: {printable(str(error))}", "red")
        self.screen = reason if self._last is None else Group(reason, self._last)


async def _once(asker: QuorumAsker, stock: Settings | None, tell: Callable[[str], None] | None = None) -> Answers:
    """
    :param tell: called with the progress of reading the metadata log; None when more looks follow.
    """
    if stock is None:
        return (await asker.ask()).answers
    quorum = SeenQuorum(stock)
    try:
        if tell is not None:
            await quorum.catch_up(tell)
        return seen_answers(await quorum.status())
    finally:
        await quorum.close()


async def _follow(asker: QuorumAsker, stock: Settings | None, view: _View, terminal: Console) -> None:
    """Show the screen until it is interrupted. Only the first question may fail."""
    found = None if stock is not None else await asker.ask()
    view.show(found.answers if found is not None else await _once(asker, stock))
    with Live(get_renderable=lambda: Fitted(view.screen), console=terminal, screen=True, refresh_per_second=4):
        if stock is None:
            await every_status(asker, found, view.show, view.fail)
        else:
            await every_look(SeenQuorum(stock), view.show, view.fail)


async def every_look(
    quorum: SeenQuorum, show: Callable[[Answers], None], fail: Callable[[OperatorError], None]
) -> None:
    """Show what can be seen of controllers without a status of their own, once a second, for ever."""
    try:
        while True:
            try:
                show(seen_answers(await quorum.status()))
            except OperatorError as error:
                fail(error)
            await asyncio.sleep(RETRY_SECONDS)
    finally:
        await quorum.close()


def seen_answers(status: Status) -> Answers:
    """The answers of an observer from outside: there are no others to ask."""
    return Answers(status, status)


class Fitted:
    """Shows as much as fits the window at its present size; the last line says how to leave, or that there is more."""

    def __init__(self, content: RenderableType) -> None:
        self._content = content

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        room = max(1, (options.height or terminal.height) - 1)
        lines = terminal.render_lines(self._content, options.update(height=None), pad=False)
        for line in lines[:room]:
            yield from line
            yield Segment.line()
        left = len(lines) - room
        last = LEAVE if left <= 0 else f"{left} more lines: enlarge the window, or run 'migrator status'. {LEAVE}"
        yield Text(last, "dim", no_wrap=True, overflow="ellipsis")


def render(top: TopPage) -> RenderableType:
    """The screen for the terminal."""
    page = top.page
    head = Text()
    if top.road:
        head.append_text(_road(top.road))
        head.append("\n")
    head.append(printable(page.state), style="bold")
    head.append("  " + "\n".join(map(printable, page.headline)))
    parts: list[RenderableType] = [Panel(head, title="migrator top", title_align="left")]
    if top.problems:
        waits = Text("\n").join(
            Text(printable(line), style="yellow" if warning else "red") for line, warning in top.problems
        )
        parts.append(Panel(waits, title="what it waits for, and what to do", title_align="left"))
    tables: list[RenderableType] = [table_of(page.tables[0])]
    if top.brokers is not None:
        tables.append(table_of(top.brokers))
    parts.append(Columns(tables, padding=(0, 3)))
    parts.extend(Text(printable(line), style="cyan") for line in top.rates)
    parts.extend(Text(printable(line), style="dim") for line in (page.tables[0].caption, *page.events) if line)
    return Group(*parts)


def _road(road: tuple[StateReached, ...]) -> Text:
    return Text("  ─  ").join(Text(f"{stage.mark.value} {stage.name}", STYLES[stage.mark]) for stage in road)
