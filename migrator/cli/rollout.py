"""`migrator rollout`: the whole migration from one inventory.

Each command opens the inventory (`site`), takes journal and lock where it needs them, and calls `migrator.rollout`.
Nothing is decided here. A signal lets the run end after its step, a second one ends it at once.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from migrator.cli.interrupted import asked_to_stop, at_a_question
from migrator.cli.rollout_options import (
    Named,
    inventory_option,
    named_site,
    nodes_options,
    not_empty,
    stop_options,
    typed,
)
from migrator.cli.rollout_plan import ANEW, ASKS, LOOKS, READS, agree, previews, say_aside, show_plan
from migrator.cli.rollout_report import finish_archive, report_options, write_report
from migrator.cli.rollout_text import (
    REOPENS,
    ending_lines,
    finish_question,
    history_line,
    holder_line,
    status_lines,
    step_lines,
    way_back,
)
from migrator.cli.rollout_watch import (
    REFUSED_FILE,
    UNHEARING,
    gate_block,
    give_order,
    hears_orders,
    refuse_second,
    running_in,
)
from migrator.cli.terminal import ask, ask_for, say, say_json
from migrator.clock import wall_ms
from migrator.errors import ExitCode, OperatorError
from migrator.log.lock import FILE_NAME, DirectoryLock, is_in_use
from migrator.observe.loop_health import calm_garbage_collector
from migrator.rollout.engine.apply import Ending, RolloutRun, StopAt, until_phase
from migrator.rollout.engine.preview import leads_back
from migrator.rollout.engine.reviewed import SHOWN, read_document
from migrator.rollout.engine.standing import RolloutStatus, standing_of
from migrator.rollout.engine.step import ABORT_FILE
from migrator.rollout.inventory import schema_text
from migrator.rollout.journal.journal import Entry, Event, read_journal
from migrator.rollout.journal.looks import shut_gate
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.journal.summary import has_changed_something, of_last, verdict_of
from migrator.rollout.journal.writer import RolloutJournal, order_of
from migrator.rollout.leaving_zookeeper import keep_and_remove, refuse_name, refuse_removal
from migrator.rollout.meanwhile import Meanwhile, Silences
from migrator.rollout.opening.opening import (
    check_address,
    may_go_on,
    may_open,
    may_turn_back,
    note_plan,
    note_with,
    note_without,
    open_rollout,
    refuse_canary_of,
    refuse_with,
    refuse_without,
    refuse_without_zookeeper,
    turn_back,
)
from migrator.rollout.parts import RolloutParts
from migrator.rollout.plan.plan import plan, refuse_step
from migrator.rollout.plan.steps import Direction
from migrator.rollout.site import Site, parts_at, site_of

ENDINGS = {Ending.NOT_CONFIRMED: ExitCode.DIFFERENT}
"""Exit codes of a run that did not fail; 0 for all other endings."""
_WHEN = (
    "stops after the step under way, at a gate that is shut, or in its soak. A command that the step runs, such as "
    "'migrator verify', comes to its end first"
)
_STOPS = f"migrator: {_WHEN}. The same signal again stops at once, and 'resume' goes on then"


@click.group("rollout")
def command() -> None:
    """Migrate a cluster step by step, from one inventory; stop anywhere, go on, or go back.

    The inventory is a YAML file: docs/rollout.md. Every step is noted in a journal before it is done. If a command
    dies, 'resume' goes on exactly there. Exit codes: 0 done, 1 not complete (status), nothing to stop (abort), or you
    said no; 2 refused or failed, or nobody answered: the message says why, and what to do; 130 stopped at once.
    """
    calm_garbage_collector()  # the process holds a big cluster's metadata


@command.command("plan")
@inventory_option
@click.option(
    "--canary", metavar="BROKER", callback=not_empty, help="Name or id of the broker that goes first in every roll."
)
@click.option("--back", is_flag=True, help="Show the way back instead, as without the option during a rollback.")
@click.option("--json", "as_json", is_flag=True, help="Print the steps as JSON.")
@click.option(
    "--out",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the plan to this new file, too, as JSON without secrets: for a review, and for 'apply --plan'.",
)
def plan_command(inventory: Path, canary: str, back: bool, as_json: bool, out: Path | None) -> None:
    """Show every step: why, the gate before it, what it changes in which file, how to undo it. Changes nothing."""
    asyncio.run(show_plan(site_of(inventory), canary, back=back, as_json=as_json, out=out))


@command.command("apply")
@inventory_option
@stop_options
@nodes_options
@click.option(
    "--canary",
    metavar="BROKER",
    callback=not_empty,
    help="This broker goes first in every roll; then the rollout waits.",
)
@click.option(
    "--end-again", is_flag=True, help="The migration was reopened after its end: go forward to its end again."
)
@click.option(
    "--plan",
    "reviewed",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Do what this plan says, which 'plan --out' has written. Each difference is shown and asked for; --yes does "
    "not answer this question.",
)
def apply(
    inventory: Path,
    until: str,
    pause_after: str,
    canary: str,
    reviewed: Path | None,
    named: Named,
    end_again: bool,
    yes: bool,
) -> None:
    """Begin the rollout, or go on with the one that is under way.

    Before the end of the migration, the command says what leads back after it, and asks.
    """
    site, stop = named_site(inventory, named), _stop_at(until, pause_after)
    document = None if reviewed is None else read_document(reviewed)
    typed_canary = canary
    if document is not None:
        canary = canary or document["canary"]

    def check(entries: Sequence[Entry]) -> None:
        progress = progress_of(entries)
        try:
            refuse_canary_of(site.inventory, entries, progress, canary)
        except OperatorError as error:
            if typed_canary:
                raise
            what = f"the plan has the canary {canary}, and that does not fit: {error.what}"
            raise OperatorError(what, where="--plan", remedy=ANEW) from error
        known = progress.canary if progress.rollout and not progress.closed else ""
        refuse_step(plan(site.inventory, Direction.FORWARD, canary or known), stop.step)

    async def begin(parts: RolloutParts, journal: RolloutJournal) -> Ending | None:
        progress = journal.progress
        if progress.closed and progress.direction is Direction.FORWARD:
            async with Meanwhile(parts.tell, READS):
                shown = await previews(parts, progress, Direction.FORWARD, canary)
            if not any(one.changes_a_node for one in shown.steps):
                return Ending.ALREADY
        if not parts.zookeeper_connect and (not progress.rollout or progress.closed):
            refuse_without_zookeeper(await parts.observer.observe(partitions=False))
        held = None
        if document is not None or progress.plan:
            await may_open(parts, journal, canary)
            held = await agree(site, parts, progress, document, canary, yes=yes)
        await open_rollout(parts, journal, canary, held)
        return None

    _run(site, begin, stop, check, yes=yes, reason=named.reason, ends_again=end_again)


@command.command("resume")
@inventory_option
@stop_options
@nodes_options
def resume(inventory: Path, until: str, pause_after: str, named: Named, yes: bool) -> None:
    """Go on where the journal ends, forward or back, however the last command ended."""
    site, stop = named_site(inventory, named), _stop_at(until, pause_after)

    def check(entries: Sequence[Entry]) -> None:
        progress = progress_of(entries)
        if not progress.rollout or progress.closed:
            raise OperatorError(
                "no rollout is under way",
                where=str(site.state),
                remedy="'migrator rollout plan' shows what a new one would do, and 'migrator rollout apply' begins it",
            )
        if until and progress.direction is Direction.BACK:
            raise OperatorError("a rollback has no such states", where="--until", remedy="Use --pause-after")
        refuse_step(plan(site.inventory, progress.direction, progress.canary), stop.step)

    async def go_on(parts: RolloutParts, journal: RolloutJournal) -> None:
        await may_go_on(parts, journal)
        note_plan(parts, journal, await agree(site, parts, journal.progress, None, "", yes=yes))

    _run(site, go_on, stop, check, yes=yes, reason=named.reason)


@command.command("rollback")
@inventory_option
@nodes_options
@click.option("--reopen", is_flag=True, help="Go back also after the end of the migration: reopen it first.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def rollback(inventory: Path, named: Named, reopen: bool, yes: bool) -> None:
    """Return the cluster to its ZooKeeper brokers, from any state before the end of the migration.

    First the command shows what it will do, and asks. After the end, it needs --reopen, and this program's controllers;
    docs/way-back.md says what to look at before.
    """

    async def turn(parts: RolloutParts, journal: RolloutJournal) -> Ending | None:
        async with Meanwhile(parts.tell, READS):
            seen = await may_turn_back(parts, journal)
            shown = (await previews(parts, journal.progress, Direction.BACK)).steps
        is_open = bool(journal.progress.rollout) and not journal.progress.closed
        if not leads_back(shown) and not (is_open and has_changed_something(journal.entries)):
            if not is_open:
                return Ending.NO_WAY_BACK
            await turn_back(parts, journal, seen)
            parts.tell("nothing was changed yet, so nothing is to go back from: the rollout is closed")
            return None
        if yes:  # before the first line: a command that is killed meanwhile has the consent already
            await turn_back(parts, journal, seen)
        for line in (*way_back(shown), *step_lines(shown, parts.inventory)):
            say(line)
        if not yes:
            with at_a_question():
                if reopen and seen.is_finished:
                    ask(REOPENS, "Reopen the migration?", abort=True)
                ask("Go back?", abort=True)
            parts.silences.begins()
            await turn_back(parts, journal, seen)
        return None

    site = named_site(inventory, named)
    _run(site, turn, StopAt(), lambda _: None, yes=yes, reason=named.reason, reopens=reopen)


def _say_with_time(line: str) -> None:
    """Print a line of progress with its time, because a run may last for days."""
    say(f"{datetime.now(UTC):%H:%M:%S}Z {line}")


def _stop_at(until: str, pause_after: str) -> StopAt:
    return StopAt(until_phase(until) if until else None, pause_after)


def _run(
    site: Site,
    begin: Callable[[RolloutParts, RolloutJournal], Coroutine[Any, Any, Ending | None]],
    stop: StopAt,
    check: Callable[[Sequence[Entry]], None],
    *,
    yes: bool,
    reason: str,
    ends_again: bool = False,
    reopens: bool = False,
) -> None:
    """Begin, and do the wanted part of the plan. ``begin`` may say that there is nothing to do.

    :param check: refuses options that contradict the journal, before a file is made or the lock is taken.
    """

    async def confirm(left: Sequence[str]) -> bool:
        with at_a_question():
            verdict = verdict_of(of_last(read_journal(site.state)))
            return yes or ask(*finish_question(site.inventory, left, verdict, wall_ms()))

    async def accept(warnings: int) -> bool:
        with at_a_question():
            return yes or ask(f"Warnings of preflight that you decide about: {warnings} (DECIDE, above). Go on?")

    async def work(journal: RolloutJournal) -> tuple[Ending, Silences]:
        async with parts_at(site, _say_with_time) as (found, zookeeper):
            parts = replace(found, ends_again=ends_again, reopens=reopens)
            parts.silences.block = gate_block()
            async with Meanwhile(parts.tell, LOOKS):
                await check_address(zookeeper, await parts.observer.observe(partitions=False))
                await refuse_without(parts, journal)
                await refuse_with(parts, journal)
            ended = await begin(parts.heard(), journal)
            if ended is not None:
                return ended, parts.silences
            note_without(parts, journal, reason)
            await note_with(parts, journal)
            if journal.progress.plan:
                parts.tell(f"this rollout began with the reviewed plan {journal.progress.plan[:SHOWN]}")
            with asked_to_stop((site.state / ABORT_FILE).touch, _STOPS):
                run = RolloutRun(parts, journal, site.state, confirm, accept)
                async with hears_orders(site.state, parts.tell):
                    return await run.run(stop), parts.silences

    refuse_second(site.state)
    check(read_journal(site.state))
    with _journal(site) as journal:
        ending, silences = asyncio.run(work(journal))
        silences.ends()
        if ending is Ending.COMPLETE:
            finish_archive(site, journal.entries, _say_with_time)
        with suppress(OSError):  # the terminal may be closed
            say(f"the longest time without a line: {silences.longest_ms / 1000:.0f} s")
            for line in ending_lines(site.inventory, ending, journal.entries):
                say(line)
    raise click.exceptions.Exit(ENDINGS.get(ending, ExitCode.OK))


@contextmanager
def _journal(site: Site) -> Iterator[RolloutJournal]:
    """
    :raises OperatorError: another command of this rollout runs here, or the journal cannot be used.
    """
    refuse_second(site.state)
    site.make_state()
    context = click.get_current_context()
    with DirectoryLock(site.state, says=context.info_name or ""):
        # An order to stop that was given to an earlier command does not concern this one.
        for name in (ABORT_FILE, REFUSED_FILE):
            (site.state / name).unlink(missing_ok=True)
        journal = RolloutJournal(site.state, order_of(typed(context)))
        try:
            yield journal
        finally:
            journal.close()


@command.command("status")
@inventory_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(inventory: Path, as_json: bool) -> None:
    """Show how far the rollout is, what failed, who holds the lock, and what the cluster says.

    Exit codes: 0 the rollout is complete, 1 it is not, or there is none, 2 nothing of the
    cluster can be seen.
    """
    standing = asyncio.run(_standing(site_of(inventory)))
    if as_json:
        say_json(standing.as_json(), indent=True)
    else:
        for line in status_lines(standing):
            say(line)
    if standing.is_blind:
        raise click.exceptions.Exit(ExitCode.REFUSED)
    raise click.exceptions.Exit(ExitCode.OK if standing.is_complete else ExitCode.DIFFERENT)


async def _standing(site: Site) -> RolloutStatus:
    entries = read_journal(site.state)
    running = site.state.exists() and is_in_use(site.state)
    seen, holder, trouble = None, None, ""
    try:
        async with Meanwhile(say_aside, ASKS) as meanwhile, parts_at(site, say_aside) as (parts, _):
            meanwhile.what = LOOKS
            seen = await parts.observer.observe()
            meanwhile.what = "asks who holds the lock, and ends its connections"
            holder = await parts.lock.holder()
    except OperatorError as error:
        trouble = str(error)
    gate = shut_gate(site.state, entries)
    return standing_of(site.inventory, entries, running=running, gate=gate, seen=seen, holder=holder, trouble=trouble)


@command.command("history")
@inventory_option
@click.option("--json", "as_json", is_flag=True, help="Print each line of the journal as JSON.")
def history(inventory: Path, as_json: bool) -> None:
    """Show the journal: what was begun, done and found, oldest first."""
    state = site_of(inventory).state
    for entry in (entries := read_journal(state)):
        say_json(entry.as_json()) if as_json else say(history_line(entry))
    if not entries:
        say(f"no rollout has begun: there is no journal in {state}", err=True)


@command.command("report")
@inventory_option
@report_options
def report(inventory: Path, page: Path, planned: bool, as_json: bool) -> None:
    """Write one page: what happened in the last rollout, who ordered it, what stood still and why. Changes nothing.

    Before the first rollout, the page shows the plan, with forecast and risks.
    """
    write_report(site_of(inventory), page, planned=planned, as_json=as_json)


@command.command("abort")
@inventory_option
def abort(inventory: Path) -> None:
    """Let the command that runs stop after its step, at a gate that is shut, or in its soak. 'resume' goes on later.

    Exit codes: 0 it is going to stop, 1 no command runs on this host, or one that has no steps.
    """
    state = site_of(inventory).state
    running = running_in(state)
    if running is None:
        say("no command of this rollout runs on this host; there is nothing to stop")
        raise click.exceptions.Exit(ExitCode.DIFFERENT)
    if running in UNHEARING:
        say(f"'migrator rollout {running}' runs, and has no steps to stop after. Press Ctrl-C where it runs", err=True)
        say(f"'fuser {state / FILE_NAME}' finds its process", err=True)
        raise click.exceptions.Exit(ExitCode.DIFFERENT)
    give_order(state, ABORT_FILE, "abort")
    what = f"'migrator rollout {running}'" if running else "the command"
    say(f"{what} {_WHEN}. 'migrator rollout status' shows when")


@command.command("unlock")
@inventory_option
@click.option("--yes", is_flag=True, help="Don't ask.")
def unlock(inventory: Path, yes: bool) -> None:
    """Break the lock of a rollout whose host or journal is lost. Never do this while its command runs."""
    site = site_of(inventory)

    async def work(journal: RolloutJournal) -> None:
        async with parts_at(site, say_aside) as (parts, _):
            async with Meanwhile(say_aside, LOOKS):
                await parts.observer.observe(partitions=False)  # whether the migration is over says where the lock is
                holder = await parts.lock.holder()
            if holder is None:
                say("nobody holds the lock")
                return
            say(f"lock: {holder_line(holder)}")
            if not yes:
                with at_a_question():
                    ask("Are you sure that no command of that rollout runs any more? Break its lock?", abort=True)
            if journal.progress.rollout:
                journal.append(parts.clock.wall_ms(), Event.LOCK_BROKEN, of=holder.rollout, host=holder.host)
            left = await parts.lock.break_open(holder.rollout)
            say("the lock is broken" if left is None else f"that lock is broken. It is held by {holder_line(left)}")

    with _journal(site) as journal:
        asyncio.run(work(journal))


@command.command("remove-znodes")
@inventory_option
@click.option(
    "--cluster", metavar="NAME", callback=not_empty, help="The cluster's name, for scripts. Default: you are asked."
)
def remove_znodes(inventory: Path, cluster: str) -> None:
    """Remove what Kafka has in ZooKeeper, after the migration. The znodes are kept in a new file before.

    The command is refused while the migration is not finished, or a broker is not in KRaft mode. Znodes of others stay.
    If the command breaks off, repeat it: what is still there then goes into another file.
    """
    site = site_of(inventory)

    async def work() -> None:
        async with parts_at(site, say_aside) as (parts, zookeeper):
            async with Meanwhile(say_aside, LOOKS):
                refuse_removal(await parts.observer.observe(partitions=False))
            where = f"{site.inventory.cluster} ({parts.zookeeper_connect})"
            question = f"This removes all znodes of Kafka of {where}. Type the cluster's name"
            with at_a_question():
                typed = cluster or ask_for(question)
            refuse_name(typed, site.inventory.cluster, is_option=bool(cluster))
            refuse_removal(await parts.observer.observe(partitions=False))  # the answer may have taken hours
            await keep_and_remove(zookeeper, site.state, parts.tell)

    with _journal(site):
        asyncio.run(work())


@command.command("schema")
def schema() -> None:
    """Print the JSON schema of the inventory."""
    say_json(json.loads(schema_text()), indent=True)
