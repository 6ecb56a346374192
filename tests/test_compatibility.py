"""The page of compatibility is what its command makes, and each case that it is about exists."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from migrator.errors import OperatorError
from tests.compatibility import NOT_RUN, Cases, Outcome, named_tests, outcomes, page
from tests.interop.procedures.test_procedures import PROCEDURES
from tests.lanes import TEST_ALL, TEST_LONG

ROOT = Path(__file__).parents[1]
LINES = [
    "aaa\t2026-11-01\ttests/a.py::test_a[one]\tfailed\t9.0\tlost=3 processor_seconds=1",
    "bbb\t2026-11-02\ttests/a.py::test_a[one]\tpassed\t8.0\tlost=0 processor_seconds=1",
    "bbb\t2026-11-02\ttests/a.py::test_b\tskipped\t0.0\t",
]
LANES = {
    "tests/a.py::test_a[one]": TEST_LONG,
    "tests/a.py::test_a[two]": TEST_LONG,
    "tests/a.py::test_ab": TEST_ALL,
    "tests/a.py::test_b": TEST_LONG,
}
CASES = Cases(LANES, outcomes(LINES))


def test_the_page_is_what_the_command_makes() -> None:
    """The command ends with an error if a test that the page is about does not exist."""
    command = [sys.executable, "-m", "tests.compatibility"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-2000:]
    assert (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8") == run.stdout, (
        "make it anew: python -m tests.compatibility > docs/compatibility.md"
    )


def test_the_last_line_of_a_case_counts() -> None:
    assert outcomes(LINES)["tests/a.py::test_a[one]"] == Outcome("bbb", "2026-11-02", "passed", "8.0", "lost=0")


@pytest.mark.parametrize(
    ("named", "verdict"),
    [
        ("tests/a.py::test_a[one]", "passed"),
        ("tests/a.py::test_a[two]", NOT_RUN),
        ("tests/a.py::test_a", f"1 passed, 1 {NOT_RUN}"),
        ("tests/a.py::test_ab", "in `make test-all`"),
        ("tests/a.py::test_b", "skipped"),
        ("tests/a.py::a_stage", f"1 passed, 1 {NOT_RUN}, 1 in `make test-all`, 1 skipped"),
    ],
)
def test_a_verdict_says_what_is_known(named: str, verdict: str) -> None:
    assert CASES.verdict([named]) == verdict


@pytest.mark.parametrize("named", ["tests/a.py::test_", "tests/a.py::test_a[three]", "tests/b.py::a_stage"])
def test_a_test_that_does_not_exist_is_an_error(named: str) -> None:
    with pytest.raises(OperatorError, match="does not exist"):
        CASES.verdict([named])


def test_a_page_without_any_result_says_not_run() -> None:
    nothing = Cases(collected(), {})
    text = "\n".join(page(nothing))
    assert f" | {NOT_RUN} | " in text
    assert " passed" not in text
    assert all(procedure.name in text for procedure in PROCEDURES)


def collected() -> dict[str, str]:
    """As if each test that is named were there once, in the long lane."""
    return dict.fromkeys(
        (name if "::test_" in name else f"{name.partition('::')[0]}::test_x" for name in named_tests()), TEST_LONG
    )
