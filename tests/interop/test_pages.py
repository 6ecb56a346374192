"""docs/interop.md accounts for every scenario and defect, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.kafkas_suites import DEFECTS, REPORTS, SUITES

pytestmark = pytest.mark.lane("test")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "interop.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/.]+)(?:::(\w+))?`")


def rows_below(heading: str) -> dict[str, str]:
    """The second column by the first, of the table below a heading."""
    section = re.split(r"^#+ ", PAGE.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    rows = [line.strip("| ").split(" | ", 1) for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: row[1] for row in rows[1:]}


@pytest.mark.parametrize("suite", SUITES)
def test_every_scenario_of_a_suite_has_a_row(suite: str) -> None:
    rows = rows_below(suite)
    assert list(rows) == [f"`{name}`" for name in SUITES[suite].split()]
    assert all(NAMED.search(text) or text.startswith("Does not apply: ") for text in rows.values())


def test_every_defect_and_report_has_a_row() -> None:
    ids = {name for row in rows_below("Defects and field reports") for name in row.split(", ")}
    assert ids == {*DEFECTS, *REPORTS}


def test_every_test_that_is_named_exists() -> None:
    missing = [f"{path}::{function}" for path, function in NAMED.findall(PAGE) if not exists(path, function)]
    assert not missing


def exists(path: str, function: str) -> bool:
    """Whether the file is there, and the function in it if one is named."""
    file = ROOT / path
    return (
        file.is_file() and re.search(rf"^ *(async )?def {function or ''}\b", file.read_text(), re.MULTILINE) is not None
    )
