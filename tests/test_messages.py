"""The form of what an operator reads: what happened, where, what to do. By the source, so that none is forgotten."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "migrator"
ROOMS = ("cli", "preflight", "migration", "config", "handover", "rehearse")
NOWHERE = frozenset(
    {
        "the answer was no, so the command ends here",
        "the question has no answer: the input has ended",
        "this command needs packages that are not installed, ... first",
    }
)
"""What is about the command itself has no other place."""


def text_of(node: ast.expr) -> str:
    """``...`` stands for what is put in."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "..."


def errors(room: str) -> Iterator[tuple[str, ast.Call]]:
    for file in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "OperatorError":
                yield f"{file.relative_to(ROOT)}:{node.lineno}", node


@pytest.mark.parametrize("room", ROOMS)
def test_an_error_says_what_where_and_what_to_do(room: str) -> None:
    found, faults = list(errors(room)), []
    assert found
    for place, call in found:
        what = text_of(call.args[0])
        given = {word.arg: text_of(word.value) for word in call.keywords}
        if not given.get("remedy"):
            faults.append(f"{place}: no remedy: {what}")
        if not given.get("where") and what not in NOWHERE:
            faults.append(f"{place}: no place: {what}")
        faults += [
            f"{place}: a full stop follows by itself: {text}"
            for text in (what, given.get("remedy", ""))
            if text.endswith((".", "!")) and not text.endswith("...")
        ]
    assert faults == []
