"""The time of a run, room by room, and the lines that stay: which case passed on which commit.

Every run that names its lane ends with a table of its rooms. ``--log-cases`` (`make test-long`) appends a line a case
to docs/results/test-long.tsv as soon as that case ends, and leaves out what the file says passed on this commit, so
that a run may be stopped and taken up again. ``--log-lane`` (`.ci/repeat`) appends one line for the whole run to
lanes.tsv beside it.
"""

from __future__ import annotations

import datetime as dt
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from xdist.workermanage import WorkerController

from tests.lanes import HEAVY, LIMITS, TEST, TEST_SECONDS

ROOT = Path(__file__).parents[1]
DIRECTORY = ROOT / "docs" / "results"
CASES = DIRECTORY / "test-long.tsv"
LANES = DIRECTORY / "lanes.tsv"
KRAFT = DIRECTORY / "kraft.tsv"
"""Of `tests.bench.kraft`."""
PAGE = ROOT / "docs" / "compatibility.md"
"""Made of `CASES` (`tests.compatibility`)."""
HEADS = {
    CASES.name: ("commit", "day", "case", "result", "seconds", "figures"),
    KRAFT.name: ("commit", "day", "case", "result", "seconds", "figures"),
    LANES.name: ("commit", "day", "lane", "result", "tests", "seconds", "processor seconds", "seconds of each room"),
}
PROCESSOR = "processor_seconds"
FAILURE_LINES = 12
"""Of a failed test's report, shown when the test fails; the whole report stands at the end of the run."""
_DONE = "cases_that_passed"
_state = pytest.StashKey["Run"]()


@dataclass
class Room:
    """Tests, and the seconds that they took: by the clock, and of processors."""

    tests: int = 0
    seconds: float = 0.0
    processor: float = 0.0


@dataclass
class Run:
    """The run as this process knows it; only the process that reports to the user fills it."""

    began: float = field(default_factory=time.monotonic)
    rooms: defaultdict[str, Room] = field(default_factory=lambda: defaultdict(Room))
    heavy: list[tuple[float, str]] = field(default_factory=list)
    """Tests that took more of a processor than `TEST_SECONDS`."""
    ended: dict[str, float] = field(default_factory=dict)
    """By worker, when its last test ended."""
    reports: defaultdict[str, list[pytest.TestReport]] = field(default_factory=lambda: defaultdict(list))
    cases: bool = False
    left_out: frozenset[str] = frozenset()


def pytest_addoption(parser: pytest.Parser) -> None:
    lanes = parser.getgroup("lanes")
    lanes.addoption("--log-cases", action="store_true", help=f"One line a test in {CASES.relative_to(ROOT)}; resumes.")
    lanes.addoption("--log-lane", action="store_true", help=f"One line for this run in {LANES.relative_to(ROOT)}.")


def pytest_configure(config: pytest.Config) -> None:
    run = Run(cases=config.getoption("log_cases") and not hasattr(config, "workerinput"))
    if hasattr(config, "workerinput"):
        run.left_out = frozenset(config.workerinput[_DONE])
    elif run.cases:
        run.left_out = passed_on(commit(), CASES)
    config.stash[_state] = run
    config.pluginmanager.register(Reporter(run, config), "reporter-of-rooms")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    node.workerinput[_DONE] = sorted(node.config.stash[_state].left_out)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done = [item for item in items if item.nodeid in config.stash[_state].left_out]
    config.hook.pytest_deselected(items=done)
    items[:] = [item for item in items if item not in done]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Each test's report says how long processors worked for it: for this process, and for its children that ended."""
    item.stash[_began] = _processor_seconds()
    item.stash[_is_last] = nextitem is None
    return (yield)


_began = pytest.StashKey[float]()
_is_last = pytest.StashKey[bool]()
"""Its teardown ends the servers that all tests of its worker shared."""
_used = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if (call.when == "teardown") is not item.stash[_is_last]:
        item.stash[_used] = round(_processor_seconds() - item.stash[_began], 2)
    if call.when == "teardown":
        report.user_properties.append((PROCESSOR, item.stash[_used]))
    return report


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


