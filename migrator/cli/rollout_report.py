"""`migrator rollout report`: the page and the JSON of a rollout, or of a plan; also at the end of a rollout.

It reads the journal and what is kept beside it, and for a plan the cluster. It changes nothing but the page that it
writes. At the end of a rollout a page that cannot be written is only reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import click

from migrator.cli.options import Command
from migrator.cli.rollout_plan import ASKS, ASKS_LOCK, LOOKS, READS, previews, say_aside
from migrator.cli.terminal import say, say_json
from migrator.clock import wall_ms
from migrator.errors import OperatorError
from migrator.observe.printable import json_text
from migrator.rollout.files.archive import REPORT_PAGE, complete_archive, read_changes, read_verdict
from migrator.rollout.journal.journal import Entry, Event, read_journal
from migrator.rollout.journal.looks import read_looks
from migrator.rollout.journal.progress import progress_of
from migrator.rollout.journal.summary import forecast_of, of_last
from migrator.rollout.meanwhile import Meanwhile
from migrator.rollout.opening.opening import check_address
from migrator.rollout.plan.reports import risks_of
from migrator.rollout.plan.steps import Direction, Phase
from migrator.rollout.report.after import After, after
from migrator.rollout.report.before import Before, before
from migrator.rollout.site import Site, parts_at

PAGE = "rollout-report.html"
"""The file of the page, unless another one is named."""


def report_options(function: Command) -> Command:
    function = click.option("--json", "as_json", is_flag=True, help="Print the same as JSON, and write no page.")(
        function
    )
    function = click.option(
        "--before", "planned", is_flag=True, help="What a rollout would do now, also after one was begun."
    )(function)
    return click.option(
        "--page",
        metavar="FILE",
        default=PAGE,
        show_default=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help="Where to write the page. It needs no network and no script.",
    )(function)


def write_report(site: Site, page: Path, *, planned: bool, as_json: bool) -> None:
    """Write the page, or print JSON, of the last rollout. With ``planned``, or before the first rollout: of the plan.

    :raises OperatorError: the journal or the cluster cannot be read, or the page cannot be written.
    """
    entries = read_journal(site.state)
    if planned or not of_last(entries):
        facts: After | Before = asyncio.run(_before(site, entries))
    else:
        facts = _after(site, entries)
    if as_json:
        say_json(facts.as_json(), indent=True)
        return
    from migrator.observe.pages.template import write  # noqa: PLC0415 - Jinja2 is optional
    from migrator.rollout.report.page import render  # noqa: PLC0415

    write(page, render(facts, wall_ms()))
    say(f"report: {page}")


def finish_archive(site: Site, entries: Sequence[Entry], tell: Callable[[str], None]) -> None:
    """Put the whole journal and the report into the archive of a complete rollout, if it has one. Errors are only
    printed, because the rollout itself has ended well."""
    kept = next((each.details["archive"] for each in reversed(of_last(entries)) if "archive" in each.details), None)
    if kept is None:
        return
    facts, directory = _after(site, entries), Path(str(kept))
    files = [("report.json", f"{json_text(facts.as_json(), indent=True)}\n".encode())]
    try:
        from migrator.rollout.report.page import render  # noqa: PLC0415 - Jinja2 is optional

        files.append((REPORT_PAGE, render(facts, wall_ms()).encode()))
    except ModuleNotFoundError:
        tell("archive: it has no page of the report: the extra 'verify' of this program is not installed here")
    try:
        complete_archive(directory, site.state, *files)
    except (OSError, OperatorError) as error:
        tell(f"archive: the report is not in it: {error}")


def _after(site: Site, entries: Sequence[Entry]) -> After:
    rollout = progress_of(entries).rollout
    return after(site.inventory, entries, read_looks(site.state, rollout), read_changes(site.state, rollout))


def _examined(site: Site, entries: Sequence[Entry]) -> list[str] | None:
    """The findings of preflight in the last rollout, one sentence each; None if preflight has not run. A rollout that
    begins after the copy runs no preflight, so findings that are kept then belong to an earlier rollout."""
    events = [entry.event for entry in of_last(entries) if entry.step == Phase.PREFLIGHT.value]
    if not events or Event.SKIPPED in events:
        return [] if events else None
    report = read_verdict(site.state, Phase.PREFLIGHT.value)
    return None if report is None else risks_of(report)


async def _before(site: Site, entries: Sequence[Entry]) -> Before:
    progress = progress_of(entries)
    direction = Direction.BACK if progress.goes_back else Direction.FORWARD
    async with Meanwhile(say_aside, ASKS) as meanwhile, parts_at(site, say_aside) as (parts, zookeeper):
        meanwhile.what = LOOKS
        seen = await parts.observer.observe()
        await check_address(zookeeper, seen)
        meanwhile.what = READS
        shown = (await previews(parts, progress, direction)).steps
        meanwhile.what = ASKS_LOCK
        local = False
        with suppress(OperatorError):  # unknown yet: `apply` reports it
            local = await parts.lock.is_local()
        return before(
            site.inventory,
            direction,
            parts.zookeeper_connect,
            shown,
            seen,
            forecast_of(entries),
            _examined(site, entries),
            lock_is_local=local,
        )
