"""docs/metrics.md has every metric with its alerts, docs/journal.md every kind of entry, and nothing else."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import yaml

from migrator.handover import execute
from migrator.migration.machine.states import PROPERTIES, PublicState, State
from migrator.observe.kafkas_words import DRIVER_STATES, PHASES
from migrator.observe.metrics import HISTOGRAM, METRICS
from migrator.observe.propagation import PROPAGATION
from migrator.rollout.journal.figures import ROLLOUT_METRICS
from migrator.rollout.journal.journal import Event

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy/prometheus/alerts.yaml"
METRIC = re.compile(r"\b(?:kafka|migrator)_[a-z_]+\b")


def rows(page: str, heading: str = "") -> list[list[str]]:
    """The cells of each row of a page, or of the part below a heading; heads of tables left out."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    if heading:
        assert f"\n{heading}\n" in text
        text = re.split(r"^#+ ", text.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
    return [[first.strip("`"), *others] for first, *others in cells]


def test_every_metric_has_one_row() -> None:
    names = [cells[0] for cells in rows("metrics.md")]
    assert len(set(names)) == len(names)
    assert set(names) == METRICS - set(HISTOGRAM) | {PROPAGATION} | ROLLOUT_METRICS.keys()


def test_each_row_names_the_alerts_that_use_the_metric() -> None:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    using = {rule["alert"]: set(METRIC.findall(rule["expr"])) for group in groups for rule in group["rules"]}
    for name, *_, alerts in rows("metrics.md"):
        named = {alert for alert in alerts.split(", ") if alert}
        assert named == {alert for alert, metrics in using.items() if name in metrics}, name


def test_every_state_has_its_sentence_on_the_page() -> None:
    assert rows("journal.md", "### States") == [[state.value, row.sentence] for state, row in PROPERTIES.items()]


NOTES = ("note", "_note", "note_news", "append")
"""Calls that write into a journal."""


def noted_details() -> dict[str, set[str]]:
    """By kind, what the program puts into entries, as far as it is written as keywords of the call."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in sorted((ROOT / "migrator/node").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        kinds = dict(re.findall(r'^(\w*JOURNAL_KIND) = "(.*)"$', text, re.MULTILINE))
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in NOTES:
                texts = [ast.unparse(argument).strip("'") for argument in call.args[:2]]
                names = ", ".join(keyword.arg or "by, address" for keyword in call.keywords)
                for kind in {kinds.get(each, each) for each in texts}:
                    found[kind] |= set(names.split(", ")) - {""}
    return found


def test_kafkas_words_for_states_are_complete_and_on_the_page() -> None:
    assert list(DRIVER_STATES) == [state.value for state in State]
    assert {state for state, _ in PHASES} == {state.label for state in PublicState}
    assert rows("kip-866.md", "## States") == [
        [ours, f"`{kafkas}`" if kafkas else "none"] for ours, kafkas in DRIVER_STATES.items()
    ]
    assert rows("kip-866.md", "### Phases of kafka-migration-check") == [
        [state, "yes" if in_zookeeper else "no", f"`{phase}`"] for (state, in_zookeeper), phase in PHASES.items()
    ]


def test_each_kind_of_a_controllers_journal_has_its_details() -> None:
    """That the kinds are complete is a test of docs/troubleshooting.md, which has the same."""
    found = {cells[0]: set(re.findall(r"`(\w+)`", cells[-1])) for cells in rows("journal.md", "## Of a controller")}
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    other = re.split(r"^## ", page.partition("\n## What the journal says\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    assert set(found) == set(re.findall(r"^\| `([^`]+)` \|", other, re.MULTILINE))
    details = noted_details()
    assert {kind: details.get(kind, set()) for kind in found} == found


def test_the_journals_of_hand_over_and_rollout_have_every_entry() -> None:
    assert {cells[0] for cells in rows("journal.md", "## Of a hand-over")} == {execute.BEGUN, execute.SEEN}
    assert [cells[0] for cells in rows("journal.md", "## Of a rollout")] == [event.value for event in Event]
