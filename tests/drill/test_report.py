"""A report holds only when every step was done and everything in it held."""

from __future__ import annotations

import asyncio
import html
import io
import itertools
import json
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest

from migrator.cli.drill import draw, progress, shown
from migrator.cli.terminal import console
from migrator.drill.report import LIGHT, DrillBrokers, DrillFailedError, DrillReport, phases
from migrator.errors import OperatorError
from migrator.observe.status import JournalEvent


def test_it_holds() -> None:
    changes: list[int] = []
    report = DrillReport({"partitions": 5})
    report.changed = lambda: changes.append(1)
    with report.step("first"):
        report.figure("seconds", 1.23456)
        report.check("so", True, "not shown")
    assert report.held
    assert changes
    assert report.to_json()["steps"][0]["figures"] == {"seconds": 1.235}
    assert "not shown" not in json.dumps(report.to_json())


def test_what_there_must_be_none_of() -> None:
    report = DrillReport({})
    with report.step("first"):
        report.none_of("differences", 0)
        report.none_of("lost records", 0)
        assert report.totals_text(": ") == ": 0 differences, 0 lost records"
    assert report.steps[0].held
    with report.step("second"):
        report.none_of("differences", 1200, "the first ones")
    assert not report.held
    assert report.to_json()["totals"] == {"differences": 1200, "lost records": 0}
    assert "1,200 differences" in report.summary()
    assert "the first ones" in report.summary()


def test_what_clients_saw_in_a_step() -> None:
    report = DrillReport({})
    stretches: list[float] = []

    def meter(since: float, until: float) -> dict[str, float | int]:
        stretches.append(until - since)
        return {"produce": 0.12345, "acknowledged": 1500}

    with report.step("first"):
        report.meter = meter
    assert len(stretches) == 1
    assert stretches[0] >= 0
    assert report.to_json()["steps"][0]["traffic"] == {"produce": 0.123, "acknowledged": 1500}
    assert "longest pauses: produce 0.12 s" in report.summary()
    assert "records: 1,500 acknowledged" in report.summary()


def test_it_does_not_hold_without_steps() -> None:
    assert not DrillReport({}).held


def test_a_check_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = DrillReport({})
    with report.step("first"):
        report.check("so", False, "was otherwise")
    with report.step("second"):
        pass
    assert not report.held
    report.write(tmp_path)
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    assert json.loads((tmp_path / "report.json").read_text()) == report.to_json()
    assert report.to_json()["held"] is False
    assert "NOT: so: was otherwise" in (tmp_path / "summary.txt").read_text()


def test_a_step_that_ends_early() -> None:
    report = DrillReport({})
    with pytest.raises(DrillFailedError), report.step("first"):
        raise DrillFailedError("it did not come")
    assert not report.held


def test_who_reads_that_it_did_not_hold_reads_what_to_do() -> None:
    report = DrillReport({})
    with report.step("first"):
        report.attempts(3, [])
    assert report.remedy == ""
    assert report.to_json()["refused"] == {"attempts": 3, "denied": 3, "let in": [], "unproved": []}
    report.failure = "nobody leads"
    assert "What to do: look at" in report.summary()
    assert "--secure" not in report.remedy
    report.secured = ("everything",)
    report.failure = ""
    with report.step("second"):
        report.attempts(3, ["broker 1: CreateTopicsRequest was not refused"], ["broker 2: no answer"])
    assert "run it once without --secure" in report.summary()
    assert report.to_json()["remedy"] == report.remedy
    first, let_in, unproved, *_ = report.summary().splitlines()
    assert "1 intrusions; denied 4 of 6" in first
    assert let_in.endswith('LET IN: In the step "second": broker 1: CreateTopicsRequest was not refused')
    assert unproved.endswith('UNPROVED: In the step "second": broker 2: no answer')
    told = report.to_json()
    assert list(told)[:3] == ["held", "outcome", "refused"]
    assert [text[-11:] for text in told["refused"]["let in"] + told["refused"]["unproved"]] == [
        "not refused",
        ": no answer",
    ]


def test_the_picture_of_a_secured_drill_says_what_is_protected(tmp_path: Path) -> None:
    report = DrillReport({})
    report.secured = ("ZooKeeper: one port, TLS",)
    with report.step("No intruder gets in"):
        report.attempts(2, [])
    draw(report, tmp_path / "summary.svg")
    texts = html.unescape(re.sub("<[^>]+>", "", (tmp_path / "summary.svg").read_text())).replace("\u00a0", " ")
    assert "secured: ZooKeeper: one port, TLS" in texts
    assert "denied 2 of 2" in texts


def test_the_picture_shows_the_report_and_loads_nothing(tmp_path: Path) -> None:
    report = DrillReport({})
    with report.step("Copy <all> & more"):
        report.figure("seconds", 3)
    draw(report, tmp_path / "summary.svg")
    picture = (tmp_path / "summary.svg").read_text()
    texts = html.unescape(re.sub("<[^>]+>", "", picture)).replace("\u00a0", " ")
    assert "Copy <all> & more" in texts
    assert "Every check passed" in texts
    assert "font-face" not in picture
    assert re.findall(r"(?:href|src|url)[=(][\"']?http[^\"')]*", picture) == []