class Reporter:
    """Counts reports, wherever their tests ran."""

    def __init__(self, run: Run, config: pytest.Config) -> None:
        self.run = run
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.getplugin("terminalreporter")  # a worker of xdist has none
        if report.failed and terminal is not None:
            for line in failure(report):
                terminal.write_line(line)
        reports = self.run.reports[report.nodeid]
        reports.append(report)
        if report.when != "teardown":
            return
        del self.run.reports[report.nodeid]
        figures: dict[str, Any] = dict(report.user_properties)
        room = self.run.rooms[room_of(report.nodeid)]
        room.tests += 1
        room.seconds += (seconds := sum(each.duration for each in reports))
        room.processor += (processor := figures.get(PROCESSOR, 0.0))
        if processor > TEST_SECONDS:
            self.run.heavy.append((processor, report.nodeid))
        self.run.ended[getattr(report, "worker_id", "")] = time.monotonic()
        if self.run.cases:
            words = " ".join(f"{name}={value}" for name, value in figures.items())
            append(CASES, report.nodeid, result_of(reports), f"{seconds:.1f}", words)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Nothing left to do is no failure."""
        if self.run.left_out and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
        lane = config.getoption("lane")
        if self.run.left_out:
            terminalreporter.write_line(f"{len(self.run.left_out)} cases passed on this commit before and are left out")
        if lane is None or not self.run.rooms:
            return
        took = time.monotonic() - self.run.began
        limit = f" of {LIMITS[lane]:,} that it may take" if lane in LIMITS else ""
        terminalreporter.section(f"{lane}: {took:,.0f} s{limit}")
        rows = sorted(self.run.rooms.items(), key=lambda row: -row[1].seconds)
        terminalreporter.write_line(f"{'room':24} {'tests':>6} {'seconds':>8} {'of processors':>14}")
        for name, room in rows:
            terminalreporter.write_line(f"{name:24} {room.tests:6} {room.seconds:8.1f} {room.processor:14.1f}")
        for line in (*idle(self.run.ended), *(unexplained(self.run.heavy) if lane == TEST else ())):
            terminalreporter.write_line(line)
        if config.getoption("log_lane"):
            total = [sum(room.tests for _, room in rows), sum(room.processor for _, room in rows)]
            words = " ".join(f"{name.removeprefix('tests/')}={room.seconds:.0f}" for name, room in rows)
            outcome = "passed" if exitstatus == 0 else "failed"
            append(LANES, lane, outcome, f"{total[0]}", f"{took:.0f}", f"{total[1]:.0f}", words)


def failure(report: pytest.TestReport) -> list[str]:
    """A failure is told when it happens: a run that is cut by a limit of time never reaches pytest's summary."""
    last = report.longreprtext.splitlines()[-FAILURE_LINES:]
    return ["", f"{report.nodeid} failed in its {report.when} after {report.duration:.0f} s:", *last]


def idle(ended: dict[str, float]) -> list[str]:
    """Which workers had nothing left to do while another one worked."""
    end = max(ended.values())
    return [f"{name} had no tests left for the last {end - last:,.0f} s" for name, last in ended.items() if last < end]


def unexplained(heavy: list[tuple[float, str]]) -> list[str]:
    """The tests whose weight no line of `HEAVY` explains."""
    return [
        f"{nodeid} took {seconds:.1f} s of processors, over {TEST_SECONDS:.0f}, and HEAVY in tests/lanes.py lacks it"
        for seconds, nodeid in sorted(heavy, reverse=True)
        if not nodeid.startswith(tuple(HEAVY))
    ]


def room_of(nodeid: str) -> str:
    """``tests/zookeeper`` of a test below it."""
    return "/".join(nodeid.partition("::")[0].split("/")[:2])


def result_of(reports: list[pytest.TestReport]) -> str:
    """One word for the phases of one test."""
    outcomes = {report.outcome for report in reports}
    return next(outcome for outcome in ("failed", "skipped", "passed") if outcome in outcomes)


def commit() -> str:
    """The last commit that changed more than results and their page; with a plus when the work tree differs from it."""
    others = ("--", ".", *(f":(exclude){made.relative_to(ROOT)}" for made in (DIRECTORY, PAGE)))
    return _git("log", "-1", "--format=%h", "--abbrev=12", *others) + (
        "+" if _git("status", "--porcelain", *others) else ""
    )


def _git(*arguments: str) -> str:
    run = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def passed_on(commit: str, file: Path) -> frozenset[str]:
    """Cases that passed on a commit. None did on a work tree that differs from its commit."""
    if commit.endswith("+") or not file.exists():
        return frozenset()
    rows = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines())
    return frozenset(row[2] for row in rows if row[0] == commit and row[3] == "passed")


def append(file: Path, *fields: str) -> None:
    """One more line, after commit and day. A file of an operator's own name holds cases."""
    line = (commit(), dt.datetime.now(dt.UTC).date().isoformat(), *fields)
    head = "" if file.exists() else "\t".join(HEADS.get(file.name, HEADS[CASES.name])) + "\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(head + "\t".join(line) + "\n")


def minutes(rows: list[list[str]]) -> list[str]:
    """By lane: the minutes of its last two commits that passed, of each the quickest run, and what the limit leaves."""
    lines = []
    for lane, limit in LIMITS.items():
        quickest: dict[str, float] = {}
        for commit, _, name, result, _, seconds, *_ in rows:
            if (name, result) == (lane, "passed"):
                quickest[commit] = min(float(seconds) / 60, quickest.pop(commit, float("inf")))
        for commit, took in list(quickest.items())[-2:]:
            lines.append(f"{lane:9} {commit:13} {took:6.1f} min, {limit / 60 - took:5.1f} left of {limit / 60:.0f}")
    return lines


if __name__ == "__main__":  # with arguments: a line of `.ci/repeat`
    if len(sys.argv) > 1:
        append(LANES, *sys.argv[1:])
    elif LANES.exists():
        rows = [line.split("\t") for line in LANES.read_text(encoding="utf-8").splitlines()[1:]]
        sys.stdout.write("\n".join(minutes(rows)) + "\n")
