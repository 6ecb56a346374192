"""A test runs in the lane that its narrowest mark names; what passed on a commit is left out there only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import results
from tests.lanes import LANES, TEST, TEST_ALL, examples, lane_of, runs_in, seeds

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
def test_the_long_lane_has_other_seeds() -> None:
    few, more = (case.values[0] for case in seeds(10, 100))
    assert (list(few), more) == ([*range(10)], range(10, 110))  # type: ignore[call-overload]
    assert examples(7) == 7


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
def test_a_room_is_the_directory_below_tests() -> None:
    assert results.room_of("tests/zookeeper/znodes/test_details.py::test_x[a/b]") == "tests/zookeeper"
    assert results.room_of("tests/test_tidy.py::test_x") == "tests/test_tidy.py"
