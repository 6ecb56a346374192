"""The sentences of a rollout have one style: none ends with a full stop, because another part may follow."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from migrator.rollout.plan.phases import BACK, FORWARD
from tests.rules.sources import Source, below

TELLS = ("tell", "_refuse", "Waiting")
"""Beside errors, which have names of their own."""


def said(source: Source) -> Iterator[tuple[int, str]]:
    """The last piece of each text that an operator reads."""
    for call in ast.walk(source.tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name.endswith("Error") or name in TELLS:
            for text in (*call.args, *(keyword.value for keyword in call.keywords)):
                last = text.values[-1] if isinstance(text, ast.JoinedStr) and text.values else text
                if isinstance(last, ast.Constant) and isinstance(last.value, str):
                    yield text.lineno, last.value


def full_stops(sources: Sequence[Source]) -> Iterator[str]:
    for source in below("migrator/rollout", sources):
        for line, text in said(source):
            if text.rstrip().endswith(".") and not text.endswith("..."):
                yield f"{source.name}:{line}: a full stop follows by itself: {text}"


def whys_that_are_no_part_of_a_line(_: Sequence[Source]) -> Iterator[str]:
    for rules in (*FORWARD, *BACK):
        for text in (rules.why, rules.undo):
            begins = text[0] == "'" or text[0].islower() or text.startswith(("Kafka", "ZooKeeper"))
            if not begins or text.endswith("."):
                yield f"the phase {rules.phase.value}: {text}"
