"""`migrator handover`: hands the quorum over to Kafka's own controllers after the migration.

`check` only looks; `run` calls `migrator.handover` and asks first. Each can be repeated: after a failure `run` looks at
the cluster and goes on. The command runs on the machines of the controllers, with their property files.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from migrator.cli.options import Command, Seconds
from migrator.cli.terminal import ask, say
from migrator.errors import ExitCode, OperatorError
from migrator.handover.execute import PATIENCE_SECONDS, HandoverRun, OperatorCommands, Picture
from migrator.handover.members import ObservedMembers, refusals
from migrator.handover.members_run import MembersRun
from migrator.handover.plan import Action, WantedHandover, Way
from migrator.observe.printable import printable
from migrator.raft.planner import ClearTarget, Wait, described, outlook, plan
from migrator.rollout.target_release import parse_target

CHECK_SECONDS = 10.0
"""Seconds that 'check' waits for a leader, and for the condition of a step; an election or a late record takes less."""


@click.group("handover")
def command() -> None:
    """Hand the quorum over to Apache Kafka's own controllers, after the migration is finished.

    Run the command on each controller's machine, with this controller's property file. If one machine has several
    controllers, give all their files. 'check' shows what would be done. 'run' does it, and can be repeated at any time.
    """


def _handover_options(function: Command) -> Command:
    for option in (
        click.option(
            "--to", "release", default="3.9.1", show_default=True, help="The Kafka release whose controllers take over."
        ),
        click.option(
            "--way",
            type=click.Choice([way.value for way in Way]),
            default=Way.ROLLING.value,
            show_default=True,
            help="rolling: one voter after the other, while the quorum serves. directory: stop all, then start all "
            "(for 4.x). members: controllers that run already join, the others leave.",
        ),
        click.option(
            "--voters",
            metavar="IDS",
            help="With --way members: ids of the controllers that shall vote, for example 4,5,6. --to is not used.",
        ),
        click.option(
            "-c",
            "--config",
            "configs",
            metavar="FILE",
            multiple=True,
            required=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Property file of a controller of this program on this machine; may be repeated.",
        ),
    ):
        function = option(function)
    return function


@command.command("check")
@_handover_options
def check(configs: tuple[Path, ...], way: str, release: str, voters: str | None) -> None:
    """Show what a handover finds, and what it would do. Changes nothing.

    Exit codes: 0 the handover can begin, 1 something prevents it, 2 failed.
    """
    wanted = _voters(way, voters)
    if wanted:
        _check_members(MembersRun(configs[0], wanted, tell=say, patience_seconds=CHECK_SECONDS))
        return
    run = HandoverRun(configs, _target(way, release), OperatorCommands(None, None, say), tell=say)
    picture = asyncio.run(run.look_ahead(CHECK_SECONDS))
    for line in _described(run, picture, Way(way)):
        say(line)
    blocked = [step for step in picture.steps if step.action in (Action.REFUSE, Action.WAIT)]
    for step in blocked:
        say(f"{step}{f'. {step.remedy}' if step.remedy else ''}")
    raise click.exceptions.Exit(ExitCode.DIFFERENT if blocked else ExitCode.OK)


@command.command("run")
@_handover_options
@click.option(
    "--stop-command",
    metavar="COMMAND",
    help="Command that stops our controller {node}. Without it, the program asks you to.",
)
@click.option(
    "--start-command",
    metavar="COMMAND",
    help="Command that starts Kafka's controller {node} with property file {file}, and returns. Default: you are "
    "asked.",
)
@click.option(
    "--patience",
    type=Seconds(0, min_open=True),
    metavar="SECONDS",
    default=PATIENCE_SECONDS,
    show_default=True,
    help="How long to wait for each single step.",
)
@click.option("--yes", is_flag=True, help="Don't ask.")
def run_command(
    configs: tuple[Path, ...],
    way: str,
    release: str,
    voters: str | None,
    stop_command: str | None,
    start_command: str | None,
    patience: float,
    yes: bool,
) -> None:
    """Hand over the voters whose property files are given. After a failure, repeat the command: it continues.

    Commands run without a shell. Exit codes: 0 Kafka runs all these voters (--way members: the voters are those of
    --voters), 2 refused or failed.
    """
    wanted = _voters(way, voters)
    if wanted:
        if stop_command or start_command:
            raise OperatorError(
                "--way members starts and stops nothing",
                where="--stop-command, --start-command",
                remedy="Leave these options away. Start the controllers that join yourself",
            )
        members = MembersRun(configs[0], wanted, tell=say, patience_seconds=patience)
        if not yes:
            for line in _members_described(asyncio.run(members.look_ahead(0))):
                say(line)
            ask("Go on?", abort=True)
        asyncio.run(members.run())
        return
    run = HandoverRun(
        configs,
        _target(way, release),
        OperatorCommands(stop_command, start_command, say),
        tell=say,
        patience_seconds=patience,
    )
    if not yes:
        for line in _described(run, asyncio.run(run.look_ahead(0)), Way(way)):
            say(line)
        ask("Go on?", abort=True)
    asyncio.run(run.run())


def _voters(way: str, voters: str | None) -> tuple[int, ...]:
    """Ids of the future voters; empty for the other ways.

    :raises OperatorError: the two options contradict each other.
    """
    if (Way(way) is Way.MEMBERS) != (voters is not None):
        raise OperatorError("--way members and --voters belong together", where="--voters", remedy="Give both")
    if voters is None:
        return ()
    ids = [text.strip() for text in voters.split(",")]
    if not all(text.isascii() and text.isdecimal() and int(text) < 1 << 31 for text in ids) or len(set(ids)) < len(ids):
        raise OperatorError(f"{voters!r} is no list of node ids", where="--voters", remedy="Write for example 4,5,6")
    return tuple(map(int, ids))


def _check_members(run: MembersRun) -> None:
    seen = asyncio.run(run.look_ahead(CHECK_SECONDS))
    for line in _members_described(seen):
        say(line)
    refused = list(refusals(seen))
    for refusal in refused:
        say(printable(f"refused: {refusal.reason} {refusal.remedy}"))
    if isinstance(step := plan(seen.planner), Wait) and not refused:
        say(printable(f"waits: {step.reason} {step.remedy}"))
    blocked = bool(refused) or isinstance(step, Wait)
    raise click.exceptions.Exit(ExitCode.DIFFERENT if blocked else ExitCode.OK)


def _members_described(seen: ObservedMembers) -> list[str]:
    voters = ", ".join(map(str, sorted(seen.planner.voters.ids)))
    steps = "; ".join(described(step) for step in outlook(seen.planner) if not isinstance(step, ClearTarget))
    return [
        f"controller {seen.planner.own.node_id} leads; the voters are {voters}",
        f"the voters are going to be {', '.join(map(str, seen.wanted))}",
        f"steps: {steps or 'none'}",
    ]


def _target(way: str, release: str) -> WantedHandover:
    try:
        return WantedHandover(parse_target(release), Way(way))
    except ValueError as error:
        raise OperatorError(str(error), where="--to", remedy="Name a release, for example 3.9.1") from error


def _described(run: HandoverRun, picture: Picture, way: Way) -> list[str]:
    """The state, and the next steps, in words."""
    seen, voters = picture.seen, {} if picture.seen.quorum is None else picture.seen.quorum.voters
    leader = "nobody leads" if picture.leader_id is None else f"controller {picture.leader_id} leads"
    finished = "is finished" if seen.is_finished else "is not finished" if seen.migration else "is in an unknown state"
    lines = [f"{leader}; the migration {finished}"]
    for node_id, voter in sorted(voters.items()):
        runs = "does not answer" if voter.program is None else f"runs {voter.program.value}"
        has_all = seen.is_led and voter.lag_records == 0
        state = "has all that is committed" if has_all else "has not all that is committed"
        lines.append(f"controller {node_id}: {runs}{', ' + state if voter.program is not None else ''}")
    for node_id, site in sorted(run.sites.items()):
        dropped = ", ".join(site.file.dropped) or "nothing"
        lines.append(f"controller {node_id}: {site.file.path} will be written, without: {dropped}")
    if way is Way.ROLLING:
        lines.append("then, one after the other, the leader last: stopped, started as Kafka, waited for")
    else:
        lines.append("then each is stopped; once no voter runs this program any more, each is started as Kafka")
    others = sorted(voters.keys() - run.sites.keys())
    if others:
        lines.append(f"not on this machine, so run this there too: controllers {', '.join(map(str, others))}")
    return lines
