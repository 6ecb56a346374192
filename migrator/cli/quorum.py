"""`migrator quorum`: shows the voters, orders changes of them, and unregisters a broker that is gone for good.

Orders go to the leader over gRPC, and the quorum carries them out by itself; the command only waits if ``--wait`` is
given. An interrupted command does not take its order back. ``--json`` prints the fields of `VotersDescription`.
`unregister` looks at the quorum first and refuses a broker that serves, then sends one request with the login of the
property file. It also works with Kafka's controllers.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from migrator.cli import recover
from migrator.cli.controller_at import ControllerAt, controller_options
from migrator.cli.options import config_option
from migrator.cli.terminal import console, say, say_json
from migrator.config.load import read_properties, typed_settings
from migrator.config.settings import Settings
from migrator.errors import ExitCode, OperatorError
from migrator.observe.leaders import stock_leads, under_stock
from migrator.observe.printable import printable
from migrator.observe.voters import PlanState, ReplicaDescription, VoterOrder, VotersAnswer, VotersDescription
from migrator.rpc.find_controller import connect, leading_controller
from migrator.seeing.quorum import QuorumEyes, QuorumLook


@click.command("unregister")
@config_option("Property file of a controller, or the one that 'access' of an inventory names.", required=True)
@click.option(
    "--id", "broker_id", metavar="BROKER", type=click.IntRange(min=0), required=True, help="The broker that is gone."
)
def unregister_command(config: Path, broker_id: int) -> None:
    """Remove the registration of a broker that is gone for good, before, in or after a migration.

    A broker that serves is refused: stop it first. If it is started again, it registers again. The login of FILE needs
    the right Alter on the cluster. Exit codes: 0 the broker is not registered any more, 2 refused or no answer.
    """
    asyncio.run(_unregister(typed_settings(read_properties(config), str(config)), broker_id))


async def _unregister(settings: Settings, broker_id: int) -> None:
    eyes = QuorumEyes(settings)
    try:
        await eyes.catch_up(lambda sentence: say(sentence, err=True))
        if not may_unregister(await eyes.look(), broker_id):
            say(f"broker {broker_id} is not registered: there is nothing to remove")
            return
        why_not = await eyes.unregister(broker_id)
    finally:
        await eyes.close()
    if why_not:
        raise OperatorError(
            f"the registration of broker {broker_id} cannot be removed: {why_not}",
            where="the leader of the quorum",
            remedy="See that a controller leads, and that the login has the right Alter on the cluster",
        )
    say(f"broker {broker_id} is not registered any more")


def may_unregister(look: QuorumLook, broker_id: int) -> bool:
    """Check that there is a registration to remove.

    :raises OperatorError: that is unknown, or the broker serves.
    """
    if look.image is None:
        raise OperatorError(
            "; ".join(look.unknown) or "nothing is committed yet: the quorum knows of no broker",
            where="the quorum",
            remedy="Nothing was changed. See that the controllers run, and that this machine reaches them",
        )
    registration = look.image.cluster.brokers.get(broker_id)
    if registration is not None and not registration.fenced:
        raise OperatorError(
            f"broker {broker_id} serves",
            where=f"broker {broker_id}",
            remedy="Nothing was changed. Stop the broker first, and wait until the quorum misses its heartbeats "
            "(broker.session.timeout.ms)",
        )
    return registration is not None


LOOK_AGAIN_SECONDS = 1.0
WAIT = click.option("--wait", is_flag=True, help="Return only when the voters are those of the target.")
CLUSTER = click.option("--cluster-id", default="", help="Refuse unless the controllers belong to this cluster.")


@click.group("quorum")
def command() -> None:
    """Show the voters of the quorum, and let others vote instead of them, while the quorum runs.

    The leader changes one voter at a time and waits when a change would be unsafe. Every later leader goes on.
    Exit codes: 0 done, 1 nobody leads (describe), 2 refused or no answer.
    """


@command.command("describe")
@controller_options
@click.option("--watch", is_flag=True, help="Keep running, and show every change.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch, one object per line.")
def describe(at: ControllerAt, watch: bool, as_json: bool) -> None:
    """Show current and target voters, how far each controller is, what the plan waits for, and the next steps."""
    asyncio.run(_watch(at, as_json=as_json) if watch else _show(at, as_json=as_json))


@command.command("reassign")
@controller_options
@click.option("--to", "voters", metavar="IDS", required=True, help="Who shall vote: 4,5,6, or 4@DIRECTORY-ID,5,6.")
@CLUSTER
@WAIT
def reassign(at: ControllerAt, voters: str, cluster_id: str, wait: bool) -> None:
    """Make these controllers the voters, and no others. Another target that is set is replaced."""
    _order(at, VoterOrder.TO, voters, cluster_id, wait=wait)


@command.command("add")
@controller_options
@click.argument("voters", metavar="IDS")
@CLUSTER
@WAIT
def add(at: ControllerAt, voters: str, cluster_id: str, wait: bool) -> None:
    """Let these controllers vote too."""
    _order(at, VoterOrder.ADD, voters, cluster_id, wait=wait)


@command.command("remove")
@controller_options
@click.argument("voters", metavar="IDS")
@CLUSTER
@WAIT
def remove(at: ControllerAt, voters: str, cluster_id: str, wait: bool) -> None:
    """Let these controllers vote no more. They stay observers until you stop them."""
    _order(at, VoterOrder.REMOVE, voters, cluster_id, wait=wait)


@command.command("cancel")
@controller_options
@CLUSTER
def cancel(at: ControllerAt, cluster_id: str) -> None:
    """End the change of voters where it is. Controllers that were added or removed stay so."""
    _order(at, VoterOrder.CANCEL, "", cluster_id, wait=False)


@command.command("upgrade")
@controller_options
@CLUSTER
def upgrade(at: ControllerAt, cluster_id: str) -> None:
    """Take the voters of controller.quorum.voters into the log (kraft.version 1), so that they can change.

    Every registered broker and controller must be of Kafka 3.9 or newer, also those that are down. Nothing leads back.
    """
    asyncio.run(_ordered(at, VoterOrder.UPGRADE, "", cluster_id))
    say("The voters are in the log now (kraft.version 1). 'migrator quorum reassign' can change them")


@command.command("rollout-lock")
@controller_options
@click.option(
    "--move", nargs=2, metavar="BEFORE AFTER", default=None, help="Write AFTER if BEFORE is there; '' is none."
)
def rollout_lock(at: ControllerAt, move: tuple[str, str] | None) -> None:
    """Print the lock of 'migrator rollout' in this quorum, as JSON. 'migrator rollout' runs this on the leader's host.

    To break the lock, use 'migrator rollout unlock'. There is a lock only after the end of a migration.
    """
    asyncio.run(_rollout_lock(at, move))


async def _rollout_lock(where: ControllerAt, move: tuple[str, str] | None) -> None:
    async with leading_controller(*where) as client:
        answer = await client.rollout_lock(move)
    say_json({"held": answer.held, "moved": answer.moved})


command.add_command(recover.command)
command.add_command(unregister_command)


def _order(where: ControllerAt, order: VoterOrder, voters: str, cluster_id: str, *, wait: bool) -> None:
    answer = asyncio.run(_ordered(where, order, voters, cluster_id))
    for line in sentences(answer):
        say(printable(line))
    if wait and answer.target:
        asyncio.run(_reached(where, answer.target))
        say(printable(f"the voters are {answer.target}"))


async def _ordered(where: ControllerAt, order: VoterOrder, voters: str, cluster_id: str) -> VotersAnswer:
    async with leading_controller(*where) as client:
        return await client.reassign(order, voters, cluster_id)


async def _reached(where: ControllerAt, target: str) -> None:
    """Wait until the target is reached. The leader changes meanwhile, so each new one is found. What the plan waits for
    is printed.

    :raises OperatorError: another order has replaced the target.
    """
    said = ""
    while True:
        try:
            async with leading_controller(*where) as client:
                async for found in client.watch_voters():
                    if found.target != target and found.state is not PlanState.RESTING:
                        return _look_at_end(found.target)
                    why = f"{found.waiting_for} {found.remedy}".strip()
                    if why not in {"", said}:
                        said = why
                        say(f"waits: {why}", err=True)
                    if found.state is PlanState.RESTING:
                        break
        except OperatorError as error:
            if str(error) != said:
                said = str(error)
                say(f"no leader was asked: {error}", err=True)
        await asyncio.sleep(LOOK_AGAIN_SECONDS)


def _look_at_end(target: str) -> None:
    if target:
        raise OperatorError(
            f"another operator has replaced the target by {target}",
            where="--to",
            remedy="Agree on one of the two, and order that one again",
        )


def sentences(answer: VotersAnswer) -> list[str]:
    """The text about an accepted order."""
    warnings = [f"warning: {warning}" for warning in answer.warnings]
    if not answer.target:
        return [f"cancelled: the target was {answer.replaced}" if answer.replaced else "no target was set"]
    instead = f", instead of {answer.replaced}" if answer.replaced else ""
    follow = "follow the change with 'migrator quorum describe --watch'"
    return [*warnings, f"the voters are going to be {answer.target}{instead}; {follow}"]


async def _show(where: ControllerAt, *, as_json: bool) -> None:
    found = await _found(where)
    if as_json:
        say_json(to_json(found), indent=True)
    else:
        console().print(render(found))
    if found.leader_id < 0:
        sys.exit(ExitCode.DIFFERENT)


async def _found(where: ControllerAt) -> VotersDescription:
    """The description of the leader; without a reachable leader, that of the named controller."""
    try:
        async with leading_controller(*where) as client:
            return await client.voters()
    except OperatorError:
        async with connect(*where) as client:
            return await client.voters()


async def _watch(where: ControllerAt, *, as_json: bool) -> None:
    """Show the description continuously: on a terminal the newest one, elsewhere each one that differs from the one
    before."""
    screen = console()
    with contextlib.ExitStack() as stack:
        live = stack.enter_context(Live(console=screen, auto_refresh=False)) if screen.is_terminal else None

        def show(what: RenderableType) -> None:
            if live is None:
                screen.print(what)
            else:
                live.update(what, refresh=True)

        last = ""
        while True:
            try:
                async with leading_controller(*where) as client:
                    async for found in client.watch_voters():
                        if as_json:
                            say_json(to_json(found))
                        elif live is not None or summary(found) != last:
                            last = summary(found)
                            show(render(found))
                        if found.leader_id != found.node_id:
                            break
            except OperatorError as error:
                if not as_json and (live is not None or str(error) != last):
                    last = str(error)
                    show(Text(printable(last), style="yellow"))
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


def to_json(found: VotersDescription) -> dict[str, object]:
    """The fields of `VotersDescription`, nested, for scripts."""
    return dataclasses.asdict(found) | {"state": found.state.name.lower()}


def summary(found: VotersDescription) -> str:
    """The part of a description whose changes are news: without offsets and ages."""
    news = (found.leader_id, found.leader_epoch, found.voters, found.target, found.state, found.waiting_for)
    return f"{news} {found.next_steps} {[row.node_id for row in found.replicas if row.caught_up]}"


def _ids(voters: str) -> str:
    """The ids without directories, which the table has."""
    return ",".join(voter.partition("@")[0] for voter in voters.split(","))


def render(found: VotersDescription) -> RenderableType:
    leader = (
        "nobody leads ('migrator status' says who does not answer)"
        if found.leader_id < 0
        else f"controller {found.leader_id} leads, epoch {found.leader_epoch}"
    )
    high_watermark = "unknown" if found.high_watermark < 0 else found.high_watermark
    lines = [
        f"cluster {found.cluster_id}: {leader}, high watermark {high_watermark}",
        f"voters: {_ids(found.voters)} (kraft.version {found.kraft_version})",
        f"target: {found.target}; {found.state.value}" if found.target else "target: none",
    ]
    parts: list[RenderableType] = [Text(printable(line)) for line in lines]
    if found.waiting_for:
        parts.append(Text(printable(f"waits: {found.waiting_for} {found.remedy}"), style="yellow"))
    if found.next_steps:
        parts.append(Text(printable(f"next: {'; '.join(found.next_steps)}")))
    if found.replicas:
        parts.append(_replicas(found))
    elif found.stock_leader:
        parts.append(Text(f"{stock_leads(found.leader_id)}. {under_stock(found.leader_id)}"))
    elif found.leader_id not in {-1, found.node_id}:
        parts.append(
            Text(f"controller {found.leader_id} knows more: run this on its machine, or name it with --server")
        )
    return Group(*parts)


def _replicas(found: VotersDescription) -> Table:
    """The table of replicas. It fits a terminal of 80 columns, because an operator copies directory ids and addresses
    from it."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in ("id", "directory", "votes", "lag", "fetched", "rounds", "caught up", "address"):
        table.add_column(column, no_wrap=column != "address", overflow="fold")
    for row in found.replicas:
        is_leader = row.node_id == found.leader_id
        table.add_row(
            f"{row.node_id}{'*' if is_leader else ''}",
            row.directory_id,
            _vote(row, has_target=bool(found.target)),
            "?" if row.lag_records < 0 else str(row.lag_records),
            "" if is_leader else _age(row.fetched_ms_ago),
            "" if is_leader else _rounds(row),
            _yes(row.caught_up),
            printable(row.address),
        )
    return table


def _vote(row: ReplicaDescription, *, has_target: bool) -> str:
    if has_target and row.votes != row.shall_vote:
        return "joins" if row.shall_vote else "leaves"
    return _yes(row.votes)


def _rounds(row: ReplicaDescription) -> str:
    return f"{row.rounds}" if row.last_round_ms < 0 else f"{row.rounds}, {row.last_round_ms} ms"


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


def _age(age_ms: int) -> str:
    return "never" if age_ms < 0 else f"{age_ms / 1000:.1f} s"
