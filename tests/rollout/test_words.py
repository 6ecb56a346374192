"""The sentences of a rollout have one style: none ends with a full stop, because another part may follow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import migrator.rollout
from migrator.rollout.plan.steps import TEXTS, Phase

SOURCES = sorted(Path(migrator.rollout.__file__).parent.rglob("*.py"))
TELLS = ("tell", "_refuse", "Waiting")
"""Beside errors, which have names of their own."""


def said(source: Path) -> Iterator[tuple[int, str]]:
    """The last piece of each text that an operator reads."""
    for call in ast.walk(ast.parse(source.read_text())):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name.endswith("Error") or name in TELLS:
            for text in (*call.args, *(keyword.value for keyword in call.keywords)):
                last = text.values[-1] if isinstance(text, ast.JoinedStr) and text.values else text
                if isinstance(last, ast.Constant) and isinstance(last.value, str):
                    yield text.lineno, last.value


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_sentence_ends_with_a_full_stop(source: Path) -> None:
    assert not [(line, text) for line, text in said(source) if text.rstrip().endswith(".") and not text.endswith("...")]


def test_texts_are_looked_at() -> None:
    assert sum(len(list(said(source))) for source in SOURCES) > 100


@pytest.mark.parametrize("phase", Phase)
def test_why_and_undo_are_parts_of_a_line(phase: Phase) -> None:
    for text in (TEXTS[phase].why, TEXTS[phase].undo):
        assert text[0] == "'" or text[0].islower() or text.startswith(("Kafka", "ZooKeeper")), text
        assert not text.endswith("."), text
