"""A report holds only when every step was done and everything in it held."""

from __future__ import annotations

import html
import json
import re
import time
from pathlib import Path

import pytest

from migrator.cli.drill import _Display, _draw
from migrator.drill.report import DrillFailedError, DrillReport


def test_it_holds() -> None:
    changes: list[int] = []
    report = DrillReport({"partitions": 5}, lambda: changes.append(1))
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
    assert report.to_json()["refused"] == {"attempts": 3, "denied": 3}
    report.failure = "nobody leads"
    assert "What to do: look at" in report.summary()
    assert "--secure" not in report.remedy
    report.secured = ("everything",)
    report.failure = ""
    with report.step("second"):
        report.attempts(2, ["broker 1: CreateTopicsRequest was not refused"])
    assert "run it once without --secure" in report.summary()
    assert report.to_json()["remedy"] == report.remedy
    assert "broker 1: CreateTopicsRequest was not refused" in report.summary()
    assert "denied 4 of 5" in report.summary()


def test_the_picture_of_a_secured_drill_says_what_is_protected(tmp_path: Path) -> None:
    report = DrillReport({})
    report.secured = ("ZooKeeper: one port, TLS",)
    with report.step("Nobody gets in who may not"):
        report.attempts(2, [])
    _draw(_Display(report), tmp_path / "summary.svg")
    texts = html.unescape(re.sub("<[^>]+>", "", (tmp_path / "summary.svg").read_text())).replace("\u00a0", " ")
    assert "secured: ZooKeeper: one port, TLS" in texts
    assert "denied 2 of 2" in texts


def test_the_picture_shows_the_report_and_loads_nothing(tmp_path: Path) -> None:
    report = DrillReport({})
    with report.step("Copy <all> & more"):
        report.figure("seconds", 3)
    _draw(_Display(report), tmp_path / "summary.svg")
    picture = (tmp_path / "summary.svg").read_text()
    texts = html.unescape(re.sub("<[^>]+>", "", picture)).replace("\u00a0", " ")
    assert "Copy <all> & more" in texts
    assert "Every check passed" in texts
    assert "font-face" not in picture
    assert re.findall(r"(?:href|src|url)[=(][\"']?http[^\"')]*", picture) == []
