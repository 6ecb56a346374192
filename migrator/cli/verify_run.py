"""The part of `migrator verify` that needs Spark, after the options have been checked.

It inspects the sources, starts Spark, compares once or again and again, and ends with the exit code of the verdict. A
repair is asked for, and made by the active controller. `VerifyOutput` shows each verdict as a table or JSON on stdout,
and in a page; progress goes to stderr. Secrets are hashes already.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

from migrator.cli import terminal
from migrator.cli.interrupted import terminated_as_interrupted
from migrator.cli.progress import VerifyProgress
from migrator.cli.terminal import console, say, say_json
from migrator.clock import wall_ms
from migrator.config.load import load_settings
from migrator.errors import ExitCode, OperatorError
from migrator.observe.metrics_access import OPEN, AccessFiles, access_files
from migrator.observe.pages.template import write
from migrator.observe.printable import utc
from migrator.parts.java import find_java
from migrator.verify.comparison import EXAMPLES_MAX, Difference
from migrator.verify.foreign import ForeignWrite
from migrator.verify.history import History
from migrator.verify.inspection import inspect
from migrator.verify.job import OpenActive, VerifyJob, repair
from migrator.verify.named import Sources
from migrator.verify.page import About, render
from migrator.verify.spark.session import is_submitted, spark_session, starts_java
from migrator.verify.spark.work import WorkMeter
from migrator.verify.verdict import Verdict, VerifyRequest, next_step
from migrator.verify.watch import Watch, WatchMetrics, entry_of
from migrator.zookeeper.session import ZooKeeperUnavailableError


def labels(sources: Sources) -> Mapping[str, str]:
    """The labels of the sources, for the page.

    :raises OperatorError: the property file cannot be read, or is not valid.
    """
    if sources.archived:
        return {"Archive": sources.archive or ""}
    if sources.zookeeper_files:
        chroot = f" (chroot {sources.chroot})" if sources.chroot else ""
        zookeeper = ", ".join(sources.zookeeper_files) + chroot
    elif sources.zookeeper is None and sources.config is not None:
        zookeeper = load_settings(Path(sources.config))[0].zookeeper_connect or ""
    else:
        zookeeper = sources.zookeeper or ""
    return {"ZooKeeper": zookeeper, "Metadata log": sources.metadata or ""}


@dataclass(slots=True)
class VerifyOutput:
    """Prints verdicts. ``say`` prints the progress."""

    page: Path | None
    history: History | None
    sources: Sources
    say: Callable[[str], None]
    as_json: bool = False

    def before_repair(self, verdict: Verdict) -> None:
        """Show the verdict about which the operator is asked."""
        if self.as_json:
            self.say(f"{verdict.comparison.differences:,} differences")
        else:
            _print(console(), verdict)

    def show(self, verdict: Verdict) -> None:
        if self.as_json:
            say_json(verdict.to_json(), indent=True)
        else:
            _print(console(), verdict)
        self._write_page(verdict)

    def show_again(self, found: Verdict | OperatorError, foreign: Sequence[ForeignWrite]) -> None:
        """Show one of many verdicts: as a line, as a line of JSON for a script, and in the page."""
        if self.as_json:
            content: Mapping[str, object] = {"verdict": "could not tell", "why": str(found)}
            if isinstance(found, Verdict):
                content = found.to_json()
            say_json({"time_ms": wall_ms(), **content, "foreign_writes": [_json(one) for one in foreign]})
        else:
            said = str(found) if isinstance(found, OperatorError) else _summary(found)
            say(f"{dt.datetime.now(dt.UTC):%H:%M:%S} {said}")
            for one in foreign:
                say(f"  somebody else wrote to ZooKeeper: {_foreign(one)}")
            if not isinstance(found, OperatorError):
                for difference in found.comparison.examples:
                    say(f"  {_difference(difference.status, difference)}")
        if not isinstance(found, OperatorError):
            self._write_page(found)

    def _write_page(self, verdict: Verdict) -> None:
        if self.page is not None:
            entries = [] if self.history is None else self.history.entries()
            write(self.page, render(verdict, self._about(verdict), entries, wall_ms()))

    def _about(self, verdict: Verdict) -> About:
        return About(
            labels(self.sources), socket.gethostname(), version("kraft-migrator"), next_step(verdict, self.sources)
        )


def _json(one: ForeignWrite) -> dict[str, object]:
    return {"path": one.path, "zxid": one.zxid, "time_ms": one.time_ms, "session": one.session}


def _foreign(one: ForeignWrite) -> str:
    if one.deleted:
        return f"{one.path} was deleted"
    who = "" if one.session is None else f", session {one.session:#x}"
    return f"{one.path}, zxid {one.zxid:#x}, {utc(one.time_ms)}{who}"


def _print(terminal: Console, verdict: Verdict) -> None:
    table = Table("kind", "ZooKeeper", "KRaft", "missing", "extra", "different")
    for column in table.columns[1:]:
        column.justify = "right"
    for kind, counts in verdict.comparison.kinds.items():
        figures = (counts.zookeeper, counts.kraft, counts.missing, counts.extra, counts.different)
        style = "red" if any(figures[2:]) else None
        table.add_row(kind, *(f"{figure:,}" for figure in figures), style=style)
    terminal.print(table)
    for difference in verdict.comparison.examples:
        terminal.print(f"  {_difference(difference.status, difference)}")
    for difference in verdict.undecided[:EXAMPLES_MAX]:
        terminal.print(f"  {_difference('kept changing', difference)}")
    terminal.print(_summary(verdict))


def _summary(verdict: Verdict) -> str:
    found = {
        ExitCode.OK: "equal",
        ExitCode.DIFFERENT: f"{verdict.comparison.differences:,} differences",
    }.get(verdict.exit_code, f"could not tell: {verdict.why or 'it kept changing'}")
    return f"{found}: {verdict.comparison.rows:,} rows compared in {verdict.seconds:.1f} s, {_where(verdict)}"


def _where(verdict: Verdict) -> str:
    again = f", {verdict.read_again:,} of them more than once" if verdict.read_again else ""
    if verdict.at.zxid < 0:
        return "of what was kept"
    offset = f"offset {verdict.at.offset} of the log" if verdict.at.offset >= 0 else "no KRaft quorum writes there"
    return f"at zxid {verdict.at.zxid:#x} and {offset}{again}"


def _difference(status: str, difference: Difference) -> str:
    place = f"{difference.kind} {difference.entity} {difference.field}"
    return f"{status}: {place}: ZooKeeper {difference.zookeeper!r}, KRaft {difference.kraft!r}"


def run(request: VerifyRequest, controller: OpenActive, given: Mapping[str, Any]) -> NoReturn:
    """Compare and show, once or again and again. Ends with the exit code of the verdict.

    :param given: the options of the command line.
    :raises OperatorError: as in `verify`; or a check of a source fails before Spark starts.
    """
    if starts_java(request.master):
        find_java()
    history = None if given["history"] is None else History(given["history"])
    stderr = console(stderr=True, quiet=given["as_json"] and is_submitted())  # otherwise it mixes with the JSON
    with terminated_as_interrupted(), VerifyProgress(stderr) as progress:
        output = VerifyOutput(given["page"], history, request.sources, progress.say, as_json=given["as_json"])
        mend = partial(_mend, controller, output, progress, ask=not given["yes"]) if given["mend"] else None
        job = VerifyJob(request, report_to=controller if given["tell_controller"] else None, repair=mend)
        if given["watch"] is None:
            _once(job, output, progress)
        try:
            inspect(request.sources, progress.begin)
        except ZooKeeperUnavailableError as error:  # ZooKeeper may come back; other faults end the command
            progress.say(f"{error}. Trying again")
        progress.begin("starting Spark")
        _again_and_again(job, output, progress, given)


def _once(job: VerifyJob, output: VerifyOutput, progress: VerifyProgress) -> NoReturn:
    inspect(job.request.sources, progress.begin)
    progress.begin("starting Spark")
    with spark_session(job.request.master, job.request.conf) as spark:
        progress.follow(partial(_how_far, WorkMeter(spark)))
        verdict = job.run(spark, output.say, progress.begin)
        progress.follow(None)
        progress.begin("ending Spark")
    if output.history is not None:
        output.history.append(entry_of(verdict, 0, wall_ms()))
    output.show(verdict)
    progress.say(f"the command took {progress.seconds:.0f} s")
    sys.exit(verdict.exit_code)


def _how_far(meter: WorkMeter) -> str:
    work = meter.look()
    rows = f"{work.rows:,} rows read, " if work.rows else ""
    return f"{rows}{work.done} of {work.parts} parts done" if work.parts else ""


def _again_and_again(
    job: VerifyJob, output: VerifyOutput, progress: VerifyProgress, given: Mapping[str, Any]
) -> NoReturn:
    with ExitStack() as stack:
        metrics = None
        if given["metrics_port"] is not None:
            metrics = WatchMetrics(given["metrics_host"], given["metrics_port"], _access(job.request.config))
            stack.callback(metrics.close)
            output.say(f"metrics on port {metrics.port}")
        spark = stack.enter_context(spark_session(job.request.master, job.request.conf))
        progress.rest()
        watch = Watch(
            job.request, given["watch"], partial(job.run, tell=output.say), output.show_again, output.history, metrics,
            given["transaction_logs"],
        )  # fmt: skip
        signal.signal(signal.SIGTERM, lambda *_: watch.stopping.set())
        found = watch.run(spark)
    if isinstance(found, OperatorError):
        raise found
    sys.exit(found.exit_code)


def _access(config: str | None) -> AccessFiles:
    """The access rules of the property file, as for a controller's own endpoint."""
    return OPEN if config is None else access_files(load_settings(Path(config))[0])


def _mend(
    controller: OpenActive, output: VerifyOutput, progress: VerifyProgress, verdict: Verdict, *, ask: bool
) -> bool:
    """Show the verdict, ask, and let the active controller repair; its messages go to stderr."""
    with progress.silent():
        output.before_repair(verdict)
        if ask and not terminal.ask("Overwrite these differences in ZooKeeper with the content of the log?", err=True):
            return False
    progress.begin("waiting for the active controller to repair")
    reason = f"verify found {verdict.comparison.differences:,} differences"
    output.say(asyncio.run(repair(controller, reason, output.say)))
    return True
