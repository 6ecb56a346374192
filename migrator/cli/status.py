"""`migrator status`."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import click
import orjson
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from migrator.cli.options import controller_options
from migrator.observe.status import UNKNOWN_LAG, Problem, Status
from migrator.rpc.reach import connect

RECENT_EVENTS = 8


@click.command("status")
@controller_options
@click.option("--watch", is_flag=True, help="Stay, and show every change.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; one object a line with --watch.")
def command(config: Path | None, server: str | None, watch: bool, as_json: bool) -> None:
    """Show what the quorum and the migration are doing, what they wait for, and what to do about it.

    Exit codes: 0 answered, 2 no answer.
    """
    asyncio.run(_follow(config, server, as_json=as_json) if watch else _once(config, server, as_json=as_json))


async def _once(config: Path | None, server: str | None, *, as_json: bool) -> None:
    async with connect(config, server) as client:
        status = await client.status()
    if as_json:
        click.echo(orjson.dumps(to_json(status), option=orjson.OPT_INDENT_2))
    else:
        Console().print(render(status))


async def _follow(config: Path | None, server: str | None, *, as_json: bool) -> None:
    async with connect(config, server) as client:
        if as_json:
            async for status in client.watch():
                click.echo(orjson.dumps(to_json(status)))
            return
        with Live(console=Console(), auto_refresh=False) as live:
            async for status in client.watch():
                live.update(render(status), refresh=True)


def to_json(status: Status) -> dict[str, object]:
    """For scripts: the fields of `Status`, nested."""
    return dataclasses.asdict(status)


def render(status: Status) -> RenderableType:
    """For people."""
    parts: list[RenderableType] = [_headline(status), _quorum(status)]
    if status.brokers:
        parts.append(_brokers(status))
    parts.extend(_problem(problem) for problem in status.problems)
    parts.extend(Text(f"  {event.kind}: {event.text}", style="dim") for event in status.recent_events[-RECENT_EVENTS:])
    return Group(*parts)


def _headline(status: Status) -> Text:
    migration = status.migration
    text = Text()
    text.append(f"{migration.public_state}", style="bold")
    text.append(f"  ({migration.internal_state}")
    text.append(f" for {migration.internal_state_age_ms / 1000:.0f} s" if migration.active else "")
    text.append(", paused" if migration.paused else "")
    text.append(")" if migration.active else ", not the active controller)")
    leader = status.quorum.leader_id
    if not migration.active and leader not in (-1, status.node_id):
        text.append(f"\ncontroller {leader} leads, and knows more about the migration: ask it on its machine, or")
        text.append(" name its migrator.grpc.listener with --server")
    text.append(f"\ncluster {status.cluster_id}, node {status.node_id}, metadata.version {status.metadata_version}")
    behind = status.write_behind
    if behind is not None:
        how_far = "an unknown number of" if behind.lag_records == UNKNOWN_LAG else behind.lag_records
        text.append(f"\nZooKeeper is {how_far} records ({behind.lag_ms} ms) behind the log; ")
        text.append(f"writes have waited {behind.blocked_ms} ms for it")
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
    return Text(f"{problem.who}: {problem.what}. {problem.remedy}", style=style)
