"""How long lanes may take is written in tests/lanes.py; ``python -m tests.quotes`` writes it where people read it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.lanes import CI, MINUTES, TEST, TEST_ALL

ROOT = Path(__file__).parents[1]
QUOTES = {
    "README.md": (("make test     # {} minutes", TEST), ("make test-all # {} minutes", TEST_ALL)),
    "CONTRIBUTING.md": (("make test     # {} minutes", TEST),),
    "Makefile": (("the tests for every change: {} minutes", TEST), ("a real run of each family: {} minutes", TEST_ALL)),
    "docs/ci.md": (("It takes up to {} minutes", CI),),
    "docs/lanes.md": (
        ("a stock controller on our log | {} minutes", TEST),
        ("differences from stock | {} minutes", TEST_ALL),
        ("Only those ZooKeeper tests run twice | {} minutes", CI),
    ),
    ".ci/run": (("on a clean checkout, within {} minutes", CI),),
}
"""By file, the words around each number."""


def quoted(file: str) -> str:
    """The file as it has to be. Raises `AssertionError` where the words are not there."""
    text = (ROOT / file).read_text(encoding="utf-8")
    for words, lane in QUOTES[file]:
        pattern = re.escape(words).replace(r"\{\}", r"\d+")
        text, found = re.subn(pattern, words.format(MINUTES[lane]), text)
        assert found == 1, f"{file} does not say: {words}"
    return text


if __name__ == "__main__":
    for name in QUOTES:
        (ROOT / name).write_text(quoted(name), encoding="utf-8")
