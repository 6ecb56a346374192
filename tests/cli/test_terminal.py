"""Whatever ZooKeeper, a client or a peer calls itself: terminal, log and page show it as text; no line is forged."""

from __future__ import annotations

import io
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from migrator.cli import rehearse, status, terminal, verify_run
from migrator.log.dump import to_lines, to_objects
from migrator.log.snapshots import SnapshotWriter
from migrator.migration.machine.readiness import Gap
from migrator.observe.logs import JsonFormatter, TextFormatter
from migrator.observe.printable import json_text, printable, printable_lines, utc
from migrator.observe.status import (
    BrokerState,
    BrokerStatus,
    JournalEvent,
    MigrationStatus,
    NodeRole,
    Problem,
    QuorumStatus,
    Status,
    VoterStatus,
)
from migrator.observe.status_page import Answers
from migrator.raft.messages import EpochOffset
from migrator.records.codec import encode_all
from migrator.records.metadata import ConfigRecord, MetadataRecord, UserScramCredentialRecord
from migrator.records.versions import LATEST_SUPPORTED
from migrator.rehearse.report import Outcome, RehearsalCheck, RehearsalReport
from migrator.verify.comparison import Comparison, Difference
from migrator.verify.page import render
from tests.cli.test_main import run
from tests.verify.support.sample_pages import DIFFERENT, NOW_MS, about

FORGED = "[2026-01-01 00:00:00,000] INFO all is well"
MARKUP = "[red]RED[/red] :skull:"
EVIL = f"\x1b]0;title\x07\x1b[31m{MARKUP}\r\n{FORGED}\x85\x9b31m\x7f\x00\u202e\u2066\u200b\u2028\U000e0041\ud800<b>"
CLI = Path(terminal.__file__).parent
STYLE = re.compile(r"\x1b\[[0-9;]*m")


def check(shown: str, *, markup: str = MARKUP) -> None:
    """Everything has a shape; what looked like markup is there; no line begins as ours do."""
    assert [char for char in shown if not char.isprintable() and char != "\n"] == []
    assert markup in re.sub(r"\s+", " ", shown)
    assert not any(line.startswith(FORGED[:12]) for line in shown.splitlines())


def printed(renderable: RenderableType, *, colours: bool = False) -> str:
    file = io.StringIO()
    terminal.console(file=file, width=5_000, force_terminal=colours).print(renderable)
    return STYLE.sub("", file.getvalue())


@pytest.mark.parametrize(
    "say",
    [terminal.say, terminal.say_error, terminal.say_json, lambda text: terminal.say_json([text], indent=True)],
)
def test_a_line_is_text(say: Callable[[str], None], capsys: pytest.CaptureFixture[str]) -> None:
    say(EVIL)
    out, err = capsys.readouterr()
    check(out or err)


def test_json_says_what_it_said() -> None:
    text = EVIL.replace("\ud800", "")
    assert orjson.loads(json_text({text: text})) == {text: text}
    assert json_text("Grüße, 名前") == '"Grüße, 名前"'


def table() -> Table:
    found = Table("name", title=EVIL, caption=EVIL)
    found.add_row(EVIL)
    return found


@pytest.mark.parametrize("renderable", [EVIL, Text(EVIL.replace("\n", "")), table()], ids=type)
@pytest.mark.parametrize("colours", [False, True])
def test_a_console_shows_no_more_than_text(renderable: RenderableType, colours: bool) -> None:
    check(printed(renderable, colours=colours))


def test_a_status_of_a_hostile_peer_is_text() -> None:
    voters = (VoterStatus(1, EVIL, 9093),)
    hostile = Status(
        cluster_id=EVIL,
        node_id=1,
        version=EVIL,
        time_ms=0,
        quorum=QuorumStatus(NodeRole.LEADER, 1, 1, 0, 1, 1, voters),
        migration=MigrationStatus(EVIL, EVIL, 0, active=True),
        brokers=(BrokerStatus(1, BrokerState.RUNNING, 1, in_zookeeper_mode=True),),
        problems=(Problem(EVIL, EVIL, EVIL),),
        metadata_version=EVIL,
        recent_events=(JournalEvent(1, 0, EVIL, EVIL),),
    )
    for colours in (False, True):
        shown = printed(status.render(Answers(hostile, hostile)), colours=colours)
        check(shown)
        assert shown.count("RED") >= 8, "each name is shown"


def test_a_rehearsal_shows_names_as_text() -> None:
    gap = Gap(EVIL, EVIL, EVIL)
    report = RehearsalReport(EVIL, counts={"topics": 1}, blockers=(gap,), warnings=(gap,))
    report.kafka = report.verified = RehearsalCheck(Outcome.DIFFERENT, EVIL)
    file = io.StringIO()
    rehearse._print(report, terminal.console(file=file, width=5_000))
    check(file.getvalue())
    check(json_text(report.to_json(), indent=True))


