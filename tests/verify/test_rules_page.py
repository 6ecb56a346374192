"""docs/verify.md says what counts as equal in the words of the table that the comparison is made from."""

from __future__ import annotations

from migrator.verify.spark.session import PURE
from tests.verify.spark.test_master import COMPILED
from tests.verify.support.rules_page import PAGE, printed, table


def test_the_page_prints_the_rules() -> None:
    assert printed() == table(), "run: .venv/bin/python -m tests.verify.support.rules_page"


def test_the_page_names_what_workers_need() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in (*COMPILED, *PURE[1:]))
