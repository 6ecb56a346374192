"""The report of a rollout: what its facts are, when they are there, and that the archive has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from migrator.cli.rollout_report import _examined
from migrator.log.files import file_digest
from migrator.observe.pages.charts import POINTS_MAX, series
from migrator.rollout.files.archive import keep_verdict
from migrator.rollout.journal.figures import FILE, LAST_LOOK, SHUT_SINCE
from migrator.rollout.journal.journal import Detail, Entry, Event, read_journal
from migrator.rollout.journal.looks import EVERY_MS, LINES_MAX, Look, Looked, LooksFile, looks_file, read_looks
from migrator.rollout.journal.writer import order_of
from migrator.rollout.plan.steps import Act
from migrator.rollout.ports import MigrationSeen, Observation, PartitionsSeen, Some
from migrator.rollout.report.after import after
from migrator.rollout.site import Site
from tests.rollout.support.model_clock import ModelClock
from tests.rollout.support.model_files import SECRET, model_inventory
from tests.rollout.support.sample_reports import AWAY_MS, EVIL, after_of, back, before_of, forward, lively
from tests.rollout.test_commands import Desk, desk
from tests.rollout.test_reports import PREFLIGHT

__all__ = ["desk"]

SKIPPED = Entry(4, 4, Event.SKIPPED, "preflight")


def seen(under: int, lag: int = 0) -> Observation:
    return Observation(
        partitions=PartitionsSeen(under_replicated=Some(under)), migration=MigrationSeen("DualWrite", lag)
    )


def test_a_rollout_says_what_it_did_who_ordered_it_and_what_stood_still(tmp_path: Path) -> None:
    facts = after_of(forward(tmp_path / "state"))
    mine = order_of("apply --until soak")
    assert facts.state == "complete"
    assert [(each.by, each.command, each.ended) for each in facts.orders] == [
        (mine["by"], mine["command"], "reached the wanted state, or was ended from outside"),
        (EVIL, "resume", "failed"),
        (EVIL, "resume", "the rollout was complete"),
        (EVIL, "resume", ""),
    ]
    assert [each.what for each in facts.orders] == ["a new rollout", "", "", "says yes to the end of the migration"]
    waits = {wait.step: wait for wait in facts.waits}
    assert waits["kraft/broker-2"].seconds >= AWAY_MS / 1000
    assert "3 under-replicated" in waits["kraft/broker-2"].why
    assert facts.longest_wait in (waits["kraft/broker-2"], waits["migrate/broker-2"])
    assert [(each.step, each.what) for each in facts.troubles] == [
        ("kraft/broker-3", "a command on the node's host failed, or did not end in time")
    ]
    steps = {step.name: step for step in facts.steps}
    assert (steps["kraft/broker-3"].failures, steps["kraft/broker-3"].state) == (1, "done")
    assert steps["kraft/broker-2"].waited_seconds == waits["kraft/broker-2"].seconds
    assert {each.what for each in facts.verdicts} == {"preflight", "rehearse", "verify"}
    assert facts.forecast is not None
    assert facts.measured_seconds is not None
    assert facts.silent_seconds == 30
    assert max(look.under_replicated or 0 for look in facts.looks) == 3
    assert facts.span_seconds < 3600, "nobody worked for an hour, and that is not the rollout's time"
    changes = {each.step: each for each in facts.files}["kraft/broker-1"]
    assert "+ process.roles=broker" in changes.changes
    assert any("(redacted)" in line for line in changes.changes)
    assert SECRET not in json.dumps(facts.as_json())


def test_what_came_between_the_parts_of_a_step_is_not_its_time() -> None:
    """A rehearsal fails, and preflight comes first again, an hour later; a node that was left out is restarted anew."""
    second, found = 1_000, list[Entry]()

    def line(seconds: int, event: Event, step: str = "", act: str = "", **details: Detail) -> None:
        found.append(Entry(len(found) + 1, seconds * second, event, step, act, details))

    def restarted(at: int) -> None:
        line(at, Event.BEGUN, "migrate/broker-1", Act.RESTART)
        line(at + 4, Event.DONE, "migrate/broker-1", Act.RESTART)
        line(at + 6, Event.PASSED, "migrate/broker-1", Act.CHECK_AFTER)

    line(0, Event.OPENED, rollout="r", direction="forward")
    line(0, Event.BEGUN, "preflight", Act.RUN)
    line(10, Event.DONE, "preflight")
    line(10, Event.BEGUN, "rehearse", Act.RUN)
    line(3_610, Event.FAILED, "rehearse", Act.RUN, reopens="preflight rehearse")
    line(9_000, Event.RESUMED)
    line(9_000, Event.BEGUN, "preflight", Act.RUN)
    line(9_020, Event.DONE, "preflight")
    restarted(9_020)
    line(9_100, Event.DONE, "soak")
    restarted(9_100)
    steps = {step.name: step for step in after(model_inventory(), found, Looked(), {}).steps}
    assert steps["preflight"].seconds == 30
    assert (steps["migrate/broker-1"].seconds, steps["migrate/broker-1"].restart_seconds) == (12, 12)


def test_a_way_back_is_told_as_one(tmp_path: Path) -> None:
    facts = after_of(back(tmp_path / "state"))
    assert (facts.direction.value, facts.state) == ("back", "complete")
    assert facts.without_controller is not None
    assert [each.what for each in facts.orders if each.command == "rollback"] == ["turns back"]
    assert {"migrate/broker-1", "leave-kraft/broker-1"} <= {step.name for step in facts.steps}


def test_a_plan_names_its_risks(tmp_path: Path) -> None:
    operator = lively(tmp_path / "state")
    operator.cluster.lagging, operator.cluster.unnoticed = {"broker-2"}, set()
    facts = before_of(operator)
    assert facts.restarts == 12, "each broker twice; each controller at the end, and for Kafka's"
    risks = "\n".join(facts.risks)
    assert "After the step finish/controller-3003, the migration is over" in risks
    assert "only 'migrator rollout rollback --reopen' leads back, until Kafka's controllers take over" in risks
    assert "The lock is on this host only" in risks
    assert [one["step"] for one in facts.as_json()["steps"]][:2] == ["preflight", "rehearse"]


@pytest.mark.parametrize(
    ("looks", "entries", "waits"),
    [
        ([], [], []),
        ([(0, "a", "x"), (5, "a", "y"), (9, "a", "")], [], [("a", 0.009, "x")]),
        ([(0, "a", "x"), (5, "b", "x"), (9, "b", "")], [], [("a", 0.005, "x"), ("b", 0.004, "x")]),
        ([(0, "a", "x"), (5, "a", "x")], [], [("a", 0.005, "x")]),
        ([(0, "a", "x"), (5, "a", "x")], [(7, Event.FAILED)], [("a", 0.007, "x")]),
        ([(0, "a", "x"), (99, "a", "")], [(4, Event.PAUSED), (98, Event.RESUMED)], [("a", 0.004, "x")]),
        (
            [(0, "a", "x"), (50, "a", "x"), (60, "a", "")],
            [(4, Event.FAILED), (49, Event.RESUMED)],
            [("a", 0.004, "x"), ("a", 0.01, "x")],
        ),
    ],
)
def test_a_wait_ends_with_an_open_gate_another_step_or_the_command(
    looks: Sequence[tuple[int, str, str]], entries: Sequence[tuple[int, Event]], waits: Sequence[tuple[str, float, str]]
) -> None:
    opened = Entry(1, 0, Event.OPENED, "", "", {"rollout": "r", "direction": "forward"})
    lines = [opened, *(Entry(number, time_ms, event) for number, (time_ms, event) in enumerate(entries, 2))]
    facts = after(model_inventory(), lines, Looked(tuple(Look(*each) for each in looks)), {})
    assert [(each.step, each.seconds, each.why) for each in facts.waits] == waits


def test_looks_are_kept_when_they_change_and_the_worst_ones_stay(tmp_path: Path) -> None:
    clock = ModelClock()
    file = LooksFile(tmp_path, "r", clock)
    for _ in range(3):
        file.saw("soak", seen(0))
        clock.now_ms += 1_000
    file.saw("soak", seen(2), "partitions: 2 under-replicated")
    assert [look.under_replicated for look in read_looks(tmp_path, "r").looks] == [0, 2]
    clock.now_ms += EVERY_MS
    file.saw("soak", seen(2), "partitions: 2 under-replicated")
    assert len(read_looks(tmp_path, "r").looks) == 3
    for number in range(LINES_MAX):
        clock.now_ms += 1_000
        file.saw("soak", seen(7 if number == 1_000 else 0, number), "x" * 10_000)
    kept = read_looks(tmp_path, "r").looks
    assert LINES_MAX / 2 <= len(kept) <= LINES_MAX
    assert max(look.under_replicated or 0 for look in kept) == 7
    assert list(kept) == sorted(kept, key=lambda look: look.time_ms)


def test_the_file_for_prometheus_says_since_when_a_gate_is_shut(tmp_path: Path) -> None:
    clock, told = ModelClock(), []
    file = LooksFile(tmp_path, "r", clock)
    began = clock.wall_ms()
    for step, waits in (("a", ""), ("a", "x"), ("a", "y"), ("b", "y"), ("b", "")):
        file.saw(step, seen(0), waits)
        text = (tmp_path / FILE).read_text()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
        told.append({sample.name: (sample.labels["step"], sample.value * 1000 - began) for sample in samples})
        clock.now_ms += EVERY_MS
    assert [each.get(SHUT_SINCE) for each in told] == [
        None,
        ("a", EVERY_MS),
        ("a", EVERY_MS),
        ("b", 3 * EVERY_MS),
        None,
    ]
    assert [each[LAST_LOOK] for each in told] == [
        (step, at * EVERY_MS) for at, step in enumerate(("a", "a", "a", "b", "b"))
    ]


def test_a_damaged_or_missing_file_of_looks_stops_nothing(tmp_path: Path) -> None:
    assert read_looks(tmp_path, "r") == Looked()
    LooksFile(tmp_path / "nosuch", "r", ModelClock()).saw("soak", seen(0))
    LooksFile(tmp_path, "r", ModelClock()).saw("soak", seen(3))
    with looks_file(tmp_path, "r").open("ab") as file:
        file.write(b'[]\n{"t":"x"}\n{"t":1,"images":[1]}\n{"t":1,"off')
    assert [look.under_replicated for look in read_looks(tmp_path, "r").looks] == [3]


def test_a_long_line_shows_its_worst_point() -> None:
    points: list[tuple[int, int | None]] = [(minute * 60_000, minute % 5) for minute in range(10_000)]
    points[5_000] = 5_000 * 60_000, 99
    points[6_000] = 6_000 * 60_000, None
    line = series(points)
    assert line is not None
    assert (line.most, line.count, line.latest) == (99, 10_000, 4)
    assert min(mark.y for pair in line.lines for mark in pair) == 0
    assert len(line.lines) <= 2 * POINTS_MAX
    assert series([(0, 1), (1, None)]) is None


def test_the_archive_has_the_whole_journal_and_the_report(desk: Desk) -> None:
    ended = desk.printed("apply --yes --canary broker-1 --until DualWrite") + desk.printed("resume --yes")
    ended += desk.printed("resume --yes")
    archive = Path(ended.rsplit("archive: ", 1)[1].strip())
    assert (archive / "journal.jsonl").read_bytes() == (desk.state / "journal.jsonl").read_bytes()
    facts = json.loads((archive / "report.json").read_text())
    assert facts["state"] == "complete"
    assert facts["orders"][0]["command"] == "apply --yes --until DualWrite --canary broker-1"
    assert facts["orders"][0]["by"] == order_of("")["by"]
    assert "Rollout of model: complete" in (archive / "report.html").read_text()
    entries = [each.details for each in read_journal(desk.state) if each.act == Act.EDIT and each.details.get("after")]
    whole = {str(each[name]) for each in entries for name in ("before", "after") if each.get(name)}
    shown = {each[name] for each in facts["files"] for name in ("before", "after")}
    assert len(shown - {""}) == len(whole) > 1
    assert not shown & whole, "a guess of a secret can be tested with the digest of a whole file"
    lines = (line.split("  ") for line in (archive / "SHA256SUMS").read_text().splitlines())
    sums = {name: digest for digest, name in lines}
    assert {name: file_digest(archive / name) for name in sums} == sums
    assert {"report.html", "report.json", "journal.jsonl"} <= sums.keys()
    assert [entry.details.get("command") for entry in read_journal(desk.state) if entry.event is Event.RESUMED] == [
        "apply --yes --until DualWrite --canary broker-1",
        "resume --yes",
        "resume --yes",
    ]


def test_what_an_earlier_rollout_examined_is_no_risk_of_one_that_needs_no_preflight(tmp_path: Path) -> None:
    site = Site(tmp_path / "model.yaml", model_inventory(), tmp_path)
    keep_verdict(tmp_path, "preflight", PREFLIGHT)
    lines = [Entry(1, 1, Event.OPENED), Entry(2, 2, Event.BEGUN, "preflight", "run"), Entry(3, 3, Event.OPENED)]
    found = [_examined(site, [*lines[:upto], *more]) for upto, more in ((2, ()), (3, ()), (3, (SKIPPED,)))]
    assert (bool(found[0]), *found[1:]) == (True, None, [])


def test_the_command_shows_the_plan_first_and_then_what_happened(desk: Desk, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert desk.printed(f"report --page {page}") == f"report: {page}\n"
    assert "Plan for model" in page.read_text()
    assert "Preflight has not run yet" in page.read_text()
    assert not desk.state.exists(), "it changes nothing"
    desk.cluster.prints["preflight"] = json.dumps(PREFLIGHT)
    assert "preflight has found blockers" in desk.refused("apply --until preflight")
    desk.printed(f"report --before --page {page}")
    place = "broker 1, b1.properties: listeners"
    for line in (
        f"Preflight: blocker M001 title of M001: {place}: it has no listener. mend M001",
        f"Preflight: warning M005 title of M005: {place}: it has no listener. mend M005",
        "Preflight: could not tell b2.properties: it cannot be read. give the right to read",
    ):
        assert line in page.read_text()
    del desk.cluster.prints["preflight"]
    desk.printed("apply --until DualWrite")
    desk.printed(f"report --page {page}")
    assert "Rollout of model: not complete" in page.read_text()
    assert json.loads(desk.printed("report --json"))["kind"] == "after"
    assert json.loads(desk.printed("report --json --before"))["kind"] == "before"
    assert "cannot be written" in desk.refused(f"report --page {tmp_path}/nosuch/report.html")
    assert SECRET not in page.read_text() + "".join(path.read_text() for path in (desk.state / "changes").iterdir())


def test_without_jinja2_the_archive_has_the_json_and_says_so(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "migrator.rollout.report.page", None)
    ended = desk.printed("apply --yes")
    assert "it has no page of the report" in ended
    archive = Path(ended.rsplit("archive: ", 1)[1].strip())
    assert (archive / "report.json").exists()
    assert not (archive / "report.html").exists()
