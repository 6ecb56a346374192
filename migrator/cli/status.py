"""`migrator status`."""

from __future__ import annotations

import asyncio
import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from migrator.cli.options import controller_options
from migrator.cli.terminal import console, say, say_json
from migrator.observe.printable import printable
from migrator.observe.status import UNKNOWN_LAG, JournalEvent, Problem, Status
from migrator.rpc.find_controller import connect
from migrator.rpc.operator_client import OperatorClient

RECENT_EVENTS = 8


@click.command("status")
@controller_options
@click.option("--watch", is_flag=True, help="Keep running, and show every change.")
@click.option(
    "--journal",
    is_flag=True,
    help="Show the journal instead: what happened in the migration, and who gave orders; oldest first.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch or --journal, one object per line.")
def command(
    config: Path | None, server: str | None, command_config: Path | None, watch: bool, journal: bool, as_json: bool
) -> None:
    """Show the state of the quorum and of the migration, what they wait for, and what to do.

    Each controller has its own journal; --journal shows the one of the controller that answers.
    Exit codes: 0 answered, 2 no answer.
    """
    client = connect(config, server, command_config)
    if journal:
        asyncio.run(_journal(client, follow=watch, as_json=as_json))
    else:
        asyncio.run(_follow(client, as_json=as_json) if watch else _once(client, as_json=as_json))


async def _once(unopened: OperatorClient, *, as_json: bool) -> None:
    async with unopened as client:
        status = await client.status()
    if as_json:
        say_json(to_json(status), indent=True)
    else:
        console().print(render(status))


async def _follow(unopened: OperatorClient, *, as_json: bool) -> None:
    async with unopened as client:
        if as_json:
            async for status in client.watch():
                say_json(to_json(status))
            return
        with Live(console=console(), auto_refresh=False) as live:
            async for status in client.watch():
                live.update(render(status), refresh=True)


async def _journal(unopened: OperatorClient, *, follow: bool, as_json: bool) -> None:
    async with unopened as client:
        async for event in client.journal(follow=follow):
            if as_json:
                say_json(dataclasses.asdict(event) | {"details": dict(event.details)})
            else:
                when = datetime.fromtimestamp(event.time_ms / 1000, UTC)
                say(f"{when:%Y-%m-%d %H:%M:%S}Z {sentence_of(event)}")


def sentence_of(event: JournalEvent) -> str:
    """One line for people."""
    return printable(f"{event.kind}: {event.text}" + (f" (by {event.by})" if event.by else ""))


def to_json(status: Status) -> dict[str, object]:
    """For scripts: the fields of `Status`, nested."""
    return dataclasses.asdict(status)


def render(status: Status) -> RenderableType:
    """For people."""
    parts: list[RenderableType] = [_headline(status), _quorum(status)]
    if status.brokers:
        parts.append(_brokers(status))
    parts.extend(_problem(problem) for problem in status.problems)
    parts.extend(Text(f"  {sentence_of(event)}", style="dim") for event in status.recent_events[-RECENT_EVENTS:])
    return Group(*parts)


def _headline(status: Status) -> Text:
    migration = status.migration
    text = Text()
    text.append(printable(migration.public_state), style="bold")
    text.append(f"  ({printable(migration.internal_state)}")
    text.append(f" for {migration.internal_state_age_ms / 1000:.0f} s" if migration.active else "")
    text.append(", paused" if migration.paused else "")
    text.append(")" if migration.active else ", not the active controller)")
    leader = status.quorum.leader_id
    if not migration.active and leader not in (-1, status.node_id):
        text.append(f"\ncontroller {leader} leads and knows more about the migration: run this command on its machine,")
        text.append(" or give its migrator.grpc.listener with --server")
    where = f"cluster {status.cluster_id}, node {status.node_id}, metadata.version {status.metadata_version}"
    text.append(f"\n{printable(where)}")
    behind = status.write_behind
    if behind is not None:
        how_far = "an unknown number of" if behind.lag_records == UNKNOWN_LAG else behind.lag_records
        text.append(f"\nZooKeeper is {how_far} records ({behind.lag_ms} ms) behind the log; ")
        text.append(f"administrative writes have waited {behind.blocked_ms} ms for ZooKeeper")
    if status.claim is not None:
        text.append(f"\n/controller is ours, controller epoch {status.claim.controller_epoch}")
    return text


def _quorum(status: Status) -> Table:
    quorum = status.quorum
    table = Table(title=f"quorum: leader {quorum.leader_id}, epoch {quorum.leader_epoch}", title_justify="left")
    for column in ("voter", "address", "log end", "ready to migrate"):
        table.add_column(column)
    for voter in quorum.voters:
        end = quorum.log_end_offset if voter.node_id == status.node_id else voter.log_end_offset
        ready = {True: "yes", False: "no", None: "?"}[voter.zk_migration_ready]
        name = f"{voter.node_id}{' *' if voter.node_id == quorum.leader_id else ''}"
        table.add_row(name, f"{voter.host}:{voter.port}", "?" if end < 0 else str(end), ready)
    table.caption = f"high watermark {quorum.high_watermark}, this node is {quorum.role}"
    return table


def _brokers(status: Status) -> Table:
    table = Table(title="brokers", title_justify="left")
    for column in ("id", "state", "mode", "epoch"):
        table.add_column(column)
    for broker in status.brokers:
        mode = "ZooKeeper" if broker.in_zookeeper_mode else "KRaft"
        table.add_row(str(broker.broker_id), broker.state, mode, str(broker.epoch))
    return table


def _problem(problem: Problem) -> Text:
    style = "yellow" if problem.warning else "red"
    return Text(printable(f"{problem.who}: {problem.what}. {problem.remedy}"), style=style)
