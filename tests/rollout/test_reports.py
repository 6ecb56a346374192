"""The terminal shows each blocker of a report: what, where and the remedy."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from migrator.migration.machine.readiness import Gap, Severity
from migrator.preflight.check import PreflightCheck, PreflightFinding, PreflightReport
from migrator.preflight.evidence import UnknownFact
from migrator.rehearse.forecast import Estimate, Forecast
from migrator.rehearse.report import Outcome, RehearsalCheck, RehearsalReport
from migrator.rollout.engine.apply import Ending
from migrator.rollout.engine.job_acts import JobFailedError
from migrator.rollout.engine.step import UnansweredError
from migrator.rollout.journal.journal import Event
from migrator.rollout.plan.reports import lines_of
from migrator.rollout.plan.steps import Job
from migrator.verify.comparison import Comparison, Difference, KindCounts
from migrator.verify.recheck import Pair
from migrator.verify.verdict import Verdict
from tests.rollout.support.model import ModelCluster
from tests.rollout.support.model_files import model_inventory
from tests.rollout.support.runs import Operator
from tests.rollout.support.sample_reports import after_of


def finding(severity: Severity, code: str, *, asks: bool = False) -> PreflightFinding:
    check = PreflightCheck(code, severity, f"title of {code}", lambda _: (), "unused", asks=asks)
    return PreflightFinding(check, "it has no listener", f"mend {code}", ("b1.properties: listeners",), ("broker 1",))


PREFLIGHT = PreflightReport(
    tuple(finding(Severity.WARNING if number else Severity.BLOCKER, f"M00{number + 1}") for number in range(5)),
    (UnknownFact("b2.properties", "it cannot be read", "give the right to read"),),
    90,
).to_json()
ASKS = PreflightReport(
    (finding(Severity.WARNING, "M008"), finding(Severity.WARNING, "M009", asks=True)), (), 90
).to_json()
REHEARSAL = RehearsalReport(
    "zk:2181",
    blockers=(Gap("/brokers/topics/a", "no JSON", "delete it"),),
    blockers_in_all=1,
    kafka=RehearsalCheck(Outcome.DIFFERENT, "3 topics are missing"),
    verified=RehearsalCheck(Outcome.NOT_CHECKED, "it was not asked for"),
    forecast=Forecast(Estimate(1, 0.5), Estimate(12.3, 4), None),
).to_json()
COMPARISON = Verdict(
    Comparison(
        {"topic": KindCounts(zookeeper=1_500, kraft=1_500, missing=0, extra=0, different=1)},
        (Difference("topic", "orders", "partitions", "3", "4"),),
    ),
    2.0,
    Pair(9, 9),
).to_json()


def test_what_preflight_found_is_said_with_its_remedy() -> None:
    place = "broker 1, b1.properties: listeners"
    assert lines_of(Job.PREFLIGHT, PREFLIGHT) == [
        f"BLOCKER M001 title of M001: {place}: it has no listener",
        "  do: mend M001",
        "COULD NOT TELL b2.properties: it cannot be read",
        "  do: give the right to read",
        *(f"warning M00{it} title of M00{it}: {place}: it has no listener" for it in (2, 3, 4)),
        "and 1 more of this kind",
        "1 blockers, 4 warnings, 1 could not be examined",
    ]  # fmt: skip


def test_an_operator_decides_about_some_warnings_before_the_first_step(tmp_path: Path) -> None:
    """The report says who has answered, and how; the time of the person is not the rollout's."""
    operator, told = Operator(ModelCluster(model_inventory()), tmp_path), list[str]()
    operator.hears, operator.thinks_ms = told.append, 3_600_000
    operator.cluster.prints["preflight"] = json.dumps(ASKS)
    operator.accepts = False
    with pytest.raises(UnansweredError, match="the answer was no"):
        operator.apply()
    assert operator.entries[-1].event is Event.PAUSED
    assert "preflight: DECIDE M009 title of M009: broker 1, b1.properties: listeners: it has no listener" in told
    assert "preflight:   do: mend M009" in told
    assert {entry.step for entry in operator.entries if entry.event is Event.DONE} == set()
    operator.accepts = True
    assert operator.resume() is Ending.COMPLETE
    assert operator.warned == [1, 1]
    facts = after_of(operator)
    assert [each.what for each in facts.orders if each.ended == ""] == [
        "goes on in spite of the warnings of preflight that ask: 1",
        "says yes to the end of the migration",
    ]
    assert facts.span_seconds < 3_600
    assert facts.silent_seconds == 30, "a question is no silence"


def test_what_the_rehearsal_found_is_said_with_the_forecast() -> None:
    assert lines_of(Job.REHEARSE, REHEARSAL) == [
        "BLOCKER /brokers/topics/a: no JSON",
        "  do: delete it",
        "kafka: different: 3 topics are missing",
        "rehearsal: blocked; forecast: 12 s to dual-write",
    ]


def test_what_the_comparison_found_is_said_with_the_verdict() -> None:
    assert lines_of(Job.VERIFY, COMPARISON) == [
        "differs: topic orders: partitions (different)",
        f"different: 1 differences; {COMPARISON['rows']:,} rows compared",
    ]


@pytest.mark.parametrize("job", [Job.PREFLIGHT, Job.REHEARSE, Job.VERIFY, Job.FORMAT])
@pytest.mark.parametrize(
    "report",
    [
        None,
        {},
        {"findings": 7, "blockers": {"a": 1}, "examples": "x", "forecast": [], "rows": "9", "verdict": None},
        {"findings": [3, {"severity": "blocker", "where": {}, "code": 4}], "blockers": [[]], "examples": [None]},
        {"findings": [{"severity": "blocker", "what": "x" * 100_000}] * 1000, "blockers": [{}] * 1000},
    ],
)
def test_a_report_of_something_else_is_read_as_far_as_it_goes(job: Job, report: Mapping[str, Any] | None) -> None:
    lines = lines_of(job, report)
    assert len(lines) < 60
    assert all(len(line) <= 500 for line in lines)


def test_blockers_are_shown_when_the_step_fails(tmp_path: Path) -> None:
    operator = Operator(ModelCluster(model_inventory()), tmp_path)
    operator.cluster.exit_codes["preflight"] = 1
    operator.cluster.prints["preflight"] = json.dumps(PREFLIGHT, indent=2)
    with pytest.raises(JobFailedError, match="preflight has found blockers"):
        operator.apply()
    assert "    do: mend M001" in operator.said
    assert not [line for line in operator.said if line.strip() in ("{", "}", "],")]
