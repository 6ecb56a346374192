"""`migrator status`: the state of the quorum and of the migration, once or after every change.

It asks the controllers through `QuorumAsker`, and `migrator.observe.status_page` makes the texts. The leader's answer
counts. ``--json`` prints the fields of `Status`. It changes nothing. `status --watch` and `top` call `every_status`,
which ends only with its task: when the leader changes or goes away, it asks all controllers again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from migrator.cli.controller_at import ControllerAt, controller_options
from migrator.cli.terminal import console, say, say_error, say_json
from migrator.errors import ExitCode, OperatorError
from migrator.observe.next_steps import next_step
from migrator.observe.printable import printable
from migrator.observe.problem_groups import Group as Problems
from migrator.observe.problem_groups import groups_of
from migrator.observe.status import Status
from migrator.observe.status_page import Answers, change_line, event_line, page_of, problems_of
from migrator.observe.status_page import Table as TableTexts
from migrator.rpc.ask_quorum import Address, QuorumAnswers, QuorumAsker
from migrator.rpc.find_controller import connect
from migrator.rpc.operator_client import OperatorClient

RETRY_SECONDS = 1.0
"""The time between two questions while no controller answers."""


async def every_status(
    asker: QuorumAsker,
    found: QuorumAnswers | None,
    show: Callable[[Answers], None],
    fail: Callable[[OperatorError], None],
) -> None:
    """Show each status of the best-informed controller, for ever. Ask all controllers again when that may have changed.

    :param found: the first answers, if the caller has them already.
    :param fail: called with the reason when no controller answers.
    """
    while True:
        try:
            found = found or await asker.ask()
            show(found.answers)
            if found.best_at is not None:
                await _while_it_knows_most(asker, found.best_at, found.answers, show)
            found = None
        except OperatorError as error:
            found = None
            fail(error)
        await asyncio.sleep(RETRY_SECONDS)


async def _while_it_knows_most(
    asker: QuorumAsker, at: Address, answers: Answers, show: Callable[[Answers], None]
) -> None:
    """Show the statuses of one controller, until the leader changes or the stream ends."""
    async with asker.client(at) as client:
        async for status in client.watch():
            if status.quorum.leader_id != answers.best.quorum.leader_id:
                return
            show(dataclasses.replace(answers, best=status))


@click.command("status")
@controller_options
@click.option(
    "--watch",
    is_flag=True,
    help="Keep running, and show every change; without a terminal, as one line with its time.",
)
@click.option(
    "--journal",
    is_flag=True,
    help="Show the journal instead: what happened in the migration, and who gave orders; oldest first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch or --journal, one object per line.")
def command(at: ControllerAt, watch: bool, journal: bool, as_json: bool) -> None:
    """Show the state of the quorum and of the migration, what they wait for, and what to do.

    What the leading controller says counts. With -c, it is found through migrator.grpc.voters, or through the
    controllers' Kafka listeners, whichever controller the file is of; with migrator.grpc.voters every controller is
    asked. Each controller has its own journal; --journal shows the one of the controller that was named.

    Exit codes: 0 answered, and a controller leads; 1 answered, but no controller leads; 2 no answer.
    """
    if journal:
        asyncio.run(_journal(connect(*at), follow=watch, as_json=as_json))
        return
    asker = QuorumAsker(*at)
    if watch:
        asyncio.run(_follow(asker, as_json=as_json))
        return
    answers = asyncio.run(asker.ask()).answers
    if as_json:
        say_json(to_json(answers), indent=True)
    else:
        console().print(render(answers))
    if not answers.has_leader:
        sys.exit(ExitCode.DIFFERENT)


async def _follow(asker: QuorumAsker, *, as_json: bool) -> None:
    """Show the status until it is interrupted. Only the first question may fail; later, missing answers are waited
    for."""
    found = await asker.ask()
    if as_json:
        await every_status(asker, found, lambda answers: say_json(to_json(answers)), _not_answered)
    elif console().is_terminal:
        with Live(console=console(), auto_refresh=False) as live:
            await every_status(
                asker,
                found,
                lambda answers: live.update(render(answers), refresh=True),
                lambda error: live.update(Text(printable(str(error))), refresh=True),
            )
    else:
        lines = _ChangeLines()
        await every_status(asker, found, lines.show, lambda error: lines.say(str(error)))


def _not_answered(error: OperatorError) -> None:
    say_error(f"migrator: {error}")
    say_json(error.as_json())


class _ChangeLines:
    """Lines with the time of day; a line that repeats the one before is left out."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, answers: Answers) -> None:
        self.say(change_line(answers))

    def say(self, line: str) -> None:
        if line != self._last:
            self._last = line
            say(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z {line}")


async def _journal(unopened: OperatorClient, *, follow: bool, as_json: bool) -> None:
    async with unopened as client:
        async for event in client.journal(follow=follow):
            if as_json:
                say_json(dataclasses.asdict(event) | {"details": dict(event.details)})
            else:
                say(event_line(event))


def to_json(answers: Answers) -> dict[str, object]:
    """The fields of `Status`, nested, with the page's additions, for scripts."""
    status: Status = answers.best
    problems = problems_of(answers)
    return dataclasses.asdict(status) | {
        "asked_node_id": None if answers.asked is None else answers.asked.node_id,
        "is_leaders_view": answers.is_leaders,
        "has_leader": answers.has_leader,
        "unreached": [dataclasses.asdict(each) for each in answers.unreached],
        "next": next_step(status, problems),
        "problems": [dataclasses.asdict(problem) for problem in problems],
        "problem_groups": [
            {
                "remedy": group.remedy,
                "warning": group.warning,
                "problems": [{"who": who, "what": what} for who, what in group.whats],
            }
            for group in groups_of(problems)
        ],
    }


def render(answers: Answers) -> RenderableType:
    """The status for the terminal."""
    page = page_of(answers)
    head = Text()
    head.append(printable(page.state), style="bold")
    head.append("  " + "\n".join(map(printable, page.headline)))
    parts: list[RenderableType] = [head]
    parts.extend(_problems(group) for group in page.groups)
    for table in page.tables:
        shown = table_of(table)
        shown.title = Text(table.title, style="italic", no_wrap=True, overflow="ignore")  # may be wider than its table
        parts.append(shown)
        if table.caption:
            parts.append(Text(printable(table.caption), style="dim"))
    parts.extend(Text(f"  {printable(line)}", style="dim") for line in page.events)
    return Group(*parts)


def table_of(texts: TableTexts) -> Table:
    table = Table(title=texts.title, title_justify="left")
    for column in texts.columns:
        table.add_column(column)
    for row in texts.rows:
        table.add_row(*row)
    return table


def _problems(group: Problems) -> Text:
    style = "yellow" if group.warning else "red"
    return Text("\n".join(map(printable, group.lines)), style=style)
