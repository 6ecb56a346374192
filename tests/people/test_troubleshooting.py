"""docs/troubleshooting.md has a row for each check, refusal, exit code and alert, and for nothing else."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import yaml

from migrator.errors import ExitCode
from migrator.migration.machine import guards
from migrator.preflight.table import CHECKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
DECODES_NOT = "{}: {}"
"""What is refused because a znode does not decode: the words come from its codec."""


def rows_below(heading: str) -> list[str]:
    """The first column of the table below a heading."""
    section = re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return [line.split(" | ")[0].strip("| `") for line in section.splitlines() if line.startswith("| ")][1:]


def refusals() -> list[str]:
    """What the guards say in a `GuardAnswer` that refuses, or sends elsewhere: ``{}`` for what they put in."""
    tree = ast.parse(Path(guards.__file__).read_text())
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "GuardAnswer" and len(node.args) == 3:
            found.append(_text(node.args[1]))
    whys = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "why"]
    return [text for text in found if text != "/migration holds {}, {}"] + [_text(node.value) for node in whys]


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return str(ast.literal_eval(node))


@pytest.mark.parametrize("refusal", [text for text in refusals() if text != DECODES_NOT])
def test_each_refusal_has_one_row(refusal: str) -> None:
    fitting = [row for row in rows_below("What a controller refuses") if row in refusal]
    assert len(fitting) == 1, refusal


def test_each_row_is_of_a_refusal() -> None:
    assert DECODES_NOT in refusals()
    rows = rows_below("What a controller refuses")
    assert [row for row in rows if not any(row in refusal for refusal in refusals())] == ["does not decode"]


def test_each_exit_code_has_its_row() -> None:
    section = re.findall(r"^\| (\d+) \| (\w+) \|", PAGE, re.MULTILINE)
    assert section == [(str(int(code)), code.name) for code in ExitCode]


def test_each_alert_has_its_row() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yaml").read_text())
    alerts = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    assert rows_below("Alerts") == alerts


def test_each_check_is_explained_on_the_page_that_is_linked() -> None:
    assert "(checks.md)" in PAGE
    explained = (ROOT / "docs/checks.md").read_text()
    assert [check.code for check in CHECKS if check.code not in explained] == []
