"""What can be seen of docs/runbook.md without any machine; `test_runbook` types all of it."""

from __future__ import annotations

import re

import pytest

from migrator.config.keys import KEYS
from tests.people.support import runbook
from tests.people.support.runbook import PAGE, parts

TEXT = PAGE.read_text(encoding="utf-8")
CHECKLIST = (PAGE.parent / "checklist.md").read_text(encoding="utf-8")
PARTS = parts(TEXT)
LAST = 7


def test_each_phase_and_each_way_back_is_there_once() -> None:
    assert [part.phases for part in PARTS if not part.back] == [(phase,) for phase in range(LAST + 1)]
    assert sorted(phase for part in PARTS if part.back for phase in part.phases) == list(range(1, LAST + 1))


def test_each_change_applies_to_the_whole_file_that_is_there_by_then() -> None:
    """Both the way there, and each way back after its phase: files that are copied exist, and changes fit."""
    files: dict[str, str] = {}
    for part in PARTS:
        for block in part.blocks:
            if block.file:
                assert not block.origin or runbook.before(block.text) == files[block.origin], f"line {block.line}"
                files[block.file] = runbook.after(block.text) if block.origin else f"{block.text}\n"
            for command in block.commands:
                words = command.typed.split()
                if words[0] == "cp":
                    files[words[2]] = files[words[1]]
    assert len(files) > 5


def test_each_key_is_one_of_kafka_or_ours() -> None:
    """A broker passes over a key that it does not know."""
    files = [block.text for part in PARTS for block in part.blocks if block.file]
    in_files = re.findall(r"^[ +-]?([\w.]+)=", "\n".join(files), re.MULTILINE)
    pages = [
        (PAGE.parent / f"{name}.md").read_text(encoding="utf-8") for name in ("runbook", "planning", "troubleshooting")
    ]
    in_words = re.findall(
        r"`((?:migrator|zookeeper|controller|metadata|inter|delegation|password)\.[\w.]+)", "".join(pages)
    )
    assert len(in_files) > 50
    assert len(in_words) > 10
    features = {"metadata.version"}  # a feature's name, in a message
    assert sorted({*in_files, *in_words} - features - KEYS.keys()) == []


def test_each_phase_is_in_the_table_and_on_the_checklist() -> None:
    titles = re.findall(r"^## ([1-7]\. .+)$", TEXT, re.MULTILINE)
    assert [title for title, _ in re.findall(r"^\| \[(\d\. [^]]+)\]\(#([\w-]+)\)", TEXT, re.MULTILINE)] == titles
    assert re.findall(r"^## (\d\. .+)$", CHECKLIST, re.MULTILINE) == titles


def test_the_checklist_names_only_commands_and_files_of_the_page() -> None:
    named = re.findall(r"`([^`]+)`", CHECKLIST)
    assert [name for name in named if name not in TEXT] == []


@pytest.mark.parametrize(
    ("expected", "said", "same"),
    [
        ("ends in ... s", "ends in 3 s\n", True),
        ("ends in ... s", "ends in 3 minutes", False),
        ("", "", True),
        ("", "Topic: a", False),
        ("...\nlast", "first\nsecond\nlast", True),
        ("...\nlast", "last", True),
        ("...\nlast", "last\nmore", False),
        ("first\n...", "first", True),
        ("a ... b", "a\nb", False),
        ("...", "", True),
    ],
)
def test_what_counts_as_printed(expected: str, said: str, same: bool) -> None:
    assert runbook.is_as_printed(expected, said) is same


@pytest.mark.parametrize(
    "block",
    [
        "```console\nls\n```",
        "```console\nsomebody$ ls\n```",
        "```console\nleader$ ls\neach broker$ ls\n```",
        "```console again\nleader$ ls\n```",
        "```properties\na=b\n```",
        "```properties\n# /etc/a on each broker, changed from /etc/b\na=b\n```",
        "```diff\n# /etc/a on each broker\n+a=b\n```",
        "```text\nleader$ ls\n```",
    ],
)
def test_a_block_that_nobody_would_type_is_refused(block: str) -> None:
    with pytest.raises(ValueError, match="line 3"):
        parts(f"## 1. Prepare\n\n{block}\n")


def test_a_command_below_a_heading_that_is_no_phase_is_refused() -> None:
    with pytest.raises(ValueError, match="no phase"):
        parts("## Elsewhere\n\n```console\nleader$ ls\n```\n")


def test_a_file_of_another_machine_differs_in_its_own_lines_only() -> None:
    text = "node.id=3001\ncontroller.quorum.voters=3001@controller-1:9093\nlisteners=CONTROLLER://controller-1:9093\nnum.partitions=1"
    assert runbook.of_machine(text, "controller-2").splitlines() == [
        "node.id=3002",
        "controller.quorum.voters=3001@controller-1:9093",
        "listeners=CONTROLLER://controller-2:9093",
        "num.partitions=1",
    ]
