"""The rules of `make check` (tests/rules) find what they are for: each with a fault planted into a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.rules import messages, sentences, tidy, unused
from tests.rules.sources import Source

Rule = Callable[[Sequence[Source]], Iterator[str]]


@pytest.mark.parametrize(
    ("rule", "name", "text"),
    [
        (tidy.forbidden, "docs/page.md", "see /ro" + "ot/notes"),
        (tidy.forbidden, "migrator/raft/x.py", "# TO" + "DO: later"),
        (tidy.forbidden, "migrator/raft/x.py", "except Exc" + "eption:"),
        (tidy.forbidden, "tests/raft/x.py", "@settings(max_exam" + "ples=100)"),
        (tidy.long_files, "tests/raft/test_x.py", "\n" * 501),
        (tidy.silent_modules, "migrator/raft/x.py", "import os"),
        (tidy.clusters_in_the_short_lane, "tests/raft/test_x.py", "Kafka" + "Cluster(3)"),
        (tidy.decisions_without_a_row, "docs/adr/0099-x.md", "# 99. A decision"),
        (tidy.named_and_gone, "Makefile", "python tests/" + "gone.py"),
        (tidy.stray_helpers, "tests/raft/helper.py", ""),
        (messages.exceptions_that_are_none, "migrator/raft/x.py", ""),
        (messages.problems_without_a_noun, "migrator/config/checks.py", "def f(): yield 'key', 'is bad', 'Set it'"),
        (sentences.full_stops, "migrator/rollout/x.py", "tell(f'{name} is down.')"),
        (unused.unused, "migrator/raft/x.py", "def nobody_calls_this(): pass"),
        (unused.modules_of_nobody, "migrator/raft/x.py", ""),
    ],
)
def test_what_breaks_a_rule_is_found(rule: Rule, name: str, text: str) -> None:
    assert list(rule([Source(name, text)]))


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("OperatorError('the disk is full', where='/data')", "no remedy"),
        ("OperatorError('the disk is full', remedy='Free space')", "no place"),
        ("OperatorError('is not set', where='key', remedy='Set the key')", "without a noun"),
        ("OperatorError('it is not set', where='key', remedy='Set the key')", "riddle"),
        ("OperatorError('the disk is full. All stops', where='/data', remedy='Free space')", "two sentences"),
        ("OperatorError('the disk is full', where='/data', remedy='free space')", "as a sentence"),
        ("OperatorError('the disk is full', where='/data', remedy='Please free space')", "stumbles"),
        ("OperatorError(f'{name} can\\'t be read', where='/data', remedy='Free space')", "stumbles"),
        ("OperatorError('the disk is full', where='/data', remedy='Free space.')", "full stop"),
        ("ZnodeError('/a', 'that is bad', 'Delete the znode')", "riddle"),
    ],
)
def test_what_is_wrong_with_a_message_is_found(source: str, fault: str) -> None:
    found = list(messages.errors_without_the_form([Source("migrator/room/file.py", source)]))
    assert [one for one in found if fault in one]