def test_a_verdict_shows_names_as_text() -> None:
    difference = Difference("config", EVIL, EVIL, EVIL, None)
    verdict = replace(
        DIFFERENT, comparison=Comparison(DIFFERENT.comparison.kinds, (difference,)), undecided=(difference,), why=EVIL
    )
    file = io.StringIO()
    verify_run._print(terminal.console(file=file, width=5_000), verdict)
    check(file.getvalue())
    page = render(verdict, replace(about(verdict), sources={EVIL: EVIL}, host=EVIL), [], NOW_MS)
    assert "<b>" not in page.replace("<b></b>", "")
    assert [char for char in page if not char.isprintable() and char != "\n"] == []


@pytest.mark.parametrize(
    "formatter", [TextFormatter(), JsonFormatter()], ids=lambda formatter: type(formatter).__name__
)
def test_a_log_line_is_one_line(formatter: logging.Formatter) -> None:
    failed = (LookupError, LookupError(EVIL), None)
    for error in (None, failed):
        record = logging.LogRecord(EVIL, logging.INFO, "", 1, "%s said %s", ("somebody", EVIL), error)
        lines = formatter.format(record).split("\n")
        check("\n".join(lines[1:] or lines))
        assert all(line.startswith("    ") for line in lines[1:])
        assert error is not None or len(lines) == 1


def test_a_dump_shows_names_as_text_and_no_secrets(tmp_path: Path) -> None:
    name = EVIL.replace("\ud800", "")
    secret = "the secret of the cluster"
    records: list[MetadataRecord] = [
        ConfigRecord(2, name, "cleanup.policy", name),
        ConfigRecord(4, "1", "listener.name.x.ssl.key.password", secret),
        ConfigRecord(4, "1", "unknown.to.kafka", secret),
        UserScramCredentialRecord(name, 1, b"SALT", b"STORED", b"SERVER", 4096),
    ]
    with SnapshotWriter(tmp_path, EpochOffset(1, 9), last_contained_log_timestamp_ms=0, now_ms=0) as writer:
        writer.append(encode_all(records, LATEST_SUPPORTED), now_ms=0)
        path = writer.freeze(now_ms=0)
    kept = (secret, "U0FMVA==", "U1RPUkVE", "U0VSVkVS")
    for secrets in (False, True):
        lines = "\n".join([*map(printable, to_lines(path, secrets=secrets))])
        objects = "\n".join(map(json_text, to_objects(path, secrets=secrets)))
        for shown in (lines, objects):
            check(shown)
            assert [text in shown for text in kept] == [secrets] * len(kept)
            assert ("(redacted)" in shown) is not secrets


def test_an_error_that_nobody_expected_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    error = LookupError(EVIL)
    terminal.show_defect(type(error), error, None)
    out, err = capsys.readouterr()
    assert out == ""
    check(err)


def test_a_refused_option_is_text() -> None:
    evil = EVIL.replace("\x00", "").replace("\ud800", "")
    for arguments in ([evil], ["log", "dump", evil], ["status", "--server", evil]):
        done = run(*arguments)
        assert done.returncode == 2
        check(done.stderr)


def test_an_error_may_have_lines_none_of_which_passes_for_ours() -> None:
    assert printable_lines(f"it ended. Its last lines:\n{FORGED}") == f"it ended. Its last lines:\n    {FORGED}"


def calls(source: str) -> Iterable[str]:
    """Ways to the terminal that pass by `migrator.cli.terminal`."""
    return re.findall(
        r"click\.(?:s?echo|confirm|prompt|pause)\(|\bConsole\(\)|(?<![\w.])print\(|sys\.std(?:out|err)", source
    )


@pytest.mark.parametrize("module", sorted(CLI.glob("*.py")), ids=lambda path: path.stem)
def test_every_command_prints_through_the_one_way(module: Path) -> None:
    found = list(calls(module.read_text("utf-8")))
    assert bool(found) is (module.stem == "terminal")


@pytest.mark.parametrize("milliseconds", [-(2**63), -62_135_596_800_001, 253_402_300_800_000, 2**63 - 1, 10**30])
def test_a_time_that_no_calendar_has_is_shown_as_it_is(milliseconds: int) -> None:
    assert utc(milliseconds) == f"{milliseconds} ms after 1970"
    assert utc(1_790_000_000_000) == "2026-09-21 14:13:20 UTC"


GOES_ON = """
import sys
from migrator.cli.drill import shown
from migrator.cli.terminal import lasting_console
from migrator.drill.report import DrillReport
report, terminal = DrillReport({}), lasting_console()
sys.stdin.read()
with shown(report, terminal), report.step("Clients write"):
    report.check("all is well", True)
terminal.print("the end")
sys.exit(0 if report.held else 1)
"""


def test_a_drill_goes_on_when_nobody_reads_what_it_says() -> None:
    """``migrator drill | head -3``."""
    command = [sys.executable, "-c", GOES_ON]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as drill:  # type: ignore[call-overload]
        drill.stdout.close()
        drill.stdin.close()
        assert drill.stderr.read() == b""
    assert drill.returncode == 0
