"""The output of `migrator verify`: a table or JSON on stdout, a page, and progress on stderr.

`verify_run` calls `VerifyOutput` with each verdict. Table, JSON and page show the same verdict. Secrets are hashes
already.
"""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from migrator.cli.terminal import console, say, say_json
from migrator.clock import wall_ms
from migrator.config.load import load_settings
from migrator.errors import ExitCode, OperatorError
from migrator.observe.pages.template import write
from migrator.observe.printable import utc
from migrator.verify.comparison import EXAMPLES_MAX, Difference
from migrator.verify.foreign import ForeignWrite
from migrator.verify.history import History
from migrator.verify.named import Sources
from migrator.verify.next_step import next_step
from migrator.verify.page import About, render
from migrator.verify.verdict import Verdict


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