def interrupt_after(report: DrillReport, *, held: bool) -> None:
    with suppress(asyncio.CancelledError), report.step("first"):
        report.check("so", held, "was otherwise")
        raise asyncio.CancelledError


def test_an_interrupted_drill_is_no_failed_one() -> None:
    report = DrillReport({}, DrillBrokers("3.9.1"))
    interrupt_after(report, held=True)
    assert report.outcome == report.to_json()["outcome"] == "interrupted"
    assert not report.held
    assert report.remedy == ""
    assert 'Interrupted after 0 s in the step "first". No check had failed' in report.verdict
    assert "STOP first" in report.summary()
    assert "FAIL" not in report.summary()


def test_a_check_that_failed_before_the_interruption_stays_a_failure() -> None:
    report = DrillReport({})
    interrupt_after(report, held=False)
    assert report.outcome == "did not hold"
    assert "A check had failed" in report.verdict
    assert "FAIL first" in report.summary()


def test_light_brokers_are_announced(tmp_path: Path) -> None:
    report = DrillReport({}, DrillBrokers(LIGHT, "Apache Kafka 3.9.1 cannot be fetched"))
    said = "light brokers instead of Apache Kafka: Apache Kafka 3.9.1 cannot be fetched"
    assert said in report.heading
    assert said in report.summary()
    assert report.to_json()["brokers"] == {
        "kind": "light", "release": "none", "why": "Apache Kafka 3.9.1 cannot be fetched"
    }  # fmt: skip
    draw(report, tmp_path / "summary.svg")
    assert "light" in (tmp_path / "summary.svg").read_text()


def test_without_a_terminal_each_thing_is_a_line_when_it_begins() -> None:
    out = io.StringIO()
    report = DrillReport({}, DrillBrokers("3.9.1"))
    with shown(report, console(file=out)):
        assert "Drill with Apache Kafka 3.9.1" in out.getvalue()
        with report.step("A cluster"):
            assert "A cluster" in out.getvalue()
            report.wait_for("ZooKeeper starts")
            assert "ZooKeeper starts ..." in out.getvalue()
            report.wait_for("ZooKeeper starts")
            report.figure("znodes", 7)
    assert out.getvalue().count("ZooKeeper starts") == 1
    assert out.getvalue().count("znodes: 7") == 1
    assert "✓ A cluster" in out.getvalue()


def test_a_download_without_a_terminal_has_a_line_at_once_and_one_each_ten_megabytes() -> None:
    out = io.StringIO()
    with progress("Fetching", console(file=out)) as tell:
        assert out.getvalue() == "Fetching ...\n"
        for megabytes in (4, 9, 12, 15, 31):
            tell(megabytes * 1_000_000)
    assert out.getvalue().splitlines()[1:] == ["Fetching: 12 MB ...", "Fetching: 31 MB ..."]


REHEARSAL = {
    "seconds": {"decode": 0.1, "compare and snapshot": 0.2},
    "forecast": {"copy": {"seconds": 0.5, "error": 2.0}, "dual_write": {"seconds": 2.3, "error": 2.0}},
}
STORY = ("waiting for brokers", "decoding", "claiming", "copying", "committing the copy", "reconciling",
         "informing brokers", "dual-writing")  # fmt: skip


def test_forecast_and_migration_are_side_by_side_on_one_clock() -> None:
    journal = [
        JournalEvent(number, 1_000 * number, "transition", "", (("before", before), ("after", after)))
        for number, (before, after) in enumerate(itertools.pairwise(STORY), 1)
    ]
    found = phases(REHEARSAL, journal, 500)
    assert [phase.migration for phase in found] == [1.0, 3.0, 1.0, 6.5]
    report = DrillReport({})
    report.phases = found
    (line,) = (line for line in report.summary().splitlines() if line.startswith("copy"))
    assert line.split()[-4:] == ["0.5", "±", "2.0", "3.0"]
    assert report.to_json()["phases"][3] == {
        "phase": "last broker registered to dual-write", "forecast": 2.3, "error": 2.0, "migration": 6.5
    }  # fmt: skip


def test_what_the_journal_does_not_show_is_not_made_up() -> None:
    assert {phase.migration for phase in phases(REHEARSAL, [], None)} == {None}
    assert phases({}, [], None) == phases({"forecast": None}, [], None) == ()


def test_a_report_that_cannot_be_written_is_told_with_what_came_of_the_drill(tmp_path: Path) -> None:
    report = DrillReport({})
    with report.step("Clients write"):
        report.check("all is well", True)
    (tmp_path / "report.json").mkdir()
    with pytest.raises(
        OperatorError, match=r"the report cannot be written: Is a directory\. Every check passed"
    ) as error:
        report.write(tmp_path)
    assert error.value.where == str(tmp_path)
