"""Each row of the variations names tests that exist, and words that the program says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.interop.procedures.support.variations import VARIATIONS, Result, Variation
from tests.interop.procedures.test_procedures import PROCEDURES

ROOT = Path(__file__).parents[3]
CODE = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "migrator").rglob("*.py")))
NAMES = {each.name for each in PROCEDURES}


@pytest.mark.parametrize("row", VARIATIONS, ids=lambda row: row.variation)
def test_a_row_holds(row: Variation) -> None:
    assert row.tests
    for node in row.tests:
        path, _, rest = node.partition("::")
        function, _, case = rest.partition("[")
        code = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {function}\b", code, re.MULTILINE), node
        assert not case or case.removesuffix("]") in NAMES or f'id="{case.removesuffix("]")}"' in code, node
    assert row.message in CODE, "the program does not say this"
    assert bool(row.reason) == (row.result is Result.REFUSED)
    assert row.message or row.result is Result.WORKS


def test_procedures_have_names_of_their_own() -> None:
    assert len(NAMES) == len(PROCEDURES)
