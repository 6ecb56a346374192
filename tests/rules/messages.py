"""The form of what an operator reads: what happened, where, what to do. By the source, so that none is forgotten.

A message is printed as "where: what. remedy". So what and remedy are words without a full stop at their end.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.rules.sources import Source, below

HOLE = "{}"
OTHERS = {
    "drill": "an error of the drill ends a test of this program, and the report says the rest",
    "parts": "as the drill, whose parts these are",
    "rollout": "it has a rule of its own",
    "observe": "an error is what the status says, and tests/people/test_troubleshooting.py reads it",
}
"""Rooms whose errors are not looked at, and why."""
ERRORS: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("OperatorError", "StorageError", "NoSpaceError"), ("what",)),
    "ZnodeError": ("where", "what", "remedy"),
    "Found": ("where", "what", "remedy", "hosts"),
    "PreflightCheck": ("code", "severity", "title", "find", "remedy"),
}
"""Their positional arguments."""
TAKES_ITS_REMEDY_FROM_ELSEWHERE = {
    "Found": "its check has one",
}
NO_REMEDY = {
    "migrator/rpc/operator_client.py": "the controller's own words, which end with a remedy",
}
"""Files with an error that has no remedy, and why."""
HAS_NO_WHAT = {"PreflightCheck": "what it finds is a Found"}

OPENS_WITHOUT_A_NOUN = re.compile(
    r"(?:is|are|was|were|has|have|does|did|do|holds|gives|names|begins|belongs|lacks|cannot|can)\b"
)
OPENS_WITH_A_RIDDLE = re.compile(r"(?:it|its|they|these|those|that)\b")
BAD_WORDS = re.compile(r"n't\b|\b[Pp]lease\b|\be\.g\.|\bi\.e\.|\betc\b|\blest\b|\bElse\b|!(?!\w)")


class Message(NamedTuple):
    """Texts with ``{}`` for what is put in; None where nothing is given."""

    place: str
    kind: str
    what: list[str]
    where: list[str]
    remedy: list[str]


def texts_of(node: ast.expr | None, named: Mapping[str, list[ast.expr]]) -> list[str]:
    """All that an argument may be, as far as its file says it; ``{}`` stands for the rest."""
    match node:
        case None:
            return []
        case ast.Constant(value=str(text)):
            return [text] if text else []
        case ast.JoinedStr(values=parts):
            return ["".join(part.value if isinstance(part, ast.Constant) else HOLE for part in parts)]  # type: ignore[misc]
        case ast.IfExp(body=one, orelse=other):
            return texts_of(one, named) + texts_of(other, named)
        case ast.Name(id=name) if name in named:
            return [text for value in named[name] for text in texts_of(value, {})]
    return [HOLE]


def messages(tree: ast.Module, place: str) -> Iterator[Message]:
    named: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named.setdefault(node.targets[0].id, []).append(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS:
            given = dict(zip(ERRORS[node.func.id], node.args, strict=False))
            given |= {word.arg: word.value for word in node.keywords if word.arg}
            what, where, remedy = (texts_of(given.get(part), named) for part in ("what", "where", "remedy"))
            yield Message(f"{place}:{node.lineno}", node.func.id, what, where, remedy)


def faults_of(message: Message) -> Iterator[str]:
    """The faults in the form of one message."""
    file = message.place.partition(":")[0]
    if not message.remedy and message.kind not in TAKES_ITS_REMEDY_FROM_ELSEWHERE and file not in NO_REMEDY:
        yield "no remedy"
    if message.kind not in HAS_NO_WHAT and not (message.what and message.where):
        yield "no place, or nothing happened"
    yield from faults_of_texts(message)


def faults_of_texts(message: Message) -> Iterator[str]:
    """Of its words."""
    for text in message.what:
        if OPENS_WITHOUT_A_NOUN.match(text):
            yield f"begins without a noun: {text}"
        if message.kind != "Found" and OPENS_WITH_A_RIDDLE.match(text):  # which is read behind a broker's name
            yield f"begins with a riddle: {text}"
        if re.search(r"\. [A-Z]", text):
            yield f"two sentences: {text}"
    for text in message.remedy:
        if not re.match(r"[A-Z'{]", text):
            yield f"a remedy that does not begin as a sentence: {text}"
    for text in (*message.what, *message.remedy):
        if BAD_WORDS.search(text):
            yield f"words that a tired reader stumbles over: {text}"
        if text.endswith("."):
            yield f"a full stop follows by itself: {text}"


def errors_without_the_form(sources: Sequence[Source]) -> Iterator[str]:
    for source in below("migrator", sources):
        if source.name.split("/")[1] not in OTHERS:
            for message in messages(source.tree, source.name):
                yield from (f"{message.place}: {fault}" for fault in faults_of(message))


def problems_without_a_noun(sources: Sequence[Source]) -> Iterator[str]:
    """Of a property file: they are tuples of key, what and remedy."""
    (source,) = (source for source in sources if source.name == "migrator/config/checks.py")
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Yield) and isinstance(node.value, ast.Tuple) and len(node.value.elts) == 3:
            for text in texts_of(node.value.elts[1], {}):
                if OPENS_WITHOUT_A_NOUN.match(text) or OPENS_WITH_A_RIDDLE.match(text):
                    yield f"{source.name}:{node.lineno}: begins without a noun: {text}"


def exceptions_that_are_none(sources: Sequence[Source]) -> Iterator[str]:
    names = [source.name for source in sources]
    yield from (f"{file} does not exist, and is an exception" for file in NO_REMEDY if file not in names)
    for room in OTHERS:
        if not any(name.startswith(f"migrator/{room}/") for name in names):
            yield f"migrator/{room} does not exist, and is an exception"
