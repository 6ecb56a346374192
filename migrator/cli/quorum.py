"""`migrator quorum`: the voters, and the way to others."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from migrator.cli import recover
from migrator.cli.options import controller_options
from migrator.cli.terminal import console, say, say_json
from migrator.errors import OperatorError
from migrator.observe.printable import printable
from migrator.observe.voters import PlanState, VoterOrder, VotersAnswer, VotersDescription
from migrator.rpc.find_controller import connect, leading_controller

Where = tuple[Path | None, str | None, Path | None]
"""The options that say which controller is meant."""

LOOK_AGAIN_SECONDS = 1.0
WAIT = click.option("--wait", is_flag=True, help="Return only when the voters are those of the target.")
CLUSTER = click.option("--cluster-id", default="", help="Refuse unless the controllers belong to this cluster.")


@click.group("quorum")
def command() -> None:
    """Show the voters of the quorum, and let others vote instead of them, while the quorum runs.

    The leader changes one voter at a time and waits when a change would be unsafe. Every later leader goes on.
    Exit codes: 0 done, 2 refused or no answer.
    """


@command.command("describe")
@controller_options
@click.option("--watch", is_flag=True, help="Keep running, and show every change.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch, one object per line.")
def describe(config: Path | None, server: str | None, command_config: Path | None, watch: bool, as_json: bool) -> None:
    """Show current and target voters, how far each controller is, what the plan waits for, and the next steps."""
    where = (config, server, command_config)
    asyncio.run(_watch(where, as_json=as_json) if watch else _show(where, as_json=as_json))


@command.command("reassign")
@controller_options
@click.option("--to", "voters", metavar="IDS", required=True, help="Who shall vote: 4,5,6, or 4@DIRECTORY-ID,5,6.")
@CLUSTER
@WAIT
def reassign(
    config: Path | None, server: str | None, command_config: Path | None, voters: str, cluster_id: str, wait: bool
) -> None:
    """Make these controllers the voters, and no others. Another target that is set is replaced."""
    _order((config, server, command_config), VoterOrder.TO, voters, cluster_id, wait=wait)


@command.command("add")
@controller_options
@click.argument("voters", metavar="IDS")
@CLUSTER
@WAIT
def add(
    config: Path | None, server: str | None, command_config: Path | None, voters: str, cluster_id: str, wait: bool
) -> None:
    """Let these controllers vote too."""
    _order((config, server, command_config), VoterOrder.ADD, voters, cluster_id, wait=wait)


@command.command("remove")
@controller_options
@click.argument("voters", metavar="IDS")
@CLUSTER
@WAIT
def remove(
    config: Path | None, server: str | None, command_config: Path | None, voters: str, cluster_id: str, wait: bool
) -> None:
    """Let these controllers vote no more. They stay observers until you stop them."""
    _order((config, server, command_config), VoterOrder.REMOVE, voters, cluster_id, wait=wait)


@command.command("cancel")
@controller_options
@CLUSTER
def cancel(config: Path | None, server: str | None, command_config: Path | None, cluster_id: str) -> None:
    """End the change of voters where it is. What has been added or removed stays so."""
    _order((config, server, command_config), VoterOrder.CANCEL, "", cluster_id, wait=False)


@command.command("upgrade")
@controller_options
@CLUSTER
def upgrade(config: Path | None, server: str | None, command_config: Path | None, cluster_id: str) -> None:
    """Take the voters of controller.quorum.voters into the log (kraft.version 1), so that they can change.

    Every registered broker and controller must be of Kafka 3.9 or newer, also those that are down. Nothing leads back.
    """
    asyncio.run(_ordered((config, server, command_config), VoterOrder.UPGRADE, "", cluster_id))
    say("The voters are in the log now (kraft.version 1). 'migrator quorum reassign' can change them")


command.add_command(recover.command)


def _order(where: Where, order: VoterOrder, voters: str, cluster_id: str, *, wait: bool) -> None:
    answer = asyncio.run(_ordered(where, order, voters, cluster_id))
    for line in sentences(answer):
        say(printable(line))
    if wait and answer.target:
        asyncio.run(_reached(where, answer.target))
        say(printable(f"the voters are {answer.target}"))


async def _ordered(where: Where, order: VoterOrder, voters: str, cluster_id: str) -> VotersAnswer:
    async with leading_controller(*where) as client:
        return await client.reassign(order, voters, cluster_id)


async def _reached(where: Where, target: str) -> None:
    """The leader changes on the way: each next one is looked for.

    :raises OperatorError: somebody has replaced the target.
    """
    while (now := await _followed(where, target)) == target:
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    if now:
        raise OperatorError(f"another operator has replaced the target by {now}", remedy="Agree on one of the two")


async def _followed(where: Where, target: str) -> str:
    """The target once it is another one, or once this leader says no more of it."""
    with contextlib.suppress(OperatorError):
        async with leading_controller(*where) as client:
            async for found in client.watch_voters():
                if found.target != target or found.state is PlanState.RESTING:
                    return found.target
    return target


def sentences(answer: VotersAnswer) -> list[str]:
    """What is said to people about an order that was taken."""
    warnings = [f"warning: {warning}" for warning in answer.warnings]
    if not answer.target:
        return [f"cancelled: the target was {answer.replaced}" if answer.replaced else "no target was set"]
    instead = f", instead of {answer.replaced}" if answer.replaced else ""
    follow = "follow the change with 'migrator quorum describe --watch'"
    return [*warnings, f"the voters are going to be {answer.target}{instead}; {follow}"]


async def _show(where: Where, *, as_json: bool) -> None:
    found = await _found(where)
    if as_json:
        say_json(to_json(found), indent=True)
    else:
        console().print(render(found))


async def _found(where: Where) -> VotersDescription:
    """As the leader sees it; as the controller that was named does, while nobody leads or the leader is not reached."""
    try:
        async with leading_controller(*where) as client:
            return await client.voters()
    except OperatorError:
        async with connect(*where) as client:
            return await client.voters()


async def _watch(where: Where, *, as_json: bool) -> None:
    with Live(console=console(), auto_refresh=False) as live:
        while True:
            try:
                async with leading_controller(*where) as client:
                    async for found in client.watch_voters():
                        if as_json:
                            say_json(to_json(found))
                        else:
                            live.update(render(found), refresh=True)
                        if found.leader_id != found.node_id:
                            break
            except OperatorError as error:
                if not as_json:
                    live.update(Text(printable(str(error)), style="yellow"), refresh=True)
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


def to_json(found: VotersDescription) -> dict[str, object]:
    """For scripts: the fields of `VotersDescription`, nested."""
    return dataclasses.asdict(found) | {"state": found.state.name.lower()}


def render(found: VotersDescription) -> RenderableType:
    """For people."""
    leader = (
        "nobody leads" if found.leader_id < 0 else f"controller {found.leader_id} leads, epoch {found.leader_epoch}"
    )
    lines = [
        f"cluster {found.cluster_id}: {leader}, high watermark {found.high_watermark}",
        f"voters: {found.voters} (kraft.version {found.kraft_version})",
        f"target: {found.target}; {found.state.value}" if found.target else "target: none",
    ]
    parts: list[RenderableType] = [Text(printable(line)) for line in lines]
    if found.waiting_for:
        parts.append(Text(printable(f"waits: {found.waiting_for} {found.remedy}"), style="yellow"))
    if found.next_steps:
        parts.append(Text(printable(f"next: {'; '.join(found.next_steps)}")))
    if found.replicas:
        parts.append(_replicas(found))
    elif found.leader_id not in {-1, found.node_id}:
        parts.append(Text(f"controller {found.leader_id} knows more: ask it with --server"))
    return Group(*parts)


def _replicas(found: VotersDescription) -> Table:
    table = Table()
    for column in (
        "controller",
        "address",
        "votes",
        "shall vote",
        "lag",
        "fetched",
        "rounds",
        "last round",
        "caught up",
    ):
        table.add_column(column)
    for row in found.replicas:
        is_leader = row.node_id == found.leader_id
        name = f"{row.node_id}@{row.directory_id}" if row.directory_id else str(row.node_id)
        table.add_row(
            f"{name}{' *' if is_leader else ''}",
            printable(row.address),
            _yes(row.votes),
            _yes(row.shall_vote) if found.target else "",
            "?" if row.lag_records < 0 else str(row.lag_records),
            "" if is_leader else _age(row.fetched_ms_ago),
            "" if is_leader else str(row.rounds),
            "" if is_leader or row.last_round_ms < 0 else f"{row.last_round_ms} ms",
            _yes(row.caught_up),
        )
    return table


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


def _age(age_ms: int) -> str:
    return "never" if age_ms < 0 else f"{age_ms / 1000:.1f} s ago"
