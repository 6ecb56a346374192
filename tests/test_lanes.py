"""A test runs in the lane that its narrowest mark names; what passed on a commit is left out there only."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import lanes, quotes, results
from tests.lanes import (
    BESIDE,
    CLUSTERS,
    LANES,
    PLACES,
    SPARK,
    TEST,
    TEST_ALL,
    TEST_LONG,
    UNITS,
    Place,
    examples,
    lane_of,
    place_of,
    runs_in,
    seeds,
    turn_of,
    unit_of,
)

pytestmark = pytest.mark.lane(TEST_ALL)


@pytest.mark.lane("test")
@pytest.mark.parametrize("lane", [pytest.param(lane, marks=pytest.mark.lane(lane)) for lane in LANES])
def test_the_mark_of_a_case_counts(lane: str, request: pytest.FixtureRequest) -> None:
    assert lane_of(request.node) == lane
    assert [each for each in LANES if runs_in(each, request.node)] == [lane]


@pytest.mark.lane("test")
def test_the_mark_of_a_test_counts_more_than_its_modules(request: pytest.FixtureRequest) -> None:
    assert lane_of(request.node) == TEST
    request.node.add_marker(pytest.mark.lane("nowhere"))
    with pytest.raises(pytest.UsageError, match="there is no lane"):
        lane_of(request.node)


@pytest.mark.lane("test")
def test_the_longest_path_says_where_a_test_is() -> None:
    """Whatever the order of the table is."""
    for path, place in PLACES.items():
        assert place_of(f"{path}::test_x" if path.endswith(".py") else f"{path}test_of_no_name.py::test_x") == place
    assert place_of("tests/raft/test_x.py::test_x") == Place(TEST, BESIDE)


@pytest.mark.lane("test")
def test_every_place_exists() -> None:
    assert [path for path in PLACES if not (results.ROOT / path).exists()] == []


@pytest.mark.lane("test")
def test_clusters_take_turns_and_files_beside_them_are_units_of_their_own() -> None:
    cluster, logins, spark, heavy, light = tests = (
        "tests/interop/test_rollback.py::test_x",
        "tests/interop/test_logins.py::test_x[a/b::c]",
        "tests/verify/test_live.py::test_x",
        "tests/simulation/test_x.py::test_x",
        "tests/raft/test_x.py::test_x",
    )
    units = [CLUSTERS, "tests/interop/test_logins.py", SPARK, "tests/simulation/test_x.py", "tests/raft/test_x.py"]
    assert [unit_of(test) for test in tests] == units
    assert unit_of("tests/faults/test_disk.py::test_y") == unit_of(cluster)
    assert sorted(tests, key=turn_of) == [cluster, spark, logins, heavy, light]
    assert turn_of(heavy) < turn_of(light)
    assert {place.unit for place in PLACES.values()} == set(UNITS)


BROKERS_MIGRATE = re.compile(r"\b(?:KafkaCluster|StockQuorumCluster|rehearse_and_migrate)\(")


@pytest.mark.lane("test")
def test_no_cluster_of_kafka_runs_beside_the_clusters() -> None:
    found = [
        path.name
        for path in (results.ROOT / "tests").rglob("test_*.py")
        if place_of(path.relative_to(results.ROOT).as_posix()).unit == BESIDE
        if BROKERS_MIGRATE.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.lane("test")
def test_the_long_lane_has_other_seeds() -> None:
    few, more = (case.values[0] for case in seeds(10, 100))
    assert (list(few), more) == ([*range(10)], range(10, 110))  # type: ignore[call-overload]


@pytest.mark.lane("test")
@pytest.mark.parametrize(("lane", "tried"), [(TEST, 2), (TEST_ALL, 8), (TEST_LONG, 160), (None, 8)])
def test_property_tests_try_few_examples_in_the_short_lane(
    lane: str | None, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "_times", lanes.EXAMPLES.get(lane or "", 1.0))
    assert examples(8) == tried


@pytest.mark.lane("test")
def test_only_what_passed_on_this_very_commit_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "cases.tsv"
    rows = [
        ("a", "1", "passed"),
        ("a", "2", "failed"),
        ("a", "2", "passed"),
        ("a", "3", "skipped"),
        ("b", "4", "passed"),
    ]
    file.write_text("".join(f"{commit}\tday\t{case}\t{result}\t1.0\t\n" for commit, case, result in rows))
    assert results.passed_on("a", file) == {"1", "2"}
    assert results.passed_on("a+", file) == set()
    assert results.passed_on("a", tmp_path / "none") == set()


@pytest.mark.lane("test")
def test_what_a_change_adds_is_seen_in_the_last_two_commits() -> None:
    runs = [("a", "passed", "60"), ("b", "passed", "240"), ("b", "failed", "6"), ("b", "passed", "120")]
    rows = [[commit, "day", TEST, result, "9", seconds, "", ""] for commit, result, seconds in runs]
    assert [line.split()[1:3] for line in results.minutes(rows)] == [["a", "1.0"], ["b", "2.0"]]


@pytest.mark.lane("test")
@pytest.mark.parametrize("file", quotes.QUOTES)
def test_the_time_of_a_lane_is_quoted_as_it_is(file: str) -> None:
    """Else run ``python -m tests.quotes``."""
    assert (results.ROOT / file).read_text(encoding="utf-8") == quotes.quoted(file)


@pytest.mark.lane("test")
def test_a_run_names_what_is_too_heavy_and_who_is_idle() -> None:
    heavy = [(5.1, "tests/a/test_x.py::test_x"), (9.0, f"{next(iter(lanes.HEAVY))}::test_x"), (6.0, "tests/b.py::y")]
    assert [line.split()[:3] for line in results.unexplained(heavy)] == [
        ["tests/b.py::y", "took", "6.0"],
        ["tests/a/test_x.py::test_x", "took", "5.1"],
    ]
    assert results.idle({"gw0": 100.0, "gw1": 70.0}) == ["gw1 had no tests left for the last 30 s"]


@pytest.mark.lane("test")
def test_every_place_of_heavy_tests_exists() -> None:
    assert [path for path in lanes.HEAVY if not (results.ROOT / path).exists()] == []


@pytest.mark.lane("test")
def test_a_room_is_the_directory_below_tests() -> None:
    assert results.room_of("tests/zookeeper/znodes/test_details.py::test_x[a/b]") == "tests/zookeeper"
    assert results.room_of("tests/test_rules.py::test_x") == "tests/test_rules.py"


def test_a_failure_is_told_before_the_run_ends(tmp_path: Path) -> None:
    """The second test never ends by itself: the run is ended when the first one's failure has been printed."""
    file = tmp_path / "test_two.py"
    file.write_text("import threading\ndef test_a():\n    assert 1 == 2\ndef test_b():\n    threading.Event().wait()\n")
    command = (sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:randomly", "-p", "tests.lanes")
    with subprocess.Popen(
        (*command, "-p", "tests.results", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(file)),
        cwd=results.ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as run:
        assert run.stdout is not None
        told = next(line for line in run.stdout if "failed in its call" in line)
        rest = [next(run.stdout) for _ in range(4)]
        run.send_signal(signal.SIGINT)
        assert "test_two.py::test_a" in told
        assert any("assert 1 == 2" in line for line in rest)
        run.stdout.read()
