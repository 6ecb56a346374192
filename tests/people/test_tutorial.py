"""The five-minute tutorial: its commands run, and the pictures of drills show the steps that the program has now."""

from __future__ import annotations

import ast
import html
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import migrator.drill
from migrator.drill.cluster import MIGRATOR
from migrator.parts.kafka import StockKafka

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
COMMANDS = re.findall(r"^    make drill(?: ARGS=(.+))?$", PAGE.read_text("utf-8"), re.MULTILINE)
PICTURES = ("drill.svg", "drill-rollback.svg")
DRILL_SECONDS = 900.0
STEP = re.compile(r"^ *✓ (.+) \(\d+\.\d s\)$")
ONLY_WITH_OPTIONS = (
    "No intruder gets in", "No secret stands where", "A rollback without a reopening is refused", "The voters",
    "As many other controllers start", "The first controllers leave", "Changes of every kind after the end",
    "ZooKeeper has every acknowledged change", "This program's controllers take over again",
)  # fmt: skip
"""How steps begin that the two drills of the tutorial do not have."""


def headings() -> dict[str, re.Pattern[str]]:
    """Of all steps of a drill, as the program words them: the text without what is filled in, and a pattern for it."""
    found: dict[str, re.Pattern[str]] = {}
    for source in Path(migrator.drill.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step":
                parts = list(_parts(node.args[0]))
                found["".join(parts)] = re.compile(".+".join(map(re.escape, parts)))
    return found


def _parts(text: ast.expr) -> Iterator[str]:
    """What stands around the values of a literal."""
    values = text.values if isinstance(text, ast.JoinedStr) else [text]
    last = ""
    for value in values:
        if isinstance(value, ast.Constant):
            last += str(value.value)
        else:
            yield last
            last = ""
    yield last


def steps_in(picture: Path) -> list[str]:
    """The headings that a picture shows."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text("utf-8"))
    lines = (html.unescape(text).replace("\u00a0", " ") for text in texts)
    return [match[1] for match in map(STEP.match, lines) if match]


@pytest.mark.parametrize("page", [ROOT / "README.md", PAGE], ids=lambda page: page.name)
def test_every_picture_that_a_page_shows_is_there(page: Path) -> None:
    named = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text("utf-8"))
    assert named
    assert [name for name in named if not (page.parent / name).is_file()] == []


@pytest.mark.parametrize("picture", PICTURES)
def test_a_picture_shows_no_step_that_the_program_no_longer_has(picture: str) -> None:
    shown = steps_in(ROOT / "docs" / picture)
    assert len(shown) > 5
    known = headings().values()
    assert [step for step in shown if not any(pattern.fullmatch(step) for pattern in known)] == []


def test_the_pictures_show_every_step_that_the_program_has() -> None:
    shown = [step for picture in PICTURES for step in steps_in(ROOT / "docs" / picture)]
    missing = [text for text, pattern in headings().items() if not any(map(pattern.fullmatch, shown))]
    assert [text for text in missing if not text.startswith(ONLY_WITH_OPTIONS)] == []


def test_the_table_names_steps_as_the_picture_shows_them() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
    shown = steps_in(ROOT / "docs" / PICTURES[0])
    assert rows
    assert [row for row in rows if row not in shown] == []


@pytest.mark.lane("test-long")
@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_tutorial(kafka_391: StockKafka, tmp_path: Path, command: str) -> None:
    options = [word for text in shlex.split(command) for word in shlex.split(text)]
    words = [MIGRATOR, "drill", "--kafka", kafka_391.version, "--dir", str(tmp_path / "drill"), *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DRILL_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "drill" / "report.json").read_text("utf-8"))
    assert report["totals"]["lost records"] == report["totals"]["duplicated records"] == 0
    picture = ROOT / "docs" / PICTURES[COMMANDS.index(command)]
    assert steps_in(tmp_path / "drill" / "summary.svg") == steps_in(picture)
